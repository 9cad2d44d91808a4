"""From one docstring to its summary line and the prose of its body, or nothing."""

from __future__ import annotations

import re

from catchline_study.corpora.restructured import FIELD, LIST_ITEM, SECTION, UNDERLINE, WORD, clean_inline, paragraphs

_MESSY = re.compile(
    r"\\[a-zA-Z]|>>>|[{}$^~|\\]|==|\+=|::|->|=>|\w=[\w\"'\[(]|https?:|\.\.\.\s|__\w+__\s*=|[<>]{1,2}=?\s*\w+\s*[<>]"
)


def clean_docstring(text: str) -> tuple[str, str]:
    """The summary line and the body of a docstring whose indentation `inspect.cleandoc` has removed, both cleaned.

    The summary must read like a sentence of 3 to 20 words, else both are empty; the body are the paragraphs of prose
    that remain after it, if any, joined by line breaks.
    """
    head, _, rest = text.strip().partition("\n\n")
    summary = _clean_summary(head)
    return summary, "\n".join(filter(_reads_like_prose, paragraphs(rest))) if summary else ""


def _clean_summary(head: str) -> str:
    lines = [line.strip() for line in head.split("\n")]
    if len(lines) > 3 or any(UNDERLINE.match(line) or FIELD.match(line) or LIST_ITEM.match(line) for line in lines):
        return ""
    summary = clean_inline(" ".join(lines)).strip(" :")
    words = WORD.findall(summary)
    if not 3 <= len(words) <= 20 or _MESSY.search(summary):
        return ""
    if not summary[0].isalnum() or summary.endswith((",", "(", " the", " a", " of")) or SECTION.match(summary):
        return ""
    if re.match(r"[\w.]+\(|(?:deprecated|todo|fixme|copyright|version|test for|tests? that)\b", summary, re.IGNORECASE):
        return ""
    return summary if _mostly_words(summary) else ""


def _reads_like_prose(paragraph: str) -> bool:
    words = WORD.findall(paragraph)
    if len(words) < 5 or not _mostly_words(paragraph):
        return False
    return len(_MESSY.findall(paragraph)) <= len(words) // 25


def _mostly_words(text: str) -> bool:
    letters = sum(len(word) for word in WORD.findall(text))
    visible = sum(not character.isspace() for character in text)
    return letters >= 0.8 * visible and text.isprintable() and sum(map(str.isascii, text)) >= 0.97 * len(text)
