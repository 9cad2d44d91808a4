"""Clipped n-gram and skip-bigram overlap of sequences of hashable items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from rapidfuzz.distance import LCSseq


def ngram_counts(items: Sequence[Hashable], n: int) -> Counter:
    """How often each n-gram occurs; n-grams of one item are the items themselves."""
    if n == 1:
        return Counter(items)
    if n == 2:
        return Counter(pairwise(items))
    return Counter(zip(*(items[start:] for start in range(n)), strict=False))


def overlap(left: Counter, right: Counter) -> int:
    """The clipped number of matches: the sum over grams of the smaller count."""
    return sum([min(left[gram], right[gram]) for gram in left.keys() & right.keys()])


def sorted_overlap(left: Sequence[int], right: Sequence[int]) -> int:
    """The clipped number of matches of two sorted lists: an LCS of sorted lists is their common multiset."""
    return LCSseq.similarity(left, right)


def skip_bigram_counts(items: Sequence[Hashable], distance: int, unigrams: bool) -> Counter:
    """Pairs in order with at most ``distance`` items between them (any number if negative).

    With ``unigrams`` every item but the last also counts by itself, as ROUGE-1.5.5 has it: it adds the
    item that opens the window, and no window opens at the last item.
    """
    return Counter(_skip_bigrams(items, distance, unigrams))


def _skip_bigrams(items: Sequence[Hashable], distance: int, unigrams: bool) -> Iterator[Any]:
    total = len(items)
    for start in range(total - 1):
        if unigrams:
            yield items[start]
        stop = total if distance < 0 else min(total, start + distance + 2)
        first = items[start]
        for position in range(start + 1, stop):
            yield first, items[position]
