"""Many records to JSON lines: in this process, in several, or on a Ray cluster; the same lines whichever.

The unit of work is a window: as many records as `Summarizer.stream` reads ahead and sorts by length. Windows begin
at the same records whatever the number of processes and wherever an interrupted job goes on, so the same documents are
decoded together and the lines come out the same, byte for byte (with equal numbers of threads; another number may
change the last digit of a score).

A worker opens the model once. Results are handed on in order; at most two windows a worker are on their way.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing.connection import wait
from typing import Any, Protocol

from laconic.errors import ConfigError, DataError, LaconicError
from laconic.explain.record import support_of, support_to_dict, to_dict
from laconic.summarizer import WINDOW_BATCHES, Summarizer, as_record
from laconic.types import Record, Summary

Advance = Callable[[int], object]
Note = Callable[[Exception], object]


@dataclass(frozen=True)
class Request:
    """What is to be done with each record."""

    model: str
    device: str = "cpu"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    explain: bool = False
    batch_size: int = 16
    skip_bad: bool = False
    always_write: bool = False
    trust_code: bool = False

    @property
    def window(self) -> int:
        """Records a window."""
        return WINDOW_BATCHES * self.batch_size


@dataclass(frozen=True)
class Window:
    """Neighbouring records; ``first`` is the number of the first, counted from 1."""

    first: int
    records: list[Record]


@dataclass
class Finished:
    """A window's lines in order, what was skipped, and the error that stopped it."""

    lines: list[str] = field(default_factory=list)
    problems: list[LaconicError] = field(default_factory=list)
    error: LaconicError | None = None


def windows_of(records: Iterable[Record], size: int, first: int = 1) -> Iterator[Window]:
    """Cut a stream of records; the last window may be shorter."""
    incoming = iter(records)
    while found := list(islice(incoming, size)):
        yield Window(first, found)
        first += len(found)


class Job:
    """A summarizer with a request. Opening it raises what `Summarizer.from_pretrained` raises."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.summarizer = Summarizer.from_pretrained(
            request.model, device=request.device, trust_code=request.trust_code
        )
        self.decoding = self.summarizer.decoding(**request.overrides)

    def run(self, records: Iterable[Record], advance: Advance | None = None, note: Note | None = None) -> Iterator[Any]:
        """Summaries in order; ``None`` for a record that was skipped."""

        def skipped(record: Record, error: LaconicError) -> None:
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
            **self.request.overrides,
        )

    def lines(self, window: Window, advance: Advance | None = None, note: Note | None = None) -> Iterator[str]:
        """The JSON lines of a window.

        Raises:
            DataError: a record without text, unless bad records are skipped.
        """
        good: list[Record] = []
        bad: set[int] = set()
        for index, record in enumerate(window.records):
            try:
                good.append(as_record(record, window.first - 1 + index))
            except DataError as error:
                if not self.request.skip_bad:
                    raise
                bad.add(index)
                if note is not None:
                    note(error)
        if bad and advance is not None:
            advance(len(bad))
        summaries = self.run(good, advance, note)
        for index, record in enumerate(window.records):
            yield self.line(record, window.first + index, None if index in bad else next(summaries))

    def line(self, record: Record, number: int, summary: Summary | None) -> str:
        """The JSON line of a result."""
        name = record.id or str(number)
        if summary is None:
            return json.dumps({"id": name, "summary": None, "model": self.summarizer.name})
        explain = self.request.explain
        if not explain:
            summary = replace(summary, words=())
        values = to_dict(summary, document=explain, attention=explain) | {"id": name}
        if explain and summary.words:
            copied = sum(word.copied for word in summary.words)
            report = support_of(summary)
            values["support"] = {"copied_words": copied, "words": len(summary.words)}
            values["support"] |= {} if report is None else support_to_dict(report)
        values["decoding"] = self.decoding
        return json.dumps(values, ensure_ascii=False)

    def finish(self, window: Window) -> Finished:
        """All of a window at once; an error comes back as a value, behind the lines before it."""
        done = Finished()
        try:
            done.lines.extend(self.lines(window, note=lambda problem: done.problems.append(DataError(str(problem)))))
        except LaconicError as error:
            done.error = error
        return done


# ------------------------------------------------------------------------------------- several at once


class Pool(Protocol):
    """Workers that finish windows; ``submit`` gives a handle, ``result`` waits for it."""

    size: int

    def submit(self, window: Window) -> Any: ...
    def result(self, handle: Any) -> Finished: ...
    def close(self) -> None: ...


def in_order(pool: Pool, windows: Iterable[Window]) -> Iterator[Finished]:
    """What the pool makes of the windows, in their order. An error of reading them comes after what was read before."""
    waiting: deque[Any] = deque()
    problem: LaconicError | None = None
    incoming = iter(windows)
    while True:
        try:
            window = next(incoming, None)
        except LaconicError as error:
            problem, window = error, None
        if window is None:
            break
        waiting.append(pool.submit(window))
        if len(waiting) >= 2 * pool.size:
            yield pool.result(waiting.popleft())
    while waiting:
        yield pool.result(waiting.popleft())
    if problem is not None:
        raise problem


def pooled_lines(start: Callable[[], Pool], windows: Iterable[Window], advance: Advance, note: Note) -> Iterator[str]:
    """The lines of all windows, in order, through a pool that is started for them and closed behind them.

    Raises:
        LaconicError: what stopped a window, or a worker that died.
    """
    pool = start()
    try:
        for done in in_order(pool, windows):
            for problem in done.problems:
                note(problem)
            yield from done.lines
            advance(len(done.lines))
            if done.error is not None:
                raise done.error
    finally:
        pool.close()


def threads_each(jobs: int) -> int:
    """The threads of this process, divided."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, (int(given) if given.isdigit() and int(given) else cores) // jobs)


