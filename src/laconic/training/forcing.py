"""The coins of teacher forcing (Headline Writer, section 3.3.4; specification b.5).

At decoder step t > 0 the model reads the gold token where ``forced_mask[:, t]`` is true, its own prediction
elsewhere. The first input is always BOS. The coins are a pure function of (seed, update, micro-batch, rank),
thrown on the CPU, so a resumed run throws the same ones and no generator state has to be stored.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from laconic.config.schema import TeacherForcingConfig


def forced_mask(
    config: TeacherForcingConfig, size: tuple[int, int], *, seed: int, update: int, micro_batch: int, rank: int
) -> Tensor | None:
    """Where the gold token is read: (B, T) bool for ``size`` = (B, T), or None for everywhere (ratio 1).

    ``scope`` says what shares a coin: ``step`` one per time step for the whole batch (our default, the tutorial
    lineage's reading), ``example_step`` one per example and step (scheduled sampling proper), ``sequence`` one
    per batch.
    """
    if config.ratio >= 1.0:
        return None
    batch, steps = size
    seeds = np.random.SeedSequence([seed, update, micro_batch, rank]).generate_state(1, np.uint64)
    generator = torch.Generator().manual_seed(int(seeds[0]))
    shape = {"step": (1, steps), "example_step": (batch, steps), "sequence": (1, 1)}[config.scope]
    coins = torch.rand(shape, generator=generator) < config.ratio
    mask = coins.expand(batch, steps).clone()
    mask[:, :1] = True
    return mask


def noise_seed(seed: int, update: int) -> int:
    """The seed of an update's noise that is no part of the global stream: a pure function, as the coins are.

    The same for every process and micro-batch, because an update is one minibatch however it is split, and some of
    the noise decides for all of it (whether a minibatch attends softly); what shall differ between examples takes
    their numbers into account.
    """
    return int(np.random.SeedSequence([seed, update, 1]).generate_state(1, np.uint64)[0])


def free_running_mask(size: tuple[int, int]) -> Tensor:
    """A mask under which the model reads only BOS and its own predictions, as in decoding."""
    mask = torch.zeros(size, dtype=torch.bool)
    mask[:, :1] = True
    return mask
