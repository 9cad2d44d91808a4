"""The page with the real service: `catchline serve` in a process of its own, a tiny model and an extractive method."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from actions import TEXT, lit, summarize, wait, word

from office_files import PROSE, docx, pdf
from serving import running
from tiny_models import save_tiny_model

pytest.importorskip("fastapi", reason="the service needs: pip install 'catchline[serve]'")
pytest.importorskip("uvicorn", reason="the service needs: pip install 'catchline[serve]'")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    save_tiny_model(folder / "tiny", [TEXT], max_source_tokens=60)
    with running(folder, f"tiny={folder / 'tiny'}") as server:
        yield server.url


def test_the_page_shows_what_the_service_says(page: Any, address: str) -> None:
    page.goto(f"{address}#systems=tiny,lexrank&sentences=1&max_length=5")
    page.wait_for_selector("body[data-ready]")
    with page.expect_response("**/v1/summarize") as waiting:
        summarize(page)
    assert waiting.value.status == 200
    assert json.loads(waiting.value.request.post_data)["document"] == TEXT
    wait(page, "document.querySelectorAll('.system .words').length === 2")
    tiny, lexrank = page.locator(".system").all()
    assert 3 <= tiny.locator(".words .word").count() <= 5
    first = lexrank.locator(".words .word").first
    first.hover()
    assert lit(page, "level5") == [first.inner_text()]  # the place of an extracted word is the word itself
    page.locator(".charts > summary").click()
    page.wait_for_selector(".heat")
    assert page.locator(".heat").count() == 1
    assert page.locator(".gate .dot").count() == tiny.locator(".words .word").count()
    word(tiny, "").focus()
    assert page.locator(".sources li").count() >= 1


def test_the_service_reads_a_file(page: Any, address: str) -> None:
    page.goto(f"{address}#systems=tiny")
    page.wait_for_selector("body[data-ready]")
    given = {"name": "a.docx", "mimeType": "application/octet-stream", "buffer": docx()}
    page.set_input_files("#file", given)
    wait(page, f"document.getElementById('text').value === '{PROSE}'")
    page.set_input_files("#file", {**given, "name": "b.pdf", "buffer": pdf(scanned=True)})
    page.wait_for_selector("text=b.pdf has no text: it may be scanned")
