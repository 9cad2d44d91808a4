"""The distraction-based summarizer, written again from the equations, as `plain` has it.

Nothing is computed before it is needed: sums over the past are made anew at every step from the list of past vectors.
Numbers are the paper's equations.

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

from dataclasses import dataclass
from itertools import accumulate

import torch
from plain import Example, Reader, Step, gru, sigmoid, softmax, zero
from torch import Tensor

from samples import BOS


@dataclass(frozen=True)
class Past:
    """The vectors of the steps before this one."""

    attentions: tuple[Tensor, ...] = ()
    contents: tuple[Tensor, ...] = ()


class DistractionReference(Reader):
    """A `Distraction`."""

    # ------------------------------------------------------------------ b1 to b4

    def encode(self, source: list[int]) -> list[Tensor]:
        """h_1 .. h_T: forward, and backward from the last word."""
        embedded, paper = [self.embed(word) for word in source], self.o.gru == "paper"

        def run(inputs: list[Tensor], direction: int) -> list[Tensor]:
            name = f"encoder.cells.{direction}.{{}}" if paper else "encoder.layer.{}_l0" + "_reverse" * direction
            first = torch.zeros(self.o.hidden_size, dtype=torch.float64)
            return list(accumulate(inputs, lambda h, x: gru(self.p, name, x, h, paper=paper), initial=first))[1:]

        forward = run(embedded, 0)
        if not self.o.bidirectional:
            return forward
        backward = run(embedded[::-1], 1)[::-1]
        return [torch.cat(pair) for pair in zip(forward, backward, strict=True)]

    def first_state(self, states: list[Tensor]) -> Tensor:
        return torch.tanh(self.affine("initial", sum(states) / len(states)))

    # ------------------------------------------------------------------ b5 to b7

    def cell(self, name: str, x: Tensor, h: Tensor) -> Tensor:
        return gru(self.p, f"decoder.{name}.{{}}", x, h, paper=self.o.gru == "paper")

    def attend(self, states: list[Tensor], query: Tensor, past: Past) -> tuple[Tensor, Tensor, Past]:
        """alpha_t, c_t and the past with them (equations 10 to 13)."""
        previous = [[part.detach() for part in parts] for parts in (past.attentions, past.contents)]
        attentions, contents = previous if self.attention.detach_history else (past.attentions, past.contents)
        read = [sum((alpha[i] for alpha in attentions), zero()) for i in range(len(states))]
        history = self.p["attention.history_vector"] if self.attention.history else zero()
        alpha = softmax(self.energies(states, query, [-history * amount for amount in read]))
        content = sum(alpha[i] * h for i, h in enumerate(states))
        if self.attention.content:
            kept = self.p["attention.content_vector"] * content
            content = torch.tanh(kept - self.p["attention.content_history_vector"] * sum(contents))
        return alpha, content, Past((*past.attentions, alpha), (*past.contents, content))

    def step(self, states: list[Tensor], source: list[int], word: int, s: Tensor, past: Past) -> tuple[Step, Past]:
        """One step that reads ``word`` (BOS: the zero vector)."""
        e = torch.zeros(self.o.embedding_size, dtype=torch.float64) if word == BOS else self.embed(word)
        if self.o.decoder == "two-level":
            between = self.cell("of_word", e, s)
            alpha, content, past = self.attend(states, between, past)
            s = self.cell("of_content", content, between)
        else:
            alpha, content, past = self.attend(states, s, past)
            s = self.cell("cell", torch.cat([e, content]), s)
        v_o, u_o, c_o = self.p["readout.weight"].split([len(e), len(s), len(content)], dim=1)
        inside = v_o @ e + u_o @ s + c_o @ content + self.p.get("readout.bias", zero())
        probs = softmax(self.affine("head.projection", torch.tanh(inside)))
        if self.copies:
            p_gen = sigmoid(self.affine("head.gate", torch.cat([content, s, e]))[0])
            probs = self.mixed(p_gen, probs, alpha, source)
        return Step(probs, alpha, content=content, state=s), past

    # ------------------------------------------------------------------ b8

    def run(self, example: Example, *, decoding: bool = False) -> list[Step]:
        states = self.encode(example.source)
        s, past, word, steps = self.first_state(states), Past(), BOS, []
        for t in range(len(example.target)):
            step, past = self.step(states, example.source, word, s, past)
            steps.append(step)
            s, word = step.state, self.next_word(example, t, step)
        return steps
