"""Single operations of torch as graphs: what onnxruntime computes is what torch does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from catchline.errors import ModelError
from catchline.export.builder import Builder, WeightNames
from catchline.export.graphs import RUNS
from catchline.export.lowering import lower
from catchline.export.tracing import Recorder, laid_together
from catchline.runtime.onnx_file import model_bytes

Function = Callable[[Tensor, Tensor], Tensor]


def graph_of(function: Function) -> bytes:
    """The function of two masks (B, S) as a file."""
    records, places = [], []
    with torch.inference_mode():
        for sizes in RUNS:
            masks = [torch.zeros(sizes["B"], sizes["S"], dtype=torch.bool) for _ in range(2)]
            with Recorder() as recorder:
                given = [recorder.ref(mask) for mask in masks]
                places.append((*given, recorder.ref(function(*masks))))
            records.append(recorder.record)
    builder = Builder("masks", laid_together(records, RUNS), WeightNames({}, []))
    first, second, result = places[0]
    builder.take(first, "first")
    builder.take(second, "second")
    for operation in builder.trace.operations:
        lower(builder, operation)
    builder.give(result, "result")
    return model_bytes(builder.finish(), "catchline", "test")


@pytest.mark.parametrize("function", [torch.maximum, torch.minimum, torch.mul, torch.logical_and, torch.bitwise_or])
def test_two_masks(function: Function) -> None:
    assert_equal(function)


@pytest.mark.parametrize(
    "divide", [torch.floor_divide, *(partial(torch.div, rounding_mode=mode) for mode in ("floor", "trunc"))]
)
def test_whole_numbers_below_zero_are_divided(divide: Function) -> None:
    """Among them -5 by 2, -5 by -3, -2 by -3 and -2 by 2."""
    assert_equal(lambda first, second: divide(first * 3 - 5, second * 5 - 3))


def test_an_axis_of_a_single_number() -> None:
    with pytest.raises(ModelError, match=r"it uses the operation aten\.cumsum\.default along an axis of a tensor that"):
        graph_of(lambda first, second: first.sum().cumsum(0) * second)


def test_what_a_document_is_written_into_depends_on_it() -> None:
    """A tensor of zeros is the same for all documents until one is added to it."""

    def decides(first: Tensor, second: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.int64)
        total.add_(first.sum())
        return first if total == 0 else second

    with pytest.raises(ModelError, match="it looks at a value to decide what to do next"):
        graph_of(decides)


def test_a_place_among_all_numbers() -> None:
    with pytest.raises(ModelError, match=r"it uses the operation aten\.argmax\.default along all axes at once"):
        graph_of(lambda first, second: first.int().argmax() + second)


def assert_equal(function: Function) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    first, second = np.array([[True, True, False, False]]), np.array([[True, False, True, False]])
    session = onnxruntime.InferenceSession(graph_of(function), providers=["CPUExecutionProvider"])
    (found,) = session.run(["result"], {"first": first, "second": second})
    expected = function(torch.from_numpy(first), torch.from_numpy(second))
    np.testing.assert_array_equal(found, expected.numpy())
