"""Between the passes: which candidates of all shards are the best K, exactly.

With fixed lengths a score is a function of three counts, of which there are at most some ten thousand combinations. So
the histograms of the shards are added, and the exact score found at which K is reached. Of the candidates that score as
much or more the best K are taken, equals in the order of a stable hash of their place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.errors import DataError
from laconic.study.spans.settings import SpanSettings

Histogram = Counter[tuple[int, int, int]]
Candidates = Callable[[int], NDArray[np.void]]


class Ranking:
    """The order of candidates: by value, then by hash, then by place."""

    def __init__(self, settings: SpanSettings, histogram: Histogram) -> None:
        self._settings, self._key = settings, settings.key
        counts = np.array(list(histogram), dtype=np.int64).reshape(-1, 3)
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
            values[ml == self._settings.shape.ceiling] = -1
        return values

    def reach(self, count: int) -> int:
        """The largest value such that at least ``count`` candidates have it or more; ``count`` is at most `total`."""
        values = sorted(self.by_value, reverse=True)
        reached = accumulate(self.by_value[value] for value in values)
        return next(value for value, sum in zip(values, reached, strict=True) if sum >= count)

    @property
    def total(self) -> int:
        """Candidates that can be chosen."""
        return self.by_value.total()


def best_candidates(
    settings: SpanSettings, histogram: Histogram, shards: Sequence[int], candidates: Candidates
) -> tuple[list[NDArray[np.int64]], dict[str, Any]]:
    """The best K of the candidates of some shards (those of a shard by its number), or all where there are fewer: the
    chosen rows of each shard, ascending, and for JSON the lowest chosen score, ``value`` as a whole number, with how
    many lie above and at it.

    Where output spans are to differ, a candidate whose output a better one has too is passed over. So many are listed
    then as have K different outputs among them; how many those are is known only afterwards.

    Raises:
        DataError: none is left without those that ``--drop-ceiling`` drops.
    """
    ranking = Ranking(settings, histogram)
    if not ranking.total:
        raise DataError("All candidates were dropped because of --drop-ceiling.")
    wanted = min(settings.k, ranking.total)
    distinct = settings.drop_duplicate_outputs
    while True:
        shard, row, values, tie, output = _listed(ranking, shards, candidates, ranking.reach(wanted), distinct)
        order = np.lexsort((row, shard, tie, -values))  # best first
        good = order
        if distinct:
            _, first = np.unique(output[order], axis=0, return_index=True)
            good = order[np.sort(first)]
        if len(good) >= settings.k or len(order) == ranking.total:
            break
        wanted = min(ranking.total, len(order) + settings.k - len(good))
    chosen = good[: settings.k]
    last = int(values[chosen[-1]])
    taken = int((values[chosen] == last).sum())
    score = Fraction(last, settings.key.denominator)
    return [np.sort(row[chosen[shard[chosen] == place]]) for place in range(len(shards))], {
        "value": last,
        "score": float(score),
        "above": len(chosen) - taken,
        "at": int((values[good] == last).sum()),
        "taken_at": taken,
        "duplicates_dropped": int(np.flatnonzero(order == chosen[-1])[0]) + 1 - len(chosen),
        "ceiling_dropped": ranking.ceiling_dropped,
        "exact": str(score),
    }


def _listed(
    ranking: Ranking, shards: Sequence[int], candidates: Candidates, low: int, distinct: bool
) -> Iterator[NDArray[Any]]:
    """Side by side the shard, row, value, tie and output of each candidate with a value of at least ``low``; no outputs
    where these need not be ``distinct``. The rows of a shard stand in the order of its documents."""
    parts = []
    for place, shard in enumerate(shards):
        rows = candidates(shard)
        values = ranking.values(rows["m1"], rows["m2"], rows["ml"])
        here = np.flatnonzero(values >= low)
        outputs = rows["output"][here if distinct else here[:0]]
        numbers = np.full(len(here), place, dtype=np.uint32)
        parts.append((numbers, here, values[here], rows["tie"][here], outputs))
    return map(np.concatenate, zip(*parts, strict=True))
