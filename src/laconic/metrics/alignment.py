"""Alignment error rate of attention (Och and Ney 2003), which head aligns best, and perplexity."""

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


def word_attention(
    weights: np.ndarray, rows: Sequence[int], columns: Sequence[int], shape: tuple[int, int]
) -> np.ndarray:
    """Attention between subwords as attention between words: the sum over source, the mean over target subwords.

    ``weights`` (..., T, S); ``rows[t]`` is the target word that row t writes, ``columns[s]`` the source word of
    position s, -1 for what belongs to no word (the end symbol, padding). Returns (..., target words, source
    words) for ``shape``; a target word without any row has a row of zeros.
    """
    target, source = np.asarray(rows, dtype=int), np.asarray(columns, dtype=int)
    gather = (source[:, None] == np.arange(shape[1])).astype(np.float64)  # (S, source words)
    average = (np.arange(shape[0])[:, None] == target).astype(np.float64)  # (target words, T)
    average /= np.maximum(average.sum(1, keepdims=True), 1.0)
    return average @ np.asarray(weights, dtype=np.float64) @ gather


def head_counts(maps: np.ndarray, sure: Collection[Link], possible: Collection[Link] = ()) -> np.ndarray:
    """What the error rate of each head needs from one pair: ``|A & S| + |A & P|`` and ``|A| + |S|``, (2, ...).

    ``maps`` (..., target words, source words). A has for each target word that is in some link the source word
    with the largest weight (the leftmost of equals); target words in no link, and rows of zeros, are dropped.
    """
    wanted = sorted({target for target, _ in (*sure, *possible)})
    marks = np.zeros(maps.shape[-2:], dtype=np.int64)  # 2 at sure links, 1 at possible ones
    for link in possible:
        marks[link] = 1
    for link in sure:
        marks[link] = 2
    chosen = maps[..., wanted, :].argmax(-1)  # (..., wanted)
    there = maps[..., wanted, :].max(-1, initial=0.0) > 0
    hits = np.where(there, marks[np.array(wanted, dtype=int), chosen], 0).sum(-1)
    return np.stack([hits, there.sum(-1) + len(set(sure))])


def head_error_rates(counts: np.ndarray) -> np.ndarray:
    """AER of each head from the sum of `head_counts` over all pairs.

    Raises:
        DataError: no head has a predicted or sure link.
    """
    hits, size = counts
    if not np.all(size):
        raise DataError("The alignment error rate is not defined: there is no predicted and no sure link.")
    return 1.0 - hits / size


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
