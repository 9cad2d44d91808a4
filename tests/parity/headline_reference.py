"""The headline writer and the pointer-generator, written again from the paper's equations, as `plain` has it.

Numbers in brackets are the paper's equations, ``c.N`` rows of the table of options in docs/headline_writer.md.

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

from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from plain import Example, Reader, Step, gru, lstm, sigmoid, softmax
from torch import Tensor

from samples import BOS

ACTIVATIONS = {"none": lambda x: x, "relu": lambda x: torch.clamp(x, min=0), "tanh": torch.tanh}
Carried = tuple[Tensor, Tensor | None]  # h, and c of an LSTM


@dataclass(frozen=True)
class State:
    """What goes from step to step: h, c (LSTM), the last context, coverage (one number a source position)."""

    h: Tensor
    c: Tensor | None
    context: Tensor | None
    coverage: Tensor | None


class Reference(Reader):
    """A `Seq2Seq`."""

    @property
    def target(self) -> str:
        """The table of the words that the decoder reads."""
        return "target_embedding.weight" if "target_embedding.weight" in self.p else "embedding.weight"

    # ------------------------------------------------------------------ ------ the encoder

    def recur(self, name: str, x: Tensor, h: Tensor, c: Tensor | None, suffix: str = "") -> Carried:
        """One step of an LSTM or GRU cell in torch's convention."""
        name = f"{name}.layer.{{}}_l0{suffix}"
        return (gru(self.p, name, x, h), None) if self.o.cell == "gru" else lstm(self.p, name, x, h, c)

    def encode(self, source: list[int]) -> tuple[list[Tensor], Tensor, Tensor | None]:
        """h_1 .. h_S, and the decoder's (h_0, c_0)."""
        size = self.o.encoder_hidden
        embedded = [self.embed(word) for word in source]

        def run(inputs: list[Tensor], suffix: str) -> list[Carried]:
            first = (torch.zeros(size, dtype=torch.float64),) * 2
            return list(accumulate(inputs, lambda s, x: self.recur("encoder", x, *s, suffix), initial=first))[1:]

        forward = run(embedded, "")
        states, (h, c) = [h for h, _ in forward], forward[-1]
        if self.o.bidirectional:
            backward = run(embedded[::-1], "_reverse")
            states = [torch.cat([f, b]) for f, (b, _) in zip(states, backward[::-1], strict=True)]
            h, c = (None if last[0] is None else torch.cat(last) for last in zip((h, c), backward[-1], strict=True))
        elif size == self.o.hidden_size:
            return states, h, c
        act_h, act_c = (ACTIVATIONS[name] for name in self.o.bridge_activation)
        h = act_h(self.affine("bridge.layers.0", h))
        return states, h, None if c is None else act_c(self.affine("bridge.layers.1", c))

    # ------------------------------------------------------------------- attention and coverage

    def query(self, state: State) -> Tensor:
        """s_t, or [c_t; h_t] (c.6)."""
        both = self.o.state_for_attention == "ch" and state.c is not None
        return torch.cat([state.c, state.h]) if both else state.h

    def attend(self, states: list[Tensor], state: State) -> tuple[Tensor, Tensor | None, State]:
        """(1)-(3), (6)-(8): a^t, covloss_t, and the state with h*_t and c^{t+1} = c^t + a^t."""
        coverage = torch.zeros(len(states), dtype=torch.float64) if state.coverage is None else state.coverage
        seen = coverage.detach() if self.o.attention.get("detach_coverage") else coverage
        vector = self.p.get("attention.coverage_vector", torch.zeros(1, dtype=torch.float64))
        a = softmax(self.energies(states, self.query(state), [vector * c for c in seen]))
        state = replace(state, context=sum(a[i] * h for i, h in enumerate(states)))
        if state.coverage is None:
            return a, None, state
        loss = sum(torch.minimum(a[i], seen[i]) for i in range(len(states)))
        return a, loss, replace(state, coverage=coverage + a)

    # ------------------------------------------------------------------------------ decoder

    def first_state(self, states: list[Tensor], h: Tensor, c: Tensor | None, *, decoding: bool) -> State:
        state = State(h, c, None, None)
        if self.attention is None:
            return replace(state, context=h if self.o.context_feed == "every_step" else None)
        if self.o.attention.get("coverage"):
            state = replace(state, coverage=torch.zeros(len(states), dtype=torch.float64))
        initial = self.o.first_context == "initial"
        context = self.attend(states, state)[2].context if initial else torch.zeros_like(states[0])
        state = replace(state, context=context)
        if decoding and self.o.see_decode_parity:  # c.21: the initial state attends, and stays in the coverage
            state = self.attend(states, state)[2]
        return state

    def step(self, states: list[Tensor], source: list[int], word: int, state: State) -> tuple[Step, State]:
        """One decoder step that reads ``word``."""
        o, attends, attention, loss = self.o, self.attention is not None, None, None
        embedded = self.embed(word, self.target)
        every_step = not attends and o.context_feed == "every_step"
        if attends and o.attention_timing == "before":
            attention, loss, state = self.attend(states, state)
        x = rnn_input = embedded
        if o.input_feeding == "linear":
            x = rnn_input = self.affine("merge", torch.cat([embedded, state.context]))
        elif o.input_feeding == "concat" or every_step:
            rnn_input = torch.cat([embedded, state.context])
        h, c = self.recur("decoder", rnn_input, state.h, state.c)
        state = replace(state, h=h, c=c)
        if attends and o.attention_timing == "after":
            attention, loss, state = self.attend(states, state)
        features = [h] if state.context is None else [h, state.context]
        if o.output_uses_input or every_step:
            features.append(embedded)
        probs, p_gen = self.vocabulary(torch.cat(features)), None
        if self.copies:
            p_gen = sigmoid(self.affine("head.gate", torch.cat([state.context, self.query(state), x]))[0])
            probs = self.mixed(p_gen, probs, attention, source)
        return Step(probs, attention, loss, p_gen), state

    def vocabulary(self, x: Tensor) -> Tensor:
        """One layer, two without nonlinearity, or tied to the embedding behind one (c.13, c.14)."""
        if "head.projection.hidden.weight" in self.p:
            x = self.affine("head.projection.hidden", x)
        weight = self.p[self.target if self.o.tie_output else "head.projection.weight"]
        return softmax(weight @ x + self.p["head.projection.bias"])

    def run(self, example: Example, *, decoding: bool = False) -> list[Step]:
        states, h, c = self.encode(example.source)
        state, word, steps = self.first_state(states, h, c, decoding=decoding), BOS, []
        for t in range(len(example.target)):
            step, state = self.step(states, example.source, word, state)
            steps.append(step)
            word = self.next_word(example, t, step)
        return steps
