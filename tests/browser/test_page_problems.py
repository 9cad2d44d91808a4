"""When something is wrong, the page says what and what to do, and the text stays."""

from __future__ import annotations

from typing import Any

import pytest
from actions import TEXT, summarize, summarized, visit, wait
from stand_in import Server, serving


def test_a_full_queue_is_said_and_can_be_tried_again(page: Any, server: Server) -> None:
    summarized(page, server, "systems=busy,first")
    slot = page.locator(".system").first
    assert "Too many documents wait already (256); try again soon." in slot.inner_text()
    again = slot.get_by_role("button", name="Try again")
    assert again.is_disabled()
    assert "in" in again.inner_text()  # in 2 s, as the server said
    wait(page, "!document.querySelector('.system button').disabled")
    asked = len(server.asked)
    again.click()
    wait(page, "document.querySelector('.system .problem')")
    assert len(server.asked) == asked + 1
    assert page.locator(".system").nth(1).locator(".words .word").count() > 0  # the other system is not touched


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("broken", "An error in the service; its log has the details."),
        ("garbled", "The server answered with status 502 and no message."),
    ],
)
def test_an_error_is_shown_as_a_sentence(page: Any, server: Server, model: str, sentence: str) -> None:
    summarized(page, server, f"systems={model}")
    assert page.locator(".problem").inner_text() == sentence
    assert page.locator(".problem").get_attribute("role") == "alert"
    page.click("text=Edit")
    assert page.locator("#text").input_value() == TEXT


def test_a_token_is_asked_for_and_used(page: Any) -> None:
    with serving(token="opensesame") as server:
        visit(page, server)
        assert page.locator("#messages p").inner_text() == "This server asks for a token."
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=This token is wrong.")
        page.get_by_label("Token").fill("opensesame")
        page.click("text=Use it")
        page.wait_for_selector("#go:enabled")
        summarize(page)
        assert page.locator(".words .word").count() == 6
        server.token = "changed"
        page.click("#go")
        page.wait_for_selector("text=This token is wrong.")
        page.get_by_label("Token").fill("changed")
        page.keyboard.press("Enter")
        page.wait_for_selector(".words .word")  # what had failed is asked again
        assert "opensesame" not in page.url


def test_waiting_is_shown_and_can_be_cancelled(page: Any, server: Server) -> None:
    visit(page, server, "systems=slow,first")
    page.fill("#text", TEXT)
    page.click("#go")
    page.wait_for_selector("[role=progressbar]")
    assert page.locator("#go").inner_text() == "Cancel"
    page.wait_for_selector(".words .word")  # the quick one does not wait for the slow one
    page.click("#go")
    page.wait_for_selector("text=Cancelled.")
    assert page.locator("#go").inner_text() == "Summarize"
    assert page.locator(".system").nth(1).locator(".words .word").count() > 0
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector(".system:first-child .words .word")


def test_what_cannot_be_summarized_is_said_and_not_sent(page: Any, server: Server) -> None:
    visit(page, server)
    messages = page.locator("#messages")

    def told() -> str:
        page.click("#go")
        return messages.inner_text()

    page.fill("#text", "  \n ")
    assert "There is no text yet." in told()
    assert page.evaluate("document.activeElement.id") == "text"
    page.evaluate("document.getElementById('text').value = 'word '.repeat(400000) + '🙂🙂🙂'")
    assert told() == "Your text has 2,000,003 characters; this service takes 2,000,000."
    page.fill("#text", TEXT)
    page.locator("#options summary").click()
    page.get_by_label("Thoroughness").fill("99")
    assert "Thoroughness takes a whole number from 1 to 16." in told()
    page.get_by_label("Thoroughness").fill("4")
    page.get_by_label("Shortest line").fill("20")
    page.get_by_label("Longest line").fill("5")
    assert told() == "Shortest line (20) is above Longest line (5)."
    page.get_by_label("Longest line").fill("30")
    assert messages.inner_text() == ""  # until it is corrected
    assert server.asked == []


def test_a_text_is_never_read_as_markup(page: Any, server: Server) -> None:
    visit(page, server, "systems=whole")
    evil = "<img src=x onerror=alert(1)> </script><script>alert(2)</script> &amp; <b>bold</b> end."
    summarize(page, evil)
    read = evil.replace("&amp;", "&")  # an entity of a pasted text is its character
    assert page.locator(".words").inner_text() == read
    assert page.locator(".document").inner_text() == read
    assert page.locator("main img, main b, main script").count() == 0
