"""Word states of chunks, each chunk read on its own: all at once, or only those that somebody asks for.

A chunk is read from the zero state and depends on nothing else, so reading it late, once, and keeping it is
exact. That is the whole of conditional computation (specification e.2): `LazyStates` reads a chunk when it is
first chosen, `AllStates` before. Noise (dropout) is a function of (seed, example, chunk), so that both give the
same numbers in training too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from laconic.kernels.dispatch import deferred_linear
from laconic.layers import noise
from laconic.layers.grid import Grid
from laconic.layers.recurrent import drop_biases, lstm_gates

Cells = list[tuple[Tensor, Tensor]]  # (h, c) of each layer, (N, H)

_LAYERS = 0x4C415945  # the stream of noise between the layers of a stepwise pass


class WordEncoder(nn.Module):
    """One-directional LSTM layers over R sequences of N words from the zero state (section 4; specification b.1).

    One bias vector a layer, as in the original: torch's two would take steps of twice the size. Dropout
    between the layers, with masks by `laconic.layers.noise`. States at padding are zero.
    """

    def __init__(self, input_size: int, hidden_size: int, *, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.hidden_size, self.dropout = hidden_size, dropout
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        layers = [nn.LSTM(size, hidden_size, batch_first=True) for size in sizes]
        for layer in layers:
            drop_biases(layer, "bias_hh")
        self.layers: Any = nn.ModuleList(layers)

    def forward(self, embedded: Tensor, words: Tensor, keys: Tensor | None = None) -> Tensor:
        """(R, N, E) under a mask (R, N) -> states (R, N, H). ``keys`` (R,) make the noise; none: no dropout.

        Padding stands behind the words of a sequence, so no word's state depends on it.
        """
        states = embedded
        for depth, layer in enumerate(self.layers):
            if depth and self.dropout and keys is not None:
                shape = tuple(states.shape[1:])
                states = states * noise.kept(noise.mixed(depth, keys), *shape, dropout=self.dropout, dtype=states.dtype)
            states, _ = layer(states)
        return states * words.unsqueeze(-1)


class PreparedLayers:
    """The decoder's layers for the steps of one pass: weight gradients are made once; noise between the layers."""

    def __init__(self, decoder: WordEncoder, keys: Tensor | None) -> None:
        self.dropout, self.keys = decoder.dropout, keys
        self.layers = [
            (deferred_linear(layer.weight_ih_l0, layer.bias_ih_l0), deferred_linear(layer.weight_hh_l0, None))
            for layer in decoder.layers
        ]

    def __call__(
        self, inputs: Tensor, cells: list[tuple[Tensor, Tensor]], t: int
    ) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
        after = []
        for depth, ((of_input, of_state), state) in enumerate(zip(self.layers, cells, strict=True)):
            if depth and self.dropout and self.keys is not None:
                key = noise.mixed(depth + noise.STREAMS * t, noise.mixed(_LAYERS, self.keys))
                inputs = inputs * noise.kept(key, inputs.shape[1], dropout=self.dropout, dtype=inputs.dtype)
            h, c = lstm_gates(of_input(inputs), of_state(state[0]), state)
            after.append((h, c))
            inputs = h
        return after, inputs


class ChunkStates:
    """The word states of a batch's chunks. Not a tensor tree: re-ordering a decoder state leaves it alone."""

    def __init__(self, encoder: WordEncoder, embedding: nn.Embedding, grid: Grid, seeds: Tensor | None) -> None:
        self.encoder, self.embedding, self.grid = encoder, embedding, grid
        self.seeds = seeds  # (B,) noise keys of the examples; none: no dropout
        self.slots = torch.full(grid.chunks.shape, -1, dtype=torch.int64, device=grid.ids.device)

    def read(self, documents: Tensor, chunks: Tensor) -> Tensor:
        """The states (P, N, H) of the chunks (P,) of the documents (P,)."""
        raise AssertionError("the document was read as a whole, without chunks")

    @property
    def rows_encoded(self) -> int:
        """How many chunks the encoder has read."""
        return int((self.slots >= 0).sum())

    def words_of(self, documents: Tensor, chunks: Tensor) -> Tensor:
        """The masks (P, N)."""
        return self.grid.words[documents, chunks]

    def encode(self, documents: Tensor, chunks: Tensor) -> Tensor:
        """Read the chunks (P,) now, in one call: (P, N, H)."""
        words = self.words_of(documents, chunks)
        embedded = self.embedding(self.grid.ids[documents, chunks]) * words.unsqueeze(-1)
        keys = None if self.seeds is None else noise.mixed(self.seeds[documents], chunks)
        return self.encoder(embedded, words, keys)


class AllStates(ChunkStates):
    """Every chunk that anybody may read (the document's own), read at the start."""

    def __init__(self, encoder: WordEncoder, embedding: nn.Embedding, grid: Grid, seeds: Tensor | None) -> None:
        super().__init__(encoder, embedding, grid, seeds)
        documents, chunks = grid.chunks.nonzero(as_tuple=True)
        self.keep(documents, chunks)

    def keep(self, documents: Tensor, chunks: Tensor) -> None:
        """Read these chunks, each once."""
        self.states = self.encode(documents, chunks)
        self.slots[documents, chunks] = torch.arange(len(chunks), device=chunks.device)

    def read(self, documents: Tensor, chunks: Tensor) -> Tensor:
        return self.states.index_select(0, self.slots[documents, chunks])

    def whole(self) -> Tensor:
        """All states in their places: (B, M, N, H), zero in rows that no document owns."""
        place = self.slots.flatten()
        grid = self.states.new_zeros(len(place), *self.states.shape[1:])
        own = (place >= 0).nonzero().squeeze(1)
        return grid.index_copy(0, own, self.states).view(*self.slots.shape, *self.states.shape[1:])


class ChosenStates(AllStates):
    """The chunks that an earlier pass without gradients chose, read at the start in one call ("replay")."""

    def __init__(
        self,
        encoder: WordEncoder,
        embedding: nn.Embedding,
        grid: Grid,
        seeds: Tensor | None,
        chosen: tuple[Tensor, Tensor],
    ) -> None:
        ChunkStates.__init__(self, encoder, embedding, grid, seeds)
        self.keep(*chosen)


class LazyStates(ChunkStates):
    """A chunk is read when it is first asked for, together with the others of that moment, and kept."""

    def __init__(self, encoder: WordEncoder, embedding: nn.Embedding, grid: Grid, seeds: Tensor | None) -> None:
        super().__init__(encoder, embedding, grid, seeds)
        self.states: Tensor | None = None

    def read(self, documents: Tensor, chunks: Tensor) -> Tensor:
        self._require(documents, chunks)
        assert self.states is not None
        return self.states.index_select(0, self.slots[documents, chunks])

    def _require(self, documents: Tensor, chunks: Tensor) -> None:
        unread = self.slots[documents, chunks] < 0
        if not bool(unread.any()):
            return
        wanted = torch.unique(documents[unread] * self.grid.num_chunks + chunks[unread])
        documents, chunks = wanted // self.grid.num_chunks, wanted % self.grid.num_chunks
        states = self.encode(documents, chunks)
        before = 0 if self.states is None else len(self.states)
        self.slots[documents, chunks] = before + torch.arange(len(wanted), device=wanted.device)
        # A new tensor, never written into: autograd may have kept the old one.
        self.states = states if self.states is None else torch.cat([self.states, states])
