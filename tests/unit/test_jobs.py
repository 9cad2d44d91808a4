"""Pools of workers: the order of results, how much is on its way, errors of what is read, shares of threads."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from catchline.errors import CatchlineError, DataError
from catchline.jobs import StoppedError, parallel, threaded, threads_each


def double(number: int) -> tuple[int, int]:
    return 2 * number, os.getpid()


def ended(*processes: int) -> bool:
    """A process that was told to end may take a while on a busy machine."""
    deadline = time.monotonic() + 30
    while (alive := {*processes} & {child.pid for child in multiprocessing.active_children()}) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    return not alive


@pytest.mark.parametrize("fork", [True, False])
def test_results_come_in_order_and_what_was_read_before_an_error_is_finished(fork: bool) -> None:
    def stream() -> Iterator[int]:
        yield from range(9)
        raise DataError("line 10 is bad")

    finished = parallel(double, stream(), 2, option="--jobs", fork=fork)
    results, processes = zip(*[next(finished) for _ in range(9)], strict=True)
    assert results == tuple(range(0, 18, 2))
    assert not ended(*processes)
    with pytest.raises(DataError, match="line 10"):
        next(finished)
    assert ended(*processes)


def test_few_items_are_on_their_way_and_work_may_be_any_function() -> None:
    read = list[int]()
    items = (read.append(number) or number for number in range(50))  # type: ignore[func-returns-value]
    results = parallel(lambda number: (number, os.getpid()), items, 2)
    process = next(results)[1]
    assert process != os.getpid()
    assert len(read) <= 5
    results.close()  # type: ignore[attr-defined]
    assert ended(process)
    assert list(parallel(lambda _: os.getpid(), [1], 2)) == [os.getpid()], "one item needs no process"


def test_a_worker_that_dies_is_told() -> None:
    with pytest.raises(CatchlineError, match=r"A worker process died .* with fewer --jobs if memory is short"):
        list(parallel(lambda _: os.kill(os.getpid(), signal.SIGKILL), range(4), 2, option="--jobs"))


def test_threads_work_side_by_side_and_their_results_come_in_order() -> None:
    begun, meeting = list[int](), threading.Barrier(3, timeout=30)

    def work(number: int, go_on: Callable[[], None]) -> tuple[int, int]:
        meeting.wait()  # which no three pass one after the other
        go_on()
        return number, threading.get_ident()

    found = list(threaded(work, range(6), 3, lambda: begun.append(threading.get_ident())))
    assert [number for number, _ in found] == [*range(6)]
    assert len(set(begun)) == 3
    assert {thread for _, thread in found} == set(begun)
    here = threaded(lambda number, _: (number, threading.get_ident()), range(2), 1, lambda: begun.append(0))
    assert list(here) == [(0, threading.get_ident()), (1, threading.get_ident())]
    assert 0 not in begun
    assert list(threaded(work, [], 0)) == []


@pytest.mark.parametrize("way", ["error", "end"])
def test_threads_stop_when_their_results_are_not_wanted(way: str) -> None:
    at_work, seen = threading.Event(), list[str]()

    def work(name: str, go_on: Callable[[], None]) -> str:
        if name == "first":
            assert at_work.wait(30)
            if way == "error":
                raise DataError("it is bad")
            return name
        at_work.set()
        until = time.monotonic() + 20
        try:
            while time.monotonic() < until:
                go_on()
        except StoppedError:
            seen.append(name)
            raise
        return name

    found = threaded(work, ["first", "second", "third"], 2)
    if way == "error":
        with pytest.raises(DataError, match="it is bad"):
            next(found)
    else:
        assert next(found) == "first"
        found.close()
    assert set(seen) <= {"second", "third"}
    assert seen, "they are waited for"


def test_threads_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert [threads_each(workers) for workers in (1, 3, 8, 20)] == [8, 2, 1, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    assert threads_each(1) >= 1


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_only_linux_copies_processes(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert set(parallel(lambda _: os.getpid(), range(4), 2)) == {os.getpid()}


def test_workers_do_not_run_files_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("selectors", "signal", "threading"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert list(parallel(abs, [-2], 1, fork=False)) == [2]
    assert not (tmp_path / "ran").exists()
    assert not os.environ["PYTHONSAFEPATH"]
