"""The encoder's self-attention, averaged over its heads, without all heads at once.

One (B, S, S) result is what semantic correlation and centrality need. Left to autograd, every head's (B, S, S)
weights would be kept for the backward pass: 537 MB for eight documents of 1024 tokens and 16 heads. Here a few heads at
a time are made, added up and forgotten, and made once more in the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from laconic.layers.transformer import head_attention

_WEIGHTS_AT_ONCE = 2**22


def mean_self_attention(
    queries: Tensor, keys: Tensor, mask: Tensor, *, rows: Tensor | None = None, group: int | None = None
) -> Tensor:
    """Equations (16)-(19): ``mean_h softmax(q_h k_h^T / sqrt(d))`` over real tokens, (B, S, H, d) twice -> (B, S, S).

    In float32 at least, before dropout. Only ``rows`` (B, S) are not zero; none: those of real tokens. ``group`` heads
    are read together.
    """
    if group is None:
        small = max(1, _WEIGHTS_AT_ONCE // max(1, mask.numel() * mask.shape[1]))
        group = 1 if queries.device.type == "cpu" else small
    return _MeanSelfAttention.apply(queries, keys, mask, mask if rows is None else rows, group)


class _MeanSelfAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, mask: Tensor, rows: Tensor, group: int) -> Tensor:
        ctx.save_for_backward(queries, keys, mask, rows)
        ctx.group = group
        total: Tensor | None = None
        for q, k in zip(_heads(queries, group), _heads(keys, group), strict=True):
            part = head_attention(q, k, mask.unsqueeze(1)).sum(dim=1)
            total = part if total is None else total.add_(part)
        assert total is not None
        return total.div_(queries.shape[2]).masked_fill_(~rows.unsqueeze(-1), 0.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, wanted: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        queries, keys, mask, rows = ctx.saved_tensors
        scale = queries.shape[-1] ** -0.5
        wanted = (wanted / queries.shape[2]).masked_fill(~rows.unsqueeze(-1), 0.0).unsqueeze(1)
        d_queries, d_keys = [], []
        with torch.autocast(queries.device.type, enabled=False):
            for q, k in zip(_heads(queries, ctx.group), _heads(keys, ctx.group), strict=True):
                weights = head_attention(q, k, mask.unsqueeze(1))  # (B, h, S, S)
                q, k = q.to(weights.dtype), k.to(weights.dtype)
                d_scores = weights * wanted
                d_scores -= weights * d_scores.sum(dim=-1, keepdim=True)
                d_queries.append((d_scores @ k).mul_(scale))
                d_keys.append((d_scores.transpose(-1, -2) @ q).mul_(scale))
        d_query = torch.cat(d_queries, dim=1).transpose(1, 2).to(queries.dtype)
        return d_query, torch.cat(d_keys, dim=1).transpose(1, 2).to(keys.dtype), None, None, None


def _heads(features: Tensor, group: int) -> tuple[Tensor, ...]:
    """(B, S, H, d) -> groups of heads (B, h, S, d)."""
    return features.transpose(1, 2).split(group, dim=1)
