"""Repetition inside a summary: the share of its n-grams that it has said before, and what a reader calls repetition."""

from __future__ import annotations

from collections.abc import Sequence

from laconic.metrics.ngrams import ngram_counts
from laconic.metrics.words import is_stop_word

_NEAR = 3  # words within which a content word that comes again is heard
_PHRASE = 4  # words of a phrase that is heard wherever it comes again


def repeated_ngram_rate(summary: Sequence[str], n: int) -> float | None:
    """1 - (distinct n-grams / n-grams): 0 when none repeats; None when there is none."""
    counts = ngram_counts(summary, n)
    total = counts.total()
    return 1.0 - len(counts) / total if total else None


def repeats(summary: Sequence[str]) -> bool:
    """Would a reader say that these lower-cased words repeat themselves?

    They do if a word stands twice in a row, a phrase right behind itself, a content word again within three words, or
    a phrase of four words again anywhere. Function words count in phrases with others only ("the ... the" is
    nothing), and a number may come again.
    """
    told = [not is_stop_word(word) and word.isalpha() and len(word) > 1 for word in summary]
    return _stutters(summary) or _says_near(summary, told) or _says_phrase(summary, told)


def _stutters(words: Sequence[str]) -> bool:
    """A word or phrase right behind itself; of four words and more it is a phrase that comes again."""
    for length in range(1, min(_PHRASE, len(words) // 2 + 1)):
        run = 0  # how many words in a row equal the one `length` before
        for place in range(length, len(words)):
            run = run + 1 if words[place] == words[place - length] else 0
            if run == length and any(word.isalpha() for word in words[place - length + 1 : place + 1]):
                return True
    return False


def _says_near(words: Sequence[str], told: Sequence[bool]) -> bool:
    last: dict[str, int] = {}
    for place, word in enumerate(words):
        if told[place]:
            if place - last.get(word, -_NEAR - 1) <= _NEAR:
                return True
            last[word] = place
    return False


def _says_phrase(words: Sequence[str], told: Sequence[bool]) -> bool:
    seen = set()
    for place in range(len(words) - _PHRASE + 1):
        phrase = tuple(words[place : place + _PHRASE])
        if any(told[place : place + _PHRASE]):
            if phrase in seen:
                return True
            seen.add(phrase)
    return False
