"""Reports in a browser: one file without a server, made of the same components as the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from actions import TEXT, lit, overflow, place_of, word
from stand_in import record

from catchline.explain.html import render
from catchline.explain.record import from_dict
from catchline.types import Summary


def made(model: str = "pointer", document: str = TEXT) -> Summary:
    return from_dict(record(model, document) | {"document": document})


def opened(page: Any, folder: Path, html: str) -> None:
    path = folder / "report.html"
    path.write_text(html, encoding="utf-8", newline="")
    page.goto(path.as_uri())


def test_words_and_places_are_linked_in_a_report(page: Any, tmp_path: Path) -> None:
    opened(page, tmp_path, render([made(), made("first")], references=["The meeting moves.", None]))
    word(page.locator("article"), "Thursday").hover()
    assert lit(page, "level5") == ["Thursday"]
    page.mouse.move(*place_of(page, "Thursday"))
    page.wait_for_selector(".word.user")
    assert page.locator(".word.user").count() == 2
    assert page.locator(".reference").inner_text().endswith("The meeting moves.")
    page.locator(".charts > summary").click()
    page.wait_for_selector(".gate .dot")  # charts are drawn when they are opened
    assert page.locator(".gate .dot").count() == 6
    assert page.locator(".heat canvas").is_visible()


@pytest.mark.parametrize("ending", ["\r\n", "\r", "\n"])
def test_positions_survive_line_endings_and_wide_characters(page: Any, tmp_path: Path, ending: str) -> None:
    document = TEXT.replace("\n", ending)
    opened(page, tmp_path, render([made(document=document)]))
    word(page.locator("article"), "Thursday").hover()
    assert lit(page, "level5") == ["Thursday"]


def test_a_report_reads_without_its_script(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(render([made()]), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    assert page.locator(".document").inner_text().strip() == TEXT.strip()
    assert page.locator(".system .words").inner_text() == made().text
    context.close()


def test_a_report_is_as_wide_as_its_window(page: Any, tmp_path: Path) -> None:
    summaries = [made(), made("first"), made("whole", TEXT * 40)]
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 800})
        opened(page, tmp_path, render(summaries))
        page.wait_for_selector(".word.copied")
        assert overflow(page) == 0


def test_the_unread_end_is_grey(page: Any, tmp_path: Path) -> None:
    opened(page, tmp_path, render([made(document=TEXT * 20)]))
    page.wait_for_selector("text=Text in grey was not read: it is too long.")
    (unread,) = lit(page, "unread")
    assert unread
    assert TEXT.endswith(unread[-30:])
