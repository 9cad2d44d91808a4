"""A person at the page: paste, summarize, point, move by keyboard, copy, download, send a link."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from actions import FAINT, FAINT_MARKS, TEXT, lit, overflow, place_of, summarize, summarized, visit, wait, word
from stand_in import Server

from catchline.explain.record import from_dict


def test_a_word_lights_up_where_it_came_from(page: Any, server: Server) -> None:
    summarized(page, server)
    word(page, "Thursday").hover()
    assert lit(page, "level5") == ["Thursday"]
    assert lit(page, "level2") == ["3"]  # a fifth of the weight against seven tenths; behind an emoji, too
    inspector = page.locator(".inspector").inner_text()
    assert "Thursday Copied, mostly from “Thursday”, also from “3”. How sure: 60%." in inspector
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
    told = ["What pointer does.", "What first does."]
    assert page.locator(".chosen-system .about").all_inner_texts() == told
    summarize(page)
    assert page.locator(".system .about").all_inner_texts() == told
    page.mouse.move(*place_of(page, "Thursday"))
    page.wait_for_selector(".word.user")
    assert page.locator(".word.user").all_inner_texts() == ["Thursday", "Thursday"]
    assert lit(page, "point") == ["Thursday"]
    assert "“Thursday” → pointer: Thursday · first: Thursday" in page.locator(".document-status").inner_text()
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


def test_another_system_is_asked_without_leaving_the_summaries(page: Any, server: Server) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    summarized(page, server)
    page.click("text=+ Compare")
    page.get_by_label("System 2").select_option("first")
    wait(page, "document.querySelectorAll('.words').length === 2 && !document.body.classList.contains('busy')")
    assert page.evaluate("document.body.dataset.state") == "reading"
    assert page.locator(".system h2").all_inner_texts() == ["pointer", "first"]
    assert [request["model"] for request in server.asked].count("pointer") == 1  # what was answered is not asked again
    assert overflow(page) == 0


def test_everything_can_be_done_from_the_keyboard(page: Any, server: Server) -> None:
    visit(page, server)
    page.locator("#text").focus()
    page.keyboard.insert_text(TEXT)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".words .word")
    words = page.locator(".words .word").all_inner_texts()
    in_hand = "document.activeElement.textContent"

    def tab_to(selector: str) -> None:
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab does not lead to {selector}")

    tab_to(".words .word")
    assert page.evaluate(in_hand) == words[0]
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(in_hand) == words[1]
    assert lit(page, "level5") == [words[1]]
    page.keyboard.press("End")
    assert page.evaluate(in_hand) == words[-1]
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(in_hand) == words[0]
    page.keyboard.press("Escape")
    assert lit(page, "level5") == []
    page.locator(".words .word").nth(2).focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(in_hand) == words[2]  # the word used last is the one in the tab order
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
    tab_to(".heat-scroll")
    page.keyboard.press("ArrowRight")
    assert page.locator(".readout").inner_text() == f"{words[0]} ← {words[0]}: 70.0%"
    page.keyboard.press("ArrowDown")
    assert page.locator(".readout").inner_text() == f"{words[1]} ← {words[0]}: 0.1%"


def test_three_systems_stand_side_by_side(page: Any, server: Server) -> None:
    visit(page, server)
    for _ in range(2):
        page.click("text=+ Compare")
    assert page.get_by_text("+ Compare").is_hidden()
    page.get_by_label("System 2").select_option("first")
    page.get_by_label("System 3").select_option("whole")
    page.get_by_label("Search width").fill("7")
    page.get_by_label("Sentences").fill("2")
    summarize(page)
    boxes = [slot.bounding_box() for slot in page.locator(".system").all()]
    assert len({round(box["y"]) for box in boxes}) == 1
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"] < boxes[2]["x"]
    asked = {request["model"]: request["options"] for request in server.asked}
    assert asked == {"pointer": {"beam_size": 7}, "first": {"sentences": 2}, "whole": {"sentences": 2}}


def test_p_gen_and_attention_are_drawn(page: Any, server: Server) -> None:
    summarized(page, server, "systems=chunked")
    assert page.locator(".gate .dot").count() == 6
    maps = page.locator(".heat")
    assert [one.locator("b").inner_text() for one in maps.all()] == ["Chunks", "Attention"]
    dark = "([canvas, x, y]) => [...canvas.getContext('2d').getImageData(x, y, 1, 1).data]"
    chunks = maps.nth(0).locator("canvas").element_handle()
    read, unread = page.evaluate(dark, [chunks, 10, 100]), page.evaluate(dark, [chunks, 34 * 8 + 10, 96])
    assert read[3] == 255
    assert sum(read[:3]) < 400  # the first word read the first chunk
    assert unread[3] == 0  # nobody read the ninth
    columns = page.locator(".heat-scroll").nth(1)
    before = columns.evaluate("(one) => one.scrollWidth")
    for _ in range(6):
        maps.nth(1).get_by_label("Zoom in").click()
    assert columns.evaluate("(one) => one.scrollWidth") > 1.5 * before
    maps.nth(1).get_by_text("Fit").click()
    assert columns.evaluate("(one) => one.scrollWidth") == before


def test_another_map_of_the_record_is_drawn_under_its_name(page: Any, server: Server) -> None:
    summarized(page, server, "systems=opponent")
    assert page.locator(".heat b").all_inner_texts() == ["Attention", "Opponent attention"]


def test_the_record_can_be_downloaded(page: Any, server: Server, tmp_path: Path) -> None:
    summarized(page, server)
    with page.expect_download() as waiting:
        page.get_by_text("JSON", exact=True).click()
    assert waiting.value.suggested_filename == "catchline-pointer.jsonl"
    waiting.value.save_as(tmp_path / "record.jsonl")
    lines = (tmp_path / "record.jsonl").read_text(encoding="utf-8").splitlines()
    summary = from_dict(json.loads(lines[0]))
    assert len(lines) == 1
    assert summary.document == TEXT
    assert [TEXT[one.start : one.end] for one in summary.words[1].sources] == ["Thursday", "3"]


def test_summary_and_link_can_be_copied_and_the_link_has_no_text(page: Any, server: Server, context: Any) -> None:
    visit(page, server)
    page.click("text=+ Compare")
    page.get_by_label("System 2").select_option("whole")
    page.get_by_label("Length at most").fill("33")
    summarize(page)
    page.locator(".system").first.get_by_text("Copy", exact=True).click()
    page.wait_for_selector("text=Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator(".words").first.inner_text()
    page.get_by_text("Copy link").click()
    page.wait_for_selector(".masthead >> text=Copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url
    assert link == f"{server.address}#systems=pointer%2Cwhole&max_length=33"
    other = context.new_page()
    other.goto(link)
    other.wait_for_selector("body[data-ready]")
    assert other.get_by_label("System 2").input_value() == "whole"
    assert other.get_by_label("Length at most").input_value() == "33"
    assert other.locator("#text").input_value() == ""


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
def test_texts_stand_out_from_what_is_behind_them(page: Any, server: Server, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    visit(page, server, "systems=pointer,first,busy")
    assert page.evaluate(FAINT, 4.5) == []
    summarize(page)
    word(page, "Thursday").click()
    assert page.evaluate(FAINT, 4.5) == []
    assert page.evaluate(FAINT_MARKS, 4.5) == []
    page.mouse.move(*place_of(page, "Thursday"))
    page.wait_for_selector(".word.user")
    assert page.evaluate(FAINT, 4.5) == []


SHADES = """() => {
  const { width, height } = document.querySelector(".heat canvas");
  const { data } = document.querySelector(".heat canvas").getContext("2d").getImageData(0, 0, width, height);
  const found = new Map();
  for (let at = 0; at < data.length; at += 4) {
    const shade = data.slice(at, at + 4).join();
    found.set(shade, (found.get(shade) ?? 0) + 1);
  }
  return [...found].filter(([shade, times]) => shade.endsWith(",255") && times > 99).length;
}"""


def test_in_high_contrast_weights_are_still_seen(page: Any, server: Server) -> None:
    """A system's colours in place of the page's would make all cells, shares and marks equal."""
    page.emulate_media(forced_colors="active")
    summarized(page, server, "systems=chunked,first")
    word(page, "Thursday").click()
    page.locator(".charts > summary").click()
    page.wait_for_selector(".heat")
    assert page.evaluate(SHADES) > 1
    kept = "(one) => getComputedStyle(document.querySelector(one)).forcedColorAdjust"
    assert [page.evaluate(kept, place) for place in (".share i", ".document")] == ["none", "none"]


def test_the_theme_follows_the_system_and_can_be_chosen(page: Any, server: Server) -> None:
    behind = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="dark")
    visit(page, server)
    dark = page.evaluate(behind)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(behind)
    assert dark != light
    page.get_by_text("Theme: auto").click()
    page.get_by_text("Theme: light").click()
    assert page.evaluate(behind) == dark
    page.reload()
    page.wait_for_selector("text=Theme: dark")
    assert page.evaluate(behind) == dark


def test_a_phone_shows_everything_without_scrolling_sideways(page: Any, server: Server) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    visit(page, server, "systems=pointer,whole,busy")
    assert overflow(page) == 0
    summarize(page)
    assert overflow(page) == 0
    page.locator(".charts > summary").click()
    page.wait_for_selector(".heat")
    assert overflow(page) == 0
    word(page, "Thursday").click()
    page.click("text=Edit")
    assert page.locator("#text").input_value() == TEXT
    assert overflow(page) == 0


def test_a_long_address_in_the_text_makes_the_page_no_wider(page: Any, server: Server) -> None:
    summarized(page, server, "systems=first", f"See {'averylongname' * 60} for more. It is there.")
    word(page, "averylong").click()
    assert overflow(page) == 0


def test_a_text_from_right_to_left_begins_at_the_right(page: Any, server: Server) -> None:
    summarized(page, server, "systems=first", "قال شيئا. نعم.")
    words = page.locator(".words").bounding_box()
    first = word(page, "قال").bounding_box()
    assert abs(first["x"] + first["width"] - words["x"] - words["width"]) < 2
    assert place_of(page, "قال")[0] > place_of(page, ".")[0]


def test_arrow_keys_go_where_they_point_in_a_text_from_right_to_left(page: Any, server: Server) -> None:
    summarized(page, server, "systems=whole", "قال Node Server شيئا ونعم لا. " * 3)
    page.set_viewport_size({"width": 400, "height": 860})
    seen, at = [], "() => { const { x, y } = document.activeElement.getBoundingClientRect(); return [y, -x]; }"
    word(page, "قال").focus()
    for _ in range(18):
        seen.append(page.evaluate(at))
        page.keyboard.press("ArrowLeft")
    assert seen == sorted(seen)
    assert len({tuple(place) for place in seen}) == 18
    page.keyboard.press("ArrowRight")
    assert page.evaluate(at) == seen[-2]
    page.keyboard.press("Escape")
    page.locator(".document").focus()
    for text in ("قال", "Node"):  # in the order of the text
        page.keyboard.press("ArrowLeft")
        assert lit(page, "point") == [text]


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


def test_a_finger_points_by_tapping(browser: Any, server: Server) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    page = context.new_page()
    summarized(page, server)
    assert page.locator(".inspector").inner_text() == "Tap a word to see where it came from."
    word(page, "Thursday").tap()
    assert lit(page, "level5") == ["Thursday"]
    assert "Copied, mostly from" in page.locator(".inspector").inner_text()
    page.locator(".charts > summary").tap()
    page.wait_for_selector(".gate .hit")
    page.locator(".gate .hit").nth(2).tap()
    assert page.locator(".word.chosen").inner_text() == "about"  # it stays when the finger is lifted
    page.locator(".heat-scroll").tap(position={"x": 5, "y": 20})
    assert "←" in page.locator(".readout").inner_text()
    assert lit(page, "point")
    assert page.locator(".plain:visible").first.bounding_box()["height"] >= 40
    word(page, "Thursday").tap()
    page.locator(".document").tap(position={"x": 5, "y": 5})  # beside the text: it goes back to its place
    assert page.locator(".reading.called").count() == 0
    context.close()


def test_nothing_moves_for_those_who_asked_for_that(page: Any, server: Server) -> None:
    page.emulate_media(reduced_motion="reduce")
    visit(page, server, "systems=slow")
    page.fill("#text", TEXT)
    page.click("#go")
    page.wait_for_selector(".progress")
    assert page.evaluate("document.getAnimations().length") == 0


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
    page.click("text=Use an example")
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
    page.get_by_role("button", name="Take it as it is").press("Enter")
    wait(page, "!document.body.classList.contains('busy')")
    assert page.locator(".document").inner_text().startswith("# Meeting")
    assert page.evaluate("document.activeElement.textContent") == "Edit"  # the keyboard is where it was
    page.click("text=Read it as Markdown")
    page.wait_for_selector("text=Read as Markdown")
    assert page.locator(".document").inner_text() == said
    page.click("text=Edit")
    assert page.locator("#text").input_value() == marked
    assert [asked["format"] for asked in server.asked] == ["auto"] * 3 + ["text"] * 3 + ["markdown"] * 3


def test_an_e_mail_is_read_without_its_head_unless_it_shall_be_taken_as_it_is(page: Any, server: Server) -> None:
    mail = f"From: Ann <ann@example.org>\nSubject: Meeting\n\n{TEXT}\n\n> When do we meet?\n"
    summarized(page, server, text=mail)
    said = page.locator(".document").inner_text()
    assert said.startswith("Dear all")
    assert "Read as an e-mail, without its head and quotations." in page.locator(".text-head").inner_text()
    page.click("text=Take it as it is")
    page.click("text=Read it as an e-mail")
    page.wait_for_selector("text=Read as an e-mail")
    assert page.locator(".document").inner_text() == said
    assert [asked["format"] for asked in server.asked] == ["auto", "text", "auto"]


def test_a_file_that_is_called_markdown_is_read_so_and_another_text_in_its_place_as_it_looks(
    page: Any, server: Server
) -> None:
    visit(page, server)
    drop(page, "notes.md", TEXT.encode())
    wait(page, "document.getElementById('text').value")
    page.click("#go")
    page.wait_for_selector("text=Read as Markdown")
    page.click("text=Edit")
    page.keyboard.press("Control+A")
    summarize(page)
    assert [asked["format"] for asked in server.asked] == ["markdown", "auto"]


def test_the_page_leaves_no_global_names(page: Any, server: Server) -> None:
    page.goto(server.address + "static/icon.svg")
    before = page.evaluate("Object.keys(window)")
    summarized(page, server)
    assert set(page.evaluate("Object.keys(window)")) - set(before) <= {"navigation"}
