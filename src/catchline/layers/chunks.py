"""A document in chunks (Ling and Rush 2017, section 4): its grid, one vector a chunk, the states of the words.

**The grid** has C chunks of W words. Two kinds of padding are kept apart. *Grid padding* fills a document up to its
grid: the paper's padding word, with a zero state, which attention may choose. *Batch padding* are whole rows that exist
only because another document of the batch has more chunks; nothing may ever read them, or results would depend on the
batch. **Chunk vectors** are keys of the coarse attention and nothing else.

**Word states**: a chunk is read from the zero state and depends on nothing else, so reading it late, once, and keeping
it is exact. That is the whole of conditional computation: `ChunkStates` reads a chunk when it is first chosen, or
before. Noise (dropout) is a function of (seed, example, chunk), so that both give the same numbers in training too: a
generator's next number would depend on every number drawn before it. Each number is a hash of a seed, a key (which
example, which chunk, which step) and a counter. The hash is the 32-bit mixer "lowbias32" (two multiplications, three
shifts), computed in 64-bit integers so that it is the same on every device.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from catchline.config.base import ConfigBase
from catchline.kernels.dispatch import max_over_windows
from catchline.layers.recurrent import ACTIVATIONS, drop_biases
from catchline.papers.coarse_to_fine import chunk_sums
from catchline.types import Batch

# ------------------------------------------------------------------------------------------------------------- the grid


@dataclass(slots=True)
class Grid:
    """``ids`` (B, C, W); ``words`` (B, C, W) true at real words; ``chunks`` (B, C) true at the document's own rows;
    ``positions`` (B, C, W) the source token that a cell with a word holds."""

    ids: Tensor
    words: Tensor
    chunks: Tensor
    positions: Tensor

    @property
    def num_chunks(self) -> int:
        return int(self.ids.shape[1])

    def part(self, documents: Tensor) -> Grid:
        """The grid of some of the documents (D,)."""
        return Grid(*(values[documents] for values in (self.ids, self.words, self.chunks, self.positions)))

    def token_ranges(self) -> Tensor:
        """The source tokens ``[first, last)`` of each chunk, (B, C, 2); cell n of a chunk holds token ``first + n``.
        Chunks without a word have an empty range behind the document."""
        counts, first = self.words.sum(dim=2), self.positions[:, :, 0]
        end = torch.where(counts > 0, first + counts, 0).amax(dim=1, keepdim=True)
        first = torch.where(counts > 0, first, end)
        return torch.stack([first, first + counts], dim=2)

    def flat(self, values: Tensor, num_tokens: int) -> Tensor:
        """Values of cells (B, Q, C, W) -> values of source tokens (B, Q, S); cells without a token are dropped."""
        cells = values.flatten(2)
        places = torch.where(self.words, self.positions, num_tokens).flatten(1).unsqueeze(1).expand_as(cells)
        return cells.new_zeros(*cells.shape[:2], num_tokens + 1).scatter_add_(2, places, cells)[:, :, :num_tokens]


def make_grid(
    ids: Tensor, mask: Tensor, *, chunk_words: int, num_chunks: int | None, pad_id: int, separator_id: int | None = None
) -> Grid:
    """Write the tokens (B, S) row by row into a grid; rows cut anywhere, chunks in document order. With
    ``separator_id`` a chunk is a sentence: it ends with that token, and is cut at ``chunk_words``. With ``num_chunks``
    every document has that many rows and what does not fit is cut off; without, as many as it needs (at least one), and
    the batch as many as its longest document."""
    tokens = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    row, column = tokens // chunk_words, tokens % chunk_words
    if separator_id is not None:
        ends = (ids == separator_id) & mask
        row = ends.cumsum(1) - ends.long()  # the sentence of each token
        column = tokens - torch.cummax(torch.where(ends.roll(1, 1), tokens, 0), dim=1).values
    rows = num_chunks or int(torch.where(mask, row, 0).max() if mask.numel() else 0) + 1
    fits, beyond = mask & (row < rows) & (column < chunk_words), rows * chunk_words
    cells = torch.where(fits, row * chunk_words + column, beyond)

    def written(values: Tensor, empty: int) -> Tensor:
        flat = values.new_full((ids.shape[0], beyond + 1), empty).scatter_(1, cells, values)
        return flat[:, :beyond].view(-1, rows, chunk_words)

    words = written(mask, False)
    own = words.new_ones(words.shape[:2])  # all rows of a fixed grid; else up to the document's last word, at least one
    if num_chunks is None:
        own[:, 1:] = words.any(2).flip(1).long().cummax(1).values.flip(1).bool()[:, 1:]
    return Grid(written(ids, pad_id), words, own, written(tokens, 0))


# --------------------------------------------------------------------------------------------------- one vector a chunk


class CoarseEncoder(nn.Module):
    """``Class(config, embedding=..., pad_id=...)``; ``size`` is F."""

    Config: type[ConfigBase] = ConfigBase
    size: int

    def __init__(self) -> None:
        super().__init__()
        self.own: nn.Embedding | None = None  # a table of word embeddings beside the word encoder's

    @abstractmethod
    def forward(self, grid: Grid) -> Tensor:
        """(B, C, F)."""


class Convolution(CoarseEncoder):
    """CONV: 600 filters over 6 words each, the maximum over the chunk's windows, then tanh (section 5). ``tanh`` rises,
    so the maximum is taken first and tanh on (B, M, 600). A chunk shorter than a window is filled up with zero
    embeddings. The embedding table is the word encoder's."""

    class Config(ConfigBase):
        size: int = Field(600, ge=1, le=65_536)
        width: int = Field(6, ge=1, le=65_536)
        activation: Literal["tanh", "relu", "none"] = "tanh"

    def __init__(self, config: Config, *, embedding: nn.Embedding, pad_id: int) -> None:
        super().__init__()
        self.config, self.size = config, config.size
        self._shared = [embedding]  # a list: the table belongs to the model
        self.filters = nn.Conv1d(embedding.embedding_dim, config.size, config.width)

    def forward(self, grid: Grid) -> Tensor:
        missing = (0, max(0, self.config.width - grid.ids.shape[2]))
        ids = nn.functional.pad(grid.ids.flatten(0, 1), missing)
        words = nn.functional.pad(grid.words.flatten(0, 1), missing)
        best = max_over_windows(ids, words, self._shared[0].weight, self.filters.weight)
        assert self.filters.bias is not None
        return ACTIVATIONS[self.config.activation](best + self.filters.bias).view(*grid.chunks.shape, -1)


