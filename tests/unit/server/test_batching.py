"""The micro-batcher alone, over work that only records what it was given."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

import pytest

from catchline.errors import DataError
from catchline.server.batching import AbandonedError, Batcher, Job, OnBatch
from catchline.server.schemas import ProblemError
from catchline.server.settings import Settings

LIMITS = Settings(max_queue=100, max_batch=4, max_batch_tokens=10_000, batch_wait=0.0)


class Recorder:
    """Gives each job its payload back; can be held at a gate, and fails where the payload says so."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()

    def __call__(self, jobs: Sequence[Job], check: Callable[[], None]) -> list[Any]:
        self.batches.append([job.payload for job in jobs])
        self.begun.set()
        while not self.gate.wait(0.005):
            check()
        for job in jobs:
            if isinstance(job.payload, BaseException):
                raise job.payload
        return [job.payload for job in jobs]


@pytest.fixture
def work() -> Recorder:
    return Recorder()


@pytest.fixture
def start(work: Recorder) -> Iterator[Callable[..., Batcher]]:
    made: list[Batcher] = []

    def make(limits: Settings = LIMITS, on_batch: OnBatch = lambda jobs, seconds: None) -> Batcher:
        made.append(Batcher("test", work, limits, on_batch))
        made[-1].start()
        return made[-1]

    yield make
    work.gate.set()
    for batcher in made:
        assert batcher.stop(10)


def jobs(*payloads: Any, key: str = "k", size: int = 1) -> list[Job]:
    return [Job(key, size, payload) for payload in payloads]


def submitted(batcher: Batcher, *payloads: Any, **how: Any) -> list[Job]:
    given = jobs(*payloads, **how)
    batcher.submit(given)
    return given


def results(given: Sequence[Job]) -> list[Any]:
    return [job.future.result(10) for job in given]


def held(work: Recorder, batcher: Batcher) -> list[Job]:
    """Occupy the worker with one job."""
    work.gate.clear()
    work.begun.clear()
    first = submitted(batcher, "first", key="other")
    assert work.begun.wait(10)
    return first


SIZES = (10, 400, 12, 390, 11, 380, 9, 370)
LARGE = [f"L{number:02}" for number in range(16)]


@pytest.mark.parametrize(
    ("limits", "requests", "batches"),
    [
        ({}, [("a", 1, ["a1"]), ("b", 1, ["b1", "b2"]), ("a", 1, ["a2"])], [["a1", "a2"], ["b1", "b2"]]),
        ({}, [("k", size, [size]) for size in SIZES], [[9, 10, 11, 12], [370, 380, 390, 400]]),
        ({"max_batch_tokens": 1000}, [("k", 500, [0, 1, 2, 3]), ("l", 5000, ["l"])], [[0, 1], [2, 3], ["l"]]),
        ({}, [("large", 1, LARGE), ("small", 1, ["S"])], [LARGE[:4], ["S"], LARGE[4:8], LARGE[8:12], LARGE[12:]]),
    ],
    ids=["one key", "like lengths", "a bounded padded size", "a large request lets a small one in"],
)
def test_which_waiting_jobs_share_a_batch(
    limits: dict[str, int],
    requests: list[tuple[str, int, list[Any]]],
    batches: list[list[Any]],
    start: Callable[..., Batcher],
    work: Recorder,
) -> None:
    batcher = start(LIMITS.model_copy(update=limits))
    waiting = held(work, batcher)
    for key, size, payloads in requests:
        waiting += submitted(batcher, *payloads, key=key, size=size)
    work.gate.set()
    results(waiting)
    assert [sorted(batch) for batch in work.batches[1:]] == batches


def test_a_large_request_is_finished_while_small_ones_keep_coming(start: Callable[..., Batcher]) -> None:
    batcher = start()
    large = submitted(batcher, *(f"L{n}" for n in range(20)), key="large")
    for number in range(200):
        small = submitted(batcher, number, key=f"small {number}")
        results(small)
        if large[-1].future.done():
            return
    raise AssertionError("the large request starved")


def test_a_failure_fails_its_own_document_only_and_the_thread_survives(
    start: Callable[..., Batcher], work: Recorder
) -> None:
    batcher = start()
    first = held(work, batcher)
    bad, worse = DataError("no token"), ValueError("a bug")
    given = submitted(batcher, "a", BaseException("a panic"), "b", bad, worse, SystemExit(3))
    work.gate.set()
    assert results([*first, given[0], given[2]]) == ["first", "a", "b"]
    for panic in (given[1], given[5]):
        assert isinstance(panic.future.exception(10), RuntimeError)
    assert given[3].future.exception(10) is bad
    assert given[4].future.exception(10) is worse
    assert results(submitted(batcher, "after")) == ["after"]
    assert batcher.alive


def test_a_job_cancelled_while_it_waits_is_never_worked_on(start: Callable[..., Batcher], work: Recorder) -> None:
    """And makes room in the queue."""
    batcher = start(LIMITS.model_copy(update={"max_documents": 2, "max_queue": 2}))
    first = held(work, batcher)
    kept, given_up = submitted(batcher, "kept", "given up")
    given_up.abandon()
    again = submitted(batcher, "again")
    work.gate.set()
    assert results([*first, kept, *again]) == ["first", "kept", "again"]
    assert work.batches[1:] == [["kept", "again"]]
    with pytest.raises(CancelledError):
        given_up.future.result(0)


def test_running_work_ends_when_nobody_waits_for_any_of_it(start: Callable[..., Batcher], work: Recorder) -> None:
    batcher = start()
    work.gate.clear()
    given = submitted(batcher, "a", "b")
    assert work.begun.wait(10)
    given[0].abandon()
    time.sleep(0.05)
    assert not given[1].future.done(), "somebody still waits for b"
    given[1].abandon()
    assert isinstance(given[1].future.exception(10), AbandonedError)
    work.begun.clear()
    [last] = submitted(batcher, "c")
    assert work.begun.wait(10)
    batcher.abandon()  # the service ends
    assert isinstance(last.future.exception(10), AbandonedError)


def test_a_full_queue_refuses_the_whole_request(start: Callable[..., Batcher], work: Recorder) -> None:
    batcher = start(LIMITS.model_copy(update={"max_documents": 3, "max_queue": 3}))
    first = held(work, batcher)
    kept = submitted(batcher, "a", "b")
    refused = jobs("c", "d")
    with pytest.raises(ProblemError) as caught:
        batcher.submit(refused)
    assert caught.value.code == "queue_full"
    assert int(caught.value.headers["Retry-After"]) > 0
    assert len(batcher.waiting) == 2
    work.gate.set()
    assert results([*first, *kept]) == ["first", "a", "b"]
    assert not any(job.future.done() for job in refused)


def test_stop_finishes_what_was_accepted_and_takes_nothing_more(start: Callable[..., Batcher], work: Recorder) -> None:
    batcher = start()
    first = held(work, batcher)
    given = submitted(batcher, *range(10))
    threading.Timer(0.05, work.gate.set).start()
    assert batcher.stop(10)
    assert results([*first, *given]) == ["first", *range(10)]
    with pytest.raises(ProblemError):
        batcher.submit(jobs("late"))
