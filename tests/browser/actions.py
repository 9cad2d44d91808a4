"""What a person does on the page, and what the page shows then."""

from __future__ import annotations

from typing import Any

from stand_in import Server

TEXT = """Dear all 🙂,

The quarterly budget meeting moves to Thursday at 3 pm in room 214, since the auditors need the large hall. Please bring
the revised forecast and send headcount numbers to Karen before Wednesday noon.

Agenda: third quarter, forecast, headcount, travel policy, any other business.
"""


def visit(page: Any, server: Server, settings: str = "") -> None:
    page.goto(server.address + (f"#{settings}" if settings else ""))
    page.wait_for_selector("body[data-ready]")


def summarize(page: Any, text: str = TEXT) -> None:
    """Paste a text, press the button and wait until every system has answered."""
    page.locator("#text").focus()
    page.keyboard.insert_text(text)
    page.click("#go")
    wait(page, "document.body.dataset.state === 'reading' && !document.body.classList.contains('busy')")


def summarized(page: Any, server: Server, settings: str = "", text: str = TEXT) -> None:
    """The page with the summaries of a text."""
    visit(page, server, settings)
    summarize(page, text)


def wait(page: Any, expression: str) -> None:
    """Until it is true. (The page's policy forbids the evaluation of strings, so a function is sent.)"""
    page.wait_for_function(f"() => {expression}")


def word(page: Any, text: str) -> Any:
    return page.locator(".words .word", has_text=text).first


def lit(page: Any, kind: str) -> list[str]:
    """The texts that are marked in the document."""
    return page.evaluate(
        "(kind) => [...(CSS.highlights.get('catchline-' + kind) ?? [])].map(String).filter(Boolean)", kind
    )


def place_of(page: Any, text: str) -> tuple[float, float]:
    """The middle of the first occurrence of a text in the document panel."""
    box = page.evaluate(
        """(text) => {
          const walker = document.createTreeWalker(document.querySelector('.document'), NodeFilter.SHOW_TEXT);
          while (walker.nextNode()) {
            const at = walker.currentNode.data.indexOf(text);
            if (at < 0) continue;
            const range = new Range();
            range.setStart(walker.currentNode, at);
            range.setEnd(walker.currentNode, at + text.length);
            const { left, top, width, height } = range.getBoundingClientRect();
            return [left + width / 2, top + height / 2];
          }
        }""",
        text,
    )
    return box[0], box[1]


def overflow(page: Any) -> int:
    """How many pixels the page is wider than the window."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
