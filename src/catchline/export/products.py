"""Lowerings of what costs: products with weights, attention, norms and recurrent layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from catchline.errors import ModelError
from catchline.export.builder import Builder, Input
from catchline.export.lowering import Names, argument, lowers
from catchline.export.tracing import Operation, Ref, Size
from catchline.runtime.eight_bits import BLOCK, MIDDLE
from catchline.runtime.onnx_file import MICROSOFT

_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "paper_gru": (1, 0, 2)}  # ONNX's order of torch's blocks
_LEAST_SCALE = 1e-12  # of a row of zeros
_LARGEST = 64 * 255 * 127  # what `_range` multiplies comes to
_PIECES = 4  # of a document
MASKED = -1e30  # the score of what may not be looked at


@lowers("linear")
def _linear(b: Builder, op: Operation) -> Names:
    given, weight = op.args[:2]
    bias = argument(op, 2, "bias")
    before, after = b.shape_of(given), b.shape_of(op.results[0])
    if len(before) == 2:
        return _product(b, given, weight, bias)
    flat = b.node("Reshape", given, [-1, before[-1].offset])
    return b.node("Reshape", _product(b, flat, weight, bias), b.shape(after))


def _product(b: Builder, rows: Input, weight: Ref, bias: Ref | None) -> str:
    """``rows W^T + bias``: (n, I), (O, I), (O,) -> (n, O)."""
    given = b.name(rows)
    added = [] if bias is None or b.is_zero(bias) else [b.name(bias)]
    if not (b.weights.int8 and b.eight_bits(weight)):
        return b.node("Gemm", given, weight, *added, transB=1)
    (of_rows, row_scales), (of_weight, weight_scales) = b.once(_rows_in_steps, given), b.once(_weight_in_steps, weight)
    sizes = (b.scalar(1, "float32"), weight_scales, b.once(_range)[1])
    found = b.node("MatMulIntegerToFloat", of_rows, of_weight, *sizes, domain=MICROSOFT)
    found = b.node("Mul", found, row_scales)
    return b.node("Add", found, *added) if added else found


def _weight_in_steps(b: Builder, weight: Ref) -> tuple[str, str]:
    """W (O, I) as signed bytes (I, O), and a scale for each output (O,), of the blocks that are stored: a block's
    largest magnitude is 127 of its scales. onnxruntime does this once."""
    (count, width), (numbers, scales) = (size.offset for size in b.shape_of(weight)), b.eight_bits(weight)
    largest = b.node("Mul", b.node("ReduceMax", scales, [1], keepdims=1), b.scalar(127, "float32"))
    own = b.node("Max", b.node("Mul", largest, b.once(_range)[0]), b.scalar(_LEAST_SCALE, "float32"))
    blocks = b.node("Reshape", b.node("Div", scales, own), [-1])
    middle = b.filled(MIDDLE, "uint8", [Size(offset=count * -(-width // BLOCK))])
    steps = b.node("DequantizeLinear", b.node("Reshape", numbers, [-1, BLOCK]), blocks, middle, axis=0)
    rounded = b.node("QuantizeLinear", steps, b.scalar(1, "float32"), b.scalar(0, "int8"))
    rows = b.node("Reshape", rounded, [count, -1])
    rows = b.node("Slice", rows, [0], [width], [1]) if width % BLOCK else rows
    return b.node("Transpose", rows, perm=[1, 0]), b.node("Squeeze", own, [1])


def _rows_in_steps(b: Builder, rows: str) -> tuple[str, str]:
    """Rows (n, I) as bytes around the middle, and their scales (n, 1)."""
    share, middle = b.once(_range)
    scales = b.node("Mul", b.node("ReduceMax", b.node("Abs", rows), [-1], keepdims=1), share)
    scales = b.node("Max", scales, b.scalar(_LEAST_SCALE, "float32"))
    each = b.node("Squeeze", scales, [1])
    return b.node("QuantizeLinear", rows, each, b.node("Expand", middle, b.node("Shape", each)), axis=0), scales


def _range(b: Builder) -> tuple[str, str]:
    """What a row's largest magnitude is multiplied by to be its scale, and the byte that stands for zero.

    A number has 127 steps to each side of zero where the CPU's products of bytes are right. x86 without VNNI adds two
    of them in sixteen bits, which overflow at 255 x 127 x 2 and not at 180 x 90 x 2. onnxruntime finds it out once."""
    largest = np.full((4, 64), 255, np.uint8), np.full((64, 16), 127, np.int8)
    product = b.node("ReduceMin", b.node("MatMulInteger", *map(b.constant, largest)), keepdims=0)
    right = b.node("Equal", product, b.scalar(_LARGEST, "int32"))
    share = b.node("Where", right, b.scalar(1 / 127, "float32"), b.scalar(1 / 90, "float32"))
    return share, b.node("Where", right, b.scalar(128, "uint8"), b.scalar(90, "uint8"))


@lowers("addmm")
def _addmm(b: Builder, op: Operation) -> Names:
    bias, first, second = map(b.name, op.args[:3])
    return b.node("Gemm", first, second, bias)


@lowers("mm", "bmm", "matmul")
def _matmul(b: Builder, op: Operation) -> Names:
    first, second = op.args
    if len(b.shape_of(second)) == 1:  # onnxruntime multiplies many rows by a vector 30 times slower than a row by them
        row = b.node("Unsqueeze", second, [0])
        rows = b.node("Reshape", first, [-1, b.shape_of(first)[-1].offset])
        found = b.node("Gemm", row, rows, transB=1)
        return b.node("Reshape", found, b.shape(b.shape_of(op.results[0])))
    return b.node("MatMul", first, second)


@lowers("baddbmm")
def _baddbmm(b: Builder, op: Operation) -> Names:
    if argument(op, 3, "beta", 1) != 1 or argument(op, 4, "alpha", 1) != 1:
        raise ModelError("it adds products with weights of their own")
    return b.node("Add", b.name(op.args[0]), b.node("MatMul", *op.args[1:3]))


@lowers("scaled_dot_product_attention")
def _attention(b: Builder, op: Operation) -> Names:
    queries, keys, values = map(b.name, op.args[:3])
    mask, scale = argument(op, 3, "attn_mask"), argument(op, 6, "scale")
    if argument(op, 5, "is_causal", False):
        raise ModelError("it decodes several words at once")
    if scale is None:
        scale = b.shape_of(op.args[0])[-1].offset ** -0.5
    scaled = b.node("Mul", queries, b.scalar(scale, "float32"))
    rank = len(b.shape_of(op.args[1]))
    turned = b.node("Transpose", keys, perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = b.node("MatMul", scaled, turned)
    if mask is not None and b.type_of(mask) == "bool":  # its own Where is small; one over all scores is slow
        mask = b.node("Where", b.name(mask), b.scalar(0, "float32"), b.scalar(MASKED, "float32"))
    if mask is not None:
        scores = b.node("Add", scores, mask)
    return b.node("MatMul", b.node("Softmax", scores, axis=-1), values)


@lowers("catchline.energies.default")
def _energies(b: Builder, op: Operation) -> Names:
    """``v . tanh(k + q + c w)`` with ``q + c w = [1 c] [q; w]`` as a product, in pieces of the document that stay
    in the cache: (B, S, A), (B, Q, A), (A,), (B, Q, S), (A,) -> (B, Q, S)."""
    keys, queries, vector = op.args[:3]
    coverage, by = argument(op, 3, "coverage"), argument(op, 4, "w")
    shape = b.shape_of(op.results[0])
    every, added, factors = b.node("Unsqueeze", keys, [1]), b.node("Unsqueeze", queries, [2]), ""
    if coverage is not None and by is not None:
        ones = b.filled(1, "float32", (*shape, Size(offset=1)))
        factors = b.node("Concat", ones, b.node("Unsqueeze", coverage, [3]), axis=3)
        added = b.node("Concat", added, b.node("Expand", by, b.node("Shape", added)), axis=2)
    row, step = b.node("Unsqueeze", vector, [0]), b.size(shape[2])
    step = b.node("Div", b.node("Add", step, [_PIECES - 1]), [_PIECES])
    found = []
    for piece in range(_PIECES):
        bounds = (b.node("Mul", step, [piece]), b.node("Mul", step, [piece + 1]), [2])
        terms = b.node("MatMul", b.node("Slice", factors, *bounds), added) if factors else added
        squashed = b.node("Tanh", b.node("Add", terms, b.node("Slice", every, *bounds)))
        flat = b.node("Reshape", squashed, [-1, b.shape_of(keys)[2].offset])
        energies = b.node("Gemm", row, flat, transB=1)  # a row by many rows, see `_matmul`
        found.append(b.node("Reshape", energies, b.node("Shape", squashed, end=3), allowzero=1))
    return b.node("Concat", *found, axis=2)


@lowers("layer_norm")
def _layer_norm(b: Builder, op: Operation) -> Names:
    shape, weight, bias = op.args[1], argument(op, 2, "weight"), argument(op, 3, "bias")
    if weight is None:
        weight = b.filled(1, "float32", [Size(offset=size) for size in shape])
    inputs = [op.args[0], weight, *([] if bias is None else [bias])]
    return b.node("LayerNormalization", *inputs, axis=-len(shape), epsilon=float(argument(op, 4, "eps", 1e-5)))


# ------------------------------------------------------------------------------------ recurrent layers


@lowers("lstm_cell")
def _lstm_cell(b: Builder, op: Operation) -> Names:
    inputs, (state, cell), *weights = op.args
    total = b.node("Add", *_products(b, inputs, state, weights))
    i, f, g, o = b.nodes("Split", (total,), 4, axis=1, num_outputs=4)
    kept = b.node("Mul", b.node("Sigmoid", f), b.name(cell))
    after = b.node("Add", kept, b.node("Mul", b.node("Sigmoid", i), b.node("Tanh", g)))
    return b.node("Mul", b.node("Sigmoid", o), b.node("Tanh", after)), after


def _products(b: Builder, inputs: Ref, state: Ref, weights: list[Any]) -> Iterator[str]:
    """The gates' part of the inputs, and that of the state."""
    for given, weight, bias in zip((inputs, state), weights[:2], [*weights[2:], None, None], strict=False):
        yield _product(b, given, weight, bias)


