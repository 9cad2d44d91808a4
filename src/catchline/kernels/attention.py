"""Additive attention's energies without their (B, Q, S, A) tensor, heads averaged without all heads at once, and the
convolution over chunks without anything of size (words x filters); with their gradients written out.

Almost all the time of additive attention goes into B * T * S * A hyperbolic tangents and the memory they pass through:
(a) ``tanh(x) = 2 sigmoid(2x) - 1``, and the sigmoid is several times cheaper on a CPU. (b) The (block, S, A) tensor
never leaves the cache: blocks of it are made, squashed and reduced at once. (c) Nothing of that size is kept for the
backward pass: it is computed again there, which costs less than writing and reading it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

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
    """`catchline.papers.pointer_generator.attention_scores`."""
    queries, score_vector = queries.to(keys.dtype), score_vector.to(keys.dtype)
    if coverage is not None and coverage_vector is not None:
        coverage, coverage_vector = coverage.to(keys.dtype), coverage_vector.to(keys.dtype)
    return _AdditiveScores.apply(keys, queries, score_vector, coverage, coverage_vector)


Scores = Callable[..., Tensor]


def distracted(scores: Scores) -> Scores:
    """`catchline.papers.distraction.attention_scores` by ``scores``, those of the pointer-generator: the history stands
    where coverage does, with the other sign."""

    def own(
        keys: Tensor, queries: Tensor, vector: Tensor, past: Tensor | None = None, by: Tensor | None = None
    ) -> Tensor:
        return scores(keys, queries, vector, past, None if by is None else -by)

    return own


distracted_scores = distracted(attention_scores)


class _AdditiveScores(torch.autograd.Function):
    """``e = v . tanh(x) = 2 v . s - sum(v)`` with ``s = sigmoid(2 x)``, ``x = k + q + c w``, and its gradient. With g =
    dL/de and m = s (1 - s):  dL/dx = 4 g v m, hence dv = 2 sum g s - sum g;   dq = 4 v sum_i g m;   dw = 4 v sum g c m;
    dc = 4 g (m . v w);   dk = 4 v g m."""

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
        d_vector, d_coverage = score_vector.new_zeros(1, len(score_vector)), None
        d_keys = torch.zeros_like(keys) if ctx.needs_input_grad[0] else None
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
        if d_keys is not None:
            d_keys.mul_(4 * score_vector)
        d_queries = sums[:, :, 0] * (4 * score_vector)
        return d_keys, d_queries, 2 * d_vector.squeeze(0) - gradient.sum(), d_coverage, d_coverage_vector


class _Blocks:
    """The (B, Q, S, A) tensor of sigmoid(2 x) in blocks of documents and queries, one after the other in one buffer. A
    block is some documents with all their queries, or some queries of one document: either way a contiguous part of
    every (B, Q, ...) tensor."""

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


# ------------------------------------------------------------------------------------------------------ averaged heads


_WEIGHTS_AT_ONCE = 2**26  # attention weights that exist at a time where there is not one head at a time


def mean_attention(queries: Tensor, keys: Tensor, mask: Tensor, *, group: int | None = None) -> Tensor:
    """`catchline.papers.coconet.mean_attention`: (B, Q, H, d), (B, S, H, d), (B, S) -> (B, Q, S). In float32 at least,
    also under autocast; zero at padding. ``group`` heads are read together; none: as many as are small together, on a
    CPU one by one where they lie."""
    if group is None:
        small = max(1, _WEIGHTS_AT_ONCE // max(1, mask.numel() * queries.shape[1]))
        group = 1 if queries.device.type == "cpu" else small
    return _MeanAttention.apply(queries, keys, mask, group)


class _MeanAttention(torch.autograd.Function):
    """One (B, Q, S) result is what copying, centrality and semantic correlation need. Left to autograd, every head's
    weights would be kept for the backward pass: of an encoder's self-attention 537 MB for eight documents of 1024
    tokens and 16 heads. Here a few heads at a time are made, added up and forgotten, and made once more in the
    backward pass.
    """

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, mask: Tensor, group: int) -> Tensor:
        ctx.save_for_backward(queries, keys, mask)
        ctx.group = group
        total: Tensor | None = None
        for q, k in zip(_heads(queries, group), _heads(keys, group), strict=True):
            part = _weights(q, k, mask).sum(dim=1) if q.dim() == 4 else _weights(q, k, mask)
            total = part if total is None else total.add_(part)
        assert total is not None
        return total.div_(queries.shape[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, wanted: Tensor) -> tuple[Tensor, Tensor, None, None]:
        queries, keys, mask = ctx.saved_tensors
        scale = queries.shape[-1] ** -0.5
        wanted = wanted / queries.shape[2]
        d_queries, d_keys = torch.empty_like(queries), torch.empty_like(keys)
        places = zip(_heads(d_queries, ctx.group), _heads(d_keys, ctx.group), strict=True)
        with torch.autocast(queries.device.type, enabled=False):
            for q, k, (d_q, d_k) in zip(_heads(queries, ctx.group), _heads(keys, ctx.group), places, strict=True):
                weights = _weights(q, k, mask)
                q, k = q.to(weights.dtype), k.to(weights.dtype)
                d_scores = weights * (wanted.unsqueeze(1) if weights.dim() == 4 else wanted)
                d_scores.addcmul_(weights, d_scores.sum(dim=-1, keepdim=True), value=-1.0)
                d_q.copy_((d_scores @ k).mul_(scale))
                d_k.copy_((d_scores.transpose(-1, -2) @ q).mul_(scale))
        return d_queries, d_keys, None, None


def _weights(queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """(B, Q, d) or (B, h, Q, d) -> (B, Q, S) or (B, h, Q, S); zero at padding, and where all is padding."""
    with torch.autocast(queries.device.type, enabled=False):
        queries, keys = (x.float() if x.dtype.itemsize < 4 else x for x in (queries, keys))
        hidden = ~(mask[:, None, None] if queries.dim() == 4 else mask[:, None])
        scores = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
        scores.masked_fill_(hidden, torch.finfo(scores.dtype).min)
        return torch.softmax(scores, dim=-1).masked_fill_(hidden, 0.0)


def _heads(features: Tensor, group: int) -> tuple[Tensor, ...]:
    """(B, S, H, d) -> heads (B, S, d), or groups of them (B, h, S, d)."""
    return features.unbind(dim=2) if group == 1 else features.transpose(1, 2).split(group, dim=1)


# -------------------------------------------------------------------------------------------------- windows of chunks


_SLICE_ELEMENTS = 2**22  # activations made at a time: 16 MiB in float32


def max_over_windows(ids: Tensor, words: Tensor, table: Tensor, filters: Tensor) -> Tensor:
    """`catchline.papers.coarse_to_fine.max_over_windows`: (R, W), (R, W), (V, E), (F, E, u) -> (R, F). Before the
    maximum a convolution is linear, so ``P_u[w] = K_u E[w]`` is made once for each distinct word, and a window is a sum
    of looked-up rows: the products grow with the vocabulary of the batch, not with its length. What is kept for the
    gradient is the position of each maximum."""
    return _MaxOverWindows.apply(table, filters, ids, words)


class _MaxOverWindows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, filters: Tensor, ids: Tensor, words: Tensor) -> Tensor:
        types, local = torch.where(words, ids, -1).unique(return_inverse=True)
        embedded = _of_types(table, types)
        windows = ids.shape[1] - filters.shape[2] + 1
        best = table.new_empty(len(ids), len(filters))
        small = torch.int16 if windows <= 2**15 else torch.int32
        places = torch.empty(best.shape, dtype=small, device=ids.device)
        for block in _slices(len(filters), len(types) * filters.shape[2]):
            products = [embedded @ kernel.t() for kernel in filters[block].unbind(2)]  # P_u (U, f) of each u
            for rows in _slices(len(ids), windows * len(products[0][0])):
                sums = products[0][local[rows, :windows]]
                for u, product in enumerate(products[1:], 1):
                    sums += product[local[rows, u : u + windows]]
                values, index = sums.max(dim=1)
                best[rows, block], places[rows, block] = values, index.to(small)
        ctx.save_for_backward(table, filters, types, local, places)
        return best

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        table, filters, types, local, places = ctx.saved_tensors
        embedded, d_embedded = _of_types(table, types), table.new_zeros(len(types), table.shape[1])
        d_filters = torch.empty_like(filters)
        for block in _slices(len(filters), len(types) * filters.shape[2]):
            wanted = gradient[:, block]
            columns = torch.arange(wanted.shape[1], device=wanted.device)
            for u in range(filters.shape[2]):
                winners = local.gather(1, places[:, block].long() + u)  # the word at place u of each winning window
                d_products = wanted.new_zeros(len(types) * wanted.shape[1])
                d_products.index_add_(0, (winners * wanted.shape[1] + columns).flatten(), wanted.flatten())
                d_products = d_products.view(len(types), -1)
                d_filters[block, :, u] = d_products.t() @ embedded
                d_embedded += d_products @ filters[block, :, u]
        d_table = None
        if ctx.needs_input_grad[0]:
            real = types >= 0
            d_table = torch.zeros_like(table).index_add_(0, types[real], d_embedded[real])
        return d_table, d_filters, None, None


def _of_types(table: Tensor, types: Tensor) -> Tensor:
    """(U, E): the embeddings of the distinct words; padding, type -1, is a zero vector."""
    return table[types.clamp_min(0)] * (types >= 0).unsqueeze(1)


def _slices(count: int, size_of_one: int) -> list[slice]:
    """Slices of ``count`` things that make at most `_SLICE_ELEMENTS` numbers at a time."""
    step = max(1, _SLICE_ELEMENTS // max(1, size_of_one))
    return [slice(start, start + step) for start in range(0, count, step)]
