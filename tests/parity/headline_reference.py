"""The headline writer and the pointer-generator, written again from the paper's equations.

Everything is done one example, one step and one source position at a time, in float64, on real tokens
only: no masks, no padding, no batches, no log space, nothing shared with the code under test but the names
of the parameters. Numbers in brackets are the paper's equations, ``c.N`` rows of the table
of options in docs/headline_writer.md. Gradients come from autograd on these plain formulas.

| symbol | parameter |
| --- | --- |
| E (source, target) | ``embedding.weight``, ``target_embedding.weight`` (absent when shared) |
| W_bh, W_bc | ``bridge.layers.0``, ``bridge.layers.1`` |
| W_h; W_s, b_attn | ``attention.memory_projection``; ``attention.query_projection`` |
| v; w_c | ``attention.score_vector``; ``attention.coverage_vector`` |
| W_x of input feeding | ``merge`` |
| W_o, b_o (and the layer before) | ``head.projection.weight``, ``.bias`` (``.hidden``) |
| w_h*, w_s, w_x, b_ptr | ``head.gate`` |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from laconic.types import TrainingBatch

Parameters = Mapping[str, Tensor]
ACTIVATIONS = {"none": lambda x: x, "relu": lambda x: torch.clamp(x, min=0), "tanh": torch.tanh}


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


@dataclass(frozen=True)
class Example:
    """One pair without padding. ``source`` and ``target`` in extended ids."""

    source: list[int]
    target: list[int]
    forced: list[bool] | None = None  # is the input at step t the gold token?


@dataclass(frozen=True)
class State:
    """What goes from step to step: h, c (LSTM), the last context, coverage (one number a source position)."""

    h: Tensor
    c: Tensor | None
    context: Tensor | None
    coverage: Tensor | None


@dataclass(frozen=True)
class Step:
    """One step's quantities; ``probability(word)`` is equation (5)."""

    probability: Callable[[int], Tensor]
    attention: Tensor | None
    coverage_loss: Tensor | None
    p_gen: Tensor | None

    def distribution(self, size: int) -> Tensor:
        return torch.stack([self.probability(word) for word in range(size)])


def examples_of(batch: TrainingBatch, mask: Tensor | None = None) -> list[Example]:
    """The real tokens of each row."""
    result = []
    for b in range(len(batch.source_mask)):
        source = [int(i) for i, real in zip(batch.source_extended_ids[b], batch.source_mask[b], strict=True) if real]
        target = [int(i) for i, real in zip(batch.target_ids[b], batch.target_mask[b], strict=True) if real]
        forced = None if mask is None else [bool(f) for f in mask[b, : len(target)]]
        result.append(Example(source, target, forced))
    return result


