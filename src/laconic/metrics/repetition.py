"""Repetition inside a summary: the share of its n-grams that it has said before."""

from __future__ import annotations

from collections.abc import Sequence

from laconic.metrics.ngrams import ngram_counts


def repeated_ngram_rate(summary: Sequence[str], n: int) -> float:
    """1 - (distinct n-grams / n-grams): 0 when none repeats, or when there is none."""
    counts = ngram_counts(summary, n)
    total = counts.total()
    return 1.0 - len(counts) / total if total else 0.0


def has_repeated_ngram(summary: Sequence[str], n: int) -> bool:
    """Whether any n-gram occurs twice."""
    return any(count > 1 for count in ngram_counts(summary, n).values())


def longest_repeated_run(summary: Sequence[str]) -> int:
    """The largest n for which some n-gram occurs twice (overlaps allowed), 0 if every word is new."""
    low, high = 0, max(len(summary) - 1, 0)
    while low < high:  # if an n-gram repeats, so does a shorter one
        middle = (low + high + 1) // 2
        if has_repeated_ngram(summary, middle):
            low = middle
        else:
            high = middle - 1
    return low


def repeated_sentence_rate(sentences: Sequence[str]) -> float:
    """The share of sentences that occurred before in the summary, letter case and blanks aside."""
    normal = [" ".join(sentence.lower().split()) for sentence in sentences if sentence.strip()]
    return 1.0 - len(set(normal)) / len(normal) if normal else 0.0
