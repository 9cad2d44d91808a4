"""Parts of a data set: documents chosen by their length or at random, always in the order of the file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from catchline.config.shipped import place_of
from catchline.data.checks import WORD
from catchline.data.dataset import record_gaps
from catchline.errors import ConfigError, DataError
from catchline.text.base import TOKENIZER_FILE
from catchline.text.tokenizer import Tokenizer
from catchline.types import Record


@dataclass(frozen=True, slots=True)
class SubsetOptions:
    """What `choose` keeps, one step after the other: lengths within bounds; by mean; the last ones; a random sample.

    ``shortest_mean``: the longest list of shortest documents whose mean length is at most so much. ``window_mean``: as
    many documents, consecutive in the order of length and all behind that list, whose mean is nearest to so much
    (subset-1 and subset-2 of Table 3 of Chen et al., 2016).
    """

    min_tokens: int | None = None
    max_tokens: int | None = None
    shortest_mean: float | None = None
    window_mean: float | None = None
    last: int | None = None
    sample: int | None = None
    seed: int = 1


def choose(lengths: Sequence[int], options: SubsetOptions) -> list[int]:
    """The places of the chosen documents, in order; documents of equal length stand in the order of the file.

    Raises:
        DataError: nothing is left, or there are too few documents for what is asked.
    """
    array = np.asarray(lengths, dtype=np.int64)
    kept = array >= (options.min_tokens or 0)
    if options.max_tokens is not None:
        kept &= array <= options.max_tokens
    places = np.flatnonzero(kept)
    if not len(places):
        raise DataError("No document has a length within the bounds.")
    if options.shortest_mean is not None:
        places = _by_mean(array, places, options.shortest_mean, options.window_mean)
    fewest = len(places) if options.last is None else options.last
    for asked, there in ((options.last, len(places)), (options.sample, fewest)):
        if asked is not None and asked > there:
            raise DataError(f"{asked:,} documents were asked for, but there are {there:,}.")
    if options.last is not None:
        places = np.sort(places)[-options.last :]
    if options.sample is not None:
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


def counter_of(spec: str) -> Callable[[Record], tuple[int, int]]:
    """What counts the tokens of both sides of a record: ``words`` (and signs, Han characters one each), ``blanks``
    (what is between blanks), or the folder of a model, run or tokenizer.

    Raises:
        ConfigError: neither a rule nor such a folder.
    """
    if spec in ("words", "blanks"):
        cut: Callable[[str], list[str]] = WORD.findall if spec == "words" else str.split
        return lambda record: (len(cut(record.document)), len(cut(record.summary)))
    folder = place_of(spec)
    place = next((p for p in (folder, folder / "tokenizer", folder / "model") if (p / TOKENIZER_FILE).is_file()), None)
    if place is None:
        raise ConfigError(f"--tokens '{spec}' is neither words, blanks nor a folder with a {TOKENIZER_FILE}.")
    tokenizer = Tokenizer.load(place)
    separator = tokenizer.separator

    def count(record: Record) -> tuple[int, int]:
        gaps = None if separator is None else record_gaps(record, separator)
        document, summary = tokenizer.encode_stream([record.document, record.summary], max_tokens=1, gaps=gaps)
        return document.total, summary.total

    return count
