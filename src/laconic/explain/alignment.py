"""From attention weights to hard alignments and the most attended spans of the source."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from laconic.types import SourceSpan


def hard_alignment(weights: np.ndarray, *, threshold: float | None = None) -> list[tuple[int, int]]:
    """The pairs (target, source) that ``weights`` (T, S) align.

    Without ``threshold`` each target position is aligned to its heaviest source position (the first of
    equals); with one, to every source position whose weight reaches it. Rows without weight align to nothing.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.size == 0:
        return []
    if threshold is None:
        return [(t, int(row.argmax())) for t, row in enumerate(weights) if row.max() > 0]
    return [(int(t), int(s)) for t, s in zip(*np.nonzero(weights >= threshold), strict=True)]


def merge_spans(
    weights: Sequence[float] | np.ndarray,
    offsets: Sequence[tuple[int, int]],
    document: str,
    *,
    joined: Sequence[bool] | None = None,
    limit: int = 5,
    min_weight: float = 0.0,
) -> tuple[SourceSpan, ...]:
    """Source positions as spans of ``document``, heaviest first, at most ``limit``.

    ``joined[i]`` says that position i goes on with the word of position i - 1 (subword tokens); such
    neighbours become one span, whose weight is their sum. Positions with an empty span (special tokens) and
    weights not above ``min_weight`` are left out.
    """
    pieces: list[list[float]] = []  # start, end, weight, last position
    for position, (start, end) in enumerate(offsets):
        weight = float(weights[position])
        if end <= start or weight <= min_weight:
            continue
        if pieces and pieces[-1][3] == position - 1 and joined is not None and joined[position]:
            pieces[-1][1:] = [max(end, pieces[-1][1]), pieces[-1][2] + weight, position]
        else:
            pieces.append([start, end, weight, position])
    pieces.sort(key=lambda piece: (-piece[2], piece[0]))
    return tuple(SourceSpan(int(s), int(e), document[int(s) : int(e)], w) for s, e, w, _ in pieces[:limit])
