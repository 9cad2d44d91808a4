"""From a trace to a graph: what every lowering needs of it.

A `Builder` holds the graph that is being written. Tensors of the trace have names in it; numbers that are sizes become
small integer tensors, computed once from the shapes of the inputs. What an operation of torch becomes is said in
`catchline.export.lowering`. Where a node is added its inputs are names, tensors of the trace, or lists of whole
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from catchline.errors import ModelError
from catchline.export.tracing import Operation, OperationTrace, Ref, Size
from catchline.runtime.eight_bits import BLOCK, MIDDLE, NUMBERS, is_worth_it, names_of, ports, quantized
from catchline.runtime.onnx_file import TYPES, Graph, Node, Port

ROWS = ("B", "K")  # a decoder's rows: so many documents times so many beams
SMALL = 4096  # numbers; a larger constant that is one value is made from it when the graph runs
_VIEWS = ("aten.view.", "aten._unsafe_view.", "aten.reshape.", "aten.flatten.")
Input = str | Ref | list[int]  # of a node


class Builder:
    """One graph. ``weights`` says which tensors are the model's and under which names they are stored."""

    def __init__(self, name: str, trace: OperationTrace, weights: WeightNames) -> None:
        self.graph, self.trace, self.weights = Graph(name), trace, weights
        self._names: dict[int, str] = {}
        self._sources: dict[Size, tuple[str, int]] = {}  # an input and the axis that has this size
        self._made: dict[Any, str] = {}  # constants and sizes that are there already
        self._pairs: dict[Any, tuple[str, str]] = {}
        self._count = 0

    # ----------------------------------------------------------------------------- inputs and outputs

    def take(self, ref: Ref, name: str) -> None:
        """Tensor ``ref`` is the input ``name``."""
        self._names[ref.number] = name
        shape = self.shape_of(ref)
        self.graph.inputs.append(Port(name, self.type_of(ref), tuple(map(size_name, shape))))
        for axis, size in enumerate(shape):
            if size == Size(size.names) and not size.fixed:
                self._sources.setdefault(size, (name, axis))

    def give(self, ref: Ref, name: str) -> None:
        """Tensor ``ref`` is the output ``name``; one of rows as it was before its (B, K) became one axis, where that is
        the last thing done: onnxruntime would copy it."""
        ref = self._before_flattening.get(ref, ref)
        self.graph.outputs.append(Port(name, self.type_of(ref), tuple(map(size_name, self.shape_of(ref)))))
        self.graph.nodes.append(Node("Identity", (self.name(ref),), (name,)))

    @cached_property
    def _before_flattening(self) -> dict[Ref, Ref]:
        """Of tensors (B K, ...) those (B, K, ...) that they are views of."""
        found = {}
        for operation in self.trace.operations:
            if operation.name.startswith(_VIEWS):
                before, after = operation.args[0], operation.results[0]
                both = self.shape_of(before), self.shape_of(after)
                if both[0] == (Size(("B",)), Size(("K",)), *both[1][1:]) and both[1][0] == Size(ROWS):
                    found[after] = before
        return found

    def finish(self) -> Graph:
        """The graph without what no output needs, in the order in which it was written."""
        needed = {port.name for port in self.graph.outputs}
        kept = []
        for node in reversed(self.graph.nodes):
            if needed.intersection(node.outputs):
                kept.append(node)
                needed.update(node.inputs)
        self.graph.nodes = _without_copies(kept[::-1])
        used = {name for node in self.graph.nodes for name in node.inputs}
        self.graph.weights = [port for port in self.graph.weights if port.name in used]
        self.graph.constants = {name: value for name, value in self.graph.constants.items() if name in used}
        return self.graph

    # ------------------------------------------------------------------------------------------ tensors

    def name(self, given: Input) -> str:
        """The name of an input; a tensor from outside is a weight or a constant."""
        if isinstance(given, str):
            return given
        if not isinstance(given, Ref):
            return self.constant(given)
        if given.number not in self._names:
            self._names[given.number] = self._outside(given)
        return self._names[given.number]

    def _outside(self, ref: Ref) -> str:
        tensors = [given[ref.number] for given in self.trace.given if ref.number in given]
        if len(tensors) < len(self.trace.given):
            raise ModelError("a tensor appears from nowhere")
        if stored := self.weights.of(tensors[0]):
            return self._rows_of(self._whole(stored[0]), stored[1])
        if any(one.shape != tensors[0].shape or not torch.equal(one, tensors[0]) for one in tensors):
            raise ModelError("its numbers depend on the documents of a batch in a way that no graph can say")
        return self.constant(tensors[0].numpy())

    def _rows_of(self, weight: str, rows: tuple[int, int] | None) -> str:
        return weight if rows is None else self.node("Slice", weight, [rows[0]], [rows[1]], [0])

    def _stored(self, weight: Port) -> str:
        """An initializer whose numbers are stored."""
        if weight not in self.graph.weights:
            self.graph.weights.append(weight)
        return weight.name

    def _whole(self, name: str) -> str:
        """A weight as float32. One of eight bits is made so by nodes, which `catchline.runtime.sessions` runs once."""
        shape = self.weights.shape(name)
        if name not in self.weights.in_eight_bits:
            return self._stored(Port(name, "float32", shape))
        if ("whole", name) not in self._made:
            parts, nodes, self.graph.nodes = ports(name, shape), self.graph.nodes, []
            blocks = shape[0] * -(-shape[1] // BLOCK)
            numbers, scales = (self.node("Reshape", self._stored(part), [blocks, -1]) for part in parts)
            scales = self.node("Squeeze", scales, [1])
            middle = self.filled(MIDDLE, "uint8", [Size(offset=blocks)])
            found = self.node("DequantizeLinear", numbers, scales, middle, axis=0)
            joined = self.node("Reshape", found, [shape[0], -1])
            self._made["whole", name] = self.node("Slice", joined, [0], [shape[1]], [1]) if shape[1] % BLOCK else joined
            self.graph.nodes += nodes  # where they run each time: what stands first runs last, right before its use
        return self._made["whole", name]

    def eight_bits(self, ref: Ref) -> list[str]:
        """The numbers and the scales of a weight that is stored in eight bits; nothing of another tensor."""
        found = self.trace.given[0].get(ref.number)
        stored = self.weights.of(found) if found is not None else None
        if stored is None or stored[0] not in self.weights.in_eight_bits:
            return []
        name, rows = stored
        return [self._rows_of(self._stored(port), rows) for port in ports(name, self.weights.shape(name))]

    def is_zero(self, ref: Ref) -> bool:
        """Is this a tensor of zeros that is no weight?"""
        found = self.trace.given[0].get(ref.number)
        return found is not None and self.weights.of(found) is None and not bool(found.any())

    def type_of(self, ref: Ref) -> str:
        return str(self.trace.types[ref.number]).removeprefix("torch.")

    def shape_of(self, ref: Ref) -> tuple[Size, ...]:
        return self.trace.shapes[ref.number]

    def constant(self, value: Any) -> str:
        """A constant: an array, or numbers (int64)."""
        array = value if isinstance(value, np.ndarray) else np.array(value, dtype=np.int64)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._made:
            self._made[key] = self._new("c")
            self.graph.constants[self._made[key]] = array
        return self._made[key]

    def scalar(self, value: Any, kind: str) -> str:
        """One number of a type; a size is computed."""
        if isinstance(value, Size):
            return self.cast(self.node("Squeeze", self.size(value), [0]), "int64", kind)
        return self.constant(np.array(value, dtype=kind))

    def operand(self, value: Any, kind: str) -> str:
        """A tensor or number as type ``kind``."""
        if isinstance(value, Ref):
            return self.cast(self.name(value), self.type_of(value), kind)
        return self.scalar(value, kind)

    def cast(self, name: str, kind: str, wanted: str) -> str:
        return name if kind == wanted else self.node("Cast", name, to=TYPES[wanted])

    # -------------------------------------------------------------------------------------------- sizes

    def size(self, size: Any) -> str:
        """A size as an int64 tensor (1,)."""
        if not isinstance(size, Size):
            return self.constant([int(size)])
        if size.fixed:
            return self.constant([size.offset])
        if size not in self._made:
            self._made[size] = self._product(size) if size == Size(size.names) else self._line(size)
        return self._made[size]

    def _line(self, size: Size) -> str:
        found = self.size(Size(size.names))
        if size.plus:
            found = self.node("Add", found, self.size(Size(size.plus)))
        if size.factor != 1:
            found = self.node("Mul", found, [size.factor])
        return self.node("Add", found, [size.offset]) if size.offset else found

    def _product(self, size: Size) -> str:
        names = size.names
        if size in self._sources:
            place, axis = self._sources[size]
            if ("shape", place) not in self._made:
                self._made["shape", place] = self.node("Shape", place)
            return self.node("Gather", self._made["shape", place], [axis])
        if names == ("K",):
            return self.node("Div", self.size(Size(ROWS)), self.size(Size(("B",))))
        if len(names) == 1:
            raise ModelError(f"no input says how large {names[0]} is")
        first = ROWS if set(ROWS) < set(names) else names[:1]
        rest = tuple(name for name in names if name not in first)
        return self.node("Mul", self.size(Size(first)), self.size(Size(rest)))

    def shape(self, sizes: Sequence[Any]) -> str:
        """Sizes as an int64 tensor (n,)."""
        parts = [size if isinstance(size, Size) else Size(offset=int(size)) for size in sizes]
        if all(part.fixed for part in parts):
            return self.constant([part.offset for part in parts])
        key = ("sizes", tuple(parts))
        if key not in self._made:
            self._made[key] = self.node("Concat", *map(self.size, parts), axis=0)
        return self._made[key]

    # -------------------------------------------------------------------------------------------- nodes

    def once(self, make: Callable[..., tuple[str, str]], *given: str | Ref) -> tuple[str, str]:
        """The two tensors that ``make`` adds of ``given``, where they are first asked for."""
        if (make, given) not in self._pairs:
            self._pairs[make, given] = make(self, *given)
        return self._pairs[make, given]

    def node(self, operator: str, *inputs: Input, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output; its name."""
        return self.nodes(operator, inputs, 1, domain, **attributes)[0]

    def nodes(
        self, operator: str, inputs: Sequence[Input], count: int, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node with several outputs; their names."""
        names = tuple(map(self.name, inputs))
        outputs = [self._new(operator.lower()) for _ in range(count)]
        self.graph.nodes.append(Node(operator, names, tuple(outputs), attributes, domain))
        return outputs

    def result(self, operation: Operation, *names: str) -> None:
        """The outputs of ``operation`` are ``names``."""
        for ref, name in zip(operation.results, names, strict=True):
            self._names[ref.number] = name

    def _new(self, stem: str) -> str:
        self._count += 1
        return f"{stem}_{self._count}"

    # ------------------------------------------------------------------------------------------- shapes

    def reshape(self, name: str, before: Sequence[Size], after: Sequence[Size]) -> str:
        """``name`` of shape ``before`` as ``after``; nothing to do where they are equal."""
        if tuple(before) == tuple(after):
            return name
        may_be_empty = any({"O", "T"} & set(size.names + size.plus) for size in before)
        open_sizes = [size for size in after if not size.fixed]
        if len(open_sizes) <= 1 and not may_be_empty:
            return self.node("Reshape", name, [size.offset if size.fixed else -1 for size in after])
        target, kept = [], True
        for axis, size in enumerate(after):
            kept = kept and axis < len(before) and before[axis] == size
            target.append(size.offset if size.fixed else 0 if kept else -1)
        said = target.count(-1) <= 1 and not (may_be_empty and -1 in target)
        return self.node("Reshape", name, target if said else self.shape(after))

    def filled(self, value: Any, kind: str, sizes: Sequence[Size]) -> str:
        """A tensor of one value."""
        shape = [size.offset for size in sizes]
        if all(size.fixed for size in sizes) and np.prod(shape) <= SMALL:
            return self.constant(np.full(shape, value, dtype=kind))
        return self.node("ConstantOfShape", self.shape(sizes), value=np.array([value], dtype=kind))


class WeightNames:
    """Which stored tensor a tensor of the model is: the whole of it, or some of its rows. ``stored`` are the names in
    the file; with ``int8`` matrices are going to be stored in eight bits where that serves."""

    def __init__(self, tensors: Mapping[str, Tensor], stored: Collection[str], int8: bool = False) -> None:
        self.int8 = int8
        names = set(names_of(stored))
        self._all = {name: tensor for name, tensor in tensors.items() if name in names and tensor.numel()}
        self.in_eight_bits = {
            name for name in self._all if (is_worth_it(self.shape(name)) if int8 else name + NUMBERS in stored)
        }
        self._places: dict[int, list[tuple[str, Tensor]]] = {}  # by where the numbers lie
        for name, tensor in self._all.items():
            self._places.setdefault(tensor.untyped_storage().data_ptr(), []).append((name, tensor))

    def of(self, tensor: Tensor) -> tuple[str, tuple[int, int] | None] | None:
        """The stored name and, where it is not the whole, the first and last row."""
        for name, whole in self._places.get(tensor.untyped_storage().data_ptr(), []) if tensor.numel() else []:
            if tensor.stride() != whole.stride() or tensor.shape[1:] != whole.shape[1:]:
                continue
            if not whole.dim():
                return name, None
            first, rest = divmod(int(tensor.storage_offset() - whole.storage_offset()), max(whole.stride(0), 1))
            if not rest and first >= 0 and first + len(tensor) <= len(whole):
                return name, None if len(tensor) == len(whole) else (first, first + len(tensor))
        return None

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._all[name].shape)

    def eight_bits(self) -> dict[str, Tensor]:
        """The parts of all matrices that are stored in eight bits, used or not."""
        return {
            port.name: torch.from_numpy(part)
            for name in self.in_eight_bits
            for port, part in zip(
                ports(name, self.shape(name)), quantized(self._all[name].detach().numpy()), strict=True
            )
        }


def size_name(size: Size) -> int | str:
    """How a size is written in the declaration of an input or output."""
    if size.fixed:
        return size.offset
    product = "N" if size.names == ROWS else "".join(size.names)
    product += f"+{''.join(size.plus)}" if size.plus else ""
    return f"{'' if size.factor == 1 else size.factor}{product}{f'+{size.offset}' if size.offset else ''}"


def _without_copies(nodes: list[Node]) -> list[Node]:
    """Outputs take the place of what is first copied into them, where that is made here."""
    made = {name for node in nodes if node.operator != "Identity" for name in node.outputs}
    copies = [(node.inputs[0], node.outputs[0]) for node in nodes if node.operator == "Identity"]
    renamed = {source: output for source, output in reversed(copies) if source in made}

    def names(given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(renamed.get(name, name) for name in given)

    return [
        replace(node, inputs=names(node.inputs), outputs=names(node.outputs))
        for node in nodes
        if node.operator != "Identity" or renamed.get(node.inputs[0]) != node.outputs[0]
    ]
