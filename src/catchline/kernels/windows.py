"""The convolution over chunks and its maximum, without anything of size (words x filters)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

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
        for block in _blocks(len(filters), len(types) * filters.shape[2]):
            products = [embedded @ kernel.t() for kernel in filters[block].unbind(2)]  # P_u (U, f) of each u
            for rows in _blocks(len(ids), windows * len(products[0][0])):
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
        for block in _blocks(len(filters), len(types) * filters.shape[2]):
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


def _blocks(count: int, size_of_one: int) -> list[slice]:
    """Slices of ``count`` things that make at most `_SLICE_ELEMENTS` numbers at a time."""
    step = max(1, _SLICE_ELEMENTS // max(1, size_of_one))
    return [slice(start, start + step) for start in range(0, count, step)]
