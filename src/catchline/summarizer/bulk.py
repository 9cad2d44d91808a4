"""Many records to JSON lines: in this process, in several, or by Ray Data on a cluster."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from catchline.errors import CatchlineError, ConfigError, installing
from catchline.explain.record import support_of, support_to_dict, to_dict
from catchline.jobs import batches, parallel
from catchline.summarizer.extractive import Progress, System
from catchline.summarizer.summarize import WINDOW_BATCHES, OnSkip, Request
from catchline.text.control import json_line
from catchline.types import Record, Summary

Chunk = tuple[int, list[Record]]  # the number of the first record, counted from 1, and the records
Result = tuple[list[str], list[CatchlineError], CatchlineError | None]  # lines, skipped, the error that ended it
Lines = Callable[[Iterable[Record], int, Progress], Iterator[str]]  # of records, the first one's number, progress


class SummaryJob:
    """A summarizer with a request. Raises CatchlineError: the model cannot be opened, or refuses the request's
    ``overrides``."""

    def __init__(self, request: Request) -> None:
        self.request, self.summarizer = request, request.open()

    def lines(
        self, records: Iterable[Record], first: int, advance: Progress | None = None, on_skip: OnSkip | None = None
    ) -> Iterator[str]:
        """A JSON line for each record. Raises DataError: a record without text, unless bad records are skipped."""
        names: list[str] = []

        def named() -> Iterator[Record]:
            for number, record in enumerate(records, first):
                names.append(record.id or str(number))
                yield record

        summaries = self.request.summaries(self.summarizer, named(), advance, on_skip, first)
        for place, summary in enumerate(summaries):
            yield self.line(names[place], summary)

    @cached_property
    def _decoding(self) -> dict[str, Any]:
        return self.summarizer.decoding(**self.request.overrides)

    def line(self, name: str, summary: Summary | None) -> str:
        """The JSON line of a result."""
        explain = self.request.explain
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
        values["decoding"] = self._decoding
        return json_line(values)


def lines_of(request: Request, jobs: int | None, ray: bool, on_skip: OnSkip) -> Lines:
    """A function that makes the lines: in this process, where the model is opened at once, in ``jobs`` processes, or by
    Ray Data. Raises CatchlineError: the model cannot be opened, or Ray is not installed."""
    if not ray and (jobs or 1) == 1:
        job = SummaryJob(request)
        return lambda records, first, advance: job.lines(records, first, advance, on_skip)
    results = partial(_by_ray, _import_ray()) if ray else _by_processes
    size = WINDOW_BATCHES * (request.batch_size or System.batch)

    def lines(records: Iterable[Record], first: int, advance: Progress) -> Iterator[str]:
        for made, skipped, error in results(request, jobs, _chunks(records, size, first)):
            for problem in skipped:
                on_skip(problem)
            yield from made
            advance(len(made))
            if error is not None:
                raise error

    return lines


def _chunks(records: Iterable[Record], size: int, first: int) -> Iterator[Chunk]:
    for chunk in batches(records, size):
        yield first, chunk
        first += len(chunk)


def _by_processes(request: Request, jobs: int | None, chunks: Iterable[Chunk]) -> Iterator[Result]:
    yield from parallel(partial(_result, request), chunks, jobs or 1, option="--jobs", fork=False)


_opened: list[SummaryJob] = []  # of a worker process, which opens one model and keeps it


def _result(request: Request, chunk: Chunk) -> Result:
    lines: list[str] = []
    skipped: list[CatchlineError] = []
    try:
        if not _opened or _opened[0].request != request:
            _opened[:] = [SummaryJob(request)]
        lines.extend(_opened[0].lines(chunk[1], chunk[0], on_skip=skipped.append))
    except CatchlineError as error:
        return lines, skipped, error
    return lines, skipped, None


# ------------------------------------------------------------------------------------------- Ray Data


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported anywhere
    try:
        import ray.data
    except ImportError:
        raise ConfigError(f"--ray needs Ray: {installing('ray')}; or use --jobs on this machine.") from None
    return ray


def _by_ray(ray: Any, request: Request, jobs: int | None, chunks: Iterable[Chunk]) -> Iterator[Result]:
    """Map the chunks on the cluster that ``RAY_ADDRESS`` names, or on this machine. Every node needs catchline, and
    files under the same path."""
    try:
        if not ray.is_initialized():
            ray.init(log_to_driver=False, logging_level="ERROR")
        context = ray.data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        rows = [{"chunk": pickle.dumps(chunk)} for chunk in chunks]
        results = ray.data.from_items(rows, override_num_blocks=max(1, len(rows))).map_batches(
            _RayWorker,
            fn_constructor_args=(request,),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(len(rows), jobs or int(ray.cluster_resources().get("CPU", 1)))),
            num_gpus=int(request.device.startswith("cuda")),
        )
        for row in results.iter_rows():
            yield pickle.loads(row["result"])
    except ray.exceptions.RayError as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise CatchlineError(
            f"The Ray job failed ({reason}). Finished lines are kept; run the command again."
        ) from None
    finally:
        ray.shutdown()


class _RayWorker:
    """Opens the model once on a node and makes the lines of chunks."""

    def __init__(self, request: Request) -> None:
        self.request = request

    def __call__(self, batch: Any) -> dict[str, list[bytes]]:
        return {"result": [pickle.dumps(_result(self.request, pickle.loads(chunk))) for chunk in batch["chunk"]]}
