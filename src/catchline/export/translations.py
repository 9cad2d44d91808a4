"""ONNX translations of the operations whose usual ones are slow in onnxruntime, or missing.

`TRANSLATIONS` goes to ``torch.onnx.export``. Each function takes the operation's arguments as values of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import opset20 as op

from catchline.kernels.graph import ENERGIES, RECURRENCE

OPSET = 20
_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "paper_gru": (1, 0, 2)}  # ONNX's order of torch's blocks
_PIECES = 4  # of a document
MASKED = -1e30  # the score of a position that attention must not read


def linear(rows: Any, weight: Any, bias: Any = None) -> Any:
    """``x W^T + b`` as a product of two matrices: (..., I), (O, I), (O,) -> (..., O)."""
    width, inputs = weight.shape
    if len(rows.shape) == 2:
        return op.Gemm(rows, weight, bias, transB=1)
    product = op.Gemm(op.Reshape(rows, [-1, inputs]), weight, bias, transB=1)
    return op.Reshape(product, op.Concat(op.Shape(rows, end=-1), op.Constant(value_ints=[width]), axis=0))


def scaled_dot_product_attention(
    queries: Any,
    keys: Any,
    values: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention with the queries scaled, not the scores: (B, H, Q, d), (B, H, S, d), (B, H, S, d) -> (B, H, Q, d)."""
    scaled = op.Mul(queries, queries.shape[-1] ** -0.5 if scale is None else scale)
    scores = op.MatMul(scaled, op.Transpose(keys, perm=[0, 1, 3, 2]))
    if attn_mask is not None and attn_mask.dtype == ir.DataType.BOOL:  # a Where over the mask, smaller than the scores
        attn_mask = op.Where(attn_mask, 0.0, MASKED)
    if attn_mask is not None:
        scores = op.Add(scores, attn_mask)
    return op.MatMul(op.Softmax(scores, axis=-1), values)


def energies(keys: Any, queries: Any, v: Any, coverage: Any = None, w: Any = None) -> Any:
    """``v . tanh(k + q + c w)`` with ``q + c w = [1 c] [q; w]`` as a product, in pieces of the document that fit the
    cache: (B, S, A), (B, Q, A), (A,), (B, Q, S), (A,) -> (B, Q, S)."""
    keys, added = op.Unsqueeze(keys, [1]), op.Unsqueeze(queries, [2])
    if coverage is not None:
        covered = op.Unsqueeze(coverage, [3])
        factors = op.Concat(op.Expand(1.0, op.Shape(covered)), covered, axis=3)
        added = op.Concat(added, op.Expand(w, op.Shape(added)), axis=2)
    row = op.Unsqueeze(v, [0])
    length = op.Div(op.Add(op.Shape(keys, start=2, end=3), [_PIECES - 1]), [_PIECES])
    found = []
    for piece in range(_PIECES):
        bounds = (op.Mul(length, [piece]), op.Mul(length, [piece + 1]), [2])
        terms = added if coverage is None else op.MatMul(op.Slice(factors, *bounds), added)
        squashed = op.Tanh(op.Add(terms, op.Slice(keys, *bounds)))
        # one row by many: onnxruntime multiplies many rows by one column 30 times slower
        product = op.Gemm(row, op.Reshape(squashed, [-1, v.shape[0]]), transB=1)
        found.append(op.Reshape(product, op.Shape(squashed, end=3), allowzero=1))
    return op.Concat(*found, axis=2)


def recurrence(inputs: Any, mask: Any, weights: Sequence[Any], cell: str) -> tuple[Any, Any, Any]:
    """A recurrent layer over real tokens: (B, S, I), (B, S) -> (B, S, dirs H), (dirs, B, H), (dirs, B, H)."""
    directions, width = len(weights) // 4, weights[1].shape[1]
    from_input, from_state, *biases = (_stacked(weights[place::4], cell, width) for place in range(4))
    lengths = op.ReduceSum(op.Cast(mask, to=ir.DataType.INT32), [1], keepdims=0)
    given = (op.Transpose(inputs, perm=[1, 0, 2]), from_input, from_state, op.Concat(*biases, axis=1), lengths)
    options: dict[str, Any] = {"hidden_size": width, "direction": "bidirectional" if directions == 2 else "forward"}
    if cell == "lstm":
        states, hidden, memory = op.LSTM(*given, **options)
    else:
        states, hidden = op.GRU(*given, linear_before_reset=int(cell == "gru"), **options)
        memory = op.Identity(hidden)
    joined = op.Transpose(states, perm=[2, 0, 1, 3])  # (S, dirs, B, H) -> (B, S, dirs, H)
    return op.Reshape(joined, [0, 0, directions * width]), hidden, memory


def _stacked(parts: Sequence[Any], cell: str, width: int) -> Any:
    """Each direction's blocks in ONNX's order, (dirs, blocks * H, ...)."""
    rows = np.concatenate([np.arange(block * width, (block + 1) * width) for block in _GATES[cell]])
    order = op.Constant(value=ir.tensor(rows))
    each = [op.Unsqueeze(op.Gather(part, order, axis=0), [0]) for part in parts]
    return each[0] if len(each) == 1 else op.Concat(*each, axis=0)


def log_sigmoid(values: Any) -> Any:
    """``-log(1 + exp(-x))``, finite everywhere."""
    return op.Neg(op.Softplus(op.Neg(values)))


def sort(values: Any, stable: bool = True, dim: int = -1, descending: bool = False) -> tuple[Any, Any]:
    """A stable sort: of equal values the first one comes first."""
    count = op.Shape(values, start=dim, end=dim + 1 or None)
    return op.TopK(values, count, axis=dim, largest=int(descending), sorted=1)


def isin(values: Any, chosen: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Which of the numbers are among ``chosen`` (n,)."""
    equal = op.Cast(op.Equal(op.Unsqueeze(values, [-1]), chosen), to=ir.DataType.INT32)
    return op.Cast(op.ReduceMax(equal, [-1], keepdims=0), to=ir.DataType.BOOL)


TRANSLATIONS = {
    torch.ops.aten.isin.Tensor_Tensor: isin,
    torch.ops.aten.sort.stable: sort,
    torch.ops.aten.log_sigmoid.default: log_sigmoid,
    torch.ops.aten.linear.default: linear,
    torch.ops.aten.scaled_dot_product_attention.default: scaled_dot_product_attention,
    ENERGIES: energies,
    RECURRENCE: recurrence,
}
