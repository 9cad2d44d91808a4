"""The ONNX file format, as far as exported models need it: written whole, and looked through before it is opened.

An ONNX file is one protocol buffer message (onnx.proto of the ONNX project, whose field numbers these are). The graphs
of a model hold no weights: an initializer says its name, type and shape, and that its numbers are elsewhere. What
stands there as a place is `ELSEWHERE`, a constant that is never opened: the numbers come from the model's
``model.safetensors`` and are handed over by name. `check` refuses files that name any other place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from catchline.errors import ModelError

OPSET, IR_VERSION = 18, 9
MICROSOFT = "com.microsoft"  # the operators that onnxruntime adds
DOMAINS = {"": OPSET, MICROSOFT: 1}
ELSEWHERE = "model.safetensors"
TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float64": 11}
_NUMPY = {number: name for name, number in TYPES.items()}
_FLOAT, _INT, _STRING, _TENSOR, _INTS = 1, 2, 3, 4, 7  # AttributeProto.AttributeType
_EXTERNAL = 1  # TensorProto.DataLocation


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a graph, or an initializer: dimensions are numbers, or names of what may change."""

    name: str
    type: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One operation."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""


@dataclass(slots=True)
class Graph:
    """A graph; ``weights`` are initializers whose numbers are elsewhere, ``constants`` those that are in the file."""

    name: str
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    weights: list[Port] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)


# --------------------------------------------------------------------------------------------- writing


def model_bytes(graph: Graph, producer: str, version: str) -> bytes:
    """The file's content; equal graphs give equal bytes."""
    parts = [_number(1, IR_VERSION), _text(2, producer), _text(3, version), _message(7, _graph(graph))]
    parts += [_message(8, _text(1, domain) + _number(2, number)) for domain, number in DOMAINS.items()]
    return b"".join(parts)


def _graph(graph: Graph) -> bytes:
    parts = [_message(1, _node(node)) for node in graph.nodes] + [_text(2, graph.name)]
    parts += [_message(5, _weight(port)) for port in graph.weights]
    parts += [_message(5, _tensor(name, value)) for name, value in graph.constants.items()]
    parts += [_message(11, _port(port)) for port in graph.inputs]
    parts += [_message(12, _port(port)) for port in graph.outputs]
    return b"".join(parts)


def _node(node: Node) -> bytes:
    parts = [_text(1, name) for name in node.inputs] + [_text(2, name) for name in node.outputs]
    parts.append(_text(4, node.operator))
    parts += [_message(5, _attribute(name, value)) for name, value in sorted(node.attributes.items())]
    return b"".join(parts) + (_text(7, node.domain) if node.domain else b"")


def _attribute(name: str, value: Any) -> bytes:
    head = _text(1, name)
    if isinstance(value, np.ndarray):
        return head + _message(5, _tensor("", value)) + _number(20, _TENSOR)
    if isinstance(value, str):
        return head + _text(4, value) + _number(20, _STRING)
    if isinstance(value, float):
        return head + _key(2, 5) + struct.pack("<f", value) + _number(20, _FLOAT)
    if isinstance(value, int):
        return head + _number(3, int(value)) + _number(20, _INT)
    return head + b"".join(_number(8, one) for one in value) + _number(20, _INTS)


def _weight(port: Port) -> bytes:
    place = _text(1, "location") + _text(2, ELSEWHERE)
    sizes = b"".join(_number(1, int(size)) for size in port.shape)
    return sizes + _number(2, TYPES[port.type]) + _text(8, port.name) + _message(13, place) + _number(14, _EXTERNAL)


def _tensor(name: str, value: np.ndarray) -> bytes:
    sizes = b"".join(_number(1, size) for size in value.shape)
    data = np.ascontiguousarray(value).tobytes()
    return sizes + _number(2, TYPES[value.dtype.name]) + (_text(8, name) if name else b"") + _message(9, data)


def _port(port: Port) -> bytes:
    sizes = [_text(2, size) if isinstance(size, str) else _number(1, size) for size in port.shape]
    shape = b"".join(_message(1, size) for size in sizes)
    return _text(1, port.name) + _message(2, _message(1, _number(1, TYPES[port.type]) + _message(2, shape)))


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(number: int, value: int) -> bytes:
    return _key(number, 0) + _varint(value)


