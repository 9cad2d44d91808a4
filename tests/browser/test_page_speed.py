"""The page stays quick: when it opens, with a long document, while typing. The bounds are those that a person notices;
several tries are made, because other tests may run beside."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from actions import TEXT, lit, summarized, visit
from stand_in import Server

OPEN_MS, HOVER_MS, TYPE_MS = 1000, 100, 100
TRIES = 8

# From an event to the frame that shows its effect.
UNTIL_PAINTED = "await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));"
HOVER = f"""async () => {{
  const times = [];
  for (const word of document.querySelectorAll('.words .word')) {{
    const begun = performance.now();
    word.dispatchEvent(new PointerEvent('pointerover', {{ bubbles: true, pointerType: 'mouse' }}));
    {UNTIL_PAINTED}
    times.push(performance.now() - begun);
    if (times.length === 20) break;
  }}
  return times;
}}"""
POINT = f"""async () => {{
  const panel = document.querySelector('.document');
  panel.scrollTop = panel.scrollHeight / 2;
  const {{ left, top, height }} = panel.getBoundingClientRect();
  const times = [];
  for (let step = 0; step < 20; step += 1) {{
    const begun = performance.now();
    const place = {{ clientX: left + 40 + 9 * step, clientY: top + (height * step) / 20 }};
    panel.dispatchEvent(new PointerEvent('pointermove', {{ bubbles: true, pointerType: 'mouse', ...place }}));
    {UNTIL_PAINTED}
    times.push(performance.now() - begun);
  }}
  return times;
}}"""
TYPE = f"""async () => {{
  const field = document.getElementById('text');
  field.focus();
  const times = [];
  for (let key = 0; key < 12; key += 1) {{
    const begun = performance.now();
    document.execCommand('insertText', false, 'x');
    {UNTIL_PAINTED}
    times.push(performance.now() - begun);
  }}
  return times;
}}"""


def long_text(num_words: int, line: int) -> str:
    draw = random.Random(7)
    words = TEXT.split()
    return "".join(draw.choice(words) + ("\n" if i % line == line - 1 else " ") for i in range(num_words))


def median(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]


def within(bound: float, measure: Callable[[], float]) -> None:
    """Some try stays below the bound."""
    tried: list[float] = []
    while len(tried) < TRIES:
        tried.append(measure())
        if tried[-1] < bound:
            return
        time.sleep(0.5)
    raise AssertionError(f"{[round(one) for one in tried]} ms, bound {bound} ms")


def test_the_page_can_be_used_within_a_second(page: Any, server: Server) -> None:
    def opened() -> float:
        visit(page, server)
        page.reload()
        page.wait_for_selector("body[data-ready]")
        return page.evaluate("performance.getEntriesByName('catchline-ready')[0].startTime")

    within(OPEN_MS, opened)


@pytest.mark.parametrize("line", [pytest.param(60, marks=pytest.mark.slow), 10**9], ids=["paragraphs", "one line"])
def test_twenty_thousand_words_stay_smooth(page: Any, server: Server, line: int) -> None:
    visit(page, server, "systems=pointer,first")
    text = long_text(20_000, line)
    page.locator("#text").evaluate("(field, text) => (field.value = text)", text)
    bare = page.context.new_page()
    bare.set_content("<textarea id=text spellcheck=false style='width: 1100px; height: 500px'></textarea>")
    bare.locator("#text").evaluate("(field, text) => (field.value = text)", text)
    # A browser lays a paragraph out anew at each key, whatever the page does: twice a bare field's time is allowed.
    bound = max(TYPE_MS, 2 * median(bare.evaluate(TYPE)))
    bare.close()
    page.bring_to_front()  # tabs behind others are slowed down
    within(bound, lambda: median(page.evaluate(TYPE)))
    page.click("#go")
    page.wait_for_selector(".words .word")
    assert page.locator(".document *").count() < 200  # no element a word
    within(HOVER_MS, lambda: median(page.evaluate(HOVER)))
    assert lit(page, "level5")
    within(HOVER_MS, lambda: median(page.evaluate(POINT)))


def test_a_place_far_down_is_brought_into_sight(page: Any, server: Server) -> None:
    summarized(page, server, "systems=whole", long_text(3_000, 60))
    page.locator(".words .word").nth(2_900).focus()
    assert page.locator(".document").evaluate("(panel) => panel.scrollTop") > 1000
    where = page.evaluate(
        """() => {
          const [range] = CSS.highlights.get('catchline-level5');
          const panel = document.querySelector('.document').getBoundingClientRect();
          const box = range.getBoundingClientRect();
          return [box.top - panel.top, panel.bottom - box.bottom];
        }"""
    )
    assert min(where) >= 0
