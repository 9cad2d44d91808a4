"""What the references share: equations that several papers have, and how a recurrent model is held against them.

Everything is done one example, one step and one source position at a time, in float64, on real tokens only: no masks,
no padding, no batches, no log space, nothing shared with the code under test but the names of the parameters.
Gradients come from autograd on these plain formulas.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from catchline.types import TrainingBatch, UpdateContext
from samples import PAD, UNK, VOCAB, assert_same, gradients, trained_loss

Parameters = Mapping[str, Tensor]
TOLERANCE = 1e-10


def decoded_with_states(model: Any, batch: TrainingBatch, memory: Any, layer: int) -> tuple[Any, Tensor]:
    """A teacher-forced pass, and what the queries of a decoder layer's cross attention are made of: (B, T, D)."""
    seen, own = [], model.decoder.layers[layer].cross_attention
    with patch.object(own, "queries", side_effect=lambda x: seen.append(x) or type(own).queries(own, x)):
        return model._forced(batch, memory), seen[0]


# What `samples.random_batch` is asked for.
BATCHES: dict[str, dict[str, Any]] = {
    "mixed": {},
    "one step": {"target_lengths": (1, 1, 1)},
    "one source token": {"source_lengths": (1, 1), "target_lengths": (4, 2)},
    "nothing outside V": {"with_oov": False},
    "tails of padding": {"extra_source": 3, "extra_target": 2},
    "gold in the padding": {"padding": "gold", "extra_source": 4, "seed": 5},
    "no padding": {"source_lengths": (5, 5), "target_lengths": (4, 4)},
    "one example": {"source_lengths": (6,), "target_lengths": (5,)},
}


# ---------------------------------------------------------------------------------------- equations


def zero() -> Tensor:
    return torch.zeros((), dtype=torch.float64)


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def softmax(values: Tensor, where: Sequence[bool] | None = None) -> Tensor:
    """Over all or the chosen entries, zero at the others; all zero where none is chosen."""
    chosen = torch.ones(len(values), dtype=torch.bool) if where is None else torch.tensor(where)
    if not chosen.any():
        return torch.zeros_like(values)
    top = values.detach()[chosen].max()
    powers = torch.exp(torch.where(chosen, values, top) - top) * chosen
    return powers / powers.sum()


def smoothed(probs: Tensor, gold: int, eps: float) -> Tensor:
    """``(1 - eps) log P(gold) + eps / V sum over the V words of log P(v)``."""
    return (1 - eps) * torch.log(probs[gold]) + eps / VOCAB * torch.log(probs[:VOCAB]).sum()


def affine(parameters: Parameters, name: str, x: Tensor) -> Tensor:
    """W x + b; an absent b is zero."""
    y = parameters[f"{name}.weight"] @ x
    return y + parameters[f"{name}.bias"] if f"{name}.bias" in parameters else y


