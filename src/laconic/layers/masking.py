"""Masks: boolean, true at real tokens."""

from __future__ import annotations

import torch
from torch import Tensor

NEGATIVE_INFINITY = float("-inf")


def mask_scores(scores: Tensor, mask: Tensor) -> Tensor:
    """Return ``scores`` with ``-inf`` where ``mask`` (broadcastable) is false."""
    return scores.masked_fill(~mask, NEGATIVE_INFINITY)


def log_weights(weights: Tensor) -> Tensor:
    """``log a`` of weights in [0, 1], finite everywhere: below 1e-30 in float32 they count as that.

    Smaller ones have no useful digits left, and a gradient divided by one may not be a number any more.
    """
    return weights.clamp_min(1e8 * torch.finfo(weights.dtype).tiny).log()


def scatter_real(values: Tensor, mask: Tensor) -> Tensor:
    """Put the M values of the real positions of a (B, T) mask back in their places; zero elsewhere."""
    return values.new_zeros(mask.shape).masked_scatter(mask, values)
