"""Additive attention, with coverage.

Bahdanau et al. 2014; See et al. 2017; here equations (1), (2), (3), (6), (7) of "Headline Writer".

| paper | here |
| --- | --- |
| h_i | ``memory.states[:, i]`` (B, D) |
| s_t | ``query[:, t]`` (B, query_size) |
| W_h h_i | ``keys[:, i] / 2`` (B, A) |
| W_s s_t + b_attn | ``query_projection(query) `` (B, Q, A) |
| v, w_c | ``score_vector``, ``coverage_vector`` (A,) |
| e^t_i, a^t_i, h*_t | ``scores``, ``weights`` (B, Q, S), ``context`` (B, Q, D) |
| c^t_i | ``coverage`` (B, Q, S) |

The arithmetic. Almost all the time of this mechanism goes into B * T * S * A hyperbolic tangents and
the memory they pass through. So: (a) ``tanh(x) = 2 sigmoid(2x) - 1``, and the sigmoid is several times
cheaper on a CPU; keys, queries and w_c are doubled once, before the loop. (b) The (block, S, A) tensor
never leaves the cache: blocks of it are made, squashed and reduced at once. (c) Nothing of that size is
kept for the backward pass: it is computed again there, which costs less than writing and reading it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from laconic.config.section import Section
from laconic.layers import stepwise
from laconic.layers.attention.base import Attention
from laconic.layers.masking import mask_scores, masked_softmax
from laconic.types import AttentionOutput, Memory, Shared

# Elements of a (block, S, A) tensor that is made at a time: the second-level cache of one core on a CPU,
# enough to fill the device elsewhere, where each launch costs more than the memory.
_BLOCK_ON_CPU, _BLOCK_ELSEWHERE = 2**18, 2**26


class AdditiveAttention(Attention):
    """``e = v . tanh(W_h h + W_s s + b [+ w_c c])``; see the file's table of symbols."""

    class Config(Section):
        """``size`` is A (none: the memory's width). ``coverage`` builds w_c; it takes part when switched on."""

        size: int | None = Field(None, ge=1)
        coverage: bool = False
        coverage_from_start: bool = True  # false: w_c exists but waits for a phase to switch it on
        coverage_init: Literal["zero", "default"] = "zero"
        detach_coverage: bool = False

    config: Config

    def __init__(self, config: Config, *, memory_size: int, query_size: int) -> None:
        super().__init__()
        self.config = config
        size = config.size or memory_size
        self.memory_projection = nn.Linear(memory_size, size, bias=False)
        self.query_projection = nn.Linear(query_size, size)
        self.score_vector = nn.Parameter(torch.empty(size).uniform_(-1, 1) * size**-0.5)
        self.coverage_vector: nn.Parameter | None = None
        if config.coverage:
            self.coverage_vector = nn.Parameter(torch.zeros(size))
            if config.coverage_init == "default":
                nn.init.uniform_(self.coverage_vector, -1, 1)
        self.coverage_on = config.coverage and config.coverage_from_start

    @property
    def recurrent(self) -> bool:  # type: ignore[override]
        """With coverage a reading depends on those before it."""
        return self.coverage_on

    def switches(self) -> dict[str, Any]:
        return {"coverage": self.coverage_on} if self.config.coverage else {}

    def switch(self, options: Mapping[str, Any]) -> None:
        self.coverage_on = bool(options.get("coverage", self.coverage_on))

    def init_state(self, memory: Memory) -> dict[str, Any]:
        """Keys are projected once a batch; c^0 = 0 (equation 6), kept in float32 at least."""
        keys = nn.functional.linear(memory.states, 2 * self.memory_projection.weight)
        state: dict[str, Any] = {"memory": stepwise.prepare(keys, memory.states, memory.mask)}
        if torch.is_grad_enabled():
            projection = stepwise.StepLinear.of(self.query_projection.weight, self.query_projection.bias)
            state["query_projection"] = Shared(projection)
        if self.coverage_on:
            dtype = torch.promote_types(memory.states.dtype, torch.float32)
            state["coverage"] = torch.zeros(memory.mask.shape, dtype=dtype, device=memory.mask.device)
        return state

    def forward(self, query: Tensor, state: dict[str, Any]) -> tuple[AttentionOutput, dict[str, Any]]:
        """Read with ``query`` (B, Q, query_size).

        Returns context (B, Q, D), weights and scores (B, Q, S). With coverage the new state's coverage is
        c^{t+1} = c^t + a^t (equation 6: c^t excludes a^t) and ``aux["coverage"]`` is c^t (B, Q, S).
        """
        memory = stepwise.opened(state["memory"])
        rows = (query.shape[0], query.shape[1])
        project = state["query_projection"].tree if "query_projection" in state else self.query_projection
        doubled = 2 * project(query.flatten(0, 1)).unflatten(0, rows)
        coverage, coverage_vector = None, None
        if self.coverage_on:
            assert self.coverage_vector is not None
            coverage = state["coverage"].view(*rows, -1)
            coverage_vector = 2 * self.coverage_vector
            if self.config.detach_coverage:
                coverage = coverage.detach()
        scores = additive_scores(memory, doubled, self.score_vector, coverage, coverage_vector)
        mask = memory.mask.unsqueeze(1)
        weights = masked_softmax(scores, mask)
        output = AttentionOutput(stepwise.context(weights, memory), weights, mask_scores(scores, mask))
        if coverage is None:
            return output, state
        output.aux["coverage"] = coverage
        return output, state | {"coverage": state["coverage"] + weights.flatten(0, 1)}


