"""Sinusoidal positions, which need no table of parameters and go on as far as a sequence does."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sinusoids(first: int, count: int, like: Tensor) -> Tensor:
    """The vectors of ``count`` positions from ``first`` on: (count, D), D, type and device those of ``like`` (..., D).

    The first half of a vector holds sines, the second cosines; the angular speeds fall geometrically from 1 to
    1/10000 (contrastive specification b.1; not the interleaved order of the Transformer's paper).
    """
    size = like.shape[-1]
    half = size // 2
    exact = torch.float64 if like.dtype == torch.float64 else torch.float32
    steps = torch.arange(half, dtype=exact, device=like.device)
    speeds = torch.exp(steps * (-math.log(10000.0) / max(half - 1, 1)))
    angles = torch.arange(first, first + count, dtype=exact, device=like.device)[:, None] * speeds
    vectors = torch.cat([angles.sin(), angles.cos()], dim=1)
    if size % 2:
        vectors = torch.nn.functional.pad(vectors, (0, 1))
    return vectors.to(like.dtype)


def token_positions(mask: Tensor) -> Tensor:
    """(B, S) bool -> (B, S): real tokens are numbered 1, 2, ..., padding on either side has 0."""
    return mask.cumsum(dim=1) * mask


def masked_sinusoids(mask: Tensor, first: int, like: Tensor) -> Tensor:
    """The vectors (B, S, D) of a padded batch: a row's first real token is at ``first``; padding has zeros."""
    table = sinusoids(first, mask.shape[1], like)
    table = torch.cat([table.new_zeros(1, table.shape[1]), table])
    return torch.nn.functional.embedding(token_positions(mask), table)