def gates(parameters: Parameters, name: str, x: Tensor, h: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """W x + b and U h + c of a recurrent cell, by its gates; ``name`` has a place for ``weight_ih`` and its like."""
    of_x = parameters[name.format("weight_ih")] @ x + parameters.get(name.format("bias_ih"), zero())
    of_h = parameters[name.format("weight_hh")] @ h + parameters.get(name.format("bias_hh"), zero())
    return of_x.split(len(h)), of_h.split(len(h))


def lstm(parameters: Parameters, name: str, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """i, f, o = sigma, g = tanh of the four blocks (order i, f, g, o); c' = f c + i g; h' = o tanh c'."""
    i, f, g, o = (a + b for a, b in zip(*gates(parameters, name, x, h), strict=True))
    c = sigmoid(f) * c + sigmoid(i) * torch.tanh(g)
    return sigmoid(o) * torch.tanh(c), c


def gru(parameters: Parameters, name: str, x: Tensor, h: Tensor, *, paper: bool = False) -> Tensor:
    """Chen et al.'s equations (2) to (5), u weighing the new candidate; the parameters hold the other convention
    (z = 1 - u), so the gate's signs are turned. Without ``paper`` the reset gate is where torch has it."""
    (r, z, n), (r_h, z_h, n_h) = gates(parameters, name, x, h)
    reset, update = sigmoid(r + r_h), sigmoid(-z - z_h)
    if paper:
        inside = parameters[name.format("weight_hh")].split(len(h))[2] @ (reset * h)
        bias = parameters.get(name.format("bias_hh"))
        new = torch.tanh(n + (inside if bias is None else inside + bias.split(len(h))[2]))
    else:
        new = torch.tanh(n + reset * n_h)
    return (1 - update) * h + update * new


# ----------------------------------------------------------------------------------------- examples


@dataclass(frozen=True)
class Example:
    """One pair without padding. ``source`` and ``target`` in extended ids."""

    source: list[int]
    target: list[int]
    forced: list[bool] | None = None  # is the input at step t the gold token?


@dataclass(frozen=True)
class Step:
    """One step: P(w) for every word of the (extended) vocabulary, the attention over S positions, and what else a model
    shows."""

    probs: Tensor
    attention: Tensor | None
    coverage_loss: Tensor | None = None
    p_gen: Tensor | None = None
    content: Tensor | None = None
    state: Tensor | None = None


def examples_of(batch: TrainingBatch, mask: Tensor | None = None) -> list[Example]:
    """The real tokens of each row."""
    sources = [ids[real].tolist() for ids, real in zip(batch.source_extended_ids, batch.source_mask, strict=True)]
    targets = [ids[real].tolist() for ids, real in zip(batch.target_ids, batch.target_mask, strict=True)]
    coins = [None] * len(sources) if mask is None else mask.tolist()
    return [Example(*parts) for parts in zip(sources, targets, coins, strict=True)]


class Reader(ABC):
    """What reads a source and writes its summary; ``options`` is the configuration of ``model``, whose parameters are
    copied here and collect the reference's gradients."""

    def __init__(self, model: nn.Module) -> None:
        self.o: Any = model.config
        self.p = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
        self.attention: Any = model.attention and model.attention.config
        self.copies = self.o.head["type"] == "pointer"

    @abstractmethod
    def run(self, example: Example, *, decoding: bool = False) -> list[Step]:
        """All steps of an example, reading gold words, or its own best word where ``forced`` is false."""

    def next_word(self, example: Example, t: int, step: Step) -> int:
        """What is read after step ``t``."""
        last = t + 1 == len(example.target)
        free = example.forced is not None and not last and not example.forced[t + 1]
        return int(step.probs.argmax()) if free else example.target[t]

    def embed(self, word: int, name: str = "embedding.weight") -> Tensor:
        row = self.p[name][UNK if word >= VOCAB else word]
        return row.detach() if word == PAD else row  # a model may read a PAD of its own making, not train it

    def affine(self, name: str, x: Tensor) -> Tensor:
        return affine(self.p, name, x)

    def energies(self, states: list[Tensor], query: Tensor, more: Sequence[Tensor]) -> Tensor:
        """v . tanh(W_h h_i + W_s s + b + more_i)."""
        asked = self.affine("attention.query_projection", query)
        inside = [self.affine("attention.memory_projection", h) + asked + m for h, m in zip(states, more, strict=True)]
        return torch.stack([self.p["attention.score_vector"] @ torch.tanh(x) for x in inside])

    def mixed(self, p_gen: Tensor, vocabulary: Tensor, attention: Tensor, source: list[int]) -> Tensor:
        """See et al.'s equation (9): p_gen P_vocab(w) + (1 - p_gen) times the attention where w stands."""
        size = max(VOCAB, 1 + max(source))
        words = [p_gen * vocabulary[w] if w < VOCAB else zero() for w in range(size)]
        for i, word in enumerate(source):
            words[word] = words[word] + (1 - p_gen) * attention[i]
        return torch.stack(words)

    def losses(self, example: Example, coverage_weight: float) -> list[Tensor]:
        """NLL + lambda covloss of every token that counts."""
        found = []
        for step, gold in zip(self.run(example), example.target, strict=True):
            unknown = gold == UNK or gold >= len(step.probs)
            if unknown and getattr(self.o, "unk_loss", "count") == "ignore":
                continue
            value = -torch.log(step.probs[UNK if unknown else gold])
            found.append(value if step.coverage_loss is None else value + coverage_weight * step.coverage_loss)
        return found

    def loss(self, examples: list[Example], reduction: str = "token", coverage_weight: float = 0.0) -> Tensor:
        """Under one of the four reductions."""
        rows = [torch.stack(losses) for e in examples if (losses := self.losses(e, coverage_weight))]
        if reduction == "token":
            return torch.cat(rows).sum() / sum(len(row) for row in rows)
        if reduction == "example":
            return sum(row.sum() / len(row) for row in rows) / len(rows)
        total = sum(row.sum() for row in rows)
        assert reduction in ("sentence", "sum")
        return total / len(rows) if reduction == "sentence" else total


# --------------------------------------------------------------------------------------- comparisons


def agree(model: Any, loss: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    """Two losses of the model's own parameters, and their gradients."""
    torch.testing.assert_close(loss, expected, atol=TOLERANCE, rtol=0)
    found = []
    for value in (loss, expected):
        model.zero_grad()
        value.backward()
        found.append(gradients(model))
    assert_same(*found, tolerance)


def compare(
    model: Any,
    reference: Reader,
    batch: TrainingBatch,
    reduction: str = "token",
    *,
    hint: bool = True,
    forced: Any = None,
) -> None:
    """The loss, with 0.7 of the coverage losses where there are any, and all gradients."""
    specs = [{"type": "nll", "reduction": reduction}, {"type": "coverage", "reduction": reduction, "weight": 0.7}]
    loss = trained_loss(model, batch, specs, UpdateContext(forced_mask=forced), hint)
    loss.backward()
    expected = reference.loss(examples_of(batch, forced), reduction, 0.7)
    expected.backward()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), abs=TOLERANCE, rel=TOLERANCE)
    wanted = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in reference.p.items()}
    assert_same(gradients(model), wanted, TOLERANCE)


