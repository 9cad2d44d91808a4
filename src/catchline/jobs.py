"""Work for several processes or threads of this machine: one parallel map, in order, over `concurrent.futures`."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing import connection
from typing import Any, TypeVar

from catchline.errors import CatchlineError

T = TypeVar("T")
R = TypeVar("R")

_work: Callable[[Any], Any] | None = None  # in a worker: what it does


def parallel(
    work: Callable[[T], R],
    items: Iterable[T],
    workers: int | None = None,
    *,
    option: str = "threads (OMP_NUM_THREADS)",
    fork: bool = True,
) -> Iterator[R]:
    """``work`` of each item, in order, by ``workers`` processes (one a thread if not given), at most two items each on
    their way. An error of reading the items comes after the results of what was read before.

    With ``fork`` the processes are copies of this one: ``work`` may be any function. With one worker, one item, or
    where processes are not copied, this process works. Without ``fork`` they start anew, and ``work`` travels to each.
    Raises CatchlineError: a worker died; ``option`` is what the user gave the number of workers with.
    """
    problems: list[CatchlineError] = []

    def readable() -> Iterator[T]:
        try:
            yield from items
        except CatchlineError as error:
            problems.append(error)

    workers, incoming = workers or threads_each(1), readable()
    first = list(islice(incoming, 2))
    if fork and (workers <= 1 or len(first) < 2 or not copies()):
        yield from map(work, chain(first, incoming))
    else:
        yield from _divided(work, chain(first, incoming), workers, option, "fork" if fork else "spawn")
    if problems:
        raise problems[0]


def _divided(work: Callable[[T], R], items: Iterable[T], workers: int, option: str, method: str) -> Iterator[R]:
    others, waiting = set(multiprocessing.active_children()), deque[Future[R]]()
    context = multiprocessing.get_context(method)
    pool = ProcessPoolExecutor(workers, context, _begin, (work, threads_each(workers)))
    try:
        for item in items:
            with _safe_path():  # processes start when there is something to do
                waiting.append(pool.submit(_do, item))
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise CatchlineError(
            "A worker process died (out of memory?). What was complete is kept; run the same command again, with fewer "
            f"{option} if memory is short."
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
            process.join(10)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Processes that start meanwhile take no modules of the standard library from the working directory."""
    before = os.environ.get("PYTHONSAFEPATH", "")  # empty is as if it were not set
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        os.environ["PYTHONSAFEPATH"] = before


def _begin(work: Callable[[Any], Any], threads: int) -> None:
    global _work
    _work = work
    gc.freeze()  # what a fork brought along stays; to look through it again and again costs time and pages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says what an interruption means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    limit_threads(threads)
    parent = multiprocessing.parent_process()
    if parent is not None:  # which may be killed, and cannot end its children then

        def end() -> None:
            connection.wait([parent.sentinel])
            os._exit(1)

        threading.Thread(target=end, daemon=True).start()


def _do(item: Any) -> Any:
    assert _work is not None
    return _work(item)


class StoppedError(Exception):
    """Nobody wants the result any more."""


# its second argument raises `StoppedError` when called too late; None for the only thread
Threaded = Callable[[T, Callable[[], None] | None], R]


def threaded(
    work: Threaded[T, R], items: Sequence[T], workers: int, begin: Callable[[], object] | None = None
) -> Generator[R, None, None]:
    """``work`` of each item, in order, by ``workers`` threads, which call ``begin`` first; with one by this thread. An
    error, or an end before the last result, stops all of them."""
    if workers <= 1:
        yield from (work(item, None) for item in items)
        return
    stopped = threading.Event()

    def proceed() -> None:
        if stopped.is_set():
            raise StoppedError

    pool = ThreadPoolExecutor(workers, "catchline", begin)
    try:
        yield from pool.map(work, items, [proceed] * len(items))
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of ``size`` items, the last perhaps shorter."""
    incoming = iter(items)
    while batch := list(islice(incoming, size)):
        yield batch


def copies() -> bool:
    """Can a process that has threads be copied? On macOS system libraries may crash in the copy; Windows has none."""
    return sys.platform == "linux"


def threads_each(workers: int) -> int:
    """The threads of this process, divided."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, (int(given) if given.isdigit() and int(given) else cores) // workers)


def limit_threads(threads: int) -> None:
    """For a process that has not imported libraries with threads yet."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[name] = str(threads)