def limit_threads(threads: int) -> None:
    """For a process that has not imported the tensor library yet."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[name] = str(threads)


class ProcessPool:
    """``jobs`` processes of this machine; each opens the model once and gets its share of the threads."""

    def __init__(self, request: Request, jobs: int) -> None:
        self.size = jobs
        self._others = set(multiprocessing.active_children())
        self._executor = ProcessPoolExecutor(
            jobs,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(request, threads_each(jobs)),
        )

    def submit(self, window: Window) -> Future[Finished]:
        """Give a window to the next process that is free."""
        try:
            return self._executor.submit(_finish, window)
        except BrokenProcessPool:
            raise LaconicError(_DIED) from None

    def result(self, handle: Future[Finished]) -> Finished:
        """Wait for it.

        Raises:
            LaconicError: a process was killed, for example because memory ran out.
        """
        try:
            return handle.result()
        except BrokenProcessPool:
            raise LaconicError(_DIED) from None

    def close(self) -> None:
        """End the processes; what they are still working on is given up."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - self._others:
            process.terminate()


_DIED = (
    "A worker process died (out of memory?). What was complete is kept; run the same command again, with fewer --jobs "
    "if memory is short."
)
_worker: dict[str, Any] = {}  # of a worker process: its request, and the job once it is open


def _begin(request: Request, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says what an interruption means
    limit_threads(threads)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    _worker["request"] = request


def _end_with(sentinel: int) -> None:
    """A parent that is killed cannot end its workers."""
    wait([sentinel])
    os._exit(1)


def _finish(window: Window) -> Finished:
    if "job" not in _worker:
        try:
            _worker["job"] = Job(_worker["request"])
        except LaconicError as error:
            return Finished(error=error)
    return _worker["job"].finish(window)


def import_ray() -> Any:
    """The optional library.

    Raises:
        ConfigError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported anywhere
    try:
        import ray
    except ImportError:
        raise ConfigError("--ray needs Ray: pip install 'laconic[ray]', or use --jobs on this machine.") from None
    return ray


class RayPool:
    """Actors on a Ray cluster (``RAY_ADDRESS``), or on this machine where there is none.

    Every node needs laconic, and the model under the same path or by its id on the hub.
    """

    def __init__(self, request: Request, jobs: int | None = None) -> None:
        self._ray = ray = import_ray()
        if not ray.is_initialized():
            local = {} if os.environ.get("RAY_ADDRESS") else {"include_dashboard": False}
            ray.init(log_to_driver=False, logging_level="ERROR", **local)
        cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.size = jobs or cores
        share = cores // self.size or cores / self.size
        devices = 1 if request.device.startswith("cuda") else 0
        actor = ray.remote(num_cpus=share, num_gpus=devices)(_RayWorker)
        self._workers = [actor.remote(request, max(1, int(share))) for _ in range(self.size)]
        self._turn = 0

    def submit(self, window: Window) -> Any:
        """Give a window to the workers in turn."""
        worker = self._workers[self._turn % self.size]
        self._turn += 1
        return worker.finish.remote(window)

    def result(self, handle: Any) -> Finished:
        """Wait for it.

        Raises:
            LaconicError: the worker, or its machine, died.
        """
        try:
            return self._ray.get(handle)
        except self._ray.exceptions.RayActorError:
            raise LaconicError("A Ray worker died. What was complete is kept; run the same command again.") from None

    def close(self) -> None:
        """Let go of the workers and the cluster."""
        self._workers = []
        self._ray.shutdown()


class _RayWorker:
    """What runs on the cluster."""

    def __init__(self, request: Request, threads: int) -> None:
        limit_threads(threads)
        _worker.update(request=request)

    def finish(self, window: Window) -> Finished:
        """See `Job.finish`."""
        return _finish(window)