def coins(batch: TrainingBatch, seed: int, share: float = 0.4) -> Tensor:
    """Where the gold word is read, and where the model's own."""
    return torch.rand(batch.target_ids.shape, generator=torch.Generator().manual_seed(seed)) < share


@torch.no_grad()
def compare_steps(model: Any, reference: Reader, batch: TrainingBatch) -> None:
    """Decoding on the gold words: every step's whole distribution, attention and what else the reference shows."""
    examples = examples_of(batch)
    expected = [reference.run(example, decoding=True) for example in examples]
    state = model.start(model.encode(batch))
    for t in range(batch.target_ids.shape[1]):
        output, state = model.step(batch.target_input_ids[:, t], state)
        for b, example in enumerate(examples):
            if t >= len(example.target):
                continue
            step, source = expected[b][t], len(example.source)
            probs = nn.functional.pad(step.probs, (0, output.log_probs.shape[1] - len(step.probs)))
            pairs = [(output.log_probs[b].exp(), probs)]
            if step.attention is not None:
                pairs.append((output.attention[b, :source], step.attention))
            if step.content is not None:
                pairs += [(output.context[b], step.content), (output.state[b], step.state)]
            if step.p_gen is not None:
                pairs.append((output.details["p_gen"][b], step.p_gen))
                pairs.append((output.details["copy_probs"][b, :source], (1 - step.p_gen) * step.attention))
            for actual, wanted in pairs:
                torch.testing.assert_close(actual, wanted, atol=TOLERANCE, rtol=0)