class Reference:
    """``options`` are the fields of the model's configuration; ``parameters`` by the names of the table above."""

    def __init__(self, options: Any, parameters: Parameters, *, vocab_size: int, pad: int, unk: int, bos: int) -> None:
        self.o, self.p = options, parameters
        self.vocab_size, self.pad, self.unk, self.bos = vocab_size, pad, unk, bos
        self.attends = options.attention is not None
        self.covers = self.attends and bool(options.attention.get("coverage"))
        self.copies = options.head["type"] == "pointer"

    # ------------------------------------------------------------------ ------ the encoder

    def embed(self, word: int, *, target: bool) -> Tensor:
        name = "target_embedding.weight" if target and "target_embedding.weight" in self.p else "embedding.weight"
        row = self.p[name][self.unk if word >= self.vocab_size else word]
        return row.detach() if word == self.pad else row  # a model may read a PAD of its own making, not train it

    def affine(self, name: str, x: Tensor) -> Tensor:
        y = self.p[f"{name}.weight"] @ x
        return y + self.p[f"{name}.bias"] if f"{name}.bias" in self.p else y

    def recur(
        self, name: str, x: Tensor, h: Tensor, c: Tensor | None, suffix: str = ""
    ) -> tuple[Tensor, Tensor | None]:
        """One step of an LSTM or GRU cell in torch's convention."""
        prefix, size = f"{name}.layer.", len(h)
        of_x = self.p[f"{prefix}weight_ih_l0{suffix}"] @ x + self.p[f"{prefix}bias_ih_l0{suffix}"]
        of_h = self.p[f"{prefix}weight_hh_l0{suffix}"] @ h
        if f"{prefix}bias_hh_l0{suffix}" in self.p:
            of_h = of_h + self.p[f"{prefix}bias_hh_l0{suffix}"]

        def gate(k: int) -> tuple[Tensor, Tensor]:
            return of_x[k * size : (k + 1) * size], of_h[k * size : (k + 1) * size]

        if self.o.cell == "gru":
            r, z = torch.sigmoid(sum(gate(0))), torch.sigmoid(sum(gate(1)))
            n = torch.tanh(gate(2)[0] + r * gate(2)[1])
            return (1 - z) * n + z * h, None
        i, f, o = torch.sigmoid(sum(gate(0))), torch.sigmoid(sum(gate(1))), torch.sigmoid(sum(gate(3)))
        c = f * c + i * torch.tanh(sum(gate(2)))
        return o * torch.tanh(c), c

    def encode(self, source: list[int]) -> tuple[list[Tensor], Tensor, Tensor | None]:
        """h_1 .. h_S, and the decoder's (h_0, c_0)."""
        size = self.o.encoder_hidden
        embedded = [self.embed(word, target=False) for word in source]

        def run(inputs: list[Tensor], suffix: str) -> tuple[list[Tensor], Tensor, Tensor | None]:
            h, c, outputs = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64), []
            for x in inputs:
                h, c = self.recur("encoder", x, h, c, suffix)
                outputs.append(h)
            return outputs, h, c

        forward, h, c = run(embedded, "")
        states = forward
        if self.o.bidirectional:
            backward, h_back, c_back = run(embedded[::-1], "_reverse")
            states = [torch.cat([f, b]) for f, b in zip(forward, backward[::-1], strict=True)]
            h = torch.cat([h, h_back])
            c = None if c is None or c_back is None else torch.cat([c, c_back])
        if not self.o.bidirectional and size == self.o.hidden_size:
            return states, h, c
        act_h, act_c = (ACTIVATIONS[name] for name in self.o.bridge_activation)
        h = act_h(self.affine("bridge.layers.0", h))
        return states, h, None if c is None else act_c(self.affine("bridge.layers.1", c))

    # ------------------------------------------------------------------- attention and coverage

    def query(self, state: State) -> Tensor:
        """s_t, or [c_t; h_t] (c.6)."""
        both = self.o.state_for_attention == "ch" and state.c is not None
        return torch.cat([state.c, state.h]) if both else state.h

    def attend(self, states: list[Tensor], state: State) -> tuple[Tensor, Tensor, Tensor | None, State]:
        """(1)-(3), (6)-(8): a^t, h*_t, covloss_t, and the state with c^{t+1} = c^t + a^t."""
        s, coverage, energies = self.query(state), state.coverage, []
        if coverage is not None and self.o.attention.get("detach_coverage"):
            coverage = coverage.detach()
        for i, h in enumerate(states):
            inside = self.affine("attention.memory_projection", h) + self.affine("attention.query_projection", s)
            if coverage is not None:
                inside = inside + self.p["attention.coverage_vector"] * coverage[i]
            energies.append(self.p["attention.score_vector"] @ torch.tanh(inside))
        e = torch.stack(energies)
        a = torch.exp(e - e.detach().max())
        a = a / a.sum()
        context = sum(a[i] * h for i, h in enumerate(states))
        if coverage is None or state.coverage is None:
            return a, context, None, replace(state, context=context)
        loss = sum(torch.minimum(a[i], coverage[i]) for i in range(len(states)))
        return a, context, loss, replace(state, context=context, coverage=state.coverage + a)

    # ------------------------------------------------------------------------------ decoder

    def first_state(self, states: list[Tensor], h: Tensor, c: Tensor | None, *, decoding: bool) -> State:
        zeros = torch.zeros(len(states), dtype=torch.float64)
        state = State(h, c, None, zeros if self.covers else None)
        if not self.attends:
            return replace(state, context=h if self.o.context_feed == "every_step" else None)
        if self.o.first_context == "initial":
            state = replace(state, context=self.attend(states, state)[1])
        else:
            state = replace(state, context=torch.zeros_like(states[0]))
        if decoding and self.o.see_decode_parity:  # c.21: the initial state attends, and stays in the coverage
            state = self.attend(states, state)[3]
        return state

    def step(self, states: list[Tensor], source: list[int], word: int, state: State) -> tuple[Step, State]:
        """One decoder step that reads ``word``."""
        o, embedded, attention, loss = self.o, self.embed(word, target=True), None, None
        if self.attends and o.attention_timing == "before":
            attention, _, loss, state = self.attend(states, state)
        x = rnn_input = embedded
        if o.input_feeding == "linear":
            x = rnn_input = self.affine("merge", torch.cat([embedded, state.context]))
        elif o.input_feeding == "concat" or (not self.attends and o.context_feed == "every_step"):
            rnn_input = torch.cat([embedded, state.context])
        h, c = self.recur("decoder", rnn_input, state.h, state.c)
        state = replace(state, h=h, c=c)
        if self.attends and o.attention_timing == "after":
            attention, _, loss, state = self.attend(states, state)
        features = [h] if state.context is None else [h, state.context]
        if o.output_uses_input or (not self.attends and o.context_feed == "every_step"):
            features.append(embedded)
        p_vocab = self.vocabulary(torch.cat(features))
        if not self.copies:
            return Step(lambda w: p_vocab[self.unk if w >= self.vocab_size else w], attention, loss, None), state
        gate = self.affine("head.gate", torch.cat([state.context, self.query(state), x]))
        p_gen = 1 / (1 + torch.exp(-gate[0]))

        def probability(w: int) -> Tensor:
            generated = p_gen * p_vocab[w] if w < self.vocab_size else torch.zeros((), dtype=torch.float64)
            copied = sum((attention[i] for i, s in enumerate(source) if s == w), torch.zeros((), dtype=torch.float64))
            return generated + (1 - p_gen) * copied

        return Step(probability, attention, loss, p_gen), state

    def vocabulary(self, x: Tensor) -> Tensor:
        """One layer, two without nonlinearity, or tied to the embedding behind one (c.13, c.14)."""
        if "head.projection.hidden.weight" in self.p:
            x = self.affine("head.projection.hidden", x)
        tied = "target_embedding.weight" if "target_embedding.weight" in self.p else "embedding.weight"
        weight = self.p[tied] if self.o.tie_output else self.p["head.projection.weight"]
        logits = weight @ x + self.p["head.projection.bias"]
        probs = torch.exp(logits - logits.detach().max())
        return probs / probs.sum()

    # ------------------------------------------------------------------------------- losses

    def run(self, example: Example, *, decoding: bool = False) -> list[Step]:
        """All steps of an example, reading gold words, or its own best word where ``forced`` is false."""
        states, h, c = self.encode(example.source)
        state, word, steps = self.first_state(states, h, c, decoding=decoding), self.bos, []
        size = max(self.vocab_size, 1 + max(example.source)) if self.copies else self.vocab_size
        for t, gold in enumerate(example.target):
            step, state = self.step(states, example.source, word, state)
            steps.append(step)
            word = gold
            if example.forced is not None and t + 1 < len(example.target) and not example.forced[t + 1]:
                word = int(step.distribution(size).argmax())
        return steps

    def loss(self, examples: list[Example], *, reduction: str = "token", coverage_weight: float = 0.0) -> Tensor:
        """NLL + lambda covloss under one of the four reductions."""
        rows = []
        for example in examples:
            losses = []
            for step, gold in zip(self.run(example), example.target, strict=True):
                if self.o.unk_loss == "ignore" and (gold == self.unk or (gold >= self.vocab_size and not self.copies)):
                    continue
                value = -torch.log(step.probability(gold))
                if step.coverage_loss is not None:
                    value = value + coverage_weight * step.coverage_loss
                losses.append(value)
            if losses:
                rows.append(torch.stack(losses))
        if reduction == "token":
            return torch.cat(rows).sum() / sum(len(row) for row in rows)
        if reduction == "example":
            return sum(row.sum() / len(row) for row in rows) / len(rows)
        if reduction == "sentence":
            return sum(row.sum() for row in rows) / len(rows)
        assert reduction == "sum"
        return sum(row.sum() for row in rows)
