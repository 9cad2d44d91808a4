"""The processes of a run: how they find each other, what they add up, what the first one does for all, how they part;
and the signals that ask one of them to stop.

Gradients are summed, not averaged, in one all-reduce of one flat buffer. The loss is divided by counts that are
already global, so there is nothing left to divide and no factor to forget; parameters that a phase froze or a
switch left unused need no special mode; and every process steps with the same bits.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.tracking import get_available_trackers
from accelerate.utils import DistributedType, broadcast_object_list
from torch import Tensor, nn

from laconic.errors import ConfigError, LaconicError


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
    expected = int(os.environ.get("WORLD_SIZE", "1"))
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
    failed: list[LaconicError | None] = [None]
    if accelerator.is_main_process:
        try:
            do()
        except LaconicError as error:
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
