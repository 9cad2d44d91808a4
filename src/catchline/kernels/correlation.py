"""CoCoNet's recurrence over all steps as one function, with its gradient written out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def copying_history(
    weights: Tensor, split: Tensor | None, attended: Tensor, values: Tensor, matrix: Tensor
) -> tuple[Tensor, Tensor]:
    """(11)-(15) over T steps, P_co as it is: P_final (B, T, S), and g (B, T), which has no gradient. alpha (B, T, S); u
    (B, T, 1), or none where one of s and p is not used; what alpha adds to g's argument (B, T); w_g . V for P_co (B,
    S); s and p one below the other (B, n S, S)."""
    return _CopyingHistory.apply(weights, split, attended, values, matrix)


class _CopyingHistory(torch.autograd.Function):
    """Written out because a step is small: left to autograd its forty operations, and as many on the way back, take
    longer to ask for than to compute. Here they are six or seven, in place, in tensors with the steps in front; what
    the steps do not need from one another is one operation after them.

    With P the result, r = P_co, g its gate and d the gradient of P, which grows by what the step after sends:

        dx = g (1 - g) d . (alpha - r);   dr = (1 - g) d + dx v;   dP_t-1 = u (dr s^T) + (1 - u) (dr p^T)
    """

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, split: Tensor | None, attended: Tensor, values: Tensor, matrix: Tensor
    ) -> tuple[Tensor, Tensor]:
        batch, steps, size = weights.shape
        histories = weights.new_zeros(steps + 1, batch, 1, size)
        raw, gates = weights.new_empty(steps, batch, 1, size), weights.new_empty(steps, batch, 1, 1)
        parts = histories[:-1] if split is None else weights.new_empty(steps, batch, 2, size)
        shares = None if split is None else torch.stack([split, 1 - split], dim=2).transpose(0, 1)  # (T, B, 2, 1)
        reads = torch.stack([values, torch.ones_like(values)], dim=-1)  # w_g . V, and ones for the mass
        begins = F.pad(attended.unsqueeze(-1), (0, 1)).transpose(0, 1).unsqueeze(2)  # (T, B, 1, 2)
        alphas, flat = weights.transpose(0, 1).unsqueeze(2), parts.view(steps, batch, 1, -1)
        unbound = map(torch.unbind, (histories[:-1], histories[1:], alphas, begins, raw, gates, parts, flat))
        for t, (before, after, alpha, begin, moved, gate, part, row) in enumerate(zip(*unbound, strict=True)):
            if shares is not None:
                torch.mul(before, shares[t], out=part)
            torch.bmm(row, matrix, out=moved)
            argument, mass = torch.baddbmm(begin, moved, reads).split(1, dim=-1)
            torch.sigmoid(argument, out=gate).masked_fill_(mass <= 0, 1.0)
            torch.lerp(moved, alpha, gate, out=after)
        ctx.save_for_backward(weights, split, values, matrix, histories, raw, gates, parts)
        flat_gates = gates.view(steps, batch).t()
        ctx.mark_non_differentiable(flat_gates)
        return histories[1:].squeeze(2).transpose(0, 1), flat_gates

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, wanted: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        weights, split, values, matrix, histories, raw, gates, parts = ctx.saved_tensors
        batch, steps = weights.shape[:2]
        d = wanted.transpose(0, 1).unsqueeze(2).clone(memory_format=torch.contiguous_format)  # (T, B, 1, S)
        steep = (weights.transpose(0, 1).unsqueeze(2) - raw).mul_(gates * (1 - gates)).transpose(2, 3)
        d_argument, d_raw, d_parts = torch.empty_like(gates), torch.empty_like(raw), torch.empty_like(parts)
        line, backwards, shares = values.unsqueeze(1), matrix.mT, () if split is None else split.split(1, dim=1)
        tensors = (d, steep, 1 - gates, d_argument, d_raw, d_parts, d_parts.view(steps, batch, 1, -1))
        unbound = list(zip(*map(torch.unbind, tensors), strict=True))
        for t in reversed(range(steps)):
            now, slope, left, argument, moved, part, row = unbound[t]
            torch.bmm(now, slope, out=argument)
            torch.mul(now, left, out=moved).addcmul_(line, argument)
            torch.bmm(moved, backwards, out=row)
            if t:
                unbound[t - 1][0].add_(torch.lerp(part[:, 1:], part[:, :1], shares[t]) if shares else part)
        moved = d_raw.squeeze(2).transpose(0, 1)  # (B, T, S)
        d_values = torch.bmm(d_argument.flatten(1).t().unsqueeze(1), raw.squeeze(2).transpose(0, 1)).squeeze(1)
        d_split = None
        if split is not None:
            apart = (d_parts[:, :, 0] - d_parts[:, :, 1]).mul_(histories[:-1, :, 0])
            d_split = apart.sum(dim=-1, keepdim=True).transpose(0, 1)
        d_matrix = torch.bmm(parts.flatten(2).permute(1, 2, 0), moved) if ctx.needs_input_grad[4] else None
        d_weights = d.mul_(gates).squeeze(2).transpose(0, 1)
        return d_weights, d_split, d_argument.flatten(1).t(), d_values, d_matrix