class BagOfWords(CoarseEncoder):
    """BOW: the sum of the chunk's embeddings in its own table (section 5), frozen by default; as wide as the words' it
    starts as a copy of theirs, which the model makes."""

    class Config(ConfigBase):
        # none: as wide as the word embeddings, and it starts as their copy
        size: int | None = Field(None, ge=1, le=65_536)
        frozen: bool = True

    own: nn.Embedding

    def __init__(self, config: Config, *, embedding: nn.Embedding, pad_id: int) -> None:
        super().__init__()
        self.config = config
        self.size = config.size or embedding.embedding_dim
        self.own = nn.Embedding(embedding.num_embeddings, self.size, padding_idx=embedding.padding_idx)
        self.own.weight.requires_grad_(not config.frozen)

    def forward(self, grid: Grid) -> Tensor:
        return chunk_sums(grid.ids, grid.words, self.own.weight)


# ---------------------------------------------------------------------------------------------- the states of the words

Cells = list[tuple[Tensor, Tensor]]  # (h, c) of each layer, (N, H)

_LAYERS = 0x4C415945  # the stream of noise between the layers of a stepwise pass


class WordEncoder(nn.Module):
    """One-directional LSTM layers over R sequences of W words from the zero state (section 4). One bias vector a layer,
    as in the original: torch's two would take steps of twice the size. Dropout between the layers, with masks by
    `dropout_mask`. States at padding are zero."""

    def __init__(self, input_size: int, hidden_size: int, *, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.hidden_size, self.dropout = hidden_size, dropout
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        layers = [nn.LSTM(size, hidden_size, batch_first=True) for size in sizes]
        for layer in layers:
            drop_biases(layer, "bias_hh")
        self.layers: Any = nn.ModuleList(layers)

    def forward(self, embedded: Tensor, words: Tensor, keys: Tensor | None = None) -> Tensor:
        """(R, W, E) under a mask (R, W) -> states (R, W, H). ``keys`` (R,) make the noise; none: no dropout. Padding
        stands behind the words of a sequence, so no word's state depends on it."""
        states = embedded
        for depth, layer in enumerate(self.layers):
            if depth and self.dropout and keys is not None:
                shape = tuple(states.shape[1:])
                states = states * dropout_mask(mixed(depth, keys), *shape, dropout=self.dropout, dtype=states.dtype)
            states, _ = layer(states)
        return states * words.unsqueeze(-1)

    def step(self, inputs: Tensor, cells: Cells, keys: Tensor | None = None, t: int = 0) -> tuple[Cells, Tensor]:
        """Step ``t`` of the layers: (N, I) -> their states and the last h (N, H); ``keys`` as in `forward`."""
        after: Cells = []
        for depth, (layer, cell) in enumerate(zip(self.layers, cells, strict=True)):
            if depth and self.dropout and keys is not None:
                key = mixed(depth + STREAMS * t, mixed(_LAYERS, keys))
                inputs = inputs * dropout_mask(key, inputs.shape[1], dropout=self.dropout, dtype=inputs.dtype)
            h, c = torch.lstm_cell(inputs, cell, *layer._flat_weights)
            after.append((h, c))
            inputs = h
        return after, inputs


class ChunkStates:
    """The word states of a batch's chunks, of those that were read. Not a tensor tree: re-ordering a decoder state
    leaves it alone. With ``chosen``, distinct pairs of documents (P,) and chunks (P,), these are read at the start, in
    one call, and nobody asks for others. Without, a chunk is read when it is first asked for, together with the others
    of that moment, and kept. ``seeds`` (B,) are the noise keys of the examples; none: no dropout."""

    def __init__(
        self,
        encoder: WordEncoder,
        embedding: nn.Embedding,
        grid: Grid,
        seeds: Tensor | None,
        chosen: tuple[Tensor, ...] | None = None,
    ) -> None:
        self.encoder, self.embedding, self.grid, self.seeds = encoder, embedding, grid, seeds
        self.slots = torch.full(grid.chunks.shape, -1, dtype=torch.int64, device=grid.ids.device)
        self.states: Tensor | None = None
        self.lazy = chosen is None
        if chosen is not None:
            self._keep(*chosen)

    def read(self, documents: Tensor, chunks: Tensor) -> Tensor:
        """The states (P, W, H) of the chunks (P,) of the documents (P,)."""
        if self.lazy:
            unread = self.slots[documents, chunks] < 0
            if bool(unread.any()):
                wanted = torch.unique(documents[unread] * self.grid.num_chunks + chunks[unread])
                self._keep(wanted // self.grid.num_chunks, wanted % self.grid.num_chunks)
        assert self.states is not None
        return self.states.index_select(0, self.slots[documents, chunks])

    def whole(self) -> Tensor:
        """All states in their places: (B, C, W, H), zero in rows that no document owns."""
        assert self.states is not None, "soft attention reads all chunks"
        place = self.slots.flatten()
        grid = self.states.new_zeros(place.shape[0], *self.states.shape[1:])
        own = (place >= 0).nonzero().squeeze(1)
        return grid.index_copy(0, own, self.states).view(*self.slots.shape, *self.states.shape[1:])

    def encode(self, documents: Tensor, chunks: Tensor) -> Tensor:
        """Read the chunks (P,) now, in one call: (P, W, H)."""
        words = self.grid.words[documents, chunks]
        embedded = self.embedding(self.grid.ids[documents, chunks]) * words.unsqueeze(-1)
        keys = None if self.seeds is None else mixed(self.seeds[documents], chunks)
        return self.encoder(embedded, words, keys)

    def _keep(self, documents: Tensor, chunks: Tensor) -> None:
        """Read these chunks, each once."""
        states = self.encode(documents, chunks)
        before = 0 if self.states is None else len(self.states)
        self.slots[documents, chunks] = before + torch.arange(chunks.shape[0], device=chunks.device)
        self.states = states if self.states is None else torch.cat([self.states, states])


# -------------------------------------------------------------------------------------------------------------- noise

_LOW = 0xFFFFFFFF
STREAMS = 64  # uses of noise that a step may have: stream s of step t is number s + STREAMS t
_GOLDEN = 0x9E3779B9  # 2^32 divided by the golden ratio: spreads consecutive keys


@dataclass(slots=True)
class ExampleNoise:
    """The seed of a minibatch and the keys (B,) of its examples."""

    seed: int
    examples: Tensor

    @classmethod
    def of(cls, batch: Batch, seed: int | None) -> ExampleNoise:
        """With the trainer's seed, the same on every process; else one from torch's generator."""
        seed = int(torch.randint(2**31, ())) if seed is None else (seed ^ (seed >> 32)) & _LOW
        size, device = batch.source_ids.shape[0], batch.source_ids.device
        known = len(batch.indices) == size
        examples = sent(torch.tensor(batch.indices), device) if known else torch.arange(size, device=device)
        return cls(seed, mixed(seed, examples))

    def coin(self, number: int) -> float:
        """Uniform in [0, 1), the same on every process."""
        return int(mixed(self.seed, -1, number)) / 2**32


def mixed(seed: int | Tensor, *keys: int | Tensor) -> Tensor:
    """One 32-bit key (int64 tensor) out of a seed and further keys, which may be tensors of one shape."""
    key = _hash(seed)
    for more in keys:
        spread = key * _GOLDEN if isinstance(key, Tensor) else key * _GOLDEN & _LOW  # only these bits count
        key = _hash(spread + more + 1)
    return torch.as_tensor(key)


def bits(keys: Tensor, *shape: int) -> Tensor:
    """For each of the keys (R,), ``shape`` independent integers in [0, 2^32): (R, *shape) int64."""
    counters = torch.arange(math.prod(shape), device=keys.device) * _GOLDEN
    return _hash(keys.unsqueeze(-1) + counters).view(*keys.shape, *shape)


def dropout_mask(keys: Tensor, *shape: int, dropout: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Dropout masks (R, *shape): 0 with probability ``dropout``, else ``1 / (1 - dropout)``."""
    return (bits(keys, *shape) >= int(dropout * 2**32)).to(dtype).div_(1.0 - dropout)


def gumbel(keys: Tensor, *shape: int) -> Tensor:
    """Standard Gumbel noise (R, *shape), float32: ``argmax(log p + noise)`` is a draw from p."""
    uniform = (bits(keys, *shape).double() + 0.5) / 2**32
    return -(-uniform.log()).log().float()


def sent(values: Tensor, device: torch.device) -> Tensor:
    """What the host has, on the device; the host does not wait until the device has done what it was given before."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


def _hash(x: Any) -> Any:
    """Of an integer, or of each of a tensor: numbers that the host knows stay there."""
    x = (x.long() if isinstance(x, Tensor) else x) & _LOW
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _LOW
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _LOW
    return x ^ (x >> 16)
