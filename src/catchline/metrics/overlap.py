"""What two sequences share: clipped n-grams, longest common subsequences.

Lengths come from rapidfuzz's bit-parallel algorithm. Where it matters *which* words match, the matrix of
the dynamic programme is kept as one big integer a column (bit i says that the LCS grows at row i; Hyyrö
2004), and the way back through it prefers, as ROUGE-1.5.5 does, to drop a word of the reference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from rapidfuzz.distance import LCSseq

Sentence = Sequence[Any]
_KEPT_BITS = 400_000_000  # the largest matrix kept whole, 50 MB


def ngrams(items: Sequence[Hashable], n: int) -> Iterable[Any]:
    """In order; n-grams of one item are the items themselves."""
    if n < 3:
        return items if n == 1 else pairwise(items)
    return zip(*(items[start:] for start in range(n)), strict=False)


def ngram_counts(items: Sequence[Hashable], n: int) -> Counter:
    """How often each n-gram occurs."""
    return Counter(ngrams(items, n))


def ngram_set(items: Sequence[Hashable], n: int) -> set[Any]:
    """The n-grams that occur."""
    return set(ngrams(items, n))


def overlap(left: Counter, right: Counter) -> int:
    """The clipped number of matches: the sum over grams of the smaller count."""
    return sum([min(left[gram], right[gram]) for gram in left.keys() & right.keys()])


def lcs_length(reference: Sentence, hypothesis: Sentence) -> int:
    """The length of a longest common subsequence."""
    return LCSseq.similarity(reference, hypothesis)


def lcs_positions(reference: Sentence, hypothesis: Sentence) -> int:
    """The reference positions of one LCS, as the bits of an integer.

    Among the longest subsequences this is the one found from the end by taking a match where the two words
    are equal, else dropping the reference's word unless dropping the hypothesis's is strictly better.
    """
    rows: dict[Hashable, int] = {}
    bit = 1
    for word in reference:
        rows[word] = rows.get(word, 0) | bit
        bit <<= 1
    full = bit - 1
    if not any(word in rows for word in hypothesis):
        return 0
    starts = _block_starts(rows, hypothesis, full)
    found, below = 0, full  # below: the rows still to be walked
    for place in range(len(starts) - 1, -1, -1):
        begin, column = starts[place]
        end = starts[place + 1][0] if place + 1 < len(starts) else len(hypothesis)
        columns: list[tuple[int, int]] = []
        for word in hypothesis[begin:end]:
            matches = rows.get(word, 0)
            column = _advance(column, matches, full)
            columns.append((matches, full ^ column))
        for matches, grows in reversed(columns):
            here = (matches | grows) & below
            if not here:
                return found
            top = 1 << (here.bit_length() - 1)
            if matches & top:
                found |= top
                below = top - 1
            else:
                below = (top << 1) - 1
    return found


def _advance(column: int, matches: int, full: int) -> int:
    """The next column of the matrix; a zero bit says that the LCS of the prefixes grows at that row."""
    common = column & matches
    return ((column + common) | (column - common)) & full


def _block_starts(rows: dict[Hashable, int], hypothesis: Sentence, full: int) -> list[tuple[int, int]]:
    """Where to start walking, with the column before it: one block, or many for texts too long to keep whole.

    With about sqrt(n) blocks of sqrt(n) columns memory is 2 sqrt(n) columns, at the price of a second pass.
    """
    total = len(hypothesis)
    if total * full.bit_length() <= _KEPT_BITS:
        return [(0, full)]
    size = math.isqrt(total) + 1
    starts, column = [], full
    for position, word in enumerate(hypothesis):
        if position % size == 0:
            starts.append((position, column))
        column = _advance(column, rows.get(word, 0), full)
    return starts


def union_hits(
    references: Sequence[Sentence],
    hypotheses: Sequence[Sentence],
    reference_counts: Counter,
    hypothesis_counts: Counter,
) -> int:
    """Summary-level LCS hits: for each reference sentence the union of its LCS with every hypothesis sentence.

    A word counts at most as often as each side has it (the counts given; they may come from a shorter text
    than the sentences, as they do in ROUGE-1.5.5 under a length limit).
    """
    left, right = dict(reference_counts), dict(hypothesis_counts)
    hits = 0
    for sentence in references:
        marked = 0
        for hypothesis in hypotheses:
            marked |= lcs_positions(sentence, hypothesis)
        while marked:
            lowest = marked & -marked
            word = sentence[lowest.bit_length() - 1]
            marked ^= lowest
            if left.get(word, 0) > 0 and right.get(word, 0) > 0:
                hits += 1
                left[word] -= 1
                right[word] -= 1
    return hits
