"""Products in eight bits: what onnxruntime computes is what rounding says, on every CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from catchline.export.folder import Weights, share
from catchline.models.stored import NUMBERS, SCALES, quantized
from catchline.runtime.model import Session, open_sessions

OUTPUTS, WIDTH = 48, 150
FINE, COARSE = 127, 90


def product(folder: Path, layer: nn.Linear) -> Session:
    """The layer over rows, its weight stored in eight bits."""
    numbers, scales = quantized(layer.weight.detach())
    save_file({"weight" + NUMBERS: numbers, "weight" + SCALES: scales}, folder / "model.safetensors")
    rows, result = (ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT)) for name in ("rows", "result"))
    rows.shape = ir.Shape(["N", WIDTH])
    parts = [
        ir.Value(name=name, shape=ir.Shape(part.shape), const_value=ir.tensor_adapters.TorchTensor(part.detach()))
        for name, part in layer.named_parameters()
    ]
    node = ir.Node("", "Gemm", [rows, *parts], [ir.AttrInt64("transB", 1)], outputs=[result])
    graph = ir.Graph([rows], [result], nodes=[node], initializers=parts, opset_imports={"": 20}, name="rows")
    model = ir.Model(graph, ir_version=10)
    share(model, Weights({"weight": layer.weight}, folder / "model.safetensors"))
    ir.save(model, folder / "rows.onnx")
    return open_sessions(folder, ["rows.onnx"])[0]


def expected(rows: np.ndarray, layer: nn.Linear, steps: int) -> np.ndarray:
    numbers, scales = (part.numpy().astype(np.float64) for part in quantized(layer.weight.detach()))
    of_rows = np.maximum(np.abs(rows).max(axis=1, keepdims=True) * np.float32(1 / steps), np.float32(1e-12))
    bias = layer.bias.detach().numpy()
    return np.asarray(np.rint(rows / of_rows).astype(np.float64) @ numbers.T * scales * of_rows + bias)


@pytest.mark.parametrize("coarse", [False, True], ids=["as this CPU can", "where bytes overflow"])
def test_rows_and_weights_are_rounded(coarse: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To 127 steps, or to 90 where this CPU cannot; each row is what it is alone."""
    if coarse:
        monkeypatch.setattr("catchline.export.folder._LARGEST", 0)
    torch.manual_seed(5)
    layer = nn.Linear(WIDTH, OUTPUTS)
    with torch.no_grad():
        layer.weight[0], layer.weight[1] = 0.5, 0.0
    session = product(tmp_path, layer)
    rows = np.random.default_rng(1).standard_normal((6, WIDTH)).astype(np.float32)
    rows[1], rows[2], rows[3] = 3.0, 0.0, -3.0
    found = session.run({"rows": rows})["result"]
    coarser, finer = (expected(rows, layer, steps) for steps in (COARSE, FINE))
    assert np.abs(coarser - finer).max() > 0.005, "they can be told apart"
    fits = [np.allclose(found, wanted, atol=1e-5) for wanted in (coarser, finer)]
    assert fits in ([[True, False]] if coarse else [[True, False], [False, True]])
    alone = np.concatenate([session.run({"rows": row[None]})["result"] for row in rows])
    np.testing.assert_array_equal(found, alone)
