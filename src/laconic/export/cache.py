"""A Transformer's past in plain rows: what `laconic.layers.beam_cache.BeamCache` is to an exported graph.

Every row holds the keys and values of its own past, so that a graph can take them in and give them out as tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from laconic.layers.beam_cache import BeamCache
from laconic.layers.transformer import scaled_attention


class RowCache:
    """Of each layer the keys and values (N, T, H, d) of T steps made."""

    def __init__(self, layers: list[tuple[Tensor, Tensor]], documents: int) -> None:
        self._layers, self._documents = layers, documents
        self.steps = int(layers[0][0].shape[1])  # how many were made

    @classmethod
    def of(cls, cache: BeamCache) -> RowCache:
        """An empty one, for a `BeamCache` before its first step."""
        rows = cache.visible.shape[0]
        like = [room.slots for room in cache._rooms]  # (2, B, 0, H, d)
        empty = [slots.new_zeros(rows, 0, *slots.shape[3:]) for slots in like]
        return cls([(one, one.clone()) for one in empty], cache.documents)

    def with_step(self) -> RowCache:
        """The cache for one more step, which `attend` fills layer by layer."""
        grown = RowCache(list(self._layers), self._documents)
        grown.steps = self.steps + 1
        return grown

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Self-attention of one step: (B, K, H, d) three times -> (B, K, H, d)."""
        past = self._layers[layer]
        rows = past[0].shape[0]
        one = (rows, 1, *keys.shape[2:])
        every = tuple(torch.cat([old, new.reshape(one)], dim=1) for old, new in zip(past, (keys, values), strict=True))
        self._layers[layer] = every[0], every[1]
        return scaled_attention(queries.reshape(one), *every).reshape(queries.shape)

    def select(self, index: Tensor) -> RowCache:
        """The rows ``index`` (M,)."""
        layers = [(keys.index_select(0, index), values.index_select(0, index)) for keys, values in self._layers]
        return RowCache(layers, self._documents)

    def tensors(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """The tensors, each under the name of its place."""
        for number, layer in enumerate(self._layers):
            for part, tensor in zip(("keys", "values"), layer, strict=True):
                yield f"{name}.{number}.{part}", tensor
