"""Additive attention's energies without their (B, Q, S, A) tensor, and with their gradient written out.

Almost all the time of this mechanism goes into B * T * S * A hyperbolic tangents and the memory they pass through. So:
(a) ``tanh(x) = 2 sigmoid(2x) - 1``, and the sigmoid is several times cheaper on a CPU. (b) The (block, S, A) tensor
never leaves the cache: blocks of it are made, squashed and reduced at once. (c) Nothing of that size is kept for the
backward pass: it is computed again there, which costs less than writing and reading it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from laconic.kernels.deferral import collected_of

# Elements of a (block, S, A) tensor that is made at a time: on a CPU what stays in the caches of each thread's core,
# enough to fill the device elsewhere, where each launch costs more than the memory.
_BLOCK_ON_CPU, _BLOCK_ELSEWHERE = 2**19, 2**26


def attention_scores(
    keys: Tensor,
    queries: Tensor,
    score_vector: Tensor,
    coverage: Tensor | None = None,
    coverage_vector: Tensor | None = None,
) -> Tensor:
    """`laconic.papers.pointer_generator.attention_scores`; keys may be `laconic.kernels.deferral.deferred`."""
    queries, score_vector = queries.to(keys.dtype), score_vector.to(keys.dtype)
    if coverage is not None and coverage_vector is not None:
        coverage, coverage_vector = coverage.to(keys.dtype), coverage_vector.to(keys.dtype)
    result: Tensor = _AdditiveScores.apply(keys, queries, score_vector, coverage, coverage_vector)
    return result


def distracted_scores(
    keys: Tensor,
    queries: Tensor,
    score_vector: Tensor,
    history: Tensor | None = None,
    history_vector: Tensor | None = None,
) -> Tensor:
    """`laconic.papers.distraction.attention_scores`: the history stands where coverage does, with the other sign."""
    return attention_scores(keys, queries, score_vector, history, None if history_vector is None else -history_vector)


class _AdditiveScores(torch.autograd.Function):
    """``e = v . tanh(x) = 2 v . s - sum(v)`` with ``s = sigmoid(2 x)``, ``x = k + q + c w``, and its gradient.

    With g = dL/de and m = s (1 - s):  dL/dx = 4 g v m, hence
    dv = 2 sum g s - sum g;   dq = 4 v sum_i g m;   dw = 4 v sum g c m;   dc = 4 g (m . v w);   dk = 4 v g m.
    """

    @staticmethod
    def forward(
        ctx: Any,
        keys: Tensor,
        queries: Tensor,
        score_vector: Tensor,
        coverage: Tensor | None,
        coverage_vector: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(keys, queries, score_vector, coverage, coverage_vector)
        ctx.collected = collected_of(keys)
        scores = queries.new_empty(queries.shape[0], queries.shape[1], keys.shape[1])
        blocks = _Blocks(keys, queries, coverage, coverage_vector)
        for squashed, piece in zip(blocks.squashed(), blocks.cut(scores), strict=True):
            torch.mv(squashed.flatten(0, 2), score_vector, out=piece.view(-1))
        return scores.mul_(2).sub_(score_vector.sum())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        keys, queries, score_vector, coverage, coverage_vector = ctx.saved_tensors
        gradient = gradient.contiguous()
        with_coverage = coverage is not None and coverage_vector is not None
        # rows g and, with coverage, g c: what multiplies m in dq and dw
        factors = torch.stack([gradient, gradient * coverage] if with_coverage else [gradient], dim=2)
        sums = factors.new_empty(*factors.shape[:3], keys.shape[2])  # (B, Q, 1 or 2, A)
        d_vector, d_coverage, d_keys = score_vector.new_zeros(1, len(score_vector)), None, None
        if ctx.collected is not None:
            d_keys = ctx.collected.buffer(keys, 4 * score_vector)
        elif ctx.needs_input_grad[0]:
            d_keys = torch.zeros_like(keys)
        if with_coverage:
            d_coverage, weighted = torch.empty_like(gradient), 4 * score_vector * coverage_vector
        blocks = _Blocks(keys, queries, coverage, coverage_vector)
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
        d_coverage_vector = None
        if d_coverage is not None:
            d_coverage.mul_(gradient)
            d_coverage_vector = sums[:, :, 1].sum(dim=(0, 1)) * (4 * score_vector)
        if ctx.collected is not None:
            d_keys = None
        elif d_keys is not None:
            d_keys.mul_(4 * score_vector)
        d_queries = sums[:, :, 0] * (4 * score_vector)
        return d_keys, d_queries, 2 * d_vector.squeeze(0) - gradient.sum(), d_coverage, d_coverage_vector


class _Blocks:
    """The (B, Q, S, A) tensor of sigmoid(2 x) in blocks of documents and queries, one after the other in one buffer.

    A block is some documents with all their queries, or some queries of one document: either way a contiguous
    part of every (B, Q, ...) tensor.
    """

    def __init__(self, keys: Tensor, queries: Tensor, coverage: Tensor | None, coverage_vector: Tensor | None) -> None:
        self.keys, self.queries, self.coverage, self.coverage_vector = keys, queries, coverage, coverage_vector
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
        """sigmoid(2 x) of each block, (b, q, S, A); overwritten by the next."""
        buffer = self.keys.new_empty(self.rows * self.steps, *self.keys.shape[1:])
        parts = zip(self.cut_keys(self.keys), self.cut(2 * self.queries), self.cut(self.coverage), strict=True)
        for keys, doubled, coverage in parts:
            z = buffer[: len(keys) * doubled.shape[1]].unflatten(0, doubled.shape[:2])
            torch.add(doubled.unsqueeze(2), keys.unsqueeze(1), alpha=2, out=z)
            if coverage is not None:
                z.addcmul_(coverage.unsqueeze(-1), self.coverage_vector, value=2)
            yield z.sigmoid_()
