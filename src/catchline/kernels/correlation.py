"""CoCoNet's transitions: the rows of s rescaled, equation (20) as a band, and all steps of the recurrence as one.

**The band**: what a row of p gives to every position, and what it gives more to those nearby. With distances clamped at
16, row j of p has 17 different numbers c_j(0) ... c_j(16). So

    (P p)_i = sum_j P_j c_j(16) + sum_{|d| <= 16} P_{i+d} (c_{i+d}(|d|) - c_{i+d}(16))

over where mass may go, which takes (B, S, 33) weights instead of (B, S, S). With ``cutoff`` the first sum is empty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from catchline.papers.coconet import FLOOR, SelfTransfer, steepness
from catchline.papers.pointer_generator import log_sum_exp


def rescaled_rows(matrix: Tensor, allowed: Tensor) -> Tensor:
    """`catchline.papers.coconet.rescaled_rows`: (B, S, S) twice -> (B, S, S)."""
    return _RescaledRows.apply(matrix, allowed)


class _RescaledRows(torch.autograd.Function):
    """Written out because autograd would keep two more (B, S, S) tensors and make several on the way back."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, allowed: Tensor) -> Tensor:
        result = matrix.masked_fill(~allowed, 0.0)
        total = result.sum(dim=-1, keepdim=True)
        places = allowed.sum(dim=-1, keepdim=True).clamp_min(1)
        result.add_((FLOOR - total).clamp_min_(0.0) / places).div_(total.clamp_min(FLOOR)).masked_fill_(~allowed, 0.0)
        ctx.save_for_backward(result, total, places, allowed)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, wanted: Tensor) -> tuple[Tensor, None]:
        result, total, places, allowed = ctx.saved_tensors
        gradient = wanted.masked_fill(~allowed, 0.0)
        # Below the floor the sum that is divided by is constant, and what is lacking falls as the row grows.
        even = gradient.sum(dim=-1, keepdim=True) / places
        share = torch.linalg.vecdot(gradient, result).unsqueeze(-1)
        return gradient.sub_(torch.where(total < FLOOR, even, share)).div_(total.clamp_min(FLOOR)).mul_(allowed), None


@dataclass(slots=True)
class Band:
    """p without its (B, S, S); R is the clipping distance."""

    near: Tensor  # (B, S, 2R + 1) what position i + d gives to i, d = -R ... R, over what it gives to all
    far: Tensor  # (B, S) what position j gives to all
    copy_mask: Tensor  # (B, S)

    def transferred(self, history: Tensor) -> Tensor:
        """``P p``: (B, Q, S) -> (B, Q, S)."""
        reach = self.near.shape[-1] // 2
        windows = F.pad(history, (reach, reach)).unfold(-1, 2 * reach + 1, 1)  # (B, Q, S, 2R + 1), a view
        near = (windows * self.near.unsqueeze(1)).sum(dim=-1)
        everywhere = (history * self.far.unsqueeze(1)).sum(dim=-1, keepdim=True)
        # What all get is taken from the own position again, which rounding may leave a little below zero.
        return (near + everywhere).clamp_min(0.0).masked_fill(~self.copy_mask.unsqueeze(1), 0.0)


def positional_band(
    log_widths: Tensor,
    copy_mask: Tensor,
    *,
    self_transfer: SelfTransfer = "zero_renorm",
    clip: Literal["clamp", "cutoff"] = "clamp",
    clip_distance: int = 16,
    density: bool = False,
) -> Band:
    """`catchline.papers.coconet.positional_correlation` as a `Band`: log sigma (B, S) and the mask (B, S).

    A row's sum has a closed form: its 17 numbers, each as often as there are positions at that distance.
    """
    distances = torch.arange(clip_distance + 1, device=log_widths.device, dtype=log_widths.dtype)
    exponents = -distances.square() * steepness(log_widths).unsqueeze(-1)  # (B, S, R + 1)
    if density:
        exponents = exponents - log_widths.unsqueeze(-1) - math.log(2 * math.pi) / 2
    else:
        counts = _counts(copy_mask, clip_distance, everywhere=clip == "clamp").to(exponents.dtype)
        if self_transfer == "zero_renorm":
            counts[..., 0] = 0.0
        found = counts > 0
        # The largest becomes 0: it may be far below, where a float has no room for its differences to others.
        peak = exponents.detach().masked_fill(~found, -torch.inf).amax(dim=-1, keepdim=True)
        exponents = exponents - peak.masked_fill(peak == -torch.inf, 0.0)
        total = log_sum_exp(exponents + counts.masked_fill(~found, 1.0).log(), found)
        exponents = exponents - total.masked_fill(total == -torch.inf, 0.0).unsqueeze(-1)
        # No position is at a distance that was not found: what stands there is never met, but must be finite.
        exponents = torch.where(found, exponents, -torch.inf)
    gives = torch.exp(exponents).masked_fill(~copy_mask.unsqueeze(-1), 0.0)
    far = gives[..., -1] if clip == "clamp" else torch.zeros_like(gives[..., -1])
    more = gives - far.unsqueeze(-1)
    if self_transfer != "keep":
        more = torch.cat([-far.unsqueeze(-1), more[..., 1:]], dim=-1)
    return Band(_from_the_target(more), far, copy_mask)


def _counts(copy_mask: Tensor, reach: int, *, everywhere: bool) -> Tensor:
    """How many positions of ``copy_mask`` (B, S) there are at distance 0 ... R of each: (B, S, R + 1).

    ``everywhere``: the last counts those further away as well.
    """
    number = copy_mask.to(torch.int64)
    windows = F.pad(number, (reach, reach)).unfold(-1, 2 * reach + 1, 1)
    sides = windows + windows.flip(-1)
    counts = torch.cat([number.unsqueeze(-1), sides[..., reach + 1 :]], dim=-1)
    if everywhere:
        rest = number.sum(dim=-1, keepdim=True) - counts[..., :-1].sum(dim=-1)
        counts = torch.cat([counts[..., :-1], rest.unsqueeze(-1)], dim=-1)
    return counts


def _from_the_target(more: Tensor) -> Tensor:
    """(B, S, R + 1), what j gives at each distance -> (B, S, 2R + 1), what i gets from i - R ... i + R."""
    reach = more.shape[-1] - 1
    windows = F.pad(more, (0, 0, reach, reach)).unfold(1, 2 * reach + 1, 1)  # (B, S, R + 1, 2R + 1)
    places = torch.arange(2 * reach + 1, device=more.device)
    return windows[:, :, (places - reach).abs(), places]


# --------------------------------------------------------------------------------------------- the recurrence


def copying_history(
    weights: Tensor, split: Tensor | None, attended: Tensor, values: Tensor, matrix: Tensor
) -> tuple[Tensor, Tensor]:
    """(11)-(15) over T steps, P_co as it is: P_final (B, T, S), and g (B, T), which has no gradient.

    alpha (B, T, S); u (B, T, 1), or none where one of s and p is not used; what alpha adds to g's argument (B, T);
    w_g . V for P_co (B, S); s and p one below the other (B, n S, S).
    """
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
