"""Micro-batching: documents of concurrent requests that ask for the same thing are worked on together, by one thread.

The next batch is made of the document whose turn it is and of those with the same key and nearly the same length. Time
is counted in batches: the first ``max_batch`` documents of a request are due now, the next as many one batch later, and
so on. So a large request lets a small one in between its batches, and nobody starves.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from catchline.errors import CatchlineError
from catchline.server.schemas import ProblemError
from catchline.server.settings import Settings

T = TypeVar("T")
log = logging.getLogger(__name__)


class AbandonedError(Exception):
    """Nobody waits for this batch any more."""


@dataclass(eq=False, slots=True)
class Job:
    """One document to be worked on."""

    key: Hashable  # jobs with equal keys may share a batch
    size: int  # the length that counts for padding
    payload: Any
    future: Future[Any] = field(default_factory=Future)
    abandoned: bool = False  # a batch ends when all of it is
    due: int = 0
    submitted: float = 0.0
    started: float = 0.0

    def abandon(self) -> None:
        """Nobody waits for the result."""
        self.abandoned = True
        self.future.cancel()


# ``work(jobs, check)`` gives one result a job; ``check()`` raises `AbandonedError` when it has no purpose.
Work = Callable[[Sequence[Job], Callable[[], None]], Sequence[Any]]
OnBatch = Callable[[Sequence[Job], float], None]  # called by the worker with each batch and its seconds


class Batcher:
    """A queue and the thread that empties it."""

    def __init__(self, name: str, work: Work, settings: Settings, on_batch: OnBatch) -> None:
        self.name, self.settings = name, settings
        self._work, self._on_batch = work, on_batch
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self._changed = threading.Condition()
        self._batches = 0
        self._seconds_each = 0.05  # running mean of the seconds a document
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; also again after `stop`."""
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, name=f"catchline-{self.name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue the jobs of one request, all or none.

        Raises:
            ProblemError: there is no room for all of them.
        """
        now = time.monotonic()
        with self._changed:
            self.waiting = [job for job in self.waiting if not job.future.cancelled()]
            if self._stopping or len(self.waiting) + len(jobs) > self.settings.max_queue:
                seconds = min(60, max(1, math.ceil(self._seconds_each * len(self.waiting))))
                reason = f"{len(self.waiting)} documents wait already; try again in {seconds} s."
                raise ProblemError("queue_full", reason, {"Retry-After": str(seconds)})
            for number, job in enumerate(jobs):
                job.due = self._batches + number // self.settings.max_batch
                job.submitted = now
            self.waiting.extend(jobs)
            self._changed.notify()

    def stop(self, timeout: float) -> bool:
        """Take no more jobs, finish those there are, end the thread; false if that took too long."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout)
        return not self.alive

    def abandon(self) -> None:
        """Give up what waits and what runs; the latter ends at its next step."""
        with self._changed:
            for job in (*self.waiting, *self.running):
                job.abandon()

    def _serve(self) -> None:
        while (batch := self._next()) is not None:
            if not batch:
                continue
            self.running = batch
            started = time.monotonic()
            for job in batch:
                job.started = started
            self._run(batch)
            seconds = time.monotonic() - started
            self._seconds_each += 0.2 * (seconds / len(batch) - self._seconds_each)
            self.running = []
            self._on_batch(batch, seconds)

    def _next(self) -> list[Job] | None:
        """Wait for work: a batch, empty if all of it was cancelled just now; ``None`` when there will be no more."""
        with self._changed:
            was_idle = not self.waiting
            while True:
                batch = self._choose()
                if not batch:
                    if self._stopping:
                        return None
                    self._changed.wait()
                    was_idle = True
                    continue
                opened = min(job.submitted for job in batch)
                left = opened + self.settings.batch_wait - time.monotonic()
                if not was_idle or left <= 0 or len(batch) == self.settings.max_batch or self._stopping:
                    break
                self._changed.wait(left)
            self._batches += 1
            self.waiting = [job for job in self.waiting if job not in batch]
        return [job for job in batch if job.future.set_running_or_notify_cancel()]

    def _choose(self) -> list[Job]:
        self.waiting = [job for job in self.waiting if not job.future.cancelled()]
        if not self.waiting:
            return []
        head = min(self.waiting, key=lambda job: job.due)  # the first of those that are due
        others = [job for job in self.waiting if job.key == head.key and job is not head]
        others.sort(key=lambda job: (abs(job.size - head.size), job.due))
        batch, longest = [head], head.size
        for job in others[: self.settings.max_batch - 1]:
            longest = max(longest, job.size)
            if longest * (len(batch) + 1) > self.settings.max_batch_tokens:
                break
            batch.append(job)
        return batch

    def _run(self, batch: list[Job]) -> None:
        """Work on a batch; if it fails, on each of its jobs alone, so that one bad document spoils no other."""

        def check() -> None:
            if all(job.abandoned for job in batch):
                raise AbandonedError

        try:
            for job, result in zip(batch, self._work(batch, check), strict=True):
                job.future.set_result(result)
        except BaseException as error:  # a library in Rust that panics raises no Exception
            if len(batch) > 1 and not isinstance(error, AbandonedError):
                for job in batch:
                    self._run([job])
                return
            if not isinstance(error, AbandonedError | CatchlineError):
                log.exception("A document could not be summarized")
            for job in batch:
                job.future.set_exception(error if isinstance(error, Exception) else RuntimeError("the worker failed"))


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

    def call(self, check: Callable[[], object], function: Callable[..., T], *arguments: Any) -> T:
        """``function(*arguments)`` in the process; everything passed is pickled.

        Raises:
            Exception: what ``function`` raises; or ``check``, which is called meanwhile: then the process is ended.
            WorkerDiedError: the process died.
        """
        with self._lock:
            if self._process is None or not self._process.is_alive():
                self._start()
            try:
                self._pipe.send((function, arguments))
                while not self._pipe.poll(CHECK_SECONDS):
                    check()
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
