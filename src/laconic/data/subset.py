"""Parts of a data set by the length of its documents, and random samples; always in the order of the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from laconic.errors import DataError
from laconic.files import part_of
from laconic.types import Record


@dataclass(frozen=True, slots=True)
class SubsetOptions:
    """What `choose` keeps, one step after the other: lengths within bounds; by mean; a random sample.

    ``shortest_mean``: the longest list of shortest documents whose mean length is at most so much. ``window_mean``: as
    many documents, consecutive in the order of length and all behind that list, whose mean is nearest to so much
    (specification distraction f, subset-1 and subset-2 of Table 3).
    """

    min_tokens: int | None = None
    max_tokens: int | None = None
    shortest_mean: float | None = None
    window_mean: float | None = None
    sample: int | None = None
    seed: int = 1


def choose(lengths: Sequence[int], options: SubsetOptions) -> list[int]:
    """The places of the chosen documents, in order; documents of equal length stand in the order of the file.

    Raises:
        DataError: nothing is left, or there are too few documents for what is asked.
    """
    array = np.asarray(lengths, dtype=np.int64)
    kept = np.ones(len(array), dtype=bool)
    if options.min_tokens is not None:
        kept &= array >= options.min_tokens
    if options.max_tokens is not None:
        kept &= array <= options.max_tokens
    places = np.flatnonzero(kept)
    if not len(places):
        raise DataError("No document has a length within the bounds.")
    if options.shortest_mean is not None:
        places = _by_mean(array, places, options.shortest_mean, options.window_mean)
    if options.sample is not None:
        if options.sample > len(places):
            raise DataError(f"A sample of {options.sample:,} documents was asked for, but there are {len(places):,}.")
        places = np.random.default_rng(options.seed).choice(places, options.sample, replace=False)
    return np.sort(places).tolist()


def _by_mean(lengths: np.ndarray, places: np.ndarray, shortest: float, window: float | None) -> np.ndarray:
    order = places[np.argsort(lengths[places], kind="stable")]
    sums = np.concatenate([[0], np.cumsum(lengths[order])])
    means = sums[1:] / np.arange(1, len(order) + 1)  # they never fall
    count = int(np.searchsorted(means, shortest, side="right"))
    if not count:
        raise DataError(
            f"Even the shortest document has {lengths[order[0]]:,} tokens, more than the mean {shortest:g}."
        )
    if window is None:
        return order[:count]
    if len(order) < 2 * count:
        raise DataError(
            f"Behind the {count:,} shortest documents there are only {len(order) - count:,} others, not as many again."
        )
    starts = np.arange(count, len(order) - count + 1)
    distances = np.abs((sums[starts + count] - sums[starts]) / count - window)
    start = int(starts[int(distances.argmin())])
    return order[start : start + count]


def record_line(record: Record) -> str:
    """A record as a JSON line that `laconic.data.readers` reads back as it is."""
    fields: dict[str, object] = {"id": record.id, "document": record.document, "summary": record.summary}
    if record.references and record.references != (record.summary,):
        fields["references"] = list(record.references)
    if record.sentences:
        fields["sentences"] = list(record.sentences)
    return json.dumps(fields, ensure_ascii=False) + "\n"


def write_records(path: Path, records: Iterable[Record], progress: Callable[[int], object] | None = None) -> int:
    """Write JSON lines beside ``path`` and rename when complete; returns how many."""
    count = 0
    with part_of(path) as file:
        for record in records:
            file.write(record_line(record).encode("utf-8"))
            count += 1
            if progress:
                progress(1)
    return count
