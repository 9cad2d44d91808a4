"""Linear maps for decoding on a CPU, from weights packed in the order that its products want, in a chosen precision.

A decoding step multiplies few rows by large matrices: reading the weights is most of it. Packed weights are up to
twice as fast, in bf16 half as large (fast where the CPU multiplies it: AMX, AVX-512 BF16), in int8 a quarter
(fast where it has VNNI or AMX).

`Packing` keeps what it packed for as long as it lives. Without one (`Packing.current`) weights are packed anew for each
search, which costs about as much as one or two steps and can never be out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from laconic.types import Precision

Map = Callable[[Tensor], Tensor]  # (..., I) -> (..., O)
_WORTH_PACKING = 2**16  # smaller matrices stay in the cache anyway
_OUTPUT_WORTH_PACKING = 2**20
_LEAST = 1e-12  # scale of a row of zeros


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
    """The packed weights of one model in one precision, kept from search to search.

    While it is `used`, the maps of `linear_map` and `packed_output` are its own. A weight that changed in place is
    packed anew; one that was replaced stays in memory until the packing goes.

    Args:
        precision: of the products. The maps take and give float32.
    """

    _current: ContextVar[Packing | None] = ContextVar("packing", default=None)

    def __init__(self, precision: Precision = "fp32") -> None:
        self.precision = precision
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

    def __reduce__(self) -> tuple[type[Packing], tuple[Precision]]:
        return Packing, (self.precision,)  # a copied model packs its own weights

    def packed(self, weight: Tensor, bias: Tensor, columns: int, *, relu: bool) -> Map:
        """The map from the packed weight, kept with the weight itself, so that nothing else gets its address."""
        if weight.is_inference() or bias.is_inference():  # made in this search, without a count of its changes
            return PACKED[self.precision](weight, bias, columns, relu=relu)
        key = (weight.data_ptr(), bias.data_ptr(), tuple(weight.shape), columns, relu)
        version = weight._version + bias._version
        kept = self._kept.get(key)
        if kept is None or kept[0] != version:
            kept = self._kept[key] = (version, weight, PACKED[self.precision](weight, bias, columns, relu=relu))
        return kept[2]


class PackedLinear:
    """``x W^T + b`` from a packed copy of W in float32, without gradients; minus infinity in columns beyond W's."""

    dtype = torch.float32

    def __init__(self, weight: Tensor, bias: Tensor, columns: int, *, relu: bool = False) -> None:
        weight, bias = _widened(weight, bias, columns)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(self.dtype), None)
        self._bias, self._after = bias.to(self.dtype), "relu" if relu else "none"

    def __call__(self, inputs: Tensor) -> Tensor:
        flat = inputs.reshape(-1, inputs.shape[-1]).to(self.dtype)
        result = torch.ops.mkldnn._linear_pointwise(flat, self._weight, self._bias, self._after, [], "")
        return result.to(inputs.dtype).view(*inputs.shape[:-1], -1)


class PackedLowLinear(PackedLinear):
    """The same in bfloat16: eight bits of each factor and of the result, sums in float32."""

    dtype = torch.bfloat16


class PackedByteLinear:
    """The same in int8: W rounded to 255 steps for each output, x for each row, which does not depend on others."""

    def __init__(self, weight: Tensor, bias: Tensor, columns: int, *, relu: bool = False) -> None:
        weight, self._bias = _widened(weight, bias, columns)
        self._scale = (weight.abs().amax(1) / 127).clamp_min_(_LEAST)
        self._zero = torch.zeros(len(weight), dtype=torch.long)
        steps = (weight / self._scale[:, None]).round_().to(torch.int8)
        self._weight, self._relu = torch.ops.onednn.qlinear_prepack(steps, None), relu

    def __call__(self, inputs: Tensor) -> Tensor:
        flat = inputs.reshape(-1, inputs.shape[-1])
        scale = flat.abs().amax(1, keepdim=True).div_(127).clamp_min_(_LEAST)
        # torch converts to signed bytes six times as fast as to unsigned ones; adding 128 turns the sign bit.
        steps = (flat / scale).round_().to(torch.int8).view(torch.uint8).bitwise_xor_(128)
        result = torch.ops.onednn.qlinear_pointwise(
            steps, 1.0, 128, self._weight, self._scale, self._zero, None, 1.0, 0, torch.float32, "none", [], ""
        )
        result = result.mul_(scale).add_(self._bias)
        return (result.relu_() if self._relu else result).view(*inputs.shape[:-1], -1)


PACKED: dict[str, Callable[..., Map]] = {"fp32": PackedLinear, "bf16": PackedLowLinear, "int8": PackedByteLinear}


@cache
def can_multiply(precision: Precision) -> bool:
    """Does this CPU multiply in it, and rightly?

    bf16 needs AVX-512 or AVX-NE-CONVERT. int8 needs VNNI or AMX: without them two products of eight bits are added in
    sixteen, which overflows where the factors are large.
    """
    if precision != "fp32" and not torch.backends.mkldnn.is_available():
        return False
    if precision == "bf16":
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if precision == "int8":
        with torch.no_grad():
            product = PackedByteLinear(torch.ones(16, 64), torch.zeros(16), 16)(torch.ones(4, 64))
        return bool((product - 64).abs().max() < 1e-3)
    return True


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
