"""Linear maps for decoding on a CPU, from weights packed in the order that its products want, in a chosen precision.

A decoding step multiplies few rows by large matrices: reading the weights is most of it. Packed weights are up to
twice as fast, in bf16 half as large (fast where the CPU multiplies it: AMX, AVX-512 BF16), in int8 a quarter
(fast where it has VNNI, AMX or AVX2).

`Packing` keeps what it packed for as long as it lives. Without one (`Packing.current`) weights are packed anew for each
search, which costs about as much as one or two steps and can never be out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from threading import Lock
from time import perf_counter
from warnings import catch_warnings

import torch
from torch import Tensor
from torch.nn import functional as F

from catchline.types import Precision

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

    _making = Lock()
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
            with self._making:  # of two threads that want it one makes it
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


Product = Callable[[Tensor], Tensor]  # whole numbers from -127 to 127 (R, I), float32 -> (R, O), times W's scales
Packer = Callable[[Tensor, Tensor], Product]  # W in whole numbers, signed bytes (O, I), and its scales (O,)


class PackedByteLinear:
    """The same in int8: W rounded to `byte_steps` values to each side of zero for each output, x to 127 for each row,
    which does not depend on others."""

    def __init__(self, weight: Tensor, bias: Tensor, columns: int, *, relu: bool = False) -> None:
        weight, self._bias = _widened(weight, bias, columns)
        scale = (weight.abs().amax(1) / byte_steps()).clamp_min_(_LEAST)
        steps = (weight / scale[:, None]).round_().to(torch.int8)
        few, many = _fastest_products()
        self._few = few(steps, scale)
        self._many = self._few if many is few else many(steps, scale)
        self._relu = relu

    def __call__(self, inputs: Tensor) -> Tensor:
        flat = inputs.reshape(-1, inputs.shape[-1])
        scale = flat.abs().amax(1, keepdim=True).div_(127).clamp_min_(_LEAST)
        result = (self._few if len(flat) < _MANY_ROWS else self._many)((flat / scale).round_())
        torch.addcmul(self._bias, result, scale, out=result)
        return (result.relu_() if self._relu else result).view(*inputs.shape[:-1], -1)


def _by_onednn(steps: Tensor, scale: Tensor) -> Product:
    weight, zero = torch.ops.onednn.qlinear_prepack(steps, None), torch.zeros_like(scale, dtype=torch.long)

    def product(x: Tensor) -> Tensor:
        # torch converts to signed bytes six times as fast as to unsigned ones; adding 128 turns the sign bit.
        x = x.to(torch.int8).view(torch.uint8).bitwise_xor_(128)
        return torch.ops.onednn.qlinear_pointwise(
            x, 1.0, 128, weight, scale, zero, None, 1.0, 0, torch.float32, "none", [], ""
        )

    return product


def _by_fbgemm(steps: Tensor, scale: Tensor) -> Product:
    with catch_warnings(category=UserWarning, action="ignore"):  # torch means to drop tensors of bytes one day
        zero = torch.zeros_like(scale, dtype=torch.long)
        weight = torch._make_per_channel_quantized_tensor(steps, scale.double(), zero, 0)
    weight = torch.ops.quantized.linear_prepack(weight, None)
    return lambda x: torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(x, 1.0, 128, weight)


_PRODUCTS: Sequence[Packer] = (_by_fbgemm, _by_onednn)  # where neither overflows both give the same numbers
_MANY_ROWS = 64


@cache
def byte_steps() -> int:
    """How many values a weight may have to each side of zero in int8 on this CPU, 0 where it has no such products.

    Without VNNI or AMX two products of eight bits are added in sixteen: 255 x 127 x 2 overflows, 255 x 63 x 2 does not.
    """
    return next((steps for steps in (127, 63) if _right_products(steps)), 0)


def _right_products(steps: int) -> list[Packer]:
    """Those whose products are right with so many steps."""
    weight, x = torch.full((16, 64), steps, dtype=torch.int8), torch.full((4, 64), 127.0)
    right: list[Packer] = []
    for made in _PRODUCTS:
        with suppress(AttributeError, RuntimeError), torch.no_grad():  # which say that this build of torch has none
            if bool((made(weight, torch.ones(16))(x) == 64.0 * 127 * steps).all()):
                right.append(made)
    return right


@cache
def _fastest_products() -> list[Packer]:
    """For few rows and for many the right ones that took least time here: which these are hangs on the CPU."""
    steps = torch.ones(2048, 512, dtype=torch.int8)
    made = {make: make(steps, torch.ones(2048)) for make in _right_products(byte_steps())}

    def seconds(product: Product, rows: int) -> float:
        x, times = torch.ones(rows, 512), []
        for _ in range(4):
            began = perf_counter()
            product(x)
            times.append(perf_counter() - began)
        return min(times)

    return [min(made, key=lambda make: seconds(made[make], rows)) for rows in (8, 2 * _MANY_ROWS)]


PACKED: dict[str, Callable[..., Map]] = {"fp32": PackedLinear, "bf16": PackedLowLinear, "int8": PackedByteLinear}


@cache
def can_multiply(precision: Precision) -> bool:
    """Does this CPU multiply in it, and rightly? bf16 needs AVX-512 or AVX-NE-CONVERT, int8 an x86 CPU with AVX2."""
    if precision != "fp32" and not torch.backends.mkldnn.is_available():
        return False
    if precision == "bf16":
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return precision == "fp32" or byte_steps() > 0


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
