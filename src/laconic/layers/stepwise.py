"""Gradients of what every decoding step uses: the encoder's memory, and the weights of the cell.

A decoder whose steps depend on one another reads the same keys and values T times and multiplies by the
same weights T times. Left to autograd, every step's backward makes a full-sized gradient of each of them
and adds it to the sum so far: 3 T passes over (B, S, A) and (B, S, D), T small products for each weight.
Here each step leaves its share, and the shares become one product at the end.

How it stays ordinary autograd: what is shared hands out a *ticket*, a zero scalar that depends on it. Each
use takes the ticket as an input, so autograd runs the ticket's backward after that of every use, and there
the collected gradient is returned. A pass that does not reach the ticket (gradients of some inputs only, or
one that failed) leaves shares behind: each share is marked with its pass, and those of another are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from laconic.types import Shared


class Collected:
    """What the readings of one forward pass leave for the gradient of the memory.

    Not a dataclass, so that re-ordering a decoder state leaves it (and `StepLinear`) alone.
    """

    def __init__(self) -> None:
        self.ticket: Tensor | None = None  # scalar that depends on keys and values
        self.backward_pass = -1  # the pass the rest belongs to
        self.clear()

    def clear(self) -> None:
        self.keys: Tensor | None = None  # (B, S, A), already summed, still to be multiplied by `key_scale`
        self.key_scale: Tensor | None = None  # (A,), what is common to the key gradients of all readings
        self.weights: list[Tensor] = []  # (B, Q, S) of each reading
        self.contexts: list[Tensor] = []  # (B, Q, D), gradients of the contexts
        self.queries: list[Tensor] = []  # (B, Q, A) of each product with the keys
        self.products: list[Tensor] = []  # (B, Q, S), gradients of the products


@dataclass(slots=True)
class ReadableMemory:
    """Keys and values of a batch of documents, prepared for many readings."""

    keys: Tensor  # (B, S, A), detached: gradients go through the ticket
    values: Tensor  # (B, S, D), detached
    mask: Tensor  # (B, S)
    collected: Collected | None  # None without gradients

    @property
    def ticket(self) -> Tensor | None:
        return None if self.collected is None else self.collected.ticket


def prepare(keys: Tensor, values: Tensor, mask: Tensor) -> Shared:
    """Wrap keys (B, S, A) and values (B, S, D) for readings by `context` and by score functions.

    What belongs to the document is `Shared`: beams read it, re-ordering them leaves it alone.
    """
    collected = None
    if torch.is_grad_enabled() and (keys.requires_grad or values.requires_grad):
        collected = Collected()
        collected.ticket = _Ticket.apply(keys, values, collected)
    return Shared((keys.detach(), values.detach(), mask, collected))


def opened(memory: Shared) -> ReadableMemory:
    """The prepared memory behind a `Shared` node."""
    return ReadableMemory(*memory.tree)


def context(weights: Tensor, memory: ReadableMemory) -> Tensor:
    """``h*_t = sum_i a^t_i h_i``: weights (B, Q, S) -> contexts (B, Q, D)."""
    return _Context.apply(weights, memory.ticket, memory.values, memory.collected)


def products(queries: Tensor, memory: ReadableMemory) -> Tensor:
    """``q_t . k_i``: queries (B, Q, A) -> (B, Q, S). Not to be mixed with `key_gradient` on one memory."""
    return _Products.apply(queries, memory.ticket, memory.keys, memory.collected)


def key_gradient(collected: Collected, keys: Tensor, scale: Tensor) -> Tensor:
    """The buffer into which a reading adds its gradient of the keys, divided by ``scale`` (A,)."""
    _drop_other_passes(collected)
    if collected.keys is None:
        collected.keys, collected.key_scale = torch.zeros_like(keys), scale
    return collected.keys


def _drop_other_passes(collected: Collected | StepLinear) -> None:
    """Forget what an earlier backward pass left because it never came to the ticket."""
    current = torch._C._current_graph_task_id()
    if collected.backward_pass != current:
        collected.clear()
        collected.backward_pass = current


# ----------------------------------------------------------------------------------------- memory


class _Ticket(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Tensor, values: Tensor, collected: Collected) -> Tensor:
        ctx.collected = collected
        return keys.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        collected: Collected = ctx.collected
        keys, values = collected.keys, None
        if keys is not None and collected.key_scale is not None:
            keys = keys.mul_(collected.key_scale)
        if collected.weights:
            weights, contexts = torch.cat(collected.weights, dim=1), torch.cat(collected.contexts, dim=1)
            values = torch.bmm(weights.transpose(1, 2).to(contexts.dtype), contexts)
        if collected.products:
            queries, products = torch.cat(collected.queries, dim=1), torch.cat(collected.products, dim=1)
            keys = torch.bmm(products.transpose(1, 2).to(queries.dtype), queries)
        collected.clear()
        return keys, values, None


class _Context(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, ticket: Tensor | None, values: Tensor, collected: Collected | None
    ) -> Tensor:
        ctx.save_for_backward(weights, values)
        ctx.collected = collected
        return torch.bmm(weights.to(values.dtype), values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        weights, values = ctx.saved_tensors
        ticket = None
        if ctx.collected is not None:
            _drop_other_passes(ctx.collected)
            ctx.collected.weights.append(weights)
            ctx.collected.contexts.append(gradient)
            ticket = gradient.new_zeros(())
        return torch.bmm(gradient, values.transpose(1, 2)).to(weights.dtype), ticket, None, None


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, ticket: Tensor | None, keys: Tensor, collected: Collected | None) -> Tensor:
        ctx.save_for_backward(queries, keys)
        ctx.collected = collected
        return torch.bmm(queries, keys.transpose(1, 2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        queries, keys = ctx.saved_tensors
        ticket = None
        if ctx.collected is not None:
            _drop_other_passes(ctx.collected)
            ctx.collected.queries.append(queries)
            ctx.collected.products.append(gradient)
            ticket = gradient.new_zeros(())
        return torch.bmm(gradient, keys), ticket, None, None


# ---------------------------------------------------------------------------------------- weights


class StepLinear:
    """A linear map ``x W^T + b`` that is applied once a step, its weight gradient made once."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight.detach()  # (O, I), detached: gradients go through the ticket
        self.bias = None if bias is None else bias.detach()
        self.ticket: Tensor | None = None
        self.backward_pass = -1  # the pass the rest belongs to
        self.clear()

    def clear(self) -> None:
        self.inputs: list[Tensor] = []
        self.gradients: list[Tensor] = []

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None) -> StepLinear:
        """Prepare a weight (O, I) and a bias (O,) for the steps of one forward pass."""
        linear = cls(weight, bias)
        if torch.is_grad_enabled() and (weight.requires_grad or (bias is not None and bias.requires_grad)):
            linear.ticket = _WeightTicket.apply(weight, bias, linear)
        return linear

    def __call__(self, inputs: Tensor) -> Tensor:
        """(N, I) -> (N, O)."""
        return _StepLinear.apply(inputs, self.ticket, self)


class _WeightTicket(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, linear: StepLinear) -> Tensor:
        ctx.linear = linear
        return weight.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        linear: StepLinear = ctx.linear
        if not linear.gradients:
            return None, None, None
        gradients, inputs = torch.cat(linear.gradients), torch.cat(linear.inputs)
        linear.clear()
        weight = gradients.t() @ inputs
        bias = gradients.sum(dim=0).to(linear.bias.dtype) if linear.bias is not None else None
        return weight.to(linear.weight.dtype), bias, None


class _StepLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, ticket: Tensor | None, linear: StepLinear) -> Tensor:
        ctx.linear = linear
        ctx.save_for_backward(inputs)
        return torch.nn.functional.linear(inputs, linear.weight, linear.bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        linear: StepLinear = ctx.linear
        ticket = None
        if linear.ticket is not None:
            _drop_other_passes(linear)
            (inputs,) = ctx.saved_tensors
            linear.inputs.append(inputs)
            linear.gradients.append(gradient)
            ticket = gradient.new_zeros(())
        return (gradient @ linear.weight if ctx.needs_input_grad[0] else None), ticket, None
