"""Records read and worked on in pieces, by several processes; JSON lines are not even parsed before they are divided.

Whoever reads in pieces finds what `catchline.data.readers.read_with` finds, in the same order, and the first error too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from catchline.data.columns import Columns
from catchline.data.lines import BadRecordError, raw_lines
from catchline.data.readers import OnChoice, OnSkip, ReadOptions, judged, nothing_usable, places_of, read_with
from catchline.data.tables import first_columns, read_jsonl
from catchline.errors import DataError
from catchline.jobs import THREADS, batches, forked, unasked_workers
from catchline.types import Record

R = TypeVar("R")
RECORDS = 1000  # a piece of work of a process
BYTES = 3_000_000  # the same, of lines: the larger, the more words a piece has in common with others
Lines = tuple[Path, int, list[bytes], Columns | None]  # of one file, from a line number on; what its first record chose


def read_in_pieces(
    path: str | Path,
    options: ReadOptions,
    work: Callable[[list[Record]], R],
    *,
    most: int | None = None,
    on_skip: OnSkip = lambda _: None,
    on_choice: OnChoice = lambda _: None,
) -> Iterator[R]:
    """``work`` of the records, piece by piece in their order, in one process a thread; of ``most`` records if given.

    Raises:
        DataError: as reading them one by one would; what comes before has been worked on.
    """
    kind, places = places_of(str(path), options.format)
    divisible = kind == "jsonl" and most is None
    found: Iterable[Lines | list[Record]] = (
        _pieces(places, options, on_choice)
        if divisible
        else batches(islice(read_with(path, options, on_skip=on_skip, on_choice=on_choice), most), RECORDS)
    )

    def worked(piece: Lines | list[Record]) -> tuple[R, int, list[BadRecordError], DataError | None]:
        records, bad, error = _parsed(piece, options) if isinstance(piece, tuple) else (piece, [], None)
        return work(records), len(records), bad, error

    good = bad = 0
    for result, count, problems, error in forked(worked, found, unasked_workers(), option=THREADS):
        good, bad = good + count, bad + len(problems)
        for problem in problems:
            on_skip(problem)
        yield result
        if error is not None:
            raise error
    if divisible and not good:
        raise nothing_usable(str(path), bad)


def _parsed(piece: Lines, options: ReadOptions) -> tuple[list[Record], list[BadRecordError], DataError | None]:
    """The usable records, the bad ones that are left out, and the error that ended the reading."""
    path, first, lines, columns = piece
    records: list[Record] = []
    bad: list[BadRecordError] = []
    try:
        for record in judged(read_jsonl(path, options, enumerate(lines, start=first), columns), options):
            if isinstance(record, BadRecordError):
                bad.append(record)
            else:
                records.append(record)
    except DataError as error:
        return records, bad, error
    return records, bad, None


def _pieces(places: list[Path], options: ReadOptions, on_choice: OnChoice) -> Iterator[Lines]:
    for place in places:
        table = replace(options, on_choice=on_choice) if place == places[0] else options
        columns, first, lines, size = None, 1, list[bytes](), 0
        for number, line in raw_lines(place):
            lines.append(line)
            size += len(line)
            if size > BYTES:
                columns = columns or first_columns(place, table, lines)
                yield place, first, lines, columns
                first, lines, size = number + 1, [], 0
        if lines:
            yield place, first, lines, columns or first_columns(place, table, lines)
