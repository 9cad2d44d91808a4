"""Gradients of what every decoding step uses, deferred: the encoder's memory, and the weights of the cell.

A decoder whose steps depend on one another reads the same keys and values T times and multiplies by the same weights T
times. Left to autograd, every step's backward makes a full-sized gradient of each of them and adds it to the sum so
far: 3 T passes over (B, S, A) and (B, S, D), T small products for each weight. Here each step leaves its share, and the
shares become one product at the end.

How it stays ordinary autograd: `deferred` returns an alias of the tensor that knows where shares are collected. A
kernel that meets such an alias leaves its share there and returns no gradient for it; any other operation sends its
gradient as usual. Autograd runs the alias's own backward after that of every use, and there all is added up. A pass
that does not reach the alias (gradients of some inputs only, or one that failed) leaves shares behind: each share is
marked with its pass, and those of another are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear


class Collected:
    """What the uses of one tensor leave for its gradient: ``sum left^T right + total * scale``."""

    def __init__(self) -> None:
        self.backward_pass = -1  # the pass the rest belongs to
        self.clear()

    def clear(self) -> None:
        self.left: list[Tensor] = []  # (..., n, R) each
        self.right: list[Tensor] = []  # (..., n, C) each
        self.total: Tensor | None = None  # already summed, still to be multiplied by `scale`
        self.scale: Tensor | None = None

    def add(self, left: Tensor, right: Tensor) -> None:
        """Leave the share ``left^T right``."""
        self._drop_other_passes()
        self.left.append(left)
        self.right.append(right)

    def buffer(self, like: Tensor, scale: Tensor) -> Tensor:
        """The sum to which uses add their shares, each divided by ``scale``."""
        self._drop_other_passes()
        if self.total is None:
            self.total, self.scale = torch.zeros_like(like), scale
        return self.total

    def _drop_other_passes(self) -> None:
        """Forget what an earlier backward pass left because it never came to the alias."""
        current = torch._C._current_graph_task_id()
        if self.backward_pass != current:
            self.clear()
            self.backward_pass = current


def deferred(tensor: Tensor) -> Tensor:
    """An alias whose gradient is collected from the kernels that use it; the tensor itself where none is wanted."""
    if not (torch.is_grad_enabled() and tensor.requires_grad):
        return tensor
    return _collecting(_Deferred.apply(tensor, None, collected := Collected())[0], collected)


def collected_of(tensor: Tensor) -> Collected | None:
    """Where the shares of a `deferred` tensor go; none for any other."""
    return getattr(tensor, "collected", None)


def _collecting(alias: Any, collected: Collected) -> Tensor:
    alias.collected = collected
    return alias


class _Deferred(torch.autograd.Function):
    """A tensor, or a weight with its bias, whose gradient is the sum of the rows on the left."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, bias: Tensor | None, collected: Collected) -> tuple[Tensor, Tensor | None]:
        ctx.collected = collected
        ctx.set_materialize_grads(False)
        return tensor.view_as(tensor), None if bias is None else bias.view_as(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, direct: Tensor | None, direct_bias: Tensor | None) -> tuple[Tensor | None, ...]:
        collected: Collected = ctx.collected
        found = [] if direct is None else [direct]
        bias = direct_bias
        if collected.total is not None and collected.scale is not None:
            found.append(collected.total.mul_(collected.scale))
        if collected.left:
            left, right = torch.cat(collected.left, dim=-2), torch.cat(collected.right, dim=-2)
            found.append(left.mT.to(right.dtype) @ right)
            if ctx.needs_input_grad[1]:
                rows = left.sum(dim=0)
                bias = rows if bias is None else bias + rows
        collected.clear()
        return sum(found[1:], found[0]) if found else None, bias, None


# ------------------------------------------------------------------------------------------ the memory


def context(weights: Tensor, states: Tensor) -> Tensor:
    """``h*_t = sum_i a^t_i h_i`` of `deferred` states: (B, Q, S), (B, S, D) -> (B, Q, D)."""
    return _Product.apply(weights, states, False)


def dot_scores(query: Tensor, keys: Tensor) -> Tensor:
    """``q_t . k_i`` of `deferred` keys: (B, Q, H), (B, S, H) -> (B, Q, S)."""
    return _Product.apply(query, keys, True)


class _Product(torch.autograd.Function):
    """Rows (B, Q, n) times what every step reads, (B, n, m) or, ``turned``, (B, m, n)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, read: Tensor, turned: bool) -> Tensor:
        ctx.save_for_backward(rows, read)
        ctx.collected, ctx.turned = collected_of(read), turned
        rows = rows.to(read.dtype)
        if turned and rows.shape[1] > 1:  # a beam's: few rows by many keys take less time the other way round
            return torch.bmm(read, rows.mT).mT
        return torch.bmm(rows, read.mT if turned else read)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        rows, read = ctx.saved_tensors
        left, right = (gradient, rows) if ctx.turned else (rows, gradient)
        d_read = None
        if ctx.collected is not None:
            ctx.collected.add(left, right)
        elif ctx.needs_input_grad[1]:
            d_read = torch.bmm(left.mT.to(right.dtype), right)
        return torch.bmm(gradient, read if ctx.turned else read.mT).to(rows.dtype), d_read, None


# ----------------------------------------------------------------------------------------- the weights


def deferred_linear(weight: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """``x W^T + b`` for the steps of one pass: (O, I), (O,) -> a map (N, I) -> (N, O) whose gradients are made once."""
    if not (torch.is_grad_enabled() and (weight.requires_grad or (bias is not None and bias.requires_grad))):
        return lambda inputs: linear(inputs, weight, bias)
    alias, shift = _Deferred.apply(weight, bias, collected := Collected())
    alias = _collecting(alias, collected)
    return lambda inputs: _Linear.apply(inputs, alias, shift)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.collected = collected_of(weight)
        ctx.save_for_backward(inputs, weight)
        return linear(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None]:
        inputs, weight = ctx.saved_tensors
        if ctx.collected is not None:
            ctx.collected.add(gradient, inputs)
        return (gradient @ weight if ctx.needs_input_grad[0] else None), None, None