def _message(number: int, value: bytes) -> bytes:
    """A field of bytes: a message, a text or raw numbers."""
    return _key(number, 2) + _varint(len(value)) + value


def _text(number: int, value: str) -> bytes:
    return _message(number, value.encode("utf-8"))


# --------------------------------------------------------------------------------------------- looking through


def check(content: bytes, where: object) -> list[Port]:
    """Look through a file before anything opens it; the weights that it wants.

    Raises:
        ModelError: damaged, of another version of the format, with operators of somebody else, or with numbers in
            another place than the model's own weights.
    """
    view = memoryview(content)
    try:
        fields = list(_fields(view))
        version = next((value for number, value in fields if number == 1), None)
        sets = [dict(_fields(value)) for number, value in fields if number == 8]
        opsets = {str(named.get(1, b""), "utf-8"): named.get(2) for named in sets}
        graphs = [value for number, value in fields if number == 7]
        if len(graphs) != 1:
            raise ValueError("no graph")
        known = all(opsets.get(domain, 0) == DOMAINS.get(domain) for domain in opsets) and "" in opsets
        if version != IR_VERSION or not known:
            raise ModelError(
                f"{where} is a graph of another version (ONNX {version}, operators {_shown(opsets)}); this catchline "
                f"opens ONNX {IR_VERSION}, operators {_shown(DOMAINS)}: export the model again."
            )
        if {number for number, _ in fields} - {1, 2, 3, 7, 8}:  # functions, which are graphs too, and training
            raise ModelError(f"{where} holds parts that no exported model has; export the model again.")
        return list(_weights_of(graphs[0], where))
    except (ValueError, LookupError, struct.error, TypeError, OverflowError, MemoryError) as error:
        raise ModelError(f"{where} is no graph, or truncated; export the model again.") from error


def _shown(opsets: Mapping[str, Any]) -> str:
    return ", ".join(f"{domain or 'ai.onnx'} {number}" for domain, number in sorted(opsets.items()))


def _weights_of(graph: memoryview, where: object) -> Iterator[Port]:
    for number, value in _fields(graph):
        if number == 5:
            yield from _external(value, where)
        elif number == 1:
            _check_node(value, where)
        elif number == 15:
            raise ModelError(f"{where} holds sparse numbers, which no exported model has; export the model again.")


def _check_node(node: memoryview, where: object) -> None:
    """No graphs inside of nodes, no numbers elsewhere inside of attributes."""
    for number, value in _fields(node):
        for inner, content in _fields(value) if number == 5 else ():
            if inner in (6, 11, 10, 22, 23) or (inner == 5 and list(_external(content, where))):
                raise ModelError(f"{where} holds parts that no exported model has; export the model again.")


def _external(tensor: memoryview, where: object) -> Iterator[Port]:
    sizes: list[int] = []
    kind, name, external, location = 0, "", False, []
    for number, value in _fields(tensor):
        if number == 1:
            sizes += [value] if isinstance(value, int) else _packed(value)
        elif number == 2:
            kind = value
        elif number == 8:
            name = str(value, "utf-8")
        elif number == 13:
            external = True
            location.append(tuple(str(text, "utf-8") for _, text in _fields(value)))
        elif number == 14:
            external = external or value == _EXTERNAL
    if external:
        if location != [("location", ELSEWHERE)]:
            raise ModelError(f"{where} wants numbers from outside of its folder; nothing is read from there.")
        yield Port(name, _NUMPY[kind], tuple(sizes))


def _packed(value: memoryview) -> list[int]:
    found, place = [], 0
    while place < len(value):
        one, place = _read_varint(value, place)
        found.append(one)
    return found


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Each field's number and value: a number, or the bytes of a text, message or packed list."""
    place = 0
    while place < len(message):
        key, place = _read_varint(message, place)
        kind = key & 7 if key < 2**32 else -1  # onnxruntime drops the upper bits and would see another field
        if kind == 0:
            value, place = _read_varint(message, place)
            yield key >> 3, value
            continue
        if kind == 2:
            size, place = _read_varint(message, place)
            if place + size > len(message):
                raise ValueError("truncated")
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("unknown kind of field")
        yield key >> 3, message[place : place + size]
        place += size


def _read_varint(message: Sequence[int] | memoryview, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = message[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError("no number")
