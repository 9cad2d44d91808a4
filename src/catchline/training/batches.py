"""What an update reads: its micro-batches from any position on, and which gold tokens the decoder is shown.

Both are pure functions: the order of the batches one of (seed, epoch), the scheduled-sampling mask one of (seed,
update) or, where each example has its own, of (seed, update, example). So a resumed run reads the same, and no
generator state has to be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from catchline.config.schema import TeacherForcingConfig, TrainingConfig
from catchline.data.sampler import BucketSampler, Sampler, SortedSampler, cut_by_number, cut_by_tokens
from catchline.layers import noise
from catchline.types import TrainingBatch


class BatchStream:
    """The training batches of one process."""

    def __init__(
        self,
        dataset: Any,
        collator: Callable[[list[Any]], TrainingBatch],
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
        self.batches_per_epoch = len(self._new_sampler(dataset))
        self._batches: Iterator[TrainingBatch] | None = None

    def updates_per_epoch(self, dataset: Any) -> int:
        """How many updates a pass over ``dataset``, ours with other limits, makes."""
        return -(-len(self._new_sampler(dataset)) // self._config.accumulation)

    def open(self, epoch: int, position: int) -> None:
        """Go to a position: the next batch is number ``position`` of ``epoch``."""
        sampler = self._new_sampler(self.dataset)
        sampler.set_epoch(epoch)
        sampler.seek(position)
        loader: DataLoader[Any] = DataLoader(
            self.dataset,
            batch_sampler=sampler,
            collate_fn=self._collator,
            pin_memory=self._pin_memory,
            generator=torch.Generator(),  # it draws a seed for workers, which the global one must not
        )
        self._batches = iter(loader)

    def take(self, epoch: int, position: int) -> list[TrainingBatch]:
        """The micro-batches of one update; the last update of an epoch may have fewer."""
        if self._batches is None:
            self.open(epoch, position)
        assert self._batches is not None
        count = min(self._config.accumulation, self.batches_per_epoch - position)
        batches = [next(self._batches) for _ in range(count)]
        if position + count >= self.batches_per_epoch:
            self._batches = None
        return batches

    def _new_sampler(self, dataset: Any) -> Sampler:
        config, rank, world_size = self._config, self._rank, self._world_size
        lengths, size = dataset.source_lengths, config.batch_size * world_size
        if config.batch_tokens is None and config.batching == "bucket":
            return BucketSampler(lengths, size, config.seed, rank=rank, world_size=world_size)
        if config.batch_tokens is None:
            cut = cut_by_number(size)
        else:
            cut = cut_by_tokens(lengths, dataset.target_lengths, config.batch_tokens, world_size)
        return SortedSampler(lengths, cut, config.seed, rank=rank, world_size=world_size)


# ------------------------------------------------------------------------------- scheduled sampling


def forced_mask(
    config: TeacherForcingConfig, size: tuple[int, int], *, seed: int, update: int, examples: Sequence[int]
) -> Tensor | None:
    """The scheduled-sampling mask (Headline Writer, section 3.3.4): bool of ``size`` (B, T), or None (ratio 1).

    At decoder step t > 0 the model reads the gold token where the mask is true, its own prediction elsewhere; the first
    input is always BOS. ``scope`` says what shares a draw: ``step`` one per time step for the whole minibatch (our
    default), ``example_step`` one per example and step (scheduled sampling proper; ``examples`` are their numbers),
    ``sequence`` one per minibatch. A minibatch is all that an update reads, however it is split.
    """
    if config.ratio >= 1.0:
        return None
    batch, steps = size
    if config.scope == "example_step":
        keys = noise.mixed(noise_seed(seed, update, use=2) & 0xFFFFFFFF, torch.tensor(list(examples)))
        numbers = noise.bits(keys, steps) / 2**32
    else:
        generator = torch.Generator().manual_seed(noise_seed(seed, update, use=0))
        numbers = torch.rand(steps if config.scope == "step" else 1, generator=generator)
    mask = (numbers < config.ratio).expand(batch, steps).clone()
    mask[:, :1] = True
    return mask


def noise_seed(seed: int, update: int, use: int = 1) -> int:
    """The seed of an update's noise that is no part of the global stream: a pure function, as the mask is.

    The same for every process and micro-batch, because an update is one minibatch however it is split; what shall
    differ between examples takes their numbers into account.
    """
    return int(np.random.SeedSequence([seed, update, 0, use]).generate_state(1, np.uint64)[0])


def free_running_mask(like: Tensor) -> Tensor:
    """A mask (B, T), as ``like``, under which the model reads only BOS and its own predictions, as in decoding."""
    mask = torch.zeros_like(like, dtype=torch.bool)
    mask[:, :1] = True
    return mask
