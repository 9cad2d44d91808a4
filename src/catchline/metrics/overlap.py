"""What two sequences share: clipped n-grams, longest common subsequences.

Lengths come from rapidfuzz. Where it matters *which* words match, the matrix of the dynamic programme is one integer
a column (bit i: the LCS grows at row i; Hyyrö 2004), and the way back drops, as ROUGE-1.5.5 does, a reference's word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from rapidfuzz.distance import LCSseq

Sentence = Sequence[Any]


def ngrams(items: Sequence[Hashable], n: int) -> Iterable[Any]:
    """In order; n-grams of one item are the items themselves."""
    if n < 3:
        return items if n == 1 else pairwise(items)
    return zip(*(items[start:] for start in range(n)), strict=False)


def ngram_counts(items: Sequence[Hashable], n: int) -> Counter:
    """How often each n-gram occurs."""
    return Counter(ngrams(items, n))


def overlap(left: Counter, right: Counter) -> int:
    """The clipped number of matches: the sum over grams of the smaller count."""
    return sum([min(left[gram], right[gram]) for gram in left.keys() & right.keys()])


def lcs_length(reference: Sentence, hypothesis: Sentence) -> int:
    """The length of a longest common subsequence."""
    return LCSseq.similarity(reference, hypothesis)


def lcs_positions(reference: Sentence, hypothesis: Sentence) -> int:
    """The reference positions of one LCS, as the bits of an integer: the one found from the end by taking a match where
    the two words are equal, else dropping the reference's word unless dropping the hypothesis's is strictly better."""
    rows: dict[Hashable, int] = {}
    for place, word in enumerate(reference):
        rows[word] = rows.get(word, 0) | 1 << place
    if rows.keys().isdisjoint(hypothesis):
        return 0
    full = column = (1 << len(reference)) - 1
    columns: list[tuple[int, int]] = []  # matches of each word, and the rows at which the LCS of the prefixes grows
    for word in hypothesis:
        matches = rows.get(word, 0)
        common = column & matches
        column = ((column + common) | (column - common)) & full
        columns.append((matches, full ^ column))
    found, below = 0, full  # below: the rows still to be walked
    for matches, grows in reversed(columns):
        here = (matches | grows) & below
        if not here:
            break
        top = 1 << (here.bit_length() - 1)
        found |= matches & top
        below = top - 1 if matches & top else (top << 1) - 1
    return found


def union_hits(
    references: Sequence[Sentence],
    hypotheses: Sequence[Sentence],
    reference_counts: Counter,
    hypothesis_counts: Counter,
) -> int:
    """Summary-level LCS hits: for each reference sentence the union of its LCS with every hypothesis sentence. A word
    counts at most as often as each side has it (the counts given; they may come from a shorter text than the sentences,
    as they do in ROUGE-1.5.5 under a length limit)."""
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
