"""The processes of a run: how they find each other, what the first one does for all, and how they part."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.tracking import get_available_trackers
from accelerate.utils import DistributedType, broadcast_object_list

from laconic.config.schema import RunConfig
from laconic.errors import ConfigError, LaconicError


def join_processes(run: RunConfig, out: Path) -> Accelerator:
    """The group of processes that a launcher started, or this one alone.

    Raises:
        ConfigError: they did not find each other, or work together in a way that a run cannot, or a tracker is absent.
    """
    # Without cpu=True accelerate takes two processes of torchrun on a machine without a GPU for two single ones.
    cpu = not torch.accelerator.is_available()
    trackers = list(run.training.trackers) or None
    absent = sorted(set(run.training.trackers) - {tracker.value for tracker in get_available_trackers()})
    if absent:
        raise ConfigError(f"training.trackers: {absent[0]} is not installed; install it, or leave it out.")
    accelerator = Accelerator(mixed_precision="no", cpu=cpu, log_with=trackers, project_dir=str(out))
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
    if accelerator.num_processes > 1:
        broadcast_object_list(failed)
    if failed[0] is not None:
        raise failed[0]


def close_processes() -> None:
    """Leave the group of processes, if there is one; the last thing a distributed program does."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
