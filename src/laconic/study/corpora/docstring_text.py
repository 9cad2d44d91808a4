"""From one docstring to its summary line and the prose of its body, or nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from laconic.text.restructured import FIELD, LIST_ITEM, SECTION, UNDERLINE, WORD, clean_inline, paragraphs

_MESSY = re.compile(
    r"\\[a-zA-Z]|>>>|[{}$^~|\\]|==|\+=|::|->|=>|\w=[\w\"'\[(]|https?:|\.\.\.\s|__\w+__\s*=|[<>]{1,2}=?\s*\w+\s*[<>]"
)


@dataclass(frozen=True, slots=True)
class Parts:
    """A cleaned docstring: the summary line and the paragraphs of the body joined by line breaks."""

    summary: str
    body: str


def clean_docstring(text: str) -> Parts | None:
    """Split and clean a docstring whose indentation `inspect.cleandoc` has removed; ``None`` when too little is left.

    The summary must read like a sentence of 3 to 20 words; the body is what prose remains after it, if any.
    """
    head, _, rest = text.strip().partition("\n\n")
    summary = _clean_summary(head)
    if summary is None:
        return None
    return Parts(summary, "\n".join(filter(_reads_like_prose, paragraphs(rest))))


def _clean_summary(head: str) -> str | None:
    lines = [line.strip() for line in head.split("\n")]
    if len(lines) > 3 or any(UNDERLINE.match(line) or FIELD.match(line) or LIST_ITEM.match(line) for line in lines):
        return None
    summary = clean_inline(" ".join(lines)).strip(" :")
    words = WORD.findall(summary)
    if not 3 <= len(words) <= 20 or _MESSY.search(summary):
        return None
    if not summary[0].isalnum() or summary.endswith((",", "(", " the", " a", " of")) or SECTION.match(summary):
        return None
    if re.match(r"[\w.]+\(|(?:deprecated|todo|fixme|copyright|version|test for|tests? that)\b", summary, re.IGNORECASE):
        return None
    return summary if _mostly_words(summary) else None


def _reads_like_prose(paragraph: str) -> bool:
    words = WORD.findall(paragraph)
    if len(words) < 5 or not _mostly_words(paragraph):
        return False
    return len(_MESSY.findall(paragraph)) <= len(words) // 25


def _mostly_words(text: str) -> bool:
    letters = sum(len(word) for word in WORD.findall(text))
    visible = sum(not character.isspace() for character in text)
    return letters >= 0.8 * visible and text.isprintable() and sum(map(str.isascii, text)) >= 0.97 * len(text)
