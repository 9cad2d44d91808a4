"""Linear maps for decoding on a CPU, from weights packed in the order that its products want.

A decoding step multiplies few rows by large matrices: reading the weights is most of it. From packed weights it takes
two thirds of the time (`benchmarks/decoding_parts.py`).

`Packing` keeps what it packed for as long as it lives. Without one (`Packing.current`) weights are packed anew for each
search, which costs about as much as one or two steps and can never be out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

import torch
from torch import Tensor
from torch.nn import functional as F

Map = Callable[[Tensor], Tensor]  # (..., I) -> (..., O)
_WORTH_PACKING = 2**16  # smaller matrices stay in the cache anyway
_OUTPUT_WORTH_PACKING = 2**20


def linear_map(weight: Tensor, bias: Tensor, *, relu: bool = False, pack: bool = False) -> Map:
    """``x W^T + b``, rectified with ``relu``: weight (O, I), bias (O,).

    With ``pack`` from packed weights, where that is possible and worth it (never under gradients, which packed
    weights do not have, nor where autocast asks for lower precision).
    """
    low = torch.is_autocast_enabled("cpu")
    if pack and not low and weight.numel() >= _WORTH_PACKING and can_pack(weight):
        return _packed(weight, bias, len(weight), relu=relu)
    return plain_map(weight, bias, relu=relu)


def plain_map(weight: Tensor, bias: Tensor | None = None, *, relu: bool = False, pack: bool = False) -> Map:
    """`linear_map` that packs nothing."""
    if relu:
        return lambda inputs: F.relu(F.linear(inputs, weight, bias))
    return lambda inputs: F.linear(inputs, weight, bias)


def packed_output(hidden: Map | None, weight: Tensor, bias: Tensor, columns: int) -> Map | None:
    """The output layer for one search, ``columns`` wide, minus infinity beyond V; none where packing does not pay."""
    if weight.numel() < _OUTPUT_WORTH_PACKING or not can_pack(weight):
        return None
    output = _packed(weight, bias, columns)
    return output if hidden is None else lambda inputs: output(hidden(inputs))


class Packing:
    """The packed weights of one model, kept from search to search.

    While it is `used`, `linear_map` and `packed_output` take their maps from it. A weight that changed in place is
    packed anew; one that was replaced stays in memory until the packing goes.
    """

    _making = Lock()
    _current: ContextVar[Packing | None] = ContextVar("packing", default=None)

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], tuple[int, Tensor, Map]] = {}

    @classmethod
    def current(cls) -> Packing | None:
        """The one in use in this thread."""
        return cls._current.get()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Pack by this one."""
        token = self._current.set(self)
        try:
            yield
        finally:
            self._current.reset(token)

    def forget(self) -> None:
        self._kept.clear()

    def __reduce__(self) -> tuple[type[Packing], tuple[()]]:
        return Packing, ()  # a copied model packs its own weights

    def packed(self, weight: Tensor, bias: Tensor, columns: int, *, relu: bool) -> Map:
        """The map from the packed weight, kept with the weight itself, so that nothing else gets its address."""
        if weight.is_inference() or bias.is_inference():  # made in this search, without a count of its changes
            return PackedLinear(weight, bias, columns, relu=relu)
        key = (weight.data_ptr(), bias.data_ptr(), tuple(weight.shape), columns, relu)
        version = weight._version + bias._version
        kept = self._kept.get(key)
        if kept is None or kept[0] != version:
            with self._making:  # of two threads that want it one makes it
                kept = self._kept.get(key)
                if kept is None or kept[0] != version:
                    kept = self._kept[key] = (version, weight, PackedLinear(weight, bias, columns, relu=relu))
        return kept[2]


class PackedLinear:
    """``x W^T + b`` from a packed copy of W in float32, without gradients; minus infinity in columns beyond W's."""

    def __init__(self, weight: Tensor, bias: Tensor, columns: int, *, relu: bool = False) -> None:
        weight, self._bias = _widened(weight, bias, columns)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        self._after = "relu" if relu else "none"

    def __call__(self, inputs: Tensor) -> Tensor:
        flat = inputs.reshape(-1, inputs.shape[-1])
        result = torch.ops.mkldnn._linear_pointwise(flat, self._weight, self._bias, self._after, [], "")
        return result.view(*inputs.shape[:-1], -1)


def _packed(weight: Tensor, bias: Tensor, columns: int, *, relu: bool = False) -> Map:
    packing = Packing.current()
    if packing is None:
        return PackedLinear(weight, bias, columns, relu=relu)
    return packing.packed(weight, bias, columns, relu=relu)


def _widened(weight: Tensor, bias: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Room for the words outside V, which the output layer gives minus infinity."""
    extra = (0, columns - len(weight))
    if extra[1] == 0:  # padding copies, also where there is nothing to add
        return weight.detach(), bias.detach()
    return F.pad(weight.detach(), (0, 0, *extra)), F.pad(bias.detach(), extra, value=float("-inf"))


def can_pack(weight: Tensor) -> bool:
    """Can this weight be packed: on a CPU, in float32, with no gradient wanted?"""
    names = ("_reorder_linear_weight", "_linear_pointwise")  # the underscores say that they may go
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and not torch.is_grad_enabled()
        and torch.backends.mkldnn.is_available()
        and all(hasattr(torch.ops.mkldnn, name) for name in names)
    )
