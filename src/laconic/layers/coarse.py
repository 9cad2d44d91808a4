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

from laconic.config.base import ConfigBase
from laconic.kernels.dispatch import max_over_windows
from laconic.layers.grid import Grid
from laconic.papers.coarse_to_fine import chunk_sums

_ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "none": lambda x: x}


class CoarseEncoder(nn.Module):
    """``Class(config, embedding=..., pad_id=...)``; ``size`` is D_s."""

    class Config(ConfigBase):
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

    class Config(ConfigBase):
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

    class Config(ConfigBase):
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


def _own_table(embedding: nn.Embedding, size: int, frozen: bool) -> nn.Embedding:
    """A table of the chunks' own; as wide as the words' it starts as a copy of theirs (see `copy_from`)."""
    table = nn.Embedding(embedding.num_embeddings, size, padding_idx=embedding.padding_idx)
    table.weight.requires_grad_(not frozen)
    return table
