"""The processes of a run: how they begin and find each other, what they add up, what the first one does for all, how
they part; and the signals that ask one of them to stop.

Gradients are summed, not averaged, in one all-reduce of one flat buffer. The loss is divided by counts that are
already global, so there is nothing left to divide and no factor to forget; parameters that a phase froze or a
switch left unused need no special mode; and every process steps with the same bits.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import Any, TypeVar

import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from accelerate.tracking import get_available_trackers
from accelerate.utils import DistributedType, broadcast_object_list
from torch import Tensor, nn

from catchline.errors import CatchlineError, ConfigError, TrainingError
from catchline.jobs import copies, end_with_the_parent

R = TypeVar("R")


def launched() -> int:
    """How many processes a launcher (torchrun, accelerate) started for this run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def divided(work: Callable[[], R], processes: int, out: Path) -> R:
    """``work`` by this process, the first of ``processes`` that do the same: the others are copies of it, whose results
    are dropped, and end with it. Each has one of torch's threads, and they have found each other. ``out``: the run's.

    Raises:
        ConfigError: processes are not copied on this system, a launcher has started some, or there is a GPU.
        TrainingError: a copy died or failed.
    """
    if processes == 1:
        return work()
    number = f"training.processes is {processes}"
    if launched() > 1:
        raise ConfigError(f"{number}, and a launcher started {launched()} processes: leave one of the two out.")
    if not copies() or torch.accelerator.is_available():
        instead = "with a GPU (CUDA_VISIBLE_DEVICES= hides it)" if copies() else "on this system"
        raise ConfigError(f"{number}, which is not possible {instead}: set it to 1, or use accelerate launch.")
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        meeting, problems = f"file://{folder}/meeting", context.SimpleQueue()
        others = [
            context.Process(target=_copy, args=(work, rank, processes, meeting, problems))
            for rank in range(1, processes)
        ]
        for other in others:
            other.start()
        try:
            with _joined(0, processes, meeting):
                try:
                    return work()
                except RuntimeError as error:  # so torch says that a process is gone
                    _refuse_to_go_on_alone(others, problems, error, out)
                    raise
        finally:
            for other in others:
                other.join(5)
                other.kill()
                other.join()


def _refuse_to_go_on_alone(others: Sequence[BaseProcess], problems: Any, error: RuntimeError, out: Path) -> None:
    """Raise what was wrong with another process, if one has ended: those that have not wait for this one."""
    for other in others:
        other.join(1)
    codes = [other.exitcode or 0 for other in others]
    if min(codes) >= 0 and not problems.empty():
        raise problems.get() from error
    if any(codes):
        raise TrainingError(
            f"A process of this training died (out of memory?). Go on with: catchline resume {quote(str(out))}; or, if "
            "memory is short, train anew with training.processes=1."
        ) from error


def _copy(work: Callable[[], object], rank: int, processes: int, meeting: str, problems: Any) -> None:
    end_with_the_parent()
    try:
        with _joined(rank, processes, meeting):
            work()
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt):  # which the first process has, too
            told = TrainingError(str(error)) if isinstance(error, CatchlineError) else None
            problems.put(told or RuntimeError(f"In process {rank} of this training:\n{traceback.format_exc()}"))
        os._exit(1)


@contextmanager
def _joined(rank: int, processes: int, meeting: str) -> Iterator[None]:
    """One of several processes of this machine, as a launcher would have started it, and afterwards none."""
    before, threads = dict(os.environ), torch.get_num_threads()
    torch.set_num_threads(1)
    here = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    os.environ.update({name: str(value) for name, value in here.items()}, GLOO_SOCKET_IFNAME="lo")
    try:
        torch.distributed.init_process_group(  # the first may read a large corpus before they speak again
            "gloo", init_method=meeting, rank=rank, world_size=processes, timeout=timedelta(days=1)
        )
        AcceleratorState._reset_state(reset_partial_state=True)
        os.environ["OMP_NUM_THREADS"] = "1"  # else accelerate sets torch's threads, and warns
        PartialState(cpu=True).wait_for_everyone()  # one that leaves early is missed by those that still look for it
        _put_back("OMP_NUM_THREADS", before)
        yield
    finally:
        close_processes()
        AcceleratorState._reset_state(reset_partial_state=True)
        for name in ("GLOO_SOCKET_IFNAME", "MASTER_PORT", *here):
            _put_back(name, before)
        torch.set_num_threads(threads)


