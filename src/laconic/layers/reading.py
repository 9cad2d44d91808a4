"""Gradients of a memory that is read once a decoding step.

A decoder with a recurrence through its attention (coverage, input feeding) reads the same keys and
values T times. Left to autograd, every step's backward makes a full-sized gradient of the keys and of
the values, and adds it to the sum so far: 3 T passes over (B, S, A) and (B, S, D). Here each step adds
its share in place, and the shares of the values become one matrix product at the end.

How it stays ordinary autograd: the memory hands out a *ticket*, a zero scalar that depends on keys and
values. Each reading takes the ticket as an input, so autograd runs the ticket's backward after that of
every reading, and there the collected gradients are returned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from laconic.types import Shared


@dataclass(slots=True)
class Collected:
    """What the readings of one forward pass leave for the gradient of the memory."""

    ticket: Tensor | None = None  # scalar that depends on keys and values
    keys: Tensor | None = None  # (B, S, A), already summed, still to be multiplied by `key_scale`
    key_scale: Tensor | None = None  # (A,), what is common to the key gradients of all readings
    weights: list[Tensor] = field(default_factory=list)  # (B, Q, S) of each reading
    contexts: list[Tensor] = field(default_factory=list)  # (B, Q, D), gradients of the contexts


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


def key_gradient(collected: Collected, keys: Tensor, scale: Tensor) -> Tensor:
    """The buffer into which a reading adds its gradient of the keys, divided by ``scale`` (A,)."""
    if collected.keys is None:
        collected.keys, collected.key_scale = torch.zeros_like(keys), scale
    return collected.keys


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
        collected.keys, collected.key_scale, collected.weights, collected.contexts = None, None, [], []
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
            ctx.collected.weights.append(weights)
            ctx.collected.contexts.append(gradient)
            ticket = gradient.new_zeros(())
        return torch.bmm(gradient, values.transpose(1, 2)).to(weights.dtype), ticket, None, None
