"""Pieces of work, done here, in several processes, or on a Ray cluster, in whatever order they come.

A piece writes files and gives nothing back but an error, so that it is all the same who does it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from laconic.data.spans.units import one_thread
from laconic.errors import ConfigError, LaconicError

Work = Callable[[int], LaconicError | None]
Run = Callable[[Work, Sequence[int]], Iterator[tuple[int, LaconicError | None]]]

_STORE = 100_000_000  # bytes of a local Ray's object store; nothing large goes through it
_DIED = (
    "A worker process died (out of memory?). What was complete is kept; run the same command again, with fewer "
    "--workers if memory is short."
)


def run_here(work: Work, pieces: Sequence[int]) -> Iterator[tuple[int, LaconicError | None]]:
    """One after the other, in this process."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    one_thread()
    try:
        for piece in pieces:
            yield piece, work(piece)
    finally:
        if before is None:
            os.environ.pop("TOKENIZERS_PARALLELISM", None)
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before


class Processes:
    """``workers`` processes of this machine with one thread each; they start when there is something to do."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._others = set(multiprocessing.active_children())
        self._pool: ProcessPoolExecutor | None = None

    def __call__(self, work: Work, pieces: Sequence[int]) -> Iterator[tuple[int, LaconicError | None]]:
        """Do the pieces.

        Raises:
            LaconicError: a process was killed.
        """
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._workers, mp_context=context, initializer=_begin)
        try:
            waiting = {self._pool.submit(work, piece): piece for piece in pieces}
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BrokenProcessPool:
            raise LaconicError(_DIED) from None

    def close(self) -> None:
        """End the processes; what they are still working on is given up."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - self._others:
            process.terminate()
            process.join(10)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says what an interruption means
    one_thread()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """A parent that is killed cannot end its workers."""
    wait([sentinel])
    os._exit(1)


# ------------------------------------------------------------------------------------------------ Ray


class RayCluster:
    """The cluster that ``RAY_ADDRESS`` names, or a small one on this machine; pieces are rows of a Ray Data set.

    Every node needs laconic, and the input and the output folder under the same path.

    Raises:
        ConfigError: Ray Data is not installed.
        LaconicError: the cluster does not answer.
    """

    def __init__(self, workers: int | None) -> None:
        self._ray = ray = import_ray()
        if not ray.is_initialized():
            local: dict[str, Any] = {}
            if not os.environ.get("RAY_ADDRESS"):
                cores = workers or os.cpu_count()
                local = {"include_dashboard": False, "object_store_memory": _STORE, "num_cpus": cores}
            try:
                ray.init(log_to_driver=False, logging_level="ERROR", **local)
            except Exception as error:  # Ray raises bare Exception, too, when a slow machine takes it too long
                ray.shutdown()
                reason = str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")
                raise LaconicError(f"Ray could not be started or reached: {reason}.") from None
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        self._workers = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))

    def __call__(self, work: Work, pieces: Sequence[int]) -> Iterator[tuple[int, LaconicError | None]]:
        """Do the pieces.

        Raises:
            LaconicError: a worker, or its machine, died.
        """
        ray = self._ray
        data = ray.data.from_items([{"piece": piece} for piece in pieces], override_num_blocks=len(pieces))
        together = ray.data.TaskPoolStrategy(size=min(self._workers, len(pieces)))
        try:
            for row in data.map(partial(_row, work), num_cpus=1, compute=together).iter_rows():
                yield int(row["piece"]), _raised(row["kind"], row["error"]) if row["error"] else None
        except ray.exceptions.RayError as error:
            reason = str(error).strip().split("\n")[0]
            raise LaconicError(
                f"The Ray job failed ({reason}). What was complete is kept; run the same command again."
            ) from None

    def close(self) -> None:
        """Let go of the cluster."""
        self._ray.shutdown()


def _row(work: Work, row: dict[str, Any]) -> dict[str, Any]:
    one_thread()
    error = work(int(row["piece"]))
    return {"piece": row["piece"], "kind": type(error).__name__ if error else "", "error": str(error) if error else ""}


def _raised(kind: str, sentence: str) -> LaconicError:
    kinds = {found.__name__: found for found in LaconicError.__subclasses__()}
    return kinds.get(kind, LaconicError)(sentence)


def import_ray() -> Any:
    """The optional library.

    Raises:
        ConfigError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported anywhere
    try:
        import ray
        import ray.data
    except ImportError:
        raise ConfigError("--ray needs Ray Data: pip install 'laconic[ray]', or use --workers alone.") from None
    return ray
