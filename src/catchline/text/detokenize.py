"""From tokens to text as people write it, with the character span of each token in that text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from catchline.text.normalization import SPACE_MARK, is_unspaced

Detokenized = tuple[str, list[tuple[int, int]]]

_CJK_CLOSING, _CJK_OPENING = "。，、；：！？）】》」』〉", "（【《「『〈"
_NO_SPACE_BEFORE = {*".,;:!?)]}%'’…”»™®°", *_CJK_CLOSING, "..", "...", "....", "''"}
_NO_SPACE_AFTER = {*"([{#$£€¥“«", *_CJK_OPENING, *_CJK_CLOSING, "``"}
CLITIC = re.compile(r"(?:['’](?:s|re|ve|ll|d|m)|n['’]t)\Z", re.IGNORECASE)
_BRACKETS = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"}


def join_words(tokens: Sequence[str]) -> Detokenized:
    """Join word tokens: punctuation and clitics close up, quotation marks alternate, Han and Thai get no spaces."""
    text = ""
    spans: list[tuple[int, int]] = []
    glue_next = True  # nothing before the first token
    open_quotes: set[str] = set()
    for index, token in enumerate(tokens):
        written = _BRACKETS.get(token.lower(), token)
        previous = tokens[index - 1] if index else ""
        glue_here, glue_after = _glue(written, previous, open_quotes)
        if not (glue_here or glue_next or (is_unspaced(previous[-1:]) and is_unspaced(written[:1]))):
            text += " "
        spans.append((len(text), len(text) + len(written)))
        text += written
        glue_next = glue_after
    return text, spans


def spaced(tokens: Sequence[str], separator: str | None) -> Detokenized:
    """Tokens with a blank between any two; the separator between sentences is left out, its span is empty."""
    text = ""
    spans: list[tuple[int, int]] = []
    for token in tokens:
        written = "" if token == separator else token
        text += " " if text and written else ""
        spans.append((len(text), len(text) + len(written)))
        text += written
    return text, spans


def _glue(token: str, previous: str, open_quotes: set[str]) -> tuple[bool, bool]:
    """Does ``token`` close up to the token before it, and does the next one close up to it?"""
    if token == '"' or (token == "'" and not (previous.endswith("s") and "'" not in open_quotes)):
        if token in open_quotes:
            open_quotes.discard(token)
            return True, False
        open_quotes.add(token)
        return False, True
    if token == "/":
        return True, True
    return token in _NO_SPACE_BEFORE or bool(CLITIC.match(token)), token in _NO_SPACE_AFTER


def join_marked(tokens: Sequence[str]) -> Detokenized:
    """Join tokens that carry their space as ``▁``. Spans leave the space out."""
    text = last = ""
    spans: list[tuple[int, int]] = []
    for token in tokens:
        if token.startswith(SPACE_MARK) and text and last != " ":
            text, last = text + " ", " "
        bare = token.lstrip(SPACE_MARK).replace(SPACE_MARK, " ")
        spans.append((len(text), len(text) + len(bare)))
        text, last = text + bare, bare or last
    stripped = text.rstrip()
    return stripped, [(min(start, len(stripped)), min(end, len(stripped))) for start, end in spans]


def join_with(decode: Callable[[list[str]], str], tokens: Sequence[str]) -> Detokenized:
    """Join tokens by a library's decoder; the span of a token is what it adds to the text before it.

    A token that ends inside a character (byte-level tokenizers) gets the span of the whole character once
    it is complete.
    """
    text = decode(list(tokens))
    ends = [0]
    for count in range(1, len(tokens) + 1):
        prefix = decode(list(tokens[:count])).rstrip("\ufffd")
        ends.append(min(max(len(prefix), ends[-1]), len(text)))
    return text, [(end - len(text[start:end].lstrip()), end) for start, end in pairwise(ends)]
