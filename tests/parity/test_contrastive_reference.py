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

import pytest
import torch
from plain import affine, agree, decoded_with_states, smoothed, softmax, zero
from torch import Tensor

from catchline.config.names import MODELS, build
from catchline.models.transformer import Transformer
from catchline.types import Batch
from samples import IDS, TRANSFORMER, UNK, VOCAB, few_words, randomise, trained_loss


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


BASE = TRANSFORMER | {"encoder_layers": 1, "decoder_layers": 3}
HEADS = BASE["num_heads"]
PLACE = {"layer": 1, "head": 2}
OPPONENTS: dict[str, dict[str, Any]] = {
    "max": {"type": "max"},
    "max-first": {"type": "max", "ties": "first"},
    "max-distinct": {"type": "max", "ties": "distinct"},
    "top-1": {"type": "topk", "k": 1},
    "top-2": {"type": "topk", "k": 2},
    "top-3-first": {"type": "topk", "k": 3, "ties": "first"},
    "top-3-distinct": {"type": "topk", "k": 3, "ties": "distinct"},
    "dynamic": {"type": "dynamic", "ratio": 1.3},
    "dynamic-while-over": {"type": "dynamic", "ratio": 1.1, "rule": "while_over"},
    "one-minus": {"type": "one_minus"},
    "inverse": {"type": "inverse"},
    "inverse-clamped": {"type": "inverse", "eps": 0.2},
    "renorm": {"type": "max", "normalizer": "renorm"},
    "release": {"type": "max", "out_proj": True, "empty": "alpha"},
    "softmax": {"type": "max", "output": "softmax"},
    "averaged": {"type": "max", "head": "average"},
    "averaged-mean": {"type": "topk", "k": 2, "head": "average", "averaged_values": "mean"},
    "first-layer": {"type": "max", "layer": 0, "head": 0},
    "detached-alpha": {"type": "max", "detach_alpha": True},
    "detached-values": {"type": "max", "detach_values": True},
}
EXACT = {"atol": 1e-10, "rtol": 0}


def options_of(name: str) -> dict[str, Any]:
    return PLACE | OPPONENTS[name]


def model_of(name: str) -> Transformer:
    spec = BASE | {"opponent": options_of(name)}
    return randomise(build("model", MODELS, spec, vocab_size=VOCAB, **IDS).double().eval(), scale=0.9, seed=3)


def reference_steps(name: str, model: Transformer, batch: Batch) -> tuple[list[list[ReferenceStep]], Any]:
    """Every real step of every example, from the model's own states; and these states."""
    memory = model.encode(batch)
    options = options_of(name)
    decoded, states = decoded_with_states(model, batch, memory, options["layer"])
    reference = ContrastiveReference(options, dict(model.named_parameters()), num_heads=HEADS)
    steps = []
    for b in range(len(batch.source_mask)):
        source = [memory.states[b, s] for s in batch.source_mask[b].nonzero().flatten()]
        length = int(batch.target_mask[b].sum())
        steps.append([reference.step(states[b, t], source) for t in range(length)])
    return steps, decoded


def gold_of(batch: Batch, b: int, t: int) -> int:
    word = int(batch.target_ids[b, t])
    return UNK if word >= VOCAB else word


@pytest.mark.parametrize("name", OPPONENTS)
@torch.no_grad()
def test_attention_and_probability(name: str) -> None:
    """At once, and step by step: ``log P_c + lambda log P_o`` of every word is the score of a step."""
    model, batch = model_of(name), few_words()
    expected, decoded = reference_steps(name, model, batch)
    reading, weights = model._opponent_output(model.opponent, decoded), model.opponent_attention(batch)
    at_once, state = model(batch), model.start(model.encode(batch))
    for t in range(batch.target_ids.shape[1]):
        output, state = model.step(batch.target_input_ids[:, t], state)
        for b, steps in enumerate(expected):
            if t >= len(steps):
                continue
            step, real = steps[t], batch.source_mask[b]
            for found, wanted in (
                (reading.weights[b, t, real], step.conventional),
                (weights[b, t, real], step.opponent),
                (reading.context[b, t], step.context),
                (at_once.details["opponent_log_probs"][b, t], step.log_probs[gold_of(batch, b, t)]),
                (output.scores[b], output.log_probs[b] + 0.2 * step.log_probs),
                (output.details["opponent_attention"][b, real], step.opponent),
                (output.details["conventional_attention"][b, real], step.conventional),
            ):
                torch.testing.assert_close(found, wanted, **EXACT)
            assert torch.equal(weights[b, t, real] == 0, step.opponent == 0)
            assert not weights[b, t, ~real].any()


# label smoothing is the same for all
@pytest.mark.parametrize(("name", "eps"), [*((name, 0.1) for name in OPPONENTS), ("max", 0.0), ("dynamic", 0.0)])
def test_the_loss_and_all_gradients(name: str, eps: float) -> None:
    """``-J`` a word, with and without label smoothing, as the loop computes it."""
    model, batch = model_of(name), few_words()
    specs = [{"type": "nll", "label_smoothing": eps}, {"type": "opponent", "weight": 0.3, "label_smoothing": eps}]
    expected, decoded = reference_steps(name, model, batch)
    words, total = 0, torch.zeros((), dtype=torch.float64)
    for b, steps in enumerate(expected):
        for t, step in enumerate(steps):
            gold = gold_of(batch, b, t)
            conventional = softmax(model.embedding.weight @ decoded.hidden[b, t])
            total = total + smoothed(conventional, gold, eps) + 0.3 * smoothed(step.log_probs.exp(), gold, eps)
            words += 1
    agree(model, trained_loss(model, batch, specs), -total / words)
