"""The alignment error rate from its definition, document by document, for tests of what computes it for all heads."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

Link = tuple[int, int]  # (summary word, document word)


def alignment_error_rate(
    predicted: Iterable[Collection[Link]], sure: Iterable[Collection[Link]], possible: Iterable[Collection[Link]]
) -> float:
    """1 - (|A & S| + |A & P|) / (|A| + |S|), sums over documents; P includes S (Och and Ney 2003)."""
    triples = [(set(a), set(s), set(p) | set(s)) for a, s, p in zip(predicted, sure, possible, strict=True)]
    hits = sum(len(a & s) + len(a & p) for a, s, p in triples)
    return 1.0 - hits / sum(len(a) + len(s) for a, s, _ in triples)


def hard_alignment(attention: np.ndarray) -> set[Link]:
    """For each row of (T, S) the column with the largest weight, the first of equals."""
    return {(row, int(column)) for row, column in enumerate(attention.argmax(axis=1))}
