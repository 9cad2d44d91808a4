"""Weights of eight bits: a quarter of a file's size, and products with them by operators of onnxruntime.

A row of a matrix (an output channel) is cut into blocks of `BLOCK` numbers; each has a scale, its largest magnitude
over 127. A folder whose matrices are stored so is computed with in 32 bits, here as with torch (`restored`), unless its
graphs were made for eight (``catchline export --int8``, `catchline.export.products`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from catchline.runtime.onnx_file import Port

BLOCK = 64  # numbers that share a scale; their scales are a sixteenth of the numbers' size
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


def restored(numbers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The matrix (N, K) of float32, K rounded up to whole blocks."""
    found = np.subtract(numbers, MIDDLE, dtype=np.float32)
    found *= scales[..., None]
    return found.reshape(len(numbers), -1)


def can_be_stored(shape: tuple[int, ...]) -> bool:
    """Is this a matrix of whole blocks, and large enough?"""
    return is_worth_it(shape) and shape[1] % BLOCK == 0


def names_of(stored: Iterable[str]) -> list[str]:
    """The names of the tensors of which a file has these."""
    return [name.removesuffix(NUMBERS) for name in stored if not name.endswith(SCALES)]


def ports(name: str, shape: tuple[int, ...]) -> tuple[Port, Port]:
    """The two parts of a matrix (N, K) as initializers."""
    blocks = -(-shape[1] // BLOCK)
    return Port(name + NUMBERS, "uint8", (shape[0], blocks, BLOCK)), Port(name + SCALES, "float32", (shape[0], blocks))
