"""Attention weights averaged over the heads, without all heads at once.

One (B, Q, S) result is what copying, centrality and semantic correlation need. Left to autograd, every head's weights
would be kept for the backward pass: of an encoder's self-attention 537 MB for eight documents of 1024 tokens and 16
heads. Here a few heads at a time are made, added up and forgotten, and made once more in the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_WEIGHTS_AT_ONCE = 2**22  # attention weights that exist at a time


def mean_attention(queries: Tensor, keys: Tensor, mask: Tensor, *, group: int | None = None) -> Tensor:
    """`laconic.papers.coconet.mean_attention`: (B, Q, H, d), (B, S, H, d), (B, S) -> (B, Q, S).

    In float32 at least, also under autocast; zero at padding. ``group`` heads are read together; none: as many as are
    small together, on a CPU one by one where they lie.
    """
    if group is None:
        small = max(1, _WEIGHTS_AT_ONCE // max(1, mask.numel() * queries.shape[1]))
        group = 1 if queries.device.type == "cpu" else small
    mean: Tensor = _MeanAttention.apply(queries, keys, mask, group)
    return mean


class _MeanAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, mask: Tensor, group: int) -> Tensor:
        ctx.save_for_backward(queries, keys, mask)
        ctx.group = group
        total: Tensor | None = None
        for q, k in zip(_heads(queries, group), _heads(keys, group), strict=True):
            part = _weights(q, k, mask).sum(dim=1) if q.dim() == 4 else _weights(q, k, mask)
            total = part if total is None else total.add_(part)
        assert total is not None
        return total.div_(queries.shape[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, wanted: Tensor) -> tuple[Tensor, Tensor, None, None]:
        queries, keys, mask = ctx.saved_tensors
        scale = queries.shape[-1] ** -0.5
        wanted = wanted / queries.shape[2]
        d_queries, d_keys = torch.empty_like(queries), torch.empty_like(keys)
        places = zip(_heads(d_queries, ctx.group), _heads(d_keys, ctx.group), strict=True)
        with torch.autocast(queries.device.type, enabled=False):
            for q, k, (d_q, d_k) in zip(_heads(queries, ctx.group), _heads(keys, ctx.group), places, strict=True):
                weights = _weights(q, k, mask)
                q, k = q.to(weights.dtype), k.to(weights.dtype)
                d_scores = weights * (wanted.unsqueeze(1) if weights.dim() == 4 else wanted)
                d_scores.addcmul_(weights, d_scores.sum(dim=-1, keepdim=True), value=-1.0)
                d_q.copy_((d_scores @ k).mul_(scale))
                d_k.copy_((d_scores.transpose(-1, -2) @ q).mul_(scale))
        return d_queries, d_keys, None, None


def _weights(queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """(B, Q, d) or (B, h, Q, d) -> (B, Q, S) or (B, h, Q, S); zero at padding, and where all is padding."""
    with torch.autocast(queries.device.type, enabled=False):
        queries, keys = (x.float() if x.dtype.itemsize < 4 else x for x in (queries, keys))
        hidden = ~(mask[:, None, None] if queries.dim() == 4 else mask[:, None])
        scores = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
        scores.masked_fill_(hidden, torch.finfo(scores.dtype).min)
        return torch.softmax(scores, dim=-1).masked_fill_(hidden, 0.0)


def _heads(features: Tensor, group: int) -> tuple[Tensor, ...]:
    """(B, S, H, d) -> heads (B, S, d), or groups of them (B, h, S, d)."""
    return features.unbind(dim=2) if group == 1 else features.transpose(1, 2).split(group, dim=1)
