"""Between the passes: which candidates of all shards are the best K, exactly.

With fixed lengths a score is a function of three counts, of which there are at most some ten thousand combinations. So
the histograms of the shards are added, and the exact score found at which K is reached. Of the candidates that score as
much or more the best K are taken, equals in the order of a stable hash of their place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from laconic.study.spans.settings import SpanSettings

Histogram = Counter[tuple[int, int, int]]
Candidates = Callable[[int], NDArray[np.void]]


@dataclass(frozen=True, slots=True)
class Threshold:
    """What the ranking came to: the lowest chosen score, ``value`` as a whole number; how many lie above and at it."""

    value: int
    score: Fraction
    above: int
    at: int
    taken_at: int
    duplicates_dropped: int = 0
    ceiling_dropped: int = 0


class Ranking:
    """The order of candidates: by value, then by hash, then by place."""

    def __init__(self, settings: SpanSettings, histogram: Histogram) -> None:
        self._settings, self._key = settings, settings.key
        self._ceiling = settings.shape.ceiling
        counts = np.array([key for key, _ in histogram.items()], dtype=np.int64).reshape(-1, 3)
        self.ceiling_dropped = 0
        self.by_value: Counter[int] = Counter()
        for value, count in zip(self.values(*counts.T).tolist(), histogram.values(), strict=True):
            if value < 0:
                self.ceiling_dropped += count
            else:
                self.by_value[value] += count

    def values(self, m1: NDArray, m2: NDArray, ml: NDArray) -> NDArray[np.int64]:
        """The value of each candidate with these counts, -1 where it is left out."""
        values = np.zeros(len(m1), dtype=np.int64) if self._settings.random else self._key.value(m1, m2, ml)
        if self._settings.drop_ceiling:
            values[ml == self._ceiling] = -1
        return values

    def reach(self, count: int) -> int:
        """The largest value such that at least ``count`` candidates have it or more; ``count`` is at most `total`."""
        for value in sorted(self.by_value, reverse=True):
            count -= self.by_value[value]
            if count <= 0:
                return value
        raise AssertionError("more candidates were asked for than there are")

    @property
    def total(self) -> int:
        """Candidates that can be chosen."""
        return self.by_value.total()


def best_candidates(
    settings: SpanSettings, histogram: Histogram, shards: Sequence[int], candidates: Candidates
) -> tuple[list[NDArray[np.int64]], Threshold]:
    """The best K of the candidates of some shards (those of a shard by its number), or all where there are fewer: the
    chosen rows of each shard, ascending, and how it came about.

    Where output spans are to differ, a candidate whose output a better one has too is passed over. So many are listed
    then as have K different outputs among them; how many those are is known only afterwards.
    """
    ranking = Ranking(settings, histogram)
    if not ranking.total:
        none = Threshold(0, Fraction(0), 0, 0, 0, ceiling_dropped=ranking.ceiling_dropped)
        return [np.zeros(0, dtype=np.int64) for _ in shards], none
    wanted = min(settings.k, ranking.total)
    distinct = settings.drop_duplicate_outputs
    while True:
        listed = _Listed.of(ranking, shards, candidates, ranking.reach(wanted), distinct)
        order = np.lexsort((listed.row, listed.shard, listed.tie, -listed.values))  # best first
        good = order
        if distinct:
            _, first = np.unique(listed.output[order], axis=0, return_index=True)
            good = order[np.sort(first)]
        if len(good) >= settings.k or len(order) == ranking.total:
            break
        wanted = min(ranking.total, len(order) + settings.k - len(good))
    chosen = good[: settings.k]
    last = int(listed.values[chosen[-1]])
    at = int((listed.values[good] == last).sum())
    taken = int((listed.values[chosen] == last).sum())
    passed_over = int(np.flatnonzero(order == chosen[-1])[0]) + 1 - len(chosen)
    rows = [np.sort(listed.row[chosen[listed.shard[chosen] == place]]) for place in range(len(shards))]
    score = Fraction(last, settings.key.denominator)
    return rows, Threshold(last, score, len(chosen) - taken, at, taken, passed_over, ranking.ceiling_dropped)


@dataclass(frozen=True, slots=True)
class _Listed:
    """Candidates of several shards side by side; the rows of a shard stand in the order of its documents."""

    shard: NDArray[np.uint32]
    row: NDArray[np.int64]
    values: NDArray[np.int64]
    tie: NDArray[np.uint64]
    output: NDArray[np.uint64]  # empty where outputs may be equal

    @classmethod
    def of(cls, ranking: Ranking, shards: Sequence[int], candidates: Candidates, low: int, distinct: bool) -> _Listed:
        """Those with a value of at least ``low``; their outputs only where these are to be ``distinct``."""
        parts = []
        for place, shard in enumerate(shards):
            rows = candidates(shard)
            values = ranking.values(rows["m1"], rows["m2"], rows["ml"])
            here = np.flatnonzero(values >= low)
            outputs = rows["output"][here if distinct else here[:0]]
            numbers = np.full(len(here), place, dtype=np.uint32)
            parts.append((numbers, here, values[here], rows["tie"][here], outputs))
        return cls(*map(np.concatenate, zip(*parts, strict=True)))
