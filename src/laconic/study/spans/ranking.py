"""Between the passes: which candidates of all shards are the best K, exactly.

With fixed lengths a score is a function of three counts, of which there are at most some ten thousand combinations. So
from the histograms of the shards the exact score is found at which K is reached. Of the candidates that score as much
or more the best K are taken, equals in the order of a stable hash of their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.errors import DataError
from laconic.study.spans.settings import SpanSettings

Candidates = Callable[[int], NDArray[np.void]]


def best_candidates(
    settings: SpanSettings, histogram: Sequence[Sequence[int]], shards: Sequence[int], candidates: Candidates
) -> tuple[list[NDArray[np.int64]], dict[str, Any]]:
    """The best K of the candidates of some shards (those of a shard by its number), or all where there are fewer: the
    chosen rows of each shard, ascending, and for JSON the lowest chosen score, ``value`` as a whole number, with how
    many lie above and at it. ``histogram`` has m1, m2, ml and how many candidates have these.

    Where output spans are to differ, a candidate whose output a better one has too is passed over. So many are listed
    then as have K different outputs among them; how many those are is known only afterwards.

    Raises:
        DataError: none is left without those that ``--drop-ceiling`` drops.
    """
    *counts, numbers = np.array(histogram, dtype=np.int64).reshape(-1, 4).T
    known = _values(settings, *counts)
    total = int(numbers[known >= 0].sum())
    if not total:
        raise DataError("All candidates were dropped because of --drop-ceiling.")
    falling = np.argsort(-known)
    reached = numbers[falling].cumsum()
    wanted = min(settings.k, total)
    distinct = settings.drop_duplicate_outputs
    while True:
        low = known[falling[np.searchsorted(reached, wanted)]]  # the largest value that ``wanted`` have or exceed
        shard, row, values, tie, output = _listed(settings, shards, candidates, low, distinct)
        order = np.lexsort((row, shard, tie, -values))  # best first
        good = order
        if distinct:
            _, first = np.unique(output[order], axis=0, return_index=True)
            good = order[np.sort(first)]
        if len(good) >= settings.k or len(order) == total:
            break
        wanted = min(total, len(order) + settings.k - len(good))
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
        "ceiling_dropped": int(numbers.sum()) - total,
        "exact": str(score),
    }


def _values(settings: SpanSettings, m1: NDArray, m2: NDArray, ml: NDArray) -> NDArray[np.int64]:
    """The value of each candidate with these counts, -1 where it is left out."""
    values = np.zeros(len(m1), dtype=np.int64) if settings.random else settings.key.value(m1, m2, ml)
    if settings.drop_ceiling:
        values[ml == settings.shape.ceiling] = -1
    return values


def _listed(
    settings: SpanSettings, shards: Sequence[int], candidates: Candidates, low: int, distinct: bool
) -> Iterator[NDArray[Any]]:
    """Side by side the shard, row, value, tie and output of each candidate with a value of at least ``low``; no outputs
    where these need not be ``distinct``. The rows of a shard stand in the order of its documents."""
    parts = []
    for place, shard in enumerate(shards):
        rows = candidates(shard)
        values = _values(settings, rows["m1"], rows["m2"], rows["ml"])
        here = np.flatnonzero(values >= low)
        outputs = rows["output"][here if distinct else here[:0]]
        numbers = np.full(len(here), place, dtype=np.uint32)
        parts.append((numbers, here, values[here], rows["tie"][here], outputs))
    return map(np.concatenate, zip(*parts, strict=True))
