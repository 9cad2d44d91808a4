"""The rows of s, rescaled: `laconic.papers.coconet.rescaled_rows` with its gradient written out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from laconic.papers.coconet import FLOOR


def rescaled_rows(matrix: Tensor, allowed: Tensor) -> Tensor:
    """`laconic.papers.coconet.rescaled_rows`: (B, S, S) twice -> (B, S, S)."""
    result: Tensor = _RescaledRows.apply(matrix, allowed)
    return result


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
