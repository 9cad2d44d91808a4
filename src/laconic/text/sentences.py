"""Where sentences begin and end, offline."""

from __future__ import annotations

import sentencex


def split_sentences(text: str, language: str = "en") -> list[tuple[int, int]]:
    """Return the character spans of the sentences of ``text``, in order, white space around them left out.

    A blank line always ends a sentence; text between two spans is white space only.
    """
    spans: list[tuple[int, int]] = []
    for boundary in sentencex.get_sentence_boundaries(language, text):
        start, end = boundary["start_index"], boundary["end_index"]
        while start < end and text[start].isspace():
            start += 1
        while end > start and text[end - 1].isspace():
            end -= 1
        if start < end:
            spans.append((start, end))
    return spans


def sentence_strings(text: str, language: str = "en") -> list[str]:
    """The sentences of ``text`` as strings."""
    return [text[start:end] for start, end in split_sentences(text, language)]