def _put_back(name: str, before: dict[str, str]) -> None:
    os.environ.pop(name, None)
    os.environ.update({name: before[name]} if name in before else {})


def join_processes(trackers: Sequence[str], out: Path) -> Accelerator:
    """The group of processes that a launcher started, or this one alone; ``trackers`` write into ``out``.

    Raises:
        ConfigError: they did not find each other, or work together in a way that a run cannot, or a tracker is absent.
    """
    # Without cpu=True accelerate takes two processes of torchrun on a machine without a GPU for two single ones, and it
    # takes the GPU of a Mac, which has no float64, in which losses are summed.
    cpu = not torch.accelerator.is_available() or torch.backends.mps.is_available()
    absent = sorted(set(trackers) - {tracker.value for tracker in get_available_trackers()})
    if absent:
        raise ConfigError(f"training.trackers: {absent[0]} is not installed; install it, or leave it out.")
    accelerator = Accelerator(mixed_precision="no", cpu=cpu, log_with=list(trackers) or None, project_dir=str(out))
    expected = launched()
    if accelerator.num_processes != expected:
        raise ConfigError(
            f"The launcher started {expected} processes, but they did not find each other "
            f"({accelerator.num_processes} here); start them with torchrun or accelerate launch."
        )
    known = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
    if accelerator.distributed_type not in known:
        raise ConfigError(
            f"Training under accelerate's '{accelerator.distributed_type.value}' is not supported; "
            "use plain data parallelism: accelerate launch --num_processes N (or torchrun)."
        )
    return accelerator


def on_the_first(accelerator: Accelerator, do: Callable[[], object]) -> None:
    """Have the first process do something; if that fails with an error of ours, it is every process's error."""
    failed: list[CatchlineError | None] = [None]
    if accelerator.is_main_process:
        try:
            do()
        except CatchlineError as error:
            failed = [error]
    broadcast_object_list(failed)
    if failed[0] is not None:
        raise failed[0]


def close_processes() -> None:
    """Leave the group of processes, if there is one; the last thing a distributed program does."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def sum_gradients(parameters: Sequence[nn.Parameter], figures: Tensor, accelerator: Accelerator) -> Tensor:
    """Replace every gradient by its sum over the processes; return ``figures`` (F,) summed likewise.

    A parameter without a gradient anywhere keeps none, so that the optimizer leaves it alone.
    """
    if accelerator.num_processes == 1:
        return figures
    trained = [p for p in parameters if p.requires_grad]
    present = torch.tensor([float(p.grad is not None) for p in trained], device=figures.device)
    flat = [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in trained]
    total = torch.cat([figures, present, *flat])
    torch.distributed.all_reduce(total)
    sizes = [figures.numel(), present.numel(), *(p.numel() for p in trained)]
    figures, present, *sums = total.split(sizes)
    for parameter, gradient, users in zip(trained, sums, present.tolist(), strict=True):
        parameter.grad = gradient.view_as(parameter) if users else None
    return figures


class StopRequest:
    """A context that turns SIGINT and SIGTERM into ``requested``, which the loop answers after the present update; a
    second Ctrl-C interrupts at once.

    Outside the main thread, where Python has no signal handlers, nothing is installed.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True


def leave_signals_to_the_parent(worker: int) -> None:
    """For data-loading workers: Ctrl-C reaches the whole process group, but only the loop answers it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
