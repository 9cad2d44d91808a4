"""A person at the page: paste, summarize, point, move by keyboard, copy, download, send a link."""

from __future__ import annotations

from typing import Any

import pytest
from actions import TEXT, lit, place_of, summarize, summarized, visit, wait, word
from stand_in import Server


def test_a_word_lights_up_where_it_came_from(page: Any, server: Server) -> None:
    summarized(page, server)
    word(page, "Thursday").hover()
    assert lit(page, "level5") == ["Thursday"]
    assert lit(page, "level2") == ["3"]  # a fifth of the weight against seven tenths; behind an emoji, too
    inspector = page.locator(".inspector").inner_text()
    assert "Thursday Copied, mostly from “Thursday”, also from “3”." in inspector
    assert "70%" in inspector
    assert page.locator(".sources q").all_inner_texts() == ["Thursday", "3"]
    page.locator("h1").hover()
    assert lit(page, "level5") == []
    assert "Point at a word" in page.locator(".inspector").inner_text()
    word(page, "Thursday").click()
    page.locator(".figures summary").click()
    assert "probability 0.60 · p_gen 0.10 · 90% of it copied" in page.locator(".figures").inner_text()
    word(page, "about").click()
    assert "The model's own word. It looked most at" in page.locator(".inspector").inner_text()
    assert "p_gen 0.80" in page.locator(".figures").inner_text()  # once opened, figures stay open


def test_a_place_lights_up_the_words_that_use_it(page: Any, server: Server) -> None:
    visit(page, server, "systems=pointer,first")
    assert page.locator(".chosen-system .about").all_inner_texts() == ["What pointer does.", "What first does."]
    summarize(page)
    assert page.locator(".system h2").all_inner_texts() == ["pointer", "First (extractive)"]
    page.mouse.move(*place_of(page, "Thursday"))
    page.wait_for_selector(".word.user")
    assert page.locator(".word.user").all_inner_texts() == ["Thursday", "Thursday"]
    assert lit(page, "point") == ["Thursday"]
    assert (
        "“Thursday” → pointer: Thursday · First (extractive): Thursday" in page.locator(".document-status").inner_text()
    )
    page.mouse.move(*place_of(page, "any other"))
    wait(page, "!document.querySelector('.word.user')")
    assert lit(page, "point") == []


def test_what_was_copied_and_what_the_text_lacks_is_shown_and_announced(page: Any, server: Server) -> None:
    summarized(page, server)
    assert page.locator("#live").get_attribute("aria-live") == "polite"
    said = page.locator(".words").inner_text().replace("?", "")
    assert page.locator("#live").inner_text() == f"pointer: 6 words, 4 copied: {said}"
    assert page.locator(".inspector").get_attribute("aria-live") == "polite"

    assert page.locator(".warnings").inner_text() == "Not in the document: 1999 (number), Zelda (name)"
    assert "0 of 2 names, numbers and dates in the document" in page.locator(".facts").first.inner_text()
    assert page.get_by_text("Other words that are not there: with").is_visible()

    # kinds of words differ without their colours
    line = "(one) => ['Line', 'Style'].map((part) => getComputedStyle(one)['textDecoration' + part]).join(' ')"
    lines = {
        kind: page.locator(f"{where} .word.{kind}").first.evaluate(line)
        for kind in ("copied", "generated", "unknown")
        for where in (".legend", ".words")  # what the legend says is what the words show
    }
    assert lines == {"copied": "underline solid", "generated": "none solid", "unknown": "underline wavy"}

    # only what was copied is underlined in the text
    used = lit(page, "used")
    assert "Thursday" in used
    own = word(page, "about")
    own.hover()
    looked_at = page.locator(".sources q").first.inner_text()
    assert lit(page, "level5") == [looked_at]
    assert looked_at not in used


def test_everything_can_be_done_from_the_keyboard(page: Any, server: Server) -> None:
    visit(page, server)
    page.locator("#text").focus()
    page.keyboard.insert_text(TEXT)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".words .word")
    words = page.locator(".words .word").all_inner_texts()
    focused = "document.activeElement.textContent"

    def tab_to(selector: str) -> None:
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab does not lead to {selector}")

    tab_to(".words .word")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for keys, place in (([], 0), (["ArrowRight"], 1), (["End"], -1), (["Home", "ArrowLeft"], 0)):
        for key in keys:
            page.keyboard.press(key)
        assert page.evaluate(focused) == words[place]
        assert words[place] in lit(page, "level5") or place == -1
    page.keyboard.press("Escape")
    assert lit(page, "level5") == []
    page.locator(".words .word").nth(2).focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(focused) == words[2]  # the word used last is the one in the tab order
    page.keyboard.press("Escape")
    tab_to(".document")
    page.keyboard.press("ArrowRight")
    first = lit(page, "point")
    page.keyboard.press("ArrowRight")
    assert len(first) == 1
    assert lit(page, "point") != first
    assert page.locator(".word.user").count() >= 1
    page.keyboard.press("Escape")
    assert lit(page, "point") == []
    tab_to(".charts > summary")
    page.keyboard.press("Enter")
    tab_to(".heat-scroll")
    page.keyboard.press("ArrowRight")
    assert page.locator(".readout").inner_text() == f"{words[0]} ← {words[0]}: 70.0%"
    page.keyboard.press("ArrowDown")
    assert page.locator(".readout").inner_text() == f"{words[1]} ← {words[0]}: 0.1%"


