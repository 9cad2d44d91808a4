"""Pieces of work, done here, in several processes, or on a Ray cluster, in whatever order they come.

A piece writes files and gives nothing back but an error, so that it is all the same who does it.
"""

from __future__ import annotations

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


def run_processes(workers: int, work: Work, pieces: Sequence[int]) -> Iterator[tuple[int, LaconicError | None]]:
    """In ``workers`` processes with one thread each.

    Raises:
        LaconicError: a process was killed.
    """
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(pieces)), mp_context=context, initializer=_begin)
    try:
        waiting = {pool.submit(work, piece): piece for piece in pieces}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
    except BrokenProcessPool:
        raise LaconicError(_DIED) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()


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


def run_ray(ray: Any, workers: int, work: Work, pieces: Sequence[int]) -> Iterator[tuple[int, LaconicError | None]]:
    """As a Ray Data set of pieces, ``workers`` at a time.

    Raises:
        LaconicError: a worker, or its machine, died.
    """
    data = ray.data.from_items([{"piece": piece} for piece in pieces], override_num_blocks=len(pieces))
    done = data.map(partial(_row, work), num_cpus=1, concurrency=max(1, min(workers, len(pieces))))
    try:
        for row in done.iter_rows():
            error = (LaconicError, row["kind"], row["error"]) if row["error"] else None
            yield int(row["piece"]), _raised(*error[1:]) if error else None
    except ray.exceptions.RayError as error:
        reason = str(error).strip().split("\n")[0]
        raise LaconicError(
            f"The Ray job failed ({reason}). What was complete is kept; run the same command again."
        ) from None


def _row(work: Work, row: dict[str, Any]) -> dict[str, Any]:
    one_thread()
    error = work(int(row["piece"]))
    return {"piece": row["piece"], "kind": type(error).__name__ if error else "", "error": str(error) if error else ""}


def _raised(kind: str, sentence: str) -> LaconicError:
    kinds = {found.__name__: found for found in LaconicError.__subclasses__()}
    return kinds.get(kind, LaconicError)(sentence)


def start_ray(workers: int | None) -> tuple[Any, int]:
    """The cluster that ``RAY_ADDRESS`` names, or a small one on this machine; and the number of workers.

    Raises:
        ConfigError: Ray Data is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported anywhere
    try:
        import ray
        import ray.data
    except ImportError:
        raise ConfigError("--ray needs Ray Data: pip install 'laconic[ray]', or use --workers alone.") from None
    if not ray.is_initialized():
        local: dict[str, Any] = {}
        if not os.environ.get("RAY_ADDRESS"):
            local = {"include_dashboard": False, "object_store_memory": _STORE, "num_cpus": workers or os.cpu_count()}
        ray.init(log_to_driver=False, logging_level="ERROR", **local)
    ray.data.DataContext.get_current().enable_progress_bars = False
    return ray, workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
