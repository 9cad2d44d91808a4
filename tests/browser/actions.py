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


# How WCAG 2 computes contrast; `light` takes the numbers of a colour.
_CONTRAST = """
  const part = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
"""

# Texts whose contrast with what is behind them is below the bound.
FAINT = f"""(bound) => {{
  {_CONTRAST}
  const behind = (element) => {{
    for (let at = element; at; at = at.parentElement) {{
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.98) return colour;
    }}
    return [255, 255, 255];
  }};
  const found = [];
  for (const element of document.querySelectorAll('body *')) {{
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility({{ visibilityProperty: true }})) continue;
    if (element.closest('svg, .offscreen, :disabled, option')) continue;
    const ratio = contrast(light(numbers(getComputedStyle(element).color)), light(behind(element)));
    if (ratio < bound) found.push([element.className || element.tagName, ratio, element.textContent.slice(0, 30)]);
  }}
  return found;
}}"""

# The same for the highlights over the document, which are no elements.
FAINT_MARKS = f"""(bound) => {{
  {_CONTRAST}
  const probe = document.createElement('i');
  document.body.append(probe);
  const value = (name) => {{
    probe.style.color = `var(${{name}})`;
    return light(numbers(getComputedStyle(probe).color));
  }};
  const backs = [1, 2, 3, 4, 5].map((level) => `--mark-${{level}}`).concat(['--user']);
  const pairs = [...backs.map((back) => ['--ink', back]), ['--quiet', '--sheet']];
  const found = pairs.filter(([front, back]) => contrast(value(front), value(back)) < bound);
  probe.remove();
  return found;
}}"""
