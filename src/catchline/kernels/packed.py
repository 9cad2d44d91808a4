"""Linear maps for decoding on a CPU, from weights packed in the order that oneDNN's products read.

A decoding step multiplies few rows by large matrices: reading the weights takes most of its time. From packed weights
it takes two thirds of it (`benchmarks/decoding_parts.py`). A search runs within a `Packing`, which keeps what it packed
for as long as it lives; outside of one, and under gradients, nothing is packed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Map = Callable[[Tensor], Tensor]  # (..., I) -> (..., O)
_WORTH_PACKING = 2**16  # smaller matrices stay in the cache anyway
_OUTPUT_WORTH_PACKING = 2**20


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x W^T + b``: (..., I), (O, I), (O,) -> (..., O), from packed weights where a search has a `Packing`."""
    packing = Packing.current()
    if packing is None or bias is None or weight.numel() < _WORTH_PACKING or not can_pack(weight):
        return F.linear(inputs, weight, bias)
    return packing.packed(weight, bias, len(weight))(inputs)


class PackableLinear(nn.Linear):
    """A linear layer that multiplies by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def packed_output(hidden: Map | None, weight: Tensor, bias: Tensor, columns: int) -> Map | None:
    """The output layer for one search, ``columns`` wide, minus infinity beyond V; none where packing does not pay."""
    if weight.numel() < _OUTPUT_WORTH_PACKING or not can_pack(weight):
        return None
    output = (Packing.current() or Packing()).packed(weight, bias, columns)
    return output if hidden is None else lambda inputs: output(hidden(inputs))


class Packing:
    """The packed weights of one model, kept from search to search. A weight that changed in place is packed anew; one
    that was replaced stays in memory until the packing goes."""

    _lock = Lock()
    _current: ContextVar[Packing | None] = ContextVar("packing", default=None)

    def __init__(self) -> None:
        self._maps: dict[tuple[object, ...], tuple[int, Tensor, Map]] = {}

    @classmethod
    def current(cls) -> Packing | None:
        """The packing in use in this thread."""
        return cls._current.get()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Use this packing in the block."""
        token = self._current.set(self)
        try:
            yield
        finally:
            self._current.reset(token)

    def forget(self) -> None:
        self._maps.clear()

    def __reduce__(self) -> tuple[type[Packing], tuple[()]]:
        return Packing, ()  # a copied model packs its own weights

    def packed(self, weight: Tensor, bias: Tensor, columns: int) -> Map:
        """The map from the packed weight, kept with the weight itself, so that nothing else gets its address."""
        if weight.is_inference() or bias.is_inference():  # made in this search, without a count of its changes
            return PackedLinear(weight, bias, columns)
        key = (weight.data_ptr(), bias.data_ptr(), tuple(weight.shape), columns)
        version = weight._version + bias._version
        entry = self._maps.get(key)
        if entry is None or entry[0] != version:
            with self._lock:  # one of two threads packs it
                entry = self._maps.get(key)
                if entry is None or entry[0] != version:
                    entry = self._maps[key] = (version, weight, PackedLinear(weight, bias, columns))
        return entry[2]


class PackedLinear:
    """``x W^T + b`` from a packed copy of W in float32, without gradients; minus infinity in columns beyond W's."""

    def __init__(self, weight: Tensor, bias: Tensor, columns: int) -> None:
        weight, bias, extra = weight.detach(), bias.detach(), columns - len(weight)
        if extra:  # room for the words outside V
            weight, bias = F.pad(weight, (0, 0, 0, extra)), F.pad(bias, (0, extra), value=float("-inf"))
        self._weight, self._bias = torch.ops.mkldnn._reorder_linear_weight(weight, None), bias

    def __call__(self, inputs: Tensor) -> Tensor:
        rows = inputs.reshape(-1, inputs.shape[-1])
        result = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return result.view(*inputs.shape[:-1], -1)


def can_pack(weight: Tensor) -> bool:
    """Can this weight be packed: on a CPU, in float32, with no gradient wanted and no autocast?"""
    names = ("_reorder_linear_weight", "_linear_pointwise")  # the underscores say that they may go
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and torch.backends.mkldnn.is_available()
        and all(hasattr(torch.ops.mkldnn, name) for name in names)
    )
