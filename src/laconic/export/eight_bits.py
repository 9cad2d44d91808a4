"""Weights of eight bits: products with a model's matrices, and look-ups in them, by operators of onnxruntime.

A row of a matrix (an output channel) is cut into blocks of `BLOCK` numbers; each has a scale, its largest magnitude
over 127. What is multiplied is made eight bits wide while the graph runs, row by row and block by block: nothing is
calibrated, and a summary does not depend on what else is in its batch. (`DynamicQuantizeMatMul` has one scale for all
rows together. It is the faster one where there are many, as in an encoder; a step of search has few.)

Recurrent layers of the encoder, norms, biases and small matrices stay as they are.
"""

from __future__ import annotations

import numpy as np

from laconic.runtime.onnx_file import Port

BLOCK = 64  # of 32, 64, 128 and 256 the fastest with four rows; its scales are a sixteenth of the numbers' size
SMALLEST = 4096  # numbers; a smaller matrix takes less time than the operator itself
MIDDLE = 128  # stands for zero
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
    return (np.rint(steps) + MIDDLE).astype(np.uint8), scales


def ports(name: str, shape: tuple[int, ...]) -> tuple[Port, Port]:
    """The two parts of a matrix (N, K) as initializers."""
    blocks = -(-shape[1] // BLOCK)
    return Port(name + NUMBERS, "uint8", (shape[0], blocks, BLOCK)), Port(name + SCALES, "float32", (shape[0], blocks))
