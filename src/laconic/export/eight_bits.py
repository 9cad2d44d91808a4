"""Weights of eight bits: products with a model's matrices, and look-ups in them, by operators of onnxruntime.

A row of a matrix (an output channel) is cut into blocks of `BLOCK` numbers; each has a scale, its largest magnitude
over 127. What is multiplied is made eight bits wide while the graph runs, row by row and block by block: nothing is
calibrated, and a summary does not depend on what else is in its batch. (`DynamicQuantizeMatMul` has one scale for all
rows together. It is the faster one where there are many, as in an encoder; a step of search has few.)

Recurrent layers of the encoder, norms, biases and small matrices stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from laconic.export.tracing import Ref
from laconic.runtime.onnx_file import MICROSOFT, Port

if TYPE_CHECKING:
    from laconic.export.builder import Builder

BLOCK = 64  # of 32, 64, 128 and 256 the fastest with four rows; its scales are a sixteenth of the numbers' size
SMALLEST = 4096  # numbers; a smaller matrix takes less time than the operator itself
_MIDDLE = 128  # stands for zero
NUMBERS, SCALES = ".int8", ".scales"  # what the two parts of a matrix are stored under, after its own name


def is_worth_it(shape: tuple[int, ...]) -> bool:
    """Is this a matrix, and large enough?"""
    return len(shape) == 2 and shape[0] * shape[1] >= SMALLEST


def quantized(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N, K) -> numbers (N, blocks, BLOCK) around 128 as uint8, and their scales (N, blocks)."""
    rows, width = matrix.shape
    padded = np.pad(matrix, ((0, 0), (0, -width % BLOCK))).reshape(rows, -1, BLOCK)
    scales = np.abs(padded).max(axis=-1) / np.float32(127)
    steps = np.divide(padded, scales[..., None], out=np.zeros_like(padded), where=scales[..., None] > 0)
    return (np.rint(steps) + _MIDDLE).astype(np.uint8), scales


def ports(name: str, shape: tuple[int, ...]) -> tuple[Port, Port]:
    """The two parts of a matrix (N, K) as initializers."""
    blocks = -(-shape[1] // BLOCK)
    return Port(name + NUMBERS, "uint8", (shape[0], blocks, BLOCK)), Port(name + SCALES, "float32", (shape[0], blocks))


def product(b: Builder, rows: str, weight: Ref, bias: list[str]) -> str:
    """``rows W^T + bias``: (n, K) -> (n, N)."""
    count, width = (size.offset for size in b.shape_of(weight))
    sizes = {"N": count, "K": width, "bits": 8, "block_size": BLOCK, "accuracy_level": 4}
    parts = b.parts(weight)
    added = ["", "", *bias] if bias else []
    return b.node("MatMulNBits", rows, *parts, *added, domain=MICROSOFT, **sizes)


def look_up(b: Builder, table: Ref, ids: Ref) -> str:
    """The rows ``ids`` of a matrix: (...) -> (..., K)."""
    width = b.shape_of(table)[1].offset
    numbers, scales = (b.node("Gather", part, b.name(ids), axis=0) for part in b.parts(table))
    rank = len(b.shape_of(ids))
    steps = b.node("Sub", b.cast(numbers, "uint8", "float32"), b.scalar(_MIDDLE, "float32"))
    found = b.node("Mul", steps, b.node("Unsqueeze", scales, b.constant([rank + 1])))
    joined = b.node("Reshape", found, b.constant([0] * rank + [width + -width % BLOCK]))
    return joined if width % BLOCK == 0 else b.node("Slice", joined, *map(b.constant, ([0], [width], [rank])))