def additive_scores(
    memory: stepwise.ReadableMemory,
    queries: Tensor,
    score_vector: Tensor,
    coverage: Tensor | None = None,
    coverage_vector: Tensor | None = None,
) -> Tensor:
    """Equations (1) and (7): ``e^t_i = v . tanh(W_h h_i + W_s s_t + b_attn + w_c c^t_i)``, (B, Q, S).

    The arguments of tanh come doubled: ``memory.keys`` (B, S, A) is 2 W_h h, ``queries`` (B, Q, A) is
    2 (W_s s + b), ``coverage_vector`` (A,) is 2 w_c. ``coverage`` is (B, Q, S). Works for any Q; nothing
    of size (B, Q, S, A) is ever whole in memory.
    """
    queries = queries.to(memory.keys.dtype)
    if coverage is not None and coverage_vector is not None:
        coverage, coverage_vector = coverage.to(queries.dtype), coverage_vector.to(queries.dtype)
    inputs = (memory.ticket, queries, score_vector.to(queries.dtype), coverage, coverage_vector)
    return _AdditiveScores.apply(*inputs, memory.keys, memory.collected)


class _AdditiveScores(torch.autograd.Function):
    """``e = 2 v . s - sum(v)`` with ``s = sigmoid(z)``, ``z = 2 (W_h h + W_s s + b + w_c c)``, and its gradient.

    With g = dL/de and m = s (1 - s):  dL/dz = 2 g v m, hence
    dv = 2 sum g s - sum g;   dq = 2 v sum_i g m;   dw = 2 v sum g c m;   dc = 2 g (m . v w);   dk = 2 v g m.
    """

    @staticmethod
    def forward(
        ctx: Any,
        ticket: Tensor | None,
        queries: Tensor,
        score_vector: Tensor,
        coverage: Tensor | None,
        coverage_vector: Tensor | None,
        keys: Tensor,
        collected: Any,
    ) -> Tensor:
        ctx.save_for_backward(queries, score_vector, coverage, coverage_vector, keys)
        ctx.collected = collected
        scores = queries.new_empty(queries.shape[0], queries.shape[1], keys.shape[1])
        block = _Block(queries, coverage, coverage_vector, keys)
        for rows, steps in block.cuts():
            squashed = block.squash(rows, steps)
            torch.mv(squashed.flatten(0, 2), score_vector, out=block.column[: squashed[..., 0].numel()])
            scores[rows, steps] = block.column[: squashed[..., 0].numel()].view(squashed.shape[:-1])
        return scores.mul_(2).sub_(score_vector.sum())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, score_vector, coverage, coverage_vector, keys = ctx.saved_tensors
        gradient = gradient.contiguous()
        d_queries, d_vector = torch.empty_like(queries), torch.zeros_like(score_vector)
        d_keys, d_coverage, d_coverage_vector = None, None, None
        if ctx.collected is not None:
            d_keys = stepwise.key_gradient(ctx.collected, keys, 2 * score_vector)
        if coverage is not None and coverage_vector is not None:
            d_coverage, d_coverage_vector = torch.empty_like(coverage), torch.zeros_like(score_vector)
            weighted = 2 * score_vector * coverage_vector
        block = _Block(queries, coverage, coverage_vector, keys)
        for rows, steps in block.cuts():
            squashed = block.squash(rows, steps)  # (b, q, S, A)
            g = gradient[rows, steps]  # (b, q, S)
            d_vector.addmv_(squashed.flatten(0, 2).t(), g.reshape(-1))
            slope = torch.addcmul(squashed, squashed, squashed, value=-1, out=block.second(squashed))  # s (1 - s)
            pairs = slope.flatten(0, 1)
            d_queries[rows, steps] = torch.bmm(g.reshape(len(pairs), 1, -1), pairs).view(*g.shape[:2], -1)
            if coverage is not None and d_coverage is not None and d_coverage_vector is not None:
                d_coverage_vector.addmv_(slope.flatten(0, 2).t(), (g * coverage[rows, steps]).reshape(-1))
                d_coverage[rows, steps] = torch.mv(slope.flatten(0, 2), weighted).view(g.shape).mul_(g)
            if d_keys is not None and g.shape[1] == 1:
                d_keys[rows].addcmul_(slope[:, 0], g[:, 0, :, None])
            elif d_keys is not None:
                d_keys[rows] += slope.mul_(g.unsqueeze(-1)).sum(dim=1)
        d_queries.mul_(2 * score_vector)
        d_vector = 2 * d_vector - gradient.sum()
        if d_coverage_vector is not None:
            d_coverage_vector.mul_(2 * score_vector)
        ticket = None if ctx.collected is None else gradient.new_zeros(())
        return ticket, d_queries, d_vector, d_coverage, d_coverage_vector, None, None


