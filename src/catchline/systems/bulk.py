"""Many records to JSON lines: in this process, in several, or on a Ray cluster; the same lines whichever.

The unit of work is a window: as many records as `Summarizer.stream` reads ahead and sorts by length. Windows begin
at the same records whatever the number of processes and wherever an interrupted job goes on, so the same documents are
decoded together and the lines come out the same, byte for byte (with equal numbers of threads; another number may
change the last digit of a score).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from catchline.errors import CatchlineError, DataError
from catchline.explain.record import support_of, support_to_dict, to_dict
from catchline.jobs import Pool, Processes, RayCluster, batches, import_ray, in_order
from catchline.summarizer import BATCH, WINDOW_BATCHES, Summarizer
from catchline.systems.extractive import Progress
from catchline.types import Record, Summary

Note = Callable[[CatchlineError], object]


@dataclass(frozen=True)
class Request:
    """What is to be done with each record."""

    model: str
    device: str = "cpu"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    explain: bool = False
    batch_size: int | None = None
    skip_bad: bool = False
    always_write: bool = False
    trust_code: bool = False

    @property
    def window(self) -> int:
        """Records a window."""
        return WINDOW_BATCHES * (self.batch_size or BATCH)


@dataclass(frozen=True)
class Window:
    """Neighbouring records; ``first`` is the number of the first, counted from 1."""

    first: int
    records: list[Record]


@dataclass
class Finished:
    """A window's lines in order, what was skipped, and the error that stopped it."""

    lines: list[str] = field(default_factory=list)
    problems: list[CatchlineError] = field(default_factory=list)
    error: CatchlineError | None = None


def windows_of(records: Iterable[Record], size: int, first: int = 1) -> Iterator[Window]:
    """Cut a stream of records; the last window may be shorter."""
    for found in batches(records, size):
        yield Window(first, found)
        first += len(found)


class SummaryJob:
    """A summarizer with a request. Opening it raises what `Summarizer.from_pretrained` raises, and what the request's
    ``overrides`` are refused with."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.summarizer = Summarizer.from_pretrained(
            request.model, device=request.device, trust_code=request.trust_code
        )
        self.decoding = self.summarizer.decoding(**request.overrides)

    def run(
        self, records: Iterable[Record], advance: Progress | None = None, note: Note | None = None, first: int = 1
    ) -> Iterator[Any]:
        """Summaries in order; ``None`` for a record that was skipped. They are numbered from ``first``."""

        def skipped(record: Record, error: CatchlineError) -> None:
            where = "" if not record.origin or record.origin in str(error) else f"{record.origin}: "
            if note is not None:
                note(DataError(f"{where}{error}"))

        return self.summarizer.stream(
            records,
            explain=self.request.explain,
            batch_size=self.request.batch_size,
            progress=advance,
            on_error="skip" if self.request.skip_bad else "raise",
            on_skip=skipped,
            always_write=self.request.always_write,
            first=first,
            **self.request.overrides,
        )

    def lines(self, window: Window, advance: Progress | None = None, note: Note | None = None) -> Iterator[str]:
        """The JSON lines of a window.

        Raises:
            DataError: a record without text, unless bad records are skipped.
        """
        summaries = self.run(window.records, advance, note, window.first)
        for number, (record, summary) in enumerate(zip(window.records, summaries, strict=True), window.first):
            yield self.line(record, number, summary)

    def line(self, record: Record, number: int, summary: Summary | None) -> str:
        """The JSON line of a result."""
        name, explain = record.id or str(number), self.request.explain
        if summary is None:
            return json.dumps({"id": name, "summary": None, "model": self.summarizer.name})
        shown = summary if explain else replace(summary, words=())
        values = to_dict(shown, document=explain, attention=explain) | {"id": name}
        if shown.words:
            copied = sum(word.copied for word in shown.words)
            report = support_of(shown)
            checked = {} if report is None else support_to_dict(report)
            values["support"] = {"copied_words": copied, "words": len(shown.words), **checked}
        if self.request.always_write:
            values["always_write"] = True
        values["decoding"] = self.decoding
        return json.dumps(values, ensure_ascii=False)

    def finish(self, window: Window) -> Finished:
        """All of a window at once; an error comes back as a value, behind the lines before it."""
        done = Finished()
        try:
            done.lines.extend(self.lines(window, note=done.problems.append))
        except CatchlineError as error:
            done.error = error
        return done


# ------------------------------------------------------------------------------------- several at once

Lines = Callable[[Iterable[Window], Progress], Iterator[str]]


def lines_of(request: Request, jobs: int | None, ray: bool, note: Note) -> Lines:
    """What makes the lines of windows: this process (the model is opened here and now), ``jobs`` of them, or Ray.

    Raises:
        ConfigError: Ray is not installed.
    """
    option = "--jobs"
    if ray:
        import_ray(option)  # told before anything is read or written
        gpu = request.device.startswith("cuda")
        return partial(_pooled, request, partial(RayCluster, jobs, option=option, gpu=gpu), note)
    if jobs is not None and jobs > 1:
        return partial(_pooled, request, partial(Processes, jobs, option=option), note)
    job = SummaryJob(request)
    return lambda windows, advance: (line for window in windows for line in job.lines(window, advance, note))


def _pooled(
    request: Request, start: Callable[[], Pool], note: Note, windows: Iterable[Window], advance: Progress
) -> Iterator[str]:
    """Through a pool that is started for these windows and closed behind them."""
    with closing(start()) as pool:
        for done in in_order(pool, partial(_finish, request), windows):
            for problem in done.problems:
                note(problem)
            yield from done.lines
            advance(len(done.lines))
            if done.error is not None:
                raise done.error


_opened: dict[str, SummaryJob] = {}  # of a worker process, which opens one model and keeps it


def _finish(request: Request, window: Window) -> Finished:
    if "job" not in _opened or _opened["job"].request != request:
        try:
            _opened["job"] = SummaryJob(request)
        except CatchlineError as error:
            return Finished(error=error)
    return _opened["job"].finish(window)
