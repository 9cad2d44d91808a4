"""Axe (Deque's checker of WCAG's rules that a program can check) finds nothing serious on the page and in reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from actions import TEXT, summarize, visit, word
from stand_in import Server, record

from catchline.explain.html import render
from catchline.explain.record import from_dict

axe = pytest.importorskip("axe_playwright_python.base", reason="the page's tests need: pip install 'catchline[dev]'")

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


def serious(page: Any) -> list[str]:
    """What axe finds, trifles left out: the rule, and where."""
    page.evaluate(axe.AXE_SCRIPT)
    found = page.evaluate("(rules) => axe.run(document, rules)", RULES)["violations"]
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found
        if one["impact"] != "minor"
        for node in one["nodes"]
    ]


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])  # colours do not depend on the width
def test_axe_finds_nothing_serious_on_the_page(page: Any, server: Server, scheme: str, width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 860})
    visit(page, server, "systems=pointer,first,busy")
    assert serious(page) == []
    page.locator("#options").evaluate("(one) => (one.open = true)")
    summarize(page)
    word(page, "Thursday").click()
    page.locator(".figures summary").click()
    page.locator(".charts > summary").click()
    page.wait_for_selector(".heat")
    assert serious(page) == []


def test_axe_finds_nothing_serious_in_a_report(page: Any, tmp_path: Path) -> None:
    summaries = [from_dict(record(model, TEXT) | {"document": TEXT}) for model in ("pointer", "first")]
    page_text = render(summaries, references=["The meeting moves.", None])
    (tmp_path / "report.html").write_text(page_text, encoding="utf-8")
    page.goto((tmp_path / "report.html").as_uri())
    page.locator(".charts > summary").click()
    page.wait_for_selector(".heat")
    assert serious(page) == []
