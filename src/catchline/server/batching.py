"""Micro-batching: documents of concurrent requests that ask for the same thing are worked on together, in one thread.

A batch holds the document that has waited longest and those with the same key that are nearest to its length. A
`Worker` is a process, for work that nothing else can end.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from catchline.errors import CatchlineError
from catchline.server.schemas import ProblemError, Settings

T = TypeVar("T")
log = logging.getLogger(__name__)
RETRY_SECONDS = 5


class AbandonedError(Exception):
    """Nobody waits for this batch any more."""


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


@dataclass(eq=False, slots=True)
class Job:
    """One document to be worked on; cancelling its future gives it up."""

    key: Hashable  # jobs with equal keys may share a batch
    size: int  # the length that counts for padding
    payload: Any
    future: asyncio.Future[Any] = field(default_factory=_future)
    submitted: float = field(default_factory=time.monotonic)
    started: float = 0.0


# ``work(jobs, check)`` gives one result a job; ``check()`` raises `AbandonedError` when it has no purpose.
Work = Callable[[Sequence[Job], Callable[[], None]], Sequence[Any]]
OnBatch = Callable[[Sequence[Job], float], None]  # called with each batch and its seconds


class Batcher:
    """A queue, and the task that empties it; a thread does the work."""

    def __init__(self, name: str, work: Work, settings: Settings, on_batch: OnBatch) -> None:
        self.name, self.settings = name, settings
        self._work, self._on_batch = work, on_batch
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self._submitted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._thread = ThreadPoolExecutor(1, f"catchline-{self.name}")
        self._task = asyncio.create_task(self._serve())

    async def stop(self) -> None:
        """Give up what waits and what runs, which ends at its next step."""
        for job in (*self.waiting, *self.running):
            job.future.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.to_thread(self._thread.shutdown)

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue the jobs of one request, all or none. Raises ProblemError: there is no room for all of them."""
        self.waiting = [job for job in self.waiting if not job.future.done()]
        if len(self.waiting) + len(jobs) > self.settings.max_queue:
            reason = f"{len(self.waiting)} documents wait already; try again in {RETRY_SECONDS} s."
            raise ProblemError("queue_full", reason, {"Retry-After": str(RETRY_SECONDS)})
        self.waiting.extend(jobs)
        self._submitted.set()

    async def _serve(self) -> None:
        while True:
            await self._submitted.wait()
            self._submitted.clear()
            await asyncio.sleep(self.settings.batch_wait)  # for more documents
            while batch := self._next():
                self.running, started = batch, time.monotonic()
                for job in batch:
                    job.started = started
                results = await asyncio.get_running_loop().run_in_executor(self._thread, self._results, batch)
                for job, result in zip(batch, results, strict=True):
                    if isinstance(result, Exception) and not job.future.done():
                        job.future.set_exception(result)
                    elif not job.future.done():
                        job.future.set_result(result)
                self.running = []
                self._on_batch(batch, time.monotonic() - started)

    def _next(self) -> list[Job]:
        """Take the next batch out of the queue; an empty one if nothing waits."""
        self.waiting = [job for job in self.waiting if not job.future.done()]
        batch = [job for job in self.waiting if job.key == self.waiting[0].key]
        batch = sorted(batch, key=lambda job: abs(job.size - batch[0].size))[: self.settings.max_batch]
        while len(batch) > 1 and len(batch) * max(job.size for job in batch) > self.settings.max_batch_tokens:
            batch.pop()
        self.waiting = [job for job in self.waiting if job not in batch]
        return batch

    def _results(self, batch: Sequence[Job]) -> list[Any]:
        """A result or an error for each job. If a batch fails, each of its jobs is worked on alone, so that one bad
        document spoils no other."""

        def check() -> None:
            if all(job.future.done() for job in batch):
                raise AbandonedError

        try:
            return list(self._work(batch, check))
        except BaseException as error:  # a library in Rust that panics raises no Exception
            if len(batch) > 1 and not isinstance(error, AbandonedError):
                return [result for job in batch for result in self._results([job])]
            if not isinstance(error, AbandonedError | CatchlineError | ProblemError):
                log.exception("A document could not be summarized")
            usual = isinstance(error, Exception) and not isinstance(error, StopIteration)  # no future takes that one
            return [error if usual else RuntimeError("the worker failed")] * len(batch)


# ------------------------------------------------------------ a process

CHECK_SECONDS = 0.05


class WorkerDiedError(Exception):
    """The process ended by itself, for example because memory ran out."""


class Worker:
    """One process, started at the first call and again after it was ended. It answers one call at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection

    def call(self, check: Callable[[float], object], function: Callable[..., T], *arguments: Any) -> T:
        """``function(*arguments)`` in the process; everything passed is pickled. ``check`` is called meanwhile with the
        seconds that have passed. Raises Exception: what ``function`` raises; or ``check``: then the process is ended;
        WorkerDiedError: the process died."""
        with self._lock:
            if self._process is None or not self._process.is_alive():
                self._start()
            began = time.monotonic()
            try:
                self._pipe.send((function, arguments))
                while not self._pipe.poll(CHECK_SECONDS):
                    check(time.monotonic() - began)
                succeeded, result = self._pipe.recv()
            except (EOFError, OSError) as error:
                self.stop()
                raise WorkerDiedError("The process that worked on the document ended.") from error
            except BaseException:
                self.stop()
                raise
        if not succeeded:
            raise result
        return result

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy locks that other threads hold
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_answer, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe.recv()  # it has started and imported: from now on time counts


def _answer(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the service, which ends this process
    import_module("catchline.server.service")  # with the functions that it is asked to run
    pipe.send("ready")
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, function(*arguments)))
        except BaseException as error:  # a library in Rust that panics raises no Exception
            pipe.send((False, error if isinstance(error, Exception) else RuntimeError(str(error))))
