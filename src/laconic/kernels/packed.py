"""Linear maps for decoding on a CPU, where oneDNN multiplies by weights packed in an order of its own.

A decoding step multiplies few rows by large matrices; from a packed copy that is up to twice as fast. Packing
costs about as much as one or two steps, so it is done anew for each search and can never be out of date.
"""

from __future__ import annotations

from collections.abc import Callable

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
        return PackedLinear(weight, bias, relu=relu)
    return plain_map(weight, bias, relu=relu)


def plain_map(weight: Tensor, bias: Tensor, *, relu: bool = False, pack: bool = False) -> Map:
    """`linear_map` that packs nothing."""
    if relu:
        return lambda inputs: F.relu(F.linear(inputs, weight, bias))
    return lambda inputs: F.linear(inputs, weight, bias)


def packed_output(hidden: Map | None, weight: Tensor, bias: Tensor, columns: int) -> Map | None:
    """The output layer for one search, ``columns`` wide, minus infinity beyond V; none where packing does not pay."""
    if weight.numel() < _OUTPUT_WORTH_PACKING or not can_pack(weight):
        return None
    extra = (0, columns - len(weight))
    if columns > len(weight):  # padding copies, also where there is nothing to add
        weight = F.pad(weight.detach(), (0, 0, *extra))
    output = PackedLinear(weight, F.pad(bias.detach(), extra, value=float("-inf")))
    return output if hidden is None else lambda inputs: output(hidden(inputs))


class PackedLinear:
    """``x W^T + b`` from a packed copy of W, without gradients."""

    def __init__(self, weight: Tensor, bias: Tensor, *, relu: bool = False) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
        self._bias, self._after = bias.detach(), "relu" if relu else "none"

    def __call__(self, inputs: Tensor) -> Tensor:
        flat = inputs.reshape(-1, inputs.shape[-1])
        result = torch.ops.mkldnn._linear_pointwise(flat, self._weight, self._bias, self._after, [], "")
        return result.view(*inputs.shape[:-1], -1)


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