class _Block:
    """The (b, q, S, A) tensor of some documents and queries, made in buffers that every block shares."""

    def __init__(self, queries: Tensor, coverage: Tensor | None, coverage_vector: Tensor | None, keys: Tensor) -> None:
        self.queries, self.coverage, self.coverage_vector, self.keys = queries, coverage, coverage_vector, keys
        budget = _BLOCK_ON_CPU if keys.device.type == "cpu" else _BLOCK_ELSEWHERE
        pairs = max(1, budget // max(1, keys.shape[1] * keys.shape[2]))
        self.steps = max(1, min(queries.shape[1], pairs))
        self.rows = max(1, min(queries.shape[0], pairs // self.steps))
        self.buffer = keys.new_empty(self.rows * self.steps * keys.shape[1] * keys.shape[2])
        self.column = keys.new_empty(self.rows * self.steps * keys.shape[1])
        self.spare: Tensor | None = None

    def cuts(self) -> Iterator[tuple[slice, slice]]:
        """The parts of (B, Q) that are worked on at a time; at least one pair each."""
        batch, steps = self.queries.shape[:2]
        for row in range(0, batch, self.rows):
            for step in range(0, steps, self.steps):
                yield slice(row, min(row + self.rows, batch)), slice(step, min(step + self.steps, steps))

    def squash(self, rows: slice, steps: slice) -> Tensor:
        """sigmoid(z), (b, q, S, A)."""
        shape = (rows.stop - rows.start, steps.stop - steps.start, *self.keys.shape[1:])
        z = self.buffer[: math.prod(shape)].view(shape)
        torch.add(self.keys[rows].unsqueeze(1), self.queries[rows, steps].unsqueeze(2), out=z)
        if self.coverage is not None and self.coverage_vector is not None:
            z.addcmul_(self.coverage[rows, steps].unsqueeze(-1), self.coverage_vector)
        return z.sigmoid_()

    def second(self, like: Tensor) -> Tensor:
        """A second buffer, shaped like a block."""
        if self.spare is None:
            self.spare = torch.empty_like(self.buffer)
        return self.spare[: like.numel()].view(like.shape)
