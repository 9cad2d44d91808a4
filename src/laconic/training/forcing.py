"""The coins of teacher forcing (Headline Writer, section 3.3.4; specification b.5).

At decoder step t > 0 the model reads the gold token where ``forced_mask[:, t]`` is true, its own prediction
elsewhere. The first input is always BOS. The coins are a pure function of (seed, update) or, where each example has its
own, of (seed, update, example), thrown on the CPU, so a resumed run throws the same ones and no generator state has to
be stored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from laconic.config.schema import TeacherForcingConfig
from laconic.layers import noise


def forced_mask(
    config: TeacherForcingConfig, size: tuple[int, int], *, seed: int, update: int, examples: Sequence[int]
) -> Tensor | None:
    """Where the gold token is read: (B, T) bool for ``size`` = (B, T), or None for everywhere (ratio 1).

    ``scope`` says what shares a coin: ``step`` one per time step for the whole minibatch (our default, the tutorial
    lineage's reading), ``example_step`` one per example and step (scheduled sampling proper; ``examples`` are their
    numbers), ``sequence`` one per minibatch. A minibatch is all that an update reads, however it is split.
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
    """The seed of an update's noise that is no part of the global stream: a pure function, as the coins are.

    The same for every process and micro-batch, because an update is one minibatch however it is split, and some of
    the noise decides for all of it (whether a minibatch attends softly); what shall differ between examples takes
    their numbers into account.
    """
    return int(np.random.SeedSequence([seed, update, 0, use]).generate_state(1, np.uint64)[0])


def free_running_mask(size: tuple[int, int]) -> Tensor:
    """A mask under which the model reads only BOS and its own predictions, as in decoding."""
    mask = torch.zeros(size, dtype=torch.bool)
    mask[:, :1] = True
    return mask
