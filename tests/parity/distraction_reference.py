"""The distraction-based summarizer, written again from the equations: float64, one document, one step, one position.

No masks, no padding, no batches, no precomputation; nothing shared with the code under test but the parameters'
names. Sums over the past are made anew at every step from the list of past vectors. The GRU is the paper's as
printed, u weighing the new candidate; the parameters hold the other convention (z = 1 - u), so the gate's signs are
turned. Numbers are the paper's equations. Gradients come from autograd on these plain formulas.

| symbol | parameter |
| --- | --- |
| E | ``embedding.weight`` |
| encoder | ``encoder.layer.*`` (torch), ``encoder.cells.*`` (paper) |
| W_i, b_i | ``initial`` |
| W_a, b_att; U_a; v_a | ``attention.query_projection``; ``.memory_projection``; ``.score_vector`` |
| b_a; w_c, u_c | ``attention.history_vector``; ``.content_vector``, ``.content_history_vector`` |
| GRU_2, GRU_1; the only GRU | ``decoder.of_word``, ``decoder.of_content``; ``decoder.cell`` |
| V_o, U_o, C_o; W_o | the columns of ``readout``; ``head.projection`` |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True)
class Step:
    """One step: P(w) for every word of the (extended) vocabulary, alpha_t, c_t, s_t."""

    probs: Tensor
    attention: Tensor
    content: Tensor
    state: Tensor


@dataclass(frozen=True)
class Past:
    """The vectors of the steps before this one."""

    attentions: tuple[Tensor, ...] = ()
    contents: tuple[Tensor, ...] = ()


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def softmax(x: Tensor) -> Tensor:
    y = torch.exp(x - x.detach().max())
    return y / y.sum()


def gru(parameters: Parameters, names: tuple[str, str, str, str], x: Tensor, h: Tensor, *, paper: bool) -> Tensor:
    """Equations (2) to (5): ``names`` are those of W, U, the input's and the state's bias (absent ones are zero)."""
    weight, recurrent = parameters[names[0]], parameters[names[1]]
    n = len(h)
    zero = torch.zeros(3 * n, dtype=torch.float64)
    b, c = parameters.get(names[2], zero), parameters.get(names[3], zero)
    (w_r, w_z, w), (u_r, u_z, u) = weight.split(n), recurrent.split(n)
    (b_r, b_z, b), (c_r, c_z, c) = b.split(n), c.split(n)
    reset = sigmoid(w_r @ x + u_r @ h + b_r + c_r)
    update = sigmoid((-w_z) @ x + (-u_z) @ h - b_z - c_z)
    new = torch.tanh(w @ x + b + (u @ (reset * h) + c if paper else reset * (u @ h + c)))
    return (1 - update) * h + update * new


class DistractionReference:
    """``options`` is the model's configuration, ``attention`` that of its attention."""

    def __init__(
        self, options: Any, attention: Any, parameters: Parameters, *, vocab_size: int, pad: int, unk: int, bos: int
    ) -> None:
        self.o, self.a, self.p = options, attention, parameters
        self.vocab_size, self.pad, self.unk, self.bos = vocab_size, pad, unk, bos
        self.copies = options.head["type"] == "pointer"

    # ------------------------------------------------------------------ b1 to b4

    def embed(self, word: int) -> Tensor:
        row = self.p["embedding.weight"][self.unk if word >= self.vocab_size else word]
        return row.detach() if word == self.pad else row

    def affine(self, name: str, x: Tensor) -> Tensor:
        y = self.p[f"{name}.weight"] @ x
        return y + self.p[f"{name}.bias"] if f"{name}.bias" in self.p else y

    def encode(self, source: list[int]) -> list[Tensor]:
        """h_1 .. h_T: forward, and backward from the last word."""
        embedded = [self.embed(word) for word in source]

        def run(inputs: list[Tensor], direction: int) -> list[Tensor]:
            suffix = "_reverse" if direction else ""
            kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            names = tuple(f"encoder.layer.{kind}_l0{suffix}" for kind in kinds)
            if self.o.gru == "paper":
                names = tuple(f"encoder.cells.{direction}.{kind}" for kind in kinds)
            h, outputs = torch.zeros(self.o.hidden_size, dtype=torch.float64), []
            for x in inputs:
                h = gru(self.p, names, x, h, paper=self.o.gru == "paper")
                outputs.append(h)
            return outputs

        forward = run(embedded, 0)
        if not self.o.bidirectional:
            return forward
        backward = run(embedded[::-1], 1)[::-1]
        return [torch.cat(pair) for pair in zip(forward, backward, strict=True)]

    def first_state(self, states: list[Tensor]) -> Tensor:
        return torch.tanh(self.affine("initial", sum(states) / len(states)))

    # ------------------------------------------------------------------ b5 to b7

    def cell(self, name: str, x: Tensor, h: Tensor) -> Tensor:
        names = tuple(f"decoder.{name}.{kind}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        return gru(self.p, names, x, h, paper=self.o.gru == "paper")

    def attend(self, states: list[Tensor], query: Tensor, past: Past) -> tuple[Tensor, Tensor, Past]:
        """alpha_t, c_t and the past with them (equations 10 to 13)."""
        previous = [[part.detach() for part in parts] for parts in (past.attentions, past.contents)]
        attentions, contents = previous if self.a.detach_history else (past.attentions, past.contents)
        energies = []
        for i, h in enumerate(states):
            inside = self.affine("attention.query_projection", query) + self.p["attention.memory_projection.weight"] @ h
            if self.a.history:
                inside = inside - self.p["attention.history_vector"] * sum(alpha[i] for alpha in attentions)
            energies.append(self.p["attention.score_vector"] @ torch.tanh(inside))
        alpha = softmax(torch.stack(energies))
        content = sum(alpha[i] * h for i, h in enumerate(states))
        if self.a.content:
            kept = self.p["attention.content_vector"] * content
            content = torch.tanh(kept - self.p["attention.content_history_vector"] * sum(contents))
        return alpha, content, Past((*past.attentions, alpha), (*past.contents, content))

    def step(self, states: list[Tensor], source: list[int], word: int, s: Tensor, past: Past) -> tuple[Step, Past]:
        """One step that reads ``word`` (BOS: the zero vector)."""
        e = torch.zeros(self.o.embedding_size, dtype=torch.float64) if word == self.bos else self.embed(word)
        if self.o.decoder == "two-level":
            between = self.cell("of_word", e, s)
            alpha, content, past = self.attend(states, between, past)
            s = self.cell("of_content", content, between)
        else:
            alpha, content, past = self.attend(states, s, past)
            s = self.cell("cell", torch.cat([e, content]), s)
        widths = [len(e), len(s), len(content)]
        v_o, u_o, c_o = self.p["readout.weight"].split(widths, dim=1)
        inside = v_o @ e + u_o @ s + c_o @ content
        if "readout.bias" in self.p:
            inside = inside + self.p["readout.bias"]
        probs = softmax(self.affine("head.projection", torch.tanh(inside)))
        if self.copies:
            p_gen = sigmoid(self.affine("head.gate", torch.cat([content, s, e]))[0])
            size = max(self.vocab_size, 1 + max(source))
            words = [p_gen * probs[w] if w < self.vocab_size else 0 * p_gen for w in range(size)]
            for i, word_i in enumerate(source):
                words[word_i] = words[word_i] + (1 - p_gen) * alpha[i]
            probs = torch.stack(words)
        return Step(probs, alpha, content, s), past

    # ------------------------------------------------------------------ b8

    def run(self, source: list[int], target: list[int], forced: list[bool] | None = None) -> list[Step]:
        """All steps, reading gold words, or the model's own best where ``forced`` is false."""
        states = self.encode(source)
        s, past, word, steps = self.first_state(states), Past(), self.bos, []
        for t, gold in enumerate(target):
            step, past = self.step(states, source, word, s, past)
            steps.append(step)
            s, word = step.state, gold
            if forced is not None and t + 1 < len(target) and not forced[t + 1]:
                word = int(step.probs.argmax())
        return steps

    def document_losses(
        self, sources: list[list[int]], targets: list[list[int]], forced: list[list[bool]] | None = None
    ) -> list[Tensor]:
        """``- sum_t log p(y_t)`` of each document."""
        losses = []
        for b, (source, target) in enumerate(zip(sources, targets, strict=True)):
            steps = self.run(source, target, None if forced is None else forced[b])
            known = [w if w < len(step.probs) else self.unk for w, step in zip(target, steps, strict=True)]
            losses.append(-sum(torch.log(step.probs[w]) for w, step in zip(known, steps, strict=True)))
        return losses
