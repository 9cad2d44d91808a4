"""The micro-batches of a run from any epoch and position on.

The order is a pure function of (seed, epoch); the *loop* counts what it has consumed, so it does not matter how
far worker processes have read ahead. The loader draws its workers' seeds from a generator of its own: with
torch's default it would take a number from the global one each time an epoch is opened, and a resumed run would
be one draw ahead.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from laconic.config.schema import TrainingConfig
from laconic.data.sampler import BucketSampler, Sampler, SortedSampler, cut_by_number, cut_by_tokens
from laconic.errors import DataError
from laconic.training.signals import leave_signals_to_the_parent
from laconic.types import Batch


class BatchStream:
    """Training batches of one process. `open` first, then `take`."""

    def __init__(
        self,
        dataset: Any,
        collator: Callable[[list[Any]], Batch],
        config: TrainingConfig,
        *,
        rank: int = 0,
        world_size: int = 1,
        pin_memory: bool = False,
    ) -> None:
        self._collator, self._config = collator, config
        self._rank, self._world_size, self._pin_memory = rank, world_size, pin_memory
        self.limit(dataset)

    def limit(self, dataset: Any) -> None:
        """Read ``dataset`` (perhaps with narrower limits) from the next `open` on."""
        self.dataset = dataset
        self._sampler = self._new_sampler()
        self.batches_per_epoch = len(self._sampler)
        self._batches: Iterator[Batch] | None = None
        if not self.batches_per_epoch:
            raise DataError(
                f"{len(dataset)} training records make no batch for each of {self._world_size} process(es); "
                "use fewer processes or a smaller training.batch_size."
            )

    def updates_per_epoch(self) -> int:
        return -(-self.batches_per_epoch // self._config.accumulation)

    def open(self, epoch: int, position: int) -> None:
        """Go to a position: the next batch is number ``position`` of ``epoch``."""
        sampler = self._new_sampler()
        sampler.set_epoch(epoch)
        sampler.seek(position)
        workers = self._config.workers
        loader: DataLoader[Any] = DataLoader(
            self.dataset,
            batch_sampler=sampler,
            collate_fn=self._collator,
            num_workers=workers,
            pin_memory=self._pin_memory,
            generator=torch.Generator().manual_seed(self._config.seed),
            worker_init_fn=leave_signals_to_the_parent if workers else None,
            multiprocessing_context=_context() if workers else None,
        )
        self._batches = iter(loader)

    def take(self, epoch: int, position: int) -> list[Batch]:
        """The micro-batches of one update; the last update of an epoch may have fewer."""
        if self._batches is None:
            self.open(epoch, position)
        assert self._batches is not None
        count = min(self._config.accumulation, self.batches_per_epoch - position)
        batches = [next(self._batches) for _ in range(count)]
        if position + count >= self.batches_per_epoch:
            self._batches = None
        return batches

    def close(self) -> None:
        """End the worker processes; without this they are only terminated at the interpreter's exit."""
        self._batches = None

    def _new_sampler(self) -> Sampler:
        config, rank, world_size = self._config, self._rank, self._world_size
        lengths = self.dataset.source_lengths
        if config.batch_tokens is None and config.batching == "bucket":
            return BucketSampler(lengths, config.batch_size, config.seed, rank=rank, world_size=world_size)
        if config.batch_tokens is None:
            cut = cut_by_number(config.batch_size)
        else:
            cut = cut_by_tokens(lengths, self.dataset.target_lengths, config.batch_tokens)
        return SortedSampler(lengths, cut, config.seed, rank=rank, world_size=world_size)


def _context() -> str | None:
    """Forked workers share the data set's memory and notice when the training process is killed; those of a fork
    server (the default from Python 3.14 on) get a copy each and stay behind."""
    return "fork" if "fork" in multiprocessing.get_all_start_methods() else None
