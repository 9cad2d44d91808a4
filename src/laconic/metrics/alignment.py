"""Alignment error rate of attention (Och and Ney 2003), and perplexity."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from laconic.errors import DataError

Link = tuple[int, int]  # (target position, source position)


def alignment_error_rate(
    predicted: Iterable[Collection[Link]], sure: Iterable[Collection[Link]], possible: Iterable[Collection[Link]] = ()
) -> float:
    """AER over a corpus: 1 - (|A & S| + |A & P|) / (|A| + |S|), sums over documents; P always includes S.

    Raises:
        DataError: different numbers of documents, or neither predicted nor sure links anywhere.
    """
    answers, sures = [set(links) for links in predicted], [set(links) for links in sure]
    possibles = [set(links) for links in possible] or [set() for _ in sures]
    if not len(answers) == len(sures) == len(possibles):
        raise DataError(
            f"The alignment error rate compares document by document; there are {len(answers)} predicted and "
            f"{len(sures)} reference alignments."
        )
    hits = sum(len(a & s) + len(a & (p | s)) for a, s, p in zip(answers, sures, possibles, strict=True))
    size = sum(len(a) + len(s) for a, s in zip(answers, sures, strict=True))
    if not size:
        raise DataError("The alignment error rate is not defined: there is no predicted and no sure link.")
    return 1.0 - hits / size


def hard_alignment(attention: np.ndarray) -> set[Link]:
    """For each target position the source position with the largest weight, the first of equals; (T, S) in."""
    weights = np.asarray(attention)
    if weights.ndim != 2:
        raise DataError(f"An alignment is read from a (target, source) matrix, not from shape {weights.shape}.")
    return {(row, int(column)) for row, column in enumerate(weights.argmax(axis=1))} if weights.size else set()


def attention_entropy(weights: np.ndarray) -> float:
    """The mean entropy in nats of rows of attention weights, (..., S); 0 log 0 is 0. Rows of zeros are left out."""
    rows = np.asarray(weights, dtype=np.float64).reshape(-1, np.shape(weights)[-1])
    rows = rows[rows.sum(axis=1) > 0]
    if not len(rows):
        return 0.0
    safe = np.where(rows > 0, rows, 1.0)
    return float(-(rows * np.log(safe)).sum(axis=1).mean())


def perplexity(log_probs: Iterable[Sequence[float]]) -> float:
    """exp of minus the mean natural log-probability over all tokens of all documents; infinite on overflow.

    Raises:
        DataError: there is no token.
    """
    total, count = 0.0, 0
    for document in log_probs:
        total += math.fsum(document)
        count += len(document)
    if not count:
        raise DataError("Perplexity is not defined without tokens.")
    try:
        return math.exp(-total / count)
    except OverflowError:
        return math.inf
