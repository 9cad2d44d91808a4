"""The micro-batcher alone, over work that only records what it was given."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from catchline.errors import DataError
from catchline.server.batching import Batcher, Job
from catchline.server.schemas import ProblemError, Settings

LIMITS = Settings(max_queue=100, max_batch=4, max_batch_tokens=10_000, batch_wait=0.0)
SIZES = (10, 400, 12, 390, 11, 380, 9, 370)
LARGE = [f"L{number:02}" for number in range(8)]


class Recorder:
    """Gives each job its payload back; can be held at a gate, and fails where the payload says so."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.gate, self.begun = threading.Event(), threading.Event()
        self.gate.set()

    def __call__(self, jobs: Sequence[Job], check: Callable[[], None]) -> list[Any]:
        self.batches.append([job.payload for job in jobs])
        self.begun.set()
        while not self.gate.wait(0.005):
            check()
        for job in jobs:
            if isinstance(job.payload, BaseException):
                raise job.payload
        return [job.payload for job in jobs]


def submitted(batcher: Batcher, *payloads: Any, key: str = "k", size: int = 1) -> list[Job]:
    jobs = [Job(key, size, payload) for payload in payloads]
    batcher.submit(jobs)
    return jobs


async def results(jobs: Sequence[Job]) -> list[Any]:
    return await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)


async def held(work: Recorder, batcher: Batcher, *payloads: Any) -> list[Job]:
    """Occupy the worker."""
    work.gate.clear()
    work.begun.clear()
    jobs = submitted(batcher, *payloads or ("first",), key="other")
    await asyncio.to_thread(work.begun.wait, 10)
    return jobs


def run(scenario: Callable[[Batcher, Recorder], Awaitable[None]], **limits: int) -> None:
    async def batched() -> None:
        work = Recorder()
        batcher = Batcher("test", work, LIMITS.model_copy(update=limits), lambda jobs, seconds: None)
        batcher.start()
        try:
            await asyncio.wait_for(scenario(batcher, work), 20)
            assert batcher.alive
        finally:
            work.gate.set()
            await batcher.stop()

    with ThreadPoolExecutor(1) as pool:  # this thread may have a loop that a browser's driver left running
        pool.submit(asyncio.run, batched()).result()


@pytest.mark.parametrize(
    ("limits", "requests", "batches"),
    [
        ({}, [("a", 1, ["a1"]), ("b", 1, ["b1", "b2"]), ("a", 1, ["a2"])], [["a1", "a2"], ["b1", "b2"]]),
        ({}, [("k", size, [size]) for size in SIZES], [[9, 10, 11, 12], [370, 380, 390, 400]]),
        ({"max_batch_tokens": 1000}, [("k", 500, [0, 1, 2, 3]), ("l", 5000, ["l"])], [[0, 1], [2, 3], ["l"]]),
        ({}, [("large", 1, LARGE), ("small", 1, ["S"])], [LARGE[:4], LARGE[4:], ["S"]]),
    ],
    ids=["one key", "like lengths", "a bounded padded size", "in order"],
)
def test_which_waiting_jobs_share_a_batch(
    limits: dict[str, int], requests: list[tuple[str, int, list[Any]]], batches: list[list[Any]]
) -> None:
    async def scenario(batcher: Batcher, work: Recorder) -> None:
        waiting = await held(work, batcher)
        for key, size, payloads in requests:
            waiting += submitted(batcher, *payloads, key=key, size=size)
        work.gate.set()
        await results(waiting)
        assert [sorted(batch) for batch in work.batches[1:]] == batches

    run(scenario, **limits)


def test_a_failure_fails_its_own_document_only() -> None:
    async def scenario(batcher: Batcher, work: Recorder) -> None:
        first = await held(work, batcher)
        bad, worse = DataError("no token"), ValueError("a bug")
        jobs = submitted(batcher, "a", BaseException("a panic"), "b", bad, worse, SystemExit(3), StopIteration())
        work.gate.set()
        found = await results([*first, *jobs])
        assert [found[place] for place in (0, 1, 3, 4, 5)] == ["first", "a", "b", bad, worse]
        assert all(isinstance(found[place], RuntimeError) for place in (2, 6, 7))
        assert await results(submitted(batcher, "after")) == ["after"]

    run(scenario)


def test_a_full_queue_refuses_whole_requests_and_what_is_given_up_makes_room() -> None:
    async def scenario(batcher: Batcher, work: Recorder) -> None:
        first = await held(work, batcher)
        kept, given_up, other = submitted(batcher, "kept", "given up", "other")
        with pytest.raises(ProblemError) as caught:
            submitted(batcher, "c")
        assert caught.value.code == "queue_full"
        assert int(caught.value.headers["Retry-After"]) > 0
        given_up.future.cancel()
        again = submitted(batcher, "again")
        work.gate.set()
        assert await results([*first, kept, other, *again]) == ["first", "kept", "other", "again"]
        assert work.batches[1:] == [["kept", "other", "again"]]

    run(scenario, max_queue=3)


def test_running_work_ends_when_nobody_waits_for_any_of_it() -> None:
    async def scenario(batcher: Batcher, work: Recorder) -> None:
        first, second = await held(work, batcher, "a", "b")
        first.future.cancel()
        await asyncio.sleep(0.05)
        assert batcher.running, "somebody still waits for b"
        second.future.cancel()
        while batcher.running:
            await asyncio.sleep(0.005)
        [last] = await held(work, batcher, "c")
        stopping = asyncio.ensure_future(batcher.stop())  # the service ends
        assert isinstance((await results([last]))[0], asyncio.CancelledError)
        await stopping
        batcher.start()  # the same service may start again

    run(scenario)
