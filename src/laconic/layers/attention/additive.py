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
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from laconic.config.section import Section
from laconic.layers import stepwise
from laconic.layers.attention.base import Attention
from laconic.layers.masking import mask_scores
from laconic.papers.pointer_generator import attention_weights, next_coverage
from laconic.types import AttentionOutput, Memory, Shared

# Elements of a (block, S, A) tensor that is made at a time: on a CPU what stays in the caches of each thread's core,
# enough to fill the device elsewhere, where each launch costs more than the memory.
_BLOCK_ON_CPU, _BLOCK_ELSEWHERE = 2**19, 2**26


class AdditiveAttention(Attention):
    """``e = v . tanh(W_h h + W_s s + b [+ w_c c])``; see the file's table of symbols."""

    class Config(Section):
        """``size`` is A (none: the memory's width). ``coverage`` builds w_c; it takes part when switched on."""

        size: int | None = Field(None, ge=1, le=65_536)
        coverage: bool = False
        coverage_from_start: bool = True  # false: w_c exists but waits for a phase to switch it on
        coverage_init: Literal["zero", "default"] = "zero"
        detach_coverage: bool = False

        @property
        def feeds(self) -> tuple[str, ...]:
            """What objectives find in the pass of a model with this part."""
            return ("coverage",) if self.coverage and self.coverage_from_start else ()

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
        weights = attention_weights(scores, mask)
        output = AttentionOutput(stepwise.context(weights, memory), weights, mask_scores(scores, mask))
        if coverage is None:
            return output, state
        output.aux["coverage"] = coverage
        return output, state | {"coverage": next_coverage(state["coverage"], weights.flatten(0, 1))}


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
        blocks = _Blocks(queries, coverage, coverage_vector, keys)
        for squashed, piece in zip(blocks.squashed(), blocks.cut(scores), strict=True):
            torch.mv(squashed.flatten(0, 2), score_vector, out=piece.view(-1))
        return scores.mul_(2).sub_(score_vector.sum())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, score_vector, coverage, coverage_vector, keys = ctx.saved_tensors
        gradient = gradient.contiguous()
        with_coverage = coverage is not None and coverage_vector is not None
        # rows g and, with coverage, g c: what multiplies m in dq and dw
        factors = torch.stack([gradient, gradient * coverage] if with_coverage else [gradient], dim=2)
        sums = factors.new_empty(*factors.shape[:3], keys.shape[2])  # (B, Q, 1 or 2, A)
        d_vector, d_coverage, d_keys = score_vector.new_zeros(1, len(score_vector)), None, None
        if ctx.collected is not None:
            d_keys = stepwise.key_gradient(ctx.collected, keys, 2 * score_vector)
        if with_coverage:
            d_coverage, weighted = torch.empty_like(gradient), 2 * score_vector * coverage_vector
        blocks = _Blocks(queries, coverage, coverage_vector, keys)
        pieces = zip(*map(blocks.cut, (gradient, factors, sums, d_coverage)), blocks.cut_keys(d_keys), strict=True)
        for squashed, (g, factor, total, d_c, d_k) in zip(blocks.squashed(), pieces, strict=True):
            d_vector.addmm_(g.view(1, -1), squashed.flatten(0, 2))
            slope = squashed.addcmul_(squashed, squashed, value=-1)  # m = s (1 - s), (b, q, S, A)
            torch.bmm(factor.flatten(0, 1), slope.flatten(0, 1), out=total.flatten(0, 1))
            if d_c is not None:
                torch.mv(slope.flatten(0, 2), weighted, out=d_c.view(-1))
            if d_k is not None and g.shape[1] == 1:
                d_k.addcmul_(slope.squeeze(1), g.mT)
            elif d_k is not None:
                d_k += slope.mul_(g.unsqueeze(-1)).sum(dim=1)
        d_queries = sums[:, :, 0] * (2 * score_vector)
        d_vector = 2 * d_vector.squeeze(0) - gradient.sum()
        d_coverage_vector = None
        if d_coverage is not None:
            d_coverage.mul_(gradient)
            d_coverage_vector = sums[:, :, 1].sum(dim=(0, 1)) * (2 * score_vector)
        ticket = None if ctx.collected is None else gradient.new_zeros(())
        return ticket, d_queries, d_vector, d_coverage, d_coverage_vector, None, None


class _Blocks:
    """The (B, Q, S, A) tensor of sigmoid(z) in blocks of documents and queries, one after the other in one buffer.

    A block is some documents with all their queries, or some queries of one document: either way a contiguous
    part of every (B, Q, ...) tensor.
    """

    def __init__(self, queries: Tensor, coverage: Tensor | None, coverage_vector: Tensor | None, keys: Tensor) -> None:
        self.queries, self.coverage, self.coverage_vector, self.keys = queries, coverage, coverage_vector, keys
        budget = _BLOCK_ON_CPU * torch.get_num_threads() if keys.device.type == "cpu" else _BLOCK_ELSEWHERE
        pairs = max(1, budget // max(1, keys.shape[1] * keys.shape[2]))
        self.steps = max(1, min(queries.shape[1], pairs))
        self.rows = max(1, min(queries.shape[0], pairs // self.steps))

    def cut(self, tensor: Tensor | None) -> Iterable[Any]:
        """The parts of a (B, Q, ...) tensor, block by block; None for each block of None."""
        if tensor is None:
            return repeat(None, math.ceil(self.queries.shape[0] / self.rows) * self._cuts_per_row)
        return [part for group in tensor.split(self.rows) for part in group.split(self.steps, dim=1)]

    def cut_keys(self, tensor: Tensor | None) -> Iterable[Any]:
        """The parts of a (B, S, A) tensor that belong to the blocks."""
        if tensor is None:
            return self.cut(None)
        return [part for part in tensor.split(self.rows) for _ in range(self._cuts_per_row)]

    @property
    def _cuts_per_row(self) -> int:
        return math.ceil(self.queries.shape[1] / self.steps)

    def squashed(self) -> Iterator[Tensor]:
        """sigmoid(z) of each block, (b, q, S, A); overwritten by the next."""
        buffer = self.keys.new_empty(self.rows * self.steps, *self.keys.shape[1:])
        parts = zip(self.cut_keys(self.keys), self.cut(self.queries), self.cut(self.coverage), strict=True)
        for keys, queries, coverage in parts:
            z = buffer[: len(keys) * queries.shape[1]].unflatten(0, queries.shape[:2])
            torch.add(keys.unsqueeze(1), queries.unsqueeze(2), out=z)
            if coverage is not None:
                z.addcmul_(coverage.unsqueeze(-1), self.coverage_vector)
            yield z.sigmoid_()
