"""The file format: onnxruntime runs what is written, and what is looked through is what was written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from catchline.errors import ModelError
from catchline.runtime import onnx_file
from catchline.runtime.onnx_file import MICROSOFT, Graph, Node, Port, check, model_bytes
from catchline.runtime.sessions import Session, open_sessions


def graph_of(nodes: list[Node], **given: object) -> Graph:
    """``x`` (M, 3) -> ``y``."""
    graph = Graph("g", [Port("x", "float32", ("M", 3))], [Port("y", "float32", ("M", "N"))], nodes)
    for name, value in given.items():
        setattr(graph, name, value)
    return graph


def session_of(graph: Graph) -> Any:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model_bytes(graph, "catchline", "0"), options)


def run(graph: Graph, x: np.ndarray) -> np.ndarray:
    (found,) = session_of(graph).run(["y"], {"x": x})
    return np.asarray(found)


X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.array([[1, -1, 2], [0.5, 0, -3]], np.float32)


def test_every_kind_of_attribute() -> None:
    """Whole numbers, fractions, lists of them, texts and tensors."""
    made = graph_of(
        [
            Node("Gemm", ("x", "w"), ("a",), {"transB": 1, "alpha": 0.5}),
            Node("Transpose", ("a",), ("b",), {"perm": [1, 0]}),
            Node("Transpose", ("b",), ("c",), {"perm": [1, 0]}),
            Node("Pad", ("c", "room", "filling"), ("d",), {"mode": "constant"}),
            Node("ConstantOfShape", ("one",), ("e",), {"value": np.array([7], np.float32)}),
            Node("Add", ("d", "e"), ("y",)),
        ],
        constants={
            "w": W,
            "room": np.array([0, 0, 0, 1]),
            "filling": np.float32(9) * np.ones((), np.float32),
            "one": np.array([1]),
        },
    )
    expected = np.concatenate([0.5 * X @ W.T, np.full((2, 1), 9)], axis=1) + 7
    np.testing.assert_allclose(run(made, X), expected)
    assert model_bytes(made, "catchline", "0") == model_bytes(made, "catchline", "0")


def test_operators_of_onnxruntime() -> None:
    made = graph_of([Node("Gelu", ("x",), ("y",), {}, MICROSOFT)])
    assert run(made, X)[1, 2] == pytest.approx(5.0, abs=1e-4)


def test_a_graph_that_fails_is_one_sentence() -> None:
    graph = graph_of([Node("Gemm", ("x", "w"), ("y",), {"transB": 1})], constants={"w": W})
    session = Session(session_of(graph), {}, Path("m/step.onnx"))
    np.testing.assert_allclose(session.run({"x": X, "more": X})["y"], X @ W.T)
    with pytest.raises(ModelError, match=r"m/step\.onnx failed \(.*\); export the model again") as raised:
        session.run({"x": X[:, :2]})
    assert len(str(raised.value).splitlines()) == 1


def test_weights_are_named_not_held() -> None:
    weights = [Port("w", "float32", (2, 3)), Port("q", "uint8", (300, 2, 64))]
    made = graph_of([Node("Gemm", ("x", "w"), ("y",), {"transB": 1})], weights=weights)
    content = model_bytes(made, "catchline", "0")
    assert check(content, "step.onnx") == weights
    assert len(content) < 400


GRAPH = graph_of([Node("Gemm", ("x", "w"), ("y",), {"transB": 1})], weights=[Port("w", "float32", (2, 3))])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"OPSET": 17, "DOMAINS": {"": 17, MICROSOFT: 1}}, "another version .*ai.onnx 17.*: export the model again"),
        ({"IR_VERSION": 12}, "another version .ONNX 12"),
        ({"DOMAINS": {"": onnx_file.OPSET, "evil": 1}}, "another version .*evil 1"),
        ({"ELSEWHERE": "/etc/passwd"}, "from outside of its folder"),
        ({"ELSEWHERE": "../model.safetensors"}, "from outside of its folder"),
    ],
)
def test_what_comes_from_elsewhere(change: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in change.items():
        monkeypatch.setattr(onnx_file, name, value)
    content = model_bytes(GRAPH, "somebody", "9")
    monkeypatch.undo()
    with pytest.raises(ModelError, match=words) as raised:
        check(content, "step.onnx")
    assert len(str(raised.value).splitlines()) == 1


def test_every_truncated_file_is_refused() -> None:
    content = model_bytes(GRAPH, "catchline", "0")
    entries = content.rindex(MICROSOFT.encode()) - 4  # here ends the first of two entries of versions: a whole file
    for size in {*range(len(content))} - {entries}:
        with pytest.raises(ModelError, match=r"step\.onnx is "):
            check(content[:size], "step.onnx")
    assert check(content[:entries], "step.onnx")


@pytest.mark.parametrize("field", [6, 11])  # a graph inside of a node, several
def test_graphs_inside_of_nodes(field: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = onnx_file._text(1, "body") + onnx_file._message(field, b"") + onnx_file._number(20, 5)
    monkeypatch.setattr(onnx_file, "_attribute", lambda name, value: inner)
    content = model_bytes(replace(GRAPH, nodes=[Node("Loop", ("x",), ("y",), {"body": 1})]), "l", "0")
    with pytest.raises(ModelError, match="parts that no exported model has"):
        check(content, "step.onnx")


def test_fields_that_others_read_as_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library drops the upper bits of a key: what is unknown here would be a file's name there."""
    place = onnx_file._text(1, "location") + onnx_file._text(2, "private.txt")
    hidden = onnx_file._varint(13 << 3 | 2 | 2**32) + onnx_file._varint(len(place)) + place
    port = onnx_file._number(1, 3) + onnx_file._number(2, 1) + onnx_file._text(8, "w") + hidden
    monkeypatch.setattr(onnx_file, "_weight", lambda _: port)
    with pytest.raises(ModelError, match=r"step\.onnx is no graph"):
        check(model_bytes(GRAPH, "l", "0"), "step.onnx")


@pytest.mark.parametrize("field", [14, 20, 25, 26])  # metadata, training, functions, and what later versions add
def test_parts_beside_the_graph(field: int) -> None:
    with pytest.raises(ModelError, match="parts that no exported model has"):
        check(model_bytes(GRAPH, "l", "0") + onnx_file._message(field, b""), "step.onnx")


def test_numbers_in_the_place_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type that there is not, and a number, not a text, as the name of a set of operators."""
    opset = onnx_file._message(8, onnx_file._number(1, 2**62) + onnx_file._number(2, 18))
    with pytest.raises(ModelError, match=r"step\.onnx is no graph"):
        check(model_bytes(GRAPH, "l", "0") + opset, "step.onnx")
    monkeypatch.setattr(onnx_file, "TYPES", {"float32": 99})
    with pytest.raises(ModelError, match=r"step\.onnx is no graph"):
        check(model_bytes(GRAPH, "l", "0"), "step.onnx")


def test_what_is_opened_is_what_was_looked_through(tmp_path: Path) -> None:
    """Four letters at the fifth byte are the mark of onnxruntime's own format; here they are the producer's name."""
    pytest.importorskip("onnxruntime")
    content = model_bytes(graph_of([Node("Neg", ("x",), ("y",))]), "l", "0")
    (tmp_path / "step.onnx").write_bytes(b"\x12\x84\x80\x00ORTM" + content)
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    np.testing.assert_array_equal(open_sessions(tmp_path, ["step.onnx"])[0].run({"x": X})["y"], -X)
