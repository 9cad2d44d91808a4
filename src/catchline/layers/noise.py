"""Random numbers that are a function of what they are for, not of when they are drawn.

A generator's next number depends on every number drawn before it. Where the same quantity may be computed early
or late, together with others or alone, or a second time, its noise must not: here each number is a hash of a
seed, a key (which example, which chunk, which step) and a counter. The hash is the 32-bit mixer "lowbias32"
(two multiplications, three shifts), computed in 64-bit integers so that it is the same on every device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from catchline.types import Batch

_LOW = 0xFFFFFFFF
STREAMS = 64  # uses of noise that a step may have: stream s of step t is number s + STREAMS t
_GOLDEN = 0x9E3779B9  # 2^32 divided by the golden ratio: spreads consecutive keys


@dataclass(slots=True)
class ExampleNoise:
    """The seed of a minibatch and the keys (B,) of its examples."""

    seed: int
    examples: Tensor

    @classmethod
    def of(cls, batch: Batch, seed: int | None) -> ExampleNoise:
        """With the trainer's seed, the same on every process; else one from torch's generator."""
        seed = int(torch.randint(2**31, ())) if seed is None else (seed ^ (seed >> 32)) & _LOW
        size, device = batch.source_ids.shape[0], batch.source_ids.device
        known = len(batch.indices) == size
        examples = sent(torch.tensor(batch.indices), device) if known else torch.arange(size, device=device)
        return cls(seed, mixed(seed, examples))

    def coin(self, number: int) -> float:
        """Uniform in [0, 1), the same on every process."""
        return int(mixed(self.seed, -1, number)) / 2**32


def mixed(seed: int | Tensor, *keys: int | Tensor) -> Tensor:
    """One 32-bit key (int64 tensor) out of a seed and further keys, which may be tensors of one shape."""
    key = _hash(seed)
    for more in keys:
        spread = key * _GOLDEN if isinstance(key, Tensor) else key * _GOLDEN & _LOW  # only these bits count
        key = _hash(spread + more + 1)
    return torch.as_tensor(key)


def bits(keys: Tensor, *shape: int) -> Tensor:
    """For each of the keys (R,), ``shape`` independent integers in [0, 2^32): (R, *shape) int64."""
    counters = torch.arange(math.prod(shape), device=keys.device) * _GOLDEN
    return _hash(keys.unsqueeze(-1) + counters).view(*keys.shape, *shape)


def kept(keys: Tensor, *shape: int, dropout: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Dropout masks (R, *shape): 0 with probability ``dropout``, else ``1 / (1 - dropout)``."""
    return (bits(keys, *shape) >= int(dropout * 2**32)).to(dtype).div_(1.0 - dropout)


def gumbel(keys: Tensor, *shape: int) -> Tensor:
    """Standard Gumbel noise (R, *shape), float32: ``argmax(log p + noise)`` is a draw from p."""
    uniform = (bits(keys, *shape).double() + 0.5) / 2**32
    return -(-uniform.log()).log().float()


def sent(values: Tensor, device: torch.device) -> Tensor:
    """What the host has, on the device; the host does not wait until the device has done what it was given before."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


def _hash(x: Any) -> Any:
    """Of an integer, or of each of a tensor: numbers that the host knows stay there."""
    x = (x.long() if isinstance(x, Tensor) else x) & _LOW
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _LOW
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _LOW
    return x ^ (x >> 16)