@pytest.mark.parametrize("height", [640, pytest.param(740, marks=pytest.mark.slow)])
def test_a_phone_shows_the_summary_first_and_the_text_once_a_word_is_tapped(
    page: Any, server: Server, height: int
) -> None:
    page.set_viewport_size({"width": 360, "height": height})
    summarized(page, server, "systems=pointer,first", TEXT * 4)
    words, reading = page.locator(".words").first, page.locator(".reading")
    assert bottom_of(words) <= min(height, reading.bounding_box()["y"])
    word(page, "Thursday").click()
    box = reading.bounding_box()
    assert box["height"] <= 0.35 * height
    assert box["y"] + box["height"] <= height  # where the word came from is in sight,
    assert bottom_of(word(page, "Thursday")) <= box["y"]  # and the word still is,
    assert bottom_of(page.locator(".inspector").first) <= box["y"]  # with what is known of it
    page.keyboard.press("Escape")
    assert bottom_of(words) <= reading.bounding_box()["y"]


def bottom_of(element: Any) -> float:
    box = element.bounding_box()
    return box["y"] + box["height"]


def drop(page: Any, name: str, content: bytes) -> None:
    script = """([name, bytes]) => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(bytes)], name));
      document.body.dispatchEvent(new DragEvent('drop', { bubbles: true, cancelable: true, dataTransfer: data }));
    }"""
    page.evaluate(script, [name, list(content)])


def test_a_file_can_be_dropped(page: Any, server: Server) -> None:
    visit(page, server)
    drop(page, "note.txt", "Grüße vom Zoo.".encode())
    wait(page, "document.getElementById('text').value === 'Grüße vom Zoo.'")
    drop(page, "photo.jpg", bytes([255, 216, 255, 224]))
    page.wait_for_selector("text=photo.jpg is not a text in UTF-8")
    assert page.locator("#text").input_value() == "Grüße vom Zoo."


def test_the_text_can_be_edited_and_the_summaries_found_again(page: Any, server: Server) -> None:
    visit(page, server)
    page.get_by_role("button", name="package").click()
    assert page.locator("#text").input_value().startswith("Tidepool is")
    page.click("text=Clear")
    summarize(page)
    page.click("text=Edit")
    page.locator("#text").fill("Something else.")
    page.click("text=Back to the summaries")
    assert page.locator(".document").inner_text().strip() == TEXT.strip()
    assert page.locator(".words .word").first.is_visible()


def test_markdown_is_read_as_what_it_says_unless_it_shall_be_taken_as_it_is(page: Any, server: Server) -> None:
    marked = f"# Meeting 🙂\n\n[Minutes](http://a)\n\n```\n{TEXT}\n```\n\n{TEXT}"
    summarized(page, server, "systems=pointer,first", text=marked)
    said = page.locator(".document").inner_text()
    assert said.startswith("Dear all")
    assert "```" not in said
    assert "Read as Markdown" in page.locator(".text-head").inner_text()
    word(page, "Thursday").hover()
    assert lit(page, "level5") == ["Thursday"]  # places count in the text that was read
    page.click("text=+ Compare")
    wait(page, "document.querySelectorAll('.system .words').length === 3")
    assert page.locator(".document").inner_text() == said
    page.get_by_role("button", name="Use it unchanged").press("Enter")
    wait(page, "!document.body.classList.contains('busy')")
    assert page.locator(".document").inner_text().startswith("# Meeting")
    assert page.evaluate("document.activeElement.textContent") == "Edit"  # the keyboard is where it was
    page.click("text=Read it as Markdown")
    page.wait_for_selector("text=Read as Markdown")
    assert page.locator(".document").inner_text() == said
    page.click("text=Edit")
    assert page.locator("#text").input_value() == marked
    assert [asked["format"] for asked in server.asked] == ["auto"] * 3 + ["text"] * 3 + ["markdown"] * 3
