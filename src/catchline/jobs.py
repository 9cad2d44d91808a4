"""Work for several processes of this machine or for a Ray cluster.

Work is a function of a module with one argument, so that it can travel; what it needs for long it keeps in its own
process. Errors that are the user's travel as values. At most two pieces a worker are on their way::

    with closing(Processes(4, option="--jobs")) as pool:
        for result in in_order(pool, work, items): ...
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from itertools import chain, islice
from multiprocessing import connection
from typing import Any, Generic, Protocol, TypeVar

from catchline.errors import CatchlineError, ConfigError

T = TypeVar("T")
R = TypeVar("R")

THREADS = "threads (OMP_NUM_THREADS)"  # `option` of those who take as many workers as there are threads
_STORE = 100_000_000  # bytes a worker in a local Ray's object store; what travels is small


class Pool(Protocol):
    """Workers; ``submit`` gives a piece of work to one of them, ``result`` waits for it.

    Both raise a `CatchlineError` where a worker died: it was killed, for example because memory ran out.
    """

    size: int

    def submit(self, work: Callable[[T], R], item: T) -> Future[R]: ...
    def result(self, future: Future[R]) -> R: ...
    def close(self) -> None: ...


def in_order(pool: Pool, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """The results in the order of the items. An error of reading these comes after what was read before."""
    waiting: deque[Future[R]] = deque()
    problems: list[CatchlineError] = []

    def incoming() -> Iterator[T]:
        try:
            yield from items
        except CatchlineError as error:
            problems.append(error)

    for item in incoming():
        waiting.append(pool.submit(work, item))
        if len(waiting) >= 2 * pool.size:
            yield pool.result(waiting.popleft())
    while waiting:
        yield pool.result(waiting.popleft())
    if problems:
        raise problems[0]


def as_finished(pool: Pool, work: Callable[[T], R], items: Iterable[T]) -> Iterator[tuple[T, R]]:
    """Each item with its result, whichever is finished first."""
    waiting: dict[Future[R], T] = {}
    incoming = iter(items)
    while True:
        for item in islice(incoming, 2 * pool.size - len(waiting)):
            waiting[pool.submit(work, item)] = item
        if not waiting:
            return
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            yield waiting.pop(future), pool.result(future)


def forked(work: Callable[[T], R], items: Iterable[T], workers: int, *, option: str) -> Iterator[R]:
    """``work`` of each item, in order, by ``workers`` processes that are copies of this one as it is at the first item.

    ``work`` may be any function, and keep in its process what it likes; items and results travel. With one worker, or
    where processes are not copied (`copies`), this process does it.
    """
    if workers <= 1 or not copies():
        yield from map(work, items)
        return
    with closing(Processes(workers, option=option, inherit=work)) as pool:
        yield from in_order(pool, inherited, items)


class StoppedError(Exception):
    """Nobody wants the result any more."""


# Of an item; the second argument raises `StoppedError` when it is called too late.
Threaded = Callable[[T, Callable[[], None]], R]


def threaded(
    work: Threaded[T, R], items: Sequence[T], workers: int, begin: Callable[[], object] | None = None
) -> Generator[R, None, None]:
    """``work`` of each item, in order, by ``workers`` threads of this process, each of which calls ``begin`` first;
    with one worker by this thread. An error, or an end before the last result, stops all of them."""
    stopped = threading.Event()

    def go_on() -> None:
        if stopped.is_set():
            raise StoppedError

    if workers <= 1:
        yield from (work(item, go_on) for item in items)
        return
    pool = ThreadPoolExecutor(workers, "catchline", begin)
    try:
        yield from pool.map(work, items, [go_on] * len(items))
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of ``size`` items, the last perhaps shorter."""
    incoming = iter(items)
    while batch := list(islice(incoming, size)):
        yield batch


class Pieces(Generic[T]):
    """Things in pieces: ``items()`` are what travels to a process, ``read`` makes of one of them a list there."""

    def __init__(self, items: Callable[[], Iterable[Any]], read: Callable[[Any], Sequence[T]]) -> None:
        self.items, self.read = items, read

    @classmethod
    def of(cls, things: Iterable[T] | Pieces[T], size: int) -> Pieces[T]:
        """Pieces of ``size`` things, read in this process; what is in pieces stays as it is."""
        return things if isinstance(things, Pieces) else cls(lambda: batches(things, size), lambda piece: piece)

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(map(self.read, self.items()))

    def map(self, change: Callable[[Sequence[T]], Sequence[R]]) -> Pieces[R]:
        """``change`` of what each piece holds."""
        return Pieces(self.items, lambda item: change(self.read(item)))

    def worked(self, work: Callable[[Sequence[T]], R], workers: int | None = None) -> Iterator[R]:
        """`forked` over the pieces, by ``workers`` processes, `unasked_workers` if not given."""
        return forked(lambda item: work(self.read(item)), self.items(), workers or unasked_workers(), option=THREADS)


_work: Callable[[Any], Any] | None = None


def inherited(item: Any) -> Any:
    """In a process of `Processes` with ``inherit``: that function of ``item``."""
    assert _work is not None
    return _work(item)


def copies() -> bool:
    """Can a process that has threads be copied? On Linux; on macOS the system's libraries may crash or wait for ever in
    the copy, and Windows copies none."""
    return sys.platform == "linux"


