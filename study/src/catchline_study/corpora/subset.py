"""Data sets made of others: parts, by the length of their documents or at random, always in the order of the file; and
haystacks, many documents in random order behind the first sentence of one of them, whose summary is to be written.

Coarse-to-fine attention is for reading little of much. The needle stands in the haystack without its first sentence,
so that it has to be found by what it is about. Each line has the needle's id and the characters of its place, by which
one can see whether what was read is what was asked for.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from catchline.errors import DataError
from catchline.files import part_of
from catchline.text.sentences import split_sentences
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
    """The places of the chosen documents, in order; documents of equal length stand in the order of the file. Raises
    DataError: nothing is left, or there are too few documents for what is asked."""
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


# ------------------------------------------------------------------------------------------ haystacks

BETWEEN = "\n\n"
MIN_SENTENCES = 3  # of a document that may be the needle


def build_haystacks(
    out: Path,
    records: Sequence[Record],
    *,
    documents: int,
    count: int,
    seed: int = 0,
    progress: Callable[[], object] | None = None,
) -> int:
    """Write ``count`` haystacks of this many documents each to the file ``out``; returns the mean number of words. No
    record is a needle twice before all were; what lies around it is drawn anew for each haystack. Raises DataError:
    there are fewer records than documents of a haystack, or none has three sentences."""
    needles = [number for number, record in enumerate(records) if _parts(record.document)]
    if len(records) < documents or not needles:
        raise DataError(
            f"{len(records):,} documents, {len(needles):,} of them with {MIN_SENTENCES} sentences: too few for "
            f"haystacks of {documents:,}."
        )
    generator = random.Random(seed)
    order, words = list[int](), 0
    with part_of(out) as handle:
        for number in range(count):
            order = order or generator.sample(needles, len(needles))
            needle = order.pop()
            others = [other for other in generator.sample(range(len(records)), documents) if other != needle]
            texts = [records[other].document for other in others[: documents - 1]]
            question, rest = _parts(records[needle].document)
            place = generator.randrange(documents)
            texts.insert(place, rest)
            start = len(BETWEEN.join([question, *texts[:place], ""]))
            document = BETWEEN.join([question, *texts])
            row = {
                "id": f"{number}-{records[needle].id or needle}",
                "document": document,
                "summary": records[needle].summary,
                "needle": records[needle].id or str(needle),
                "place": [start, start + len(rest)],
            }
            handle.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            words += len(document.split())
            if progress:
                progress()
    return round(words / count)


def _parts(document: str) -> list[str]:
    """The first sentence and the others; nothing where they are too few."""
    spans = split_sentences(document)
    enough = len(spans) >= MIN_SENTENCES
    return [document[slice(*spans[0])].strip(), document[spans[1][0] :].strip()] if enough else []
