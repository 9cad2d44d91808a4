"""Contrastive attention (Duan et al. 2019), written a second time, as `plain` has it, from the equations and readings
of docs/contrastive.md and nothing else: a step gets the vectors of the real source positions. States come from the
model, so that the gradients of both can be compared.

| paper | parameter |
| --- | --- |
| W_q, W_k, W_v of decoder layer l | rows 0.., D.., 2D.. of ``decoder.layers.l.cross_attention.in_proj`` |
| LN1, LN2 | ``opponent.first_norm``, ``opponent.second_norm`` |
| FC1, FC2 | ``opponent.expand``, ``opponent.contract`` |
| W | ``opponent.projection.weight`` |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from plain import affine, softmax, zero
from torch import Tensor


@dataclass(frozen=True)
class ReferenceStep:
    """One decoder step: alpha_c and alpha_o over S positions, alpha_o v, log P_o over V words."""

    conventional: Tensor
    opponent: Tensor
    context: Tensor
    log_probs: Tensor


def masked_positions(weights: list[float], options: Mapping[str, Any]) -> set[int]:
    """The positions that the opponent takes away, from the weights as numbers."""
    kind, count = options["type"], len(weights)
    falling = sorted(range(count), key=lambda i: -weights[i])  # stable: the leftmost of equal weights first
    if kind in ("max", "topk"):
        k, ties = options.get("k", 2) if kind == "topk" else 1, options.get("ties", "all")
        if ties == "first":
            return set(falling[:k])
        values = sorted(weights, reverse=True) if ties == "all" else sorted(set(weights), reverse=True)
        return {i for i in range(count) if weights[i] >= values[min(k, len(values)) - 1]}
    if kind == "dynamic":
        masked = [falling[0]]
        for before, after in pairwise(falling):
            over = weights[after] == 0 < weights[before] or (
                weights[after] > 0 and weights[before] / weights[after] > options.get("ratio", 1.02)
            )
            if over != (options.get("rule", "until_over") == "while_over"):
                break
            masked.append(after)
        return set(masked)
    return set()


def opponent_of(alpha: list[Tensor], options: Mapping[str, Any]) -> list[Tensor]:
    """Equation (3) for one row."""
    numbers = [float(a.detach()) for a in alpha]
    gone = masked_positions(numbers, options)
    scores = alpha
    if options["type"] == "one_minus":
        scores = [1 - a for a in alpha]
    elif options["type"] == "inverse":
        eps = options.get("eps", 1e-6)
        scores = [1 / a if float(a.detach()) >= eps else torch.tensor(1 / eps, dtype=torch.float64) for a in alpha]
    left = [i for i in range(len(alpha)) if i not in gone]
    if not left:
        return alpha if options.get("empty") == "alpha" else [zero() for _ in alpha]
    if options.get("normalizer", "softmax") == "softmax":
        shares = softmax(torch.stack([scores[i] for i in left]))
    else:
        shares = [scores[i] / sum(scores[j] for j in left) for i in left]
    return [shares[left.index(i)] if i in left else zero() for i in range(len(alpha))]


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mean = sum(x) / len(x)
    variance = sum((e - mean) ** 2 for e in x) / len(x)
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias


class ContrastiveReference:
    """``options`` are those of ``model.opponent``."""

    def __init__(self, options: Mapping[str, Any], parameters: Mapping[str, Tensor], *, num_heads: int) -> None:
        self.o, self.p, self.num_heads = options, parameters, num_heads
        name = f"decoder.layers.{options['layer']}.cross_attention.in_proj"
        self.size = parameters[f"{name}.weight"].shape[1]
        self.weights = parameters[f"{name}.weight"].split(self.size)
        self.biases = parameters[f"{name}.bias"].split(self.size)

    def project(self, which: int, head: int, x: Tensor) -> Tensor:
        """q (0), k (1) or v (2) of one head."""
        width = self.size // self.num_heads
        rows = slice(head * width, (head + 1) * width)
        return self.weights[which][rows] @ x + self.biases[which][rows]

    def conventional(self, head: int, x: Tensor, memory: list[Tensor]) -> list[Tensor]:
        """Equation (2) of one head."""
        q = self.project(0, head, x)
        return list(softmax(torch.stack([q @ self.project(1, head, m) / len(q) ** 0.5 for m in memory])))

    def step(self, x: Tensor, memory: list[Tensor]) -> ReferenceStep:
        """``x`` is the output of layer l's self-attention sublayer, ``memory`` the encoder's at real positions."""
        averaged = self.o["head"] == "average"
        heads = list(range(self.num_heads)) if averaged else [self.o["head"]]
        maps = [self.conventional(head, x, memory) for head in heads]
        alpha = [sum(one[i] for one in maps) / len(heads) for i in range(len(memory))]
        if self.o.get("detach_alpha"):
            alpha = [a.detach() for a in alpha]
        opponent = opponent_of(alpha, self.o)
        values = []
        for m in memory:
            parts = [self.project(2, head, m) for head in heads]
            mean = self.o.get("averaged_values") == "mean"
            value = sum(parts) / len(parts) if mean else torch.cat(parts)
            values.append(value.detach() if self.o.get("detach_values") else value)
        context = sum(a * v for a, v in zip(opponent, values, strict=True))
        return ReferenceStep(torch.stack(alpha), torch.stack(opponent), context, self.log_opponent(context))

    def log_opponent(self, context: Tensor) -> Tensor:
        """Equations (4) to (8): log softmin(W z3), every word's."""
        z = self.affine("out_proj", context) if self.o.get("out_proj") else context
        z1 = layer_norm(z, self.p["opponent.first_norm.weight"], self.p["opponent.first_norm.bias"])
        inner = self.affine("expand", z1)
        z2 = self.affine("contract", torch.where(inner > 0, inner, torch.zeros_like(inner)))
        z3 = layer_norm(z1 + z2, self.p["opponent.second_norm.weight"], self.p["opponent.second_norm.bias"])
        scores = self.p["opponent.projection.weight"] @ z3
        return torch.log(softmax(scores if self.o.get("output") == "softmax" else -scores))

    def affine(self, name: str, x: Tensor) -> Tensor:
        return affine(self.p, f"opponent.{name}", x)