def unasked_workers() -> int:
    """Processes to take where nobody said how many: one a thread; only this one where none are copied."""
    return threads_each(1) if copies() else 1


def threads_each(workers: int) -> int:
    """The threads of this process, divided."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, (int(given) if given.isdigit() and int(given) else cores) // workers)


def limit_threads(threads: int) -> None:
    """For a process that has not imported libraries with threads yet."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[name] = str(threads)


class Processes:
    """``workers`` processes of this machine, each with ``threads`` (its share if not given); they start when there is
    something to do. ``option`` is what the user gave the number with. With ``inherit`` they are forked and have that
    function from the start (`inherited` calls it), so that neither it nor what it holds need travel."""

    def __init__(
        self, workers: int, *, option: str, threads: int | None = None, inherit: Callable[[Any], Any] | None = None
    ) -> None:
        self.size = workers
        self._died = (
            "A worker process died (out of memory?). What was complete is kept; run the same command again, with fewer "
            f"{option} if memory is short."
        )
        self._others = set(multiprocessing.active_children())
        with _safe_path():
            self._executor = ProcessPoolExecutor(
                workers,
                mp_context=multiprocessing.get_context("fork" if inherit else "spawn"),
                initializer=_begin,
                initargs=(threads or threads_each(workers), inherit),
            )

    def submit(self, work: Callable[[T], R], item: T) -> Future[R]:
        try:
            with _safe_path():
                return self._executor.submit(work, item)
        except BrokenProcessPool:
            raise CatchlineError(self._died) from None

    def result(self, future: Future[R]) -> R:
        try:
            return future.result()
        except BrokenProcessPool:
            raise CatchlineError(self._died) from None

    def close(self) -> None:
        """End the processes; what they are still working on is given up."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - self._others:
            process.terminate()
            process.join(10)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Processes that start meanwhile do not take the standard library's modules from the working directory."""
    before = os.environ.get("PYTHONSAFEPATH", "")  # empty is as if it were not set
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        os.environ["PYTHONSAFEPATH"] = before


def _begin(threads: int, inherit: Callable[[Any], Any] | None = None) -> None:
    global _work
    _work = inherit
    gc.freeze()  # what a fork brought along stays; to look through it again and again costs time and pages of its own
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says what an interruption means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    limit_threads(threads)
    end_with_the_parent()


def end_with_the_parent() -> None:
    """A parent that is killed cannot end the processes that it started: they look at it themselves."""

    def end_with(sentinel: int) -> None:
        connection.wait([sentinel])
        os._exit(1)

    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=end_with, args=(parent.sentinel,), daemon=True).start()


# ------------------------------------------------------------------------------------------------ Ray


def import_ray(option: str) -> Any:
    """The optional library; ``option`` is what takes processes of this machine instead.

    Raises:
        ConfigError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported anywhere
    try:
        import ray
    except ImportError:
        raise ConfigError(f"--ray needs Ray: pip install 'catchline[ray]', or use {option} on this machine.") from None
    return ray


class RayCluster:
    """Actors on the cluster that ``RAY_ADDRESS`` names, or on this machine where it names none. Every node needs
    catchline, and files under the same path. ``threads`` of a worker: its share of the cores if not given.

    Raises:
        ConfigError: Ray is not installed.
        CatchlineError: the cluster does not answer.
    """

    def __init__(self, workers: int | None, *, option: str, threads: int | None = None, gpu: bool = False) -> None:
        self._ray = ray = import_ray(option)
        if not ray.is_initialized():
            local: dict[str, Any] = {}
            if not os.environ.get("RAY_ADDRESS"):
                store = _STORE * (workers or os.cpu_count() or 1)
                local = {"include_dashboard": False, "object_store_memory": store}
                if threads:  # a small machine may have more workers than cores
                    local["num_cpus"] = threads * (workers or os.cpu_count() or 1)
            try:
                ray.init(log_to_driver=False, logging_level="ERROR", **local)
            except Exception as error:  # Ray raises bare Exception, too, when a slow machine takes it too long
                ray.shutdown()
                reason = str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")
                raise CatchlineError(f"Ray could not be started or reached: {reason}.") from None
        cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.size = workers or cores
        share = threads or cores // self.size or cores / self.size
        actor = ray.remote(num_cpus=share, num_gpus=int(gpu))(_RayWorker)
        self._workers = [actor.remote(max(1, int(share))) for _ in range(self.size)]
        self._given: list[list[Future[Any]]] = [[] for _ in range(self.size)]

    def submit(self, work: Callable[[T], R], item: T) -> Future[R]:
        self._given = [[future for future in given if not future.done()] for given in self._given]
        chosen = min(range(self.size), key=lambda worker: len(self._given[worker]))  # who has least to do
        future = self._workers[chosen].do.remote(work, item).future()
        self._given[chosen].append(future)
        return future

    def result(self, future: Future[R]) -> R:
        try:
            return future.result()
        except self._ray.exceptions.RayError as error:
            reason = str(error).strip().split("\n")[0].rstrip(".")
            raise CatchlineError(
                f"The Ray job failed ({reason}). What was complete is kept; run the same command again."
            ) from None

    def close(self) -> None:
        """Let go of the workers and the cluster."""
        self._workers = []
        self._ray.shutdown()


class _RayWorker:
    """What runs on the cluster."""

    def __init__(self, threads: int) -> None:
        limit_threads(threads)

    def do(self, work: Callable[[T], R], item: T) -> R:
        return work(item)
