"""Between the passes: which candidates of all shards are the best K, exactly.

With fixed lengths a score is a function of three counts, of which there are at most some ten thousand combinations. So
the histograms of the shards are added, the combinations put in the order of their exact scores, and the score found at
which K is reached. All above it are taken, and of those at it as many as are needed, in the order of a stable hash of
their place. None of this depends on who counted which shard, or when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from laconic.data.spans.settings import SpanSettings

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


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen rows of each shard's candidates, ascending, and how it came about."""

    rows: list[NDArray[np.int64]]
    threshold: Threshold


class Ranking:
    """The order of candidates: by value, then by hash, then by place."""

    def __init__(self, settings: SpanSettings, histogram: Histogram) -> None:
        self._settings, self._key = settings, settings.key
        self._ceiling = settings.shape.ceiling
        self.by_value: Counter[int] = Counter()
        self.ceiling_dropped = 0
        for (m1, m2, ml), count in histogram.items():
            if settings.drop_ceiling and ml == self._ceiling:
                self.ceiling_dropped += count
            else:
                self.by_value[self._value(m1, m2, ml)] += count

    def _value(self, m1: int, m2: int, ml: int) -> int:
        key = self._key
        return 0 if self._settings.random else m1 * key.one + m2 * key.two + ml * key.longest

    def values(self, candidates: NDArray[np.void]) -> NDArray[np.int64]:
        """The value of each, -1 where it is left out."""
        if self._settings.random:
            values = np.zeros(len(candidates), dtype=np.int64)
        else:
            values = self._key.value(candidates["m1"], candidates["m2"], candidates["ml"])
        if self._settings.drop_ceiling:
            values[candidates["ml"] == self._ceiling] = -1
        return values

    def reach(self, count: int) -> tuple[int, int]:
        """The largest value such that at least ``count`` candidates have it or more, and how many have more.

        With fewer candidates the lowest of all.
        """
        above = 0
        for value in sorted(self.by_value, reverse=True):
            if above + self.by_value[value] >= count:
                return value, above
            above += self.by_value[value]
        lowest = min(self.by_value)
        return lowest, above - self.by_value[lowest]

    @property
    def total(self) -> int:
        """Candidates that can be chosen."""
        return self.by_value.total()

    def score(self, value: int) -> Fraction:
        """The exact score of a value."""
        return Fraction(value, self._key.denominator)


def choose(settings: SpanSettings, histogram: Histogram, shards: Sequence[int], candidates: Candidates) -> Choice:
    """The best K of the candidates of some shards (those of a shard by its number); all where there are fewer."""
    ranking = Ranking(settings, histogram)
    if not ranking.total:
        threshold = Threshold(0, Fraction(0), 0, 0, 0, ceiling_dropped=ranking.ceiling_dropped)
        return Choice([np.zeros(0, dtype=np.int64) for _ in shards], threshold)
    if settings.drop_duplicate_outputs:
        return _choose_distinct(settings.k, ranking, shards, candidates)
    value, above = ranking.reach(settings.k)
    at = ranking.by_value[value]
    taken = min(settings.k - above, at)
    rows = [np.flatnonzero(ranking.values(candidates(shard)) > value) for shard in shards]
    if taken:
        boundary = _Listed.of(ranking, shards, candidates, value, value)
        order = boundary.order()[:taken]
        rows = [np.concatenate([some, boundary.rows_of(order, place)]) for place, some in enumerate(rows)]
    threshold = Threshold(value, ranking.score(value), above, at, taken, 0, ranking.ceiling_dropped)
    return Choice([np.sort(some) for some in rows], threshold)


def _choose_distinct(k: int, ranking: Ranking, shards: Sequence[int], candidates: Candidates) -> Choice:
    """Likewise, but a candidate whose output span a better one has too is passed over.

    So many candidates are listed as have K different outputs among them; how many those are is known only then.
    """
    wanted = min(k, ranking.total)
    while True:
        low, _ = ranking.reach(wanted)
        listed = _Listed.of(ranking, shards, candidates, low, None)
        order = listed.order()
        first = order[listed.firsts(order)]
        if len(first) >= k or len(order) == ranking.total:
            break
        wanted = min(ranking.total, len(order) + k - len(first))
    chosen = first[:k]
    last = int(listed.values[chosen].min())
    at = int((listed.values[first] == last).sum())
    taken = int((listed.values[chosen] == last).sum())
    before = int(np.flatnonzero(order == chosen[-1])[0]) + 1
    return Choice(
        [np.sort(listed.rows_of(chosen, place)) for place in range(len(shards))],
        Threshold(
            last, ranking.score(last), len(chosen) - taken, at, taken, before - len(chosen), ranking.ceiling_dropped
        ),
    )


@dataclass(frozen=True, slots=True)
class _Listed:
    """Candidates of several shards side by side."""

    shard: NDArray[np.uint32]
    row: NDArray[np.int64]
    values: NDArray[np.int64]
    tie: NDArray[np.uint64]
    output: NDArray[np.uint64]

    @classmethod
    def of(cls, ranking: Ranking, shards: Sequence[int], candidates: Candidates, low: int, high: int | None) -> _Listed:
        """Those with a value from ``low`` to ``high``."""
        columns: list[list[NDArray]] = [[], [], [], [], []]
        for place, shard in enumerate(shards):
            rows = candidates(shard)
            values = ranking.values(rows)
            here = np.flatnonzero((values >= low) & ((values <= high) if high is not None else True))
            some = rows[here]
            parts: list[NDArray] = [
                np.full(len(here), place, dtype=np.uint32),
                here,
                values[here],
                some["tie"],
                some["output"],
            ]
            for column, part in zip(columns, parts, strict=True):
                column.append(part)
        shards_of, row, value, tie, output = (np.concatenate(column) for column in columns)
        return cls(shards_of, row, value, tie, output)

    def order(self) -> NDArray[np.int64]:
        """Best first. A shard's rows stand in the order of its documents."""
        return np.lexsort((self.row, self.shard, self.tie, -self.values))

    def firsts(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places in ``order`` at which an output span stands for the first time."""
        _, first = np.unique(self.output[order], axis=0, return_index=True)
        return np.sort(first)

    def rows_of(self, chosen: NDArray[np.int64], place: int) -> NDArray[np.int64]:
        """Of the chosen, the rows of one shard."""
        return self.row[chosen[self.shard[chosen] == place]]


def report(settings: SpanSettings, parts: Iterable[NDArray[np.void]]) -> dict[str, int]:
    """What high scores attract, counted among the chosen: output spans that occur again, and subsequences in full."""
    outputs, ceiling = [], 0
    for part in parts:
        outputs.append(part["output"])
        ceiling += int((part["ml"] == settings.shape.ceiling).sum())
    together = np.concatenate(outputs) if outputs else np.zeros((0, 2), dtype=np.uint64)
    distinct = len(np.unique(together, axis=0)) if len(together) else 0
    return {"duplicate_outputs": len(together) - distinct, "longest_subsequence_at_ceiling": ceiling}
