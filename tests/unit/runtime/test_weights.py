"""Weights without a tensor library: the numbers of every type, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from catchline.errors import ModelError
from catchline.runtime.eight_bits import quantized
from catchline.runtime.sessions import read_weights

NUMBERS = torch.tensor([[0.0, -1.5, 3.140625], [1e-3, 65280.0, -0.333]])


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_fractions_become_float32(kind: torch.dtype, tmp_path: Path) -> None:
    given = NUMBERS.clamp(-60_000, 60_000).to(kind)
    save_file({"a": given, "b": torch.zeros(0, dtype=kind), "c": torch.tensor(2.5, dtype=kind)}, tmp_path / "w")
    found = read_weights(tmp_path / "w", ["a", "b", "c"])
    assert {array.dtype.name for array in found.values()} == {"float32"}
    np.testing.assert_array_equal(found["a"], given.float().numpy())
    assert (found["b"].shape, found["c"].shape, float(found["c"])) == ((0,), (), 2.5)


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int64])
def test_whole_numbers_stay(kind: torch.dtype, tmp_path: Path) -> None:
    given = torch.tensor([[0, 1], [100, 127]], dtype=kind)
    save_file({"a": given}, tmp_path / "w")
    found = read_weights(tmp_path / "w", ["a"])["a"]
    assert found.dtype == given.numpy().dtype
    np.testing.assert_array_equal(found, given.numpy())


@pytest.mark.parametrize("whole", [True, False])
def test_only_where_a_matrix_is_restored_nothing_keeps_the_file_in_memory(whole: bool, tmp_path: Path) -> None:
    numbers, scales = quantized(np.ones((2, 64), dtype=np.float32))
    stored = {"m.int8": torch.from_numpy(numbers), "m.scales": torch.from_numpy(scales), "a": NUMBERS}
    save_file(stored, tmp_path / "w")
    found = read_weights(tmp_path / "w", ["m", "a"] if whole else ["m.int8", "m.scales", "a"])
    np.testing.assert_array_equal(found["a"], NUMBERS.numpy())
    assert [array.base is None for name, array in found.items() if name != "m"] == [whole] * (1 if whole else 3)


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": NUMBERS}, path)
    whole = path.read_bytes()
    with pytest.raises(ModelError, match="lacks the tensor 'b'"):
        read_weights(path, ["a", "b"])
    size = int.from_bytes(whole[:8], "little")
    deep = (200_000).to_bytes(8, "little") + b"[" * 200_000
    for content in (deep, whole[:1], whole[:40], whole[:-1], b"\xff" * 50, whole[:8] + b"[" * size + whole[8 + size :]):
        path.write_bytes(content)
        with pytest.raises(ModelError, match="damaged or truncated; copy it again"):
            read_weights(path, ["a"])
    header = json.loads(whole[8 : 8 + size])
    for change in ({"shape": [9, 9]}, {"data_offsets": [0, 10**9]}, {"data_offsets": [8, 0]}, {"shape": None}):
        text = json.dumps({"a": header["a"] | change}).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + size :])
        with pytest.raises(ModelError, match="damaged or truncated"):
            read_weights(path, ["a"])
