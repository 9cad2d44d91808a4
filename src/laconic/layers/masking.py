"""Masks and the softmax under a mask. Masks are boolean, true at real tokens; the only ``-inf`` is here."""

from __future__ import annotations

import torch
from torch import Tensor

NEGATIVE_INFINITY = float("-inf")


def mask_scores(scores: Tensor, mask: Tensor) -> Tensor:
    """Return ``scores`` with ``-inf`` where ``mask`` (broadcastable) is false."""
    return scores.masked_fill(~mask, NEGATIVE_INFINITY)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis of real positions; exactly zero elsewhere.

    Computed in float32 at least. A row without any real position gives zeros, not NaN, and sends zeros back: it goes
    through the softmax with its own scores and is zeroed afterwards.
    """
    scores = scores.float() if scores.dtype.itemsize < 4 else scores
    dummies = mask | ~mask.any(dim=-1, keepdim=True)
    return torch.softmax(mask_scores(scores, dummies), dim=-1).masked_fill(~mask, 0.0)


def masked_logsumexp(scores: Tensor, mask: Tensor) -> Tensor:
    """``log sum exp`` over real positions of the last axis; ``-inf`` for a row that has none.

    The excluded positions take part in neither the value nor the gradient, also when every position
    is excluded (where a plain logsumexp over ``-inf`` would send NaN back).
    """
    peak = mask_scores(scores.detach(), mask).amax(dim=-1, keepdim=True)
    peak = peak.masked_fill(peak == NEGATIVE_INFINITY, 0.0)
    # Excluded scores are replaced before the exponential, so that none of them can overflow.
    summed = (torch.where(mask, scores - peak, 0.0).exp() * mask).sum(dim=-1)
    empty = summed == 0
    value = torch.log(torch.where(empty, 1.0, summed)) + peak.squeeze(-1)
    return value.masked_fill(empty, NEGATIVE_INFINITY)


def log_weights(weights: Tensor) -> Tensor:
    """``log a`` of weights in [0, 1], finite everywhere: below 1e-30 in float32 they count as that.

    Smaller ones have no useful digits left, and a gradient divided by one may not be a number any more.
    """
    return weights.clamp_min(1e8 * torch.finfo(weights.dtype).tiny).log()


def lengths_of(mask: Tensor) -> Tensor:
    """Number of real tokens of each row of a (B, S) mask whose real tokens come first."""
    return mask.sum(dim=-1)


def scatter_real(values: Tensor, mask: Tensor) -> Tensor:
    """Put the M values of the real positions of a (B, T) mask back in their places; zero elsewhere."""
    return values.new_zeros(mask.shape).masked_scatter(mask, values)
