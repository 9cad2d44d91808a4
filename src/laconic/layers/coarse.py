"""Coarse representations: one vector a chunk, from its words' embeddings (Ling and Rush 2017, section 4).

The vectors are keys of the coarse attention and nothing else. Both encoders take a `Grid`'s ids and return
(B, M, D_s); neither keeps anything of size (words x filters).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from laconic.config.section import Section
from laconic.layers.grid import Grid

_SLICE_ELEMENTS = 2**22  # activations made at a time: 16 MiB in float32
_ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "none": lambda x: x}


class CoarseEncoder(nn.Module):
    """``Class(config, embedding=..., pad_id=...)``; ``size`` is D_s."""

    class Config(Section):
        """Options of the encoder."""

    size: int
    own: nn.Embedding | None  # a table of word embeddings beside the word encoder's

    def __init__(self) -> None:
        super().__init__()
        self.own = None

    @abstractmethod
    def forward(self, grid: Grid) -> Tensor:
        """(B, M, D_s)."""


class Convolution(CoarseEncoder):
    """CONV: 600 filters over 6 words each, the maximum over the chunk's windows, then tanh (section 4.1).

    ``tanh`` rises, so the maximum is taken first and tanh on (B, M, 600). A chunk shorter than a window is filled
    up with zero embeddings. The embedding table is the word encoder's unless ``separate_embedding``.
    """

    class Config(Section):
        size: int = Field(600, ge=1, le=65_536)
        width: int = Field(6, ge=1, le=65_536)
        activation: Literal["tanh", "relu", "none"] = "tanh"
        separate_embedding: bool = False
        frozen: bool = False  # the separate table

    def __init__(self, config: Config, *, embedding: nn.Embedding, pad_id: int) -> None:
        super().__init__()
        self.config, self.size = config, config.size
        self.own = _own_table(embedding, embedding.embedding_dim, config.frozen) if config.separate_embedding else None
        self._shared = [embedding]  # a list: the table belongs to the model
        self.filters = nn.Conv1d(embedding.embedding_dim, config.size, config.width)

    @property
    def table(self) -> nn.Embedding:
        return self._shared[0] if self.own is None else self.own

    def forward(self, grid: Grid) -> Tensor:
        ids = grid.ids.flatten(0, 1)
        words = grid.words.flatten(0, 1)
        missing = self.config.width - ids.shape[1]
        if missing > 0:
            ids = nn.functional.pad(ids, (0, missing), value=0)
            words = nn.functional.pad(words, (0, missing), value=False)
        best = max_over_windows(ids, words, self.table.weight, self.filters.weight)
        activation: Any = _ACTIVATIONS[self.config.activation]
        assert self.filters.bias is not None
        return activation(best + self.filters.bias).view(*grid.chunks.shape, -1)


class BagOfWords(CoarseEncoder):
    """BOW: the sum of the chunk's embeddings in a table of its own (section 4.1), frozen unless told otherwise."""

    class Config(Section):
        # none: as wide as the word embeddings, and it starts as their copy
        size: int | None = Field(None, ge=1, le=65_536)
        frozen: bool = True

    own: nn.Embedding

    def __init__(self, config: Config, *, embedding: nn.Embedding, pad_id: int) -> None:
        super().__init__()
        self.config = config
        self.own = _own_table(embedding, config.size or embedding.embedding_dim, config.frozen)
        self.size = self.own.embedding_dim

    def forward(self, grid: Grid) -> Tensor:
        return chunk_sums(grid.ids, grid.words, self.own.weight)


def chunk_sums(ids: Tensor, words: Tensor, table: Tensor) -> Tensor:
    """``S_i = sum_j E[w_ij]`` over real words: (B, M, N) -> (B, M, D)."""
    weights = words.flatten(0, 1).to(table.dtype)
    sums = nn.functional.embedding_bag(ids.flatten(0, 1), table, per_sample_weights=weights, mode="sum")
    return sums.view(*ids.shape[:2], -1)


def max_over_windows(ids: Tensor, words: Tensor, table: Tensor, filters: Tensor) -> Tensor:
    """``max_j sum_u K_u E[w_{j+u}]`` for R chunks of N words: (R, N), (R, N) -> (R, F), without the bias.

    Padding words count as zero vectors. Before the maximum a convolution is linear, so ``P_u[w] = K_u E[w]`` is made
    once for each distinct word, and a window is a sum of looked-up rows: the products grow with the vocabulary of the
    batch, not with its length (specification e.2). What is kept for the gradient is the position of each maximum;
    neither pass makes anything of size (words x filters).
    """
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


def _own_table(embedding: nn.Embedding, size: int, frozen: bool) -> nn.Embedding:
    """A table of the chunks' own; as wide as the words' it starts as a copy of theirs (see `copy_from`)."""
    table = nn.Embedding(embedding.num_embeddings, size, padding_idx=embedding.padding_idx)
    table.weight.requires_grad_(not frozen)
    return table