@lowers("gru_cell")
def _gru_cell(b: Builder, op: Operation) -> Names:
    inputs, state, *weights = op.args
    parts = _products(b, inputs, state, weights)
    of_input, of_state = (b.nodes("Split", (part,), 3, axis=1, num_outputs=3) for part in parts)
    r, z = (b.node("Sigmoid", b.node("Add", *pair)) for pair in zip(of_input[:2], of_state[:2], strict=True))
    n = b.node("Tanh", b.node("Add", of_input[2], b.node("Mul", r, of_state[2])))
    return b.node("Add", n, b.node("Mul", z, b.node("Sub", b.name(state), n)))


@lowers("catchline.recurrence.default")
def _recurrence(b: Builder, op: Operation) -> Names:
    inputs, mask, weights, cell = op.args
    directions = len(weights) // 4
    width = b.shape_of(weights[1])[1].offset
    from_input, from_state, *biases = (_stacked(b, weights[place::4], cell, width) for place in range(4))
    lengths = b.node("ReduceSum", b.operand(mask, "int32"), [1], keepdims=0)
    in_time = b.node("Transpose", inputs, perm=[1, 0, 2])
    given = (in_time, from_input, from_state, b.node("Concat", *biases, axis=1), lengths)
    options: dict[str, Any] = {"hidden_size": width, "direction": "bidirectional" if directions == 2 else "forward"}
    if cell == "lstm":
        states, hidden, memory = b.nodes("LSTM", given, 3, **options)
    else:
        states, hidden = b.nodes("GRU", given, 2, linear_before_reset=int(cell == "gru"), **options)
        memory = hidden
    joined = b.node("Transpose", states, perm=[2, 0, 1, 3])  # (S, dirs, B, H) -> (B, S, dirs, H)
    return b.node("Reshape", joined, [0, 0, directions * width]), hidden, memory


def _stacked(b: Builder, parts: list[Ref], cell: str, width: int) -> str:
    """Each direction's blocks in ONNX's order, (dirs, blocks * H, ...)."""
    rows = np.concatenate([np.arange(block * width, (block + 1) * width) for block in _GATES[cell]])
    turned = [b.node("Gather", b.name(part), b.constant(rows), axis=0) for part in parts]
    each = [b.node("Unsqueeze", one, [0]) for one in turned]
    return each[0] if len(each) == 1 else b.node("Concat", *each, axis=0)
