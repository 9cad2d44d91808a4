"""Products of eight bits as graphs: what onnxruntime computes is what rounding says, on every CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch import nn
from torch.nn.functional import linear

from catchline.export import products
from catchline.export.builder import Builder, WeightNames
from catchline.export.graphs import RUNS
from catchline.export.lowering import lower
from catchline.export.tracing import Recorder, laid_together
from catchline.runtime.eight_bits import quantized, restored
from catchline.runtime.onnx_file import model_bytes
from catchline.runtime.sessions import Session, open_sessions

pytest.importorskip("onnxruntime")
OUTPUTS, WIDTH = 48, 144  # not whole blocks
FINE, COARSE = 127, 90


def product(folder: Path, layer: nn.Linear) -> Session:
    """The layer over rows, its weight in eight bits."""
    records, places = [], []
    with torch.inference_mode():
        for sizes in RUNS:
            rows = torch.zeros(sizes["B"] * sizes["K"], WIDTH)
            with Recorder() as recorder:
                given = recorder.ref(rows)
                places.append((given, recorder.ref(linear(rows, layer.weight, layer.bias))))
            records.append(recorder.record)
    tensors = dict(layer.named_parameters())
    builder = Builder("rows", laid_together(records, RUNS), WeightNames(tensors, list(tensors), int8=True))
    builder.take(places[0][0], "rows")
    for operation in builder.trace.operations:
        lower(builder, operation)
    builder.give(places[0][1], "result")
    stored = {name: part.numpy() for name, part in builder.weights.eight_bits().items()}
    save_file(stored | {"bias": layer.bias.detach().numpy()}, folder / "model.safetensors")
    (folder / "rows.onnx").write_bytes(model_bytes(builder.finish(), "catchline", "test"))
    return open_sessions(folder, ["rows.onnx"])[0]


def rounded(matrix: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    scales = np.maximum(np.abs(matrix).max(axis=1, keepdims=True) * np.float32(1 / steps), np.float32(1e-12))
    return np.rint(matrix / scales), scales


def expected(rows: np.ndarray, layer: nn.Linear, steps: int) -> np.ndarray:
    weight = restored(*quantized(layer.weight.detach().numpy()))[:, :WIDTH]
    (x, of_rows), (w, of_weight) = rounded(rows, steps), rounded(weight, steps)
    return (x.astype(np.float64) @ w.T) * of_weight.T * of_rows + layer.bias.detach().numpy()


@pytest.mark.parametrize("coarse", [False, True], ids=["as this CPU can", "where bytes overflow"])
def test_rows_and_weights_are_rounded(coarse: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To 127 steps, or to 90 where this CPU cannot; the largest numbers of both do not overflow; each row is
    what it is alone."""
    if coarse:
        monkeypatch.setattr(products, "_LARGEST", 0)
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
