"""Pools of workers: the order of results, how much is on its way, errors of what is read, shares of threads."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from catchline.errors import DataError
from catchline.jobs import (
    Processes,
    StoppedError,
    as_finished,
    forked,
    in_order,
    threaded,
    threads_each,
    unasked_workers,
)


class Doubling:
    """Does a piece when it is asked for, the newest first or as it comes, and counts how many are on their way."""

    size = 2

    def __init__(self) -> None:
        self.waiting = self.most = 0

    def submit(self, work: Callable[[int], int], item: int) -> Future[Any]:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        future: Future[Any] = Future()
        future.set_result(work(item))
        return future

    def result(self, future: Future[Any]) -> Any:
        self.waiting -= 1
        return future.result()

    def close(self) -> None:
        pass


def double(number: int) -> int:
    return 2 * number


def test_results_come_in_order_and_few_pieces_are_in_flight() -> None:
    pool = Doubling()
    assert list(in_order(pool, double, range(50))) == [2 * number for number in range(50)]
    assert pool.most == 4


def test_whichever_is_finished_first_every_piece_comes_once() -> None:
    pool = Doubling()
    assert sorted(as_finished(pool, double, range(50))) == [(number, 2 * number) for number in range(50)]
    assert pool.most == 4
    assert list(as_finished(pool, double, [])) == []


def test_what_was_read_before_an_error_is_finished() -> None:
    def stream() -> Iterator[int]:
        yield from range(3)
        raise DataError("line 4 is bad")

    finished = in_order(Doubling(), double, stream())
    assert [next(finished) for _ in range(3)] == [0, 2, 4]
    with pytest.raises(DataError, match="line 4"):
        next(finished)


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
    assert set(forked(lambda _: os.getpid(), range(4), 2, option="--processes")) == {os.getpid()}
    assert unasked_workers() == 1


def test_workers_do_not_run_files_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("selectors", "signal", "threading"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    pool = Processes(1, option="--jobs", threads=1)
    try:
        assert list(in_order(pool, abs, [-2])) == [2]
    finally:
        pool.close()
    assert not (tmp_path / "ran").exists()
    assert not os.environ["PYTHONSAFEPATH"]
