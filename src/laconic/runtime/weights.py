"""A model's weights as NumPy arrays, read from ``model.safetensors`` without a tensor library.

The file is a header in JSON, which says type, shape and place of each tensor, and then the numbers. Sixteen-bit floats
become float32: bfloat16 is the upper half of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from laconic.errors import ModelError

FILE = "model.safetensors"
_MOST_HEADER = 100_000_000
_PLAIN = {"F32": np.float32, "F64": np.float64, "F16": np.float16, "I8": np.int8, "U8": np.uint8, "I64": np.int64}


def read_weights(path: Path, wanted: Iterable[str]) -> dict[str, np.ndarray]:
    """The tensors ``wanted`` by name; those of float32 are views of the file, mapped into memory.

    Raises:
        ModelError: the file is missing, damaged or truncated, or lacks one.
    """
    if not path.is_file():
        raise ModelError(f"{path.parent} has no {path.name}; the folder is incomplete: copy it again.")
    try:
        header, content = _opened(path)
        return {name: _tensor(header[name], content) for name in wanted}
    except KeyError as error:
        raise ModelError(f"{path} lacks the tensor {error.args[0]!r} of its graphs; export the model again.") from None
    except (ValueError, TypeError, OSError, AttributeError) as error:
        raise ModelError(f"{path} is damaged or truncated; copy it again.") from error


def _opened(path: Path) -> tuple[dict[str, Any], np.ndarray]:
    whole = np.memmap(path, dtype=np.uint8, mode="r")
    size = int.from_bytes(whole[:8].tobytes(), "little")
    if len(whole) < 8 or size > min(len(whole) - 8, _MOST_HEADER):
        raise ValueError("no header")
    return json.loads(whole[8 : 8 + size].tobytes()), whole[8 + size :]


def _tensor(entry: dict[str, Any], content: np.ndarray) -> np.ndarray:
    start, end = entry["data_offsets"]
    if not 0 <= start <= end <= len(content):
        raise ValueError("a tensor that is not there")
    numbers, shape = content[start:end], tuple(entry["shape"])
    if entry["dtype"] == "BF16":
        halves = numbers.view(np.uint16)
        wide = np.empty(len(halves), dtype=np.uint32)
        np.left_shift(halves, 16, out=wide, dtype=np.uint32, casting="unsafe")
        return wide.view(np.float32).reshape(shape)
    found = numbers.view(_PLAIN[entry["dtype"]]).reshape(shape)
    return found.astype(np.float32) if entry["dtype"] in ("F16", "F64") else found
