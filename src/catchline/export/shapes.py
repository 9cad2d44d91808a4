"""Lowerings of what only moves numbers: views, pieces, places, and tensors that are made of nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from catchline.errors import ModelError
from catchline.export.builder import Builder
from catchline.export.lowering import Names, argument, axis_of, given, kind_of, lowers, lowers_in_a_line
from catchline.export.tracing import Operation, Ref, Size
from catchline.runtime.eight_bits import BLOCK, MIDDLE

END = 2**62  # "to the end" of a slice

lowers_in_a_line(
    {
        "select.int": lambda b, op: b.node("Gather", op.args[0], b.scalar(op.args[2], "int64"), axis=axis_of(b, op)),
        "index_select": lambda b, op: b.node("Gather", op.args[0], op.args[2], axis=axis_of(b, op)),
        "gather": lambda b, op: b.node("GatherElements", op.args[0], op.args[2], axis=axis_of(b, op)),
        "zeros new_zeros zeros_like new_empty empty.memory_format": (
            lambda b, op: b.filled(0, kind_of(b, op), b.shape_of(op.results[0]))
        ),
        "ones new_ones ones_like": lambda b, op: b.filled(1, kind_of(b, op), b.shape_of(op.results[0])),
        "fill_.Scalar fill_.Tensor": (
            lambda b, op: b.node("Expand", b.operand(op.args[1], kind_of(b, op)), b.shape(b.shape_of(op.results[0])))
        ),
    }
)

_VIEWS = ("view", "view_as", "_unsafe_view", "reshape", "flatten.using_ints", "unflatten.int")


@lowers(*_VIEWS, "unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims")
def _view(b: Builder, op: Operation) -> Names:
    before, after = b.shape_of(op.args[0]), b.shape_of(op.results[0])
    name = given(b, op)
    if "unsqueeze" in op.name:
        return b.node("Unsqueeze", name, [op.args[1] % len(after)])
    if "squeeze" in op.name and len(before) == len(after) + 1 and isinstance(argument(op, 1, "dim"), int):
        return b.node("Squeeze", name, [axis_of(b, op)])
    return b.reshape(name, before, after)


@lowers("expand", "expand_as")
def _expand(b: Builder, op: Operation) -> Names:
    after = b.shape_of(op.results[0])
    name = b.name(op.args[0])
    return name if b.shape_of(op.args[0]) == after else b.node("Expand", name, b.shape(after))


@lowers("transpose.int", "permute", "t")
def _permute(b: Builder, op: Operation) -> Names:
    rank = len(b.shape_of(op.args[0]))
    if "permute" in op.name:
        return b.node("Transpose", op.args[0], perm=[axis % rank for axis in op.args[1]])
    order = list(range(rank))
    first, second = op.args[1:3] or (0, 1)
    order[first], order[second] = order[second], order[first]
    return b.node("Transpose", op.args[0], perm=order)


@lowers("cat", "stack")
def _cat(b: Builder, op: Operation) -> Names:
    kind = kind_of(b, op)
    axis = argument(op, 1, "dim", 0) % len(b.shape_of(op.results[0]))
    parts = [b.operand(one, kind) for one in op.args[0]]
    if "stack" in op.name:
        parts = [b.node("Unsqueeze", one, [axis]) for one in parts]
    return parts[0] if len(parts) == 1 else b.node("Concat", *parts, axis=axis)


@lowers("slice.Tensor")
def _slice(b: Builder, op: Operation) -> Names:
    start, end, step = argument(op, 2, "start"), argument(op, 3, "end"), argument(op, 4, "step", 1)
    name, axis = b.name(op.args[0]), axis_of(b, op, 1, 0)
    if b.shape_of(op.args[0]) == b.shape_of(op.results[0]) and step == 1:
        return name
    last = b.constant([END]) if end is None or (isinstance(end, int) and end > END) else b.size(end)
    return b.node("Slice", name, b.size(start or 0), last, [axis], [step])


@lowers("narrow")
def _narrow(b: Builder, op: Operation) -> Names:
    start = b.size(op.args[2])
    last = b.node("Add", start, b.size(op.args[3]))
    return b.node("Slice", op.args[0], start, last, [axis_of(b, op)])


@lowers("unbind.int", "chunk", "split.Tensor", "split.sizes", "split_with_sizes")
def _split(b: Builder, op: Operation) -> Names:
    unbind = "unbind" in op.name
    axis = axis_of(b, op, 1 if unbind else 2, 0)
    sizes = [Size(offset=1)] * len(op.results) if unbind else [b.shape_of(one)[axis] for one in op.results]
    name = b.name(op.args[0])
    parts = [name] if len(sizes) == 1 else b.nodes("Split", (name, b.shape(sizes)), len(sizes), axis=axis)
    return [b.node("Squeeze", one, [axis]) for one in parts] if unbind else parts


@lowers("repeat")
def _repeat(b: Builder, op: Operation) -> Names:
    times, before = op.args[1], b.shape_of(op.args[0])
    wide = [Size(offset=1)] * (len(times) - len(before)) + list(before)
    return b.node("Tile", b.reshape(b.name(op.args[0]), before, wide), b.shape(times))


@lowers("repeat_interleave.self_int")
def _repeat_interleave(b: Builder, op: Operation) -> Names:
    axis = axis_of(b, op, 2)
    before = b.shape_of(op.args[0])
    spread = b.node("Unsqueeze", op.args[0], [axis + 1])
    wide = [*before[: axis + 1], op.args[1], *before[axis + 1 :]]
    return b.node("Reshape", b.node("Expand", spread, b.shape(wide)), b.shape(b.shape_of(op.results[0])))


@lowers("flip")
def _flip(b: Builder, op: Operation) -> Names:
    rank, count = len(b.shape_of(op.args[0])), len(op.args[1])
    ends = b.constant([-END] * count)
    return b.node("Slice", op.args[0], [-1] * count, ends, [axis % rank for axis in op.args[1]], [-1] * count)


@lowers("constant_pad_nd", "pad")
def _pad(b: Builder, op: Operation) -> Names:
    rank, widths = len(b.shape_of(op.args[0])), op.args[1]  # of the last axis first
    value = argument(op, 3 if op.name.startswith("aten.pad") else 2, "value", 0) or 0
    before, after = ([0] * (rank - len(widths) // 2) + widths[end::2][::-1] for end in (0, 1))
    numbers = b.node("Concat", b.shape(before), b.shape(after), axis=0)
    return b.node("Pad", given(b, op), numbers, b.scalar(value, kind_of(b, op)), mode="constant")


@lowers("tril", "triu")
def _triangle(b: Builder, op: Operation) -> Names:
    diagonal, kind = argument(op, 1, "diagonal", 0), kind_of(b, op)
    through = "int64" if kind == "bool" else kind
    numbers = b.operand(op.args[0], through)
    found = b.node("Trilu", numbers, b.scalar(diagonal, "int64"), upper=int("triu" in op.name))
    return b.cast(found, through, kind)


# ------------------------------------------------------------------------------------------- places


@lowers("embedding")
def _embedding(b: Builder, op: Operation) -> Names:
    table, ids = op.args[:2]
    parts = b.eight_bits(table)
    if not parts:
        return b.node("Gather", table, ids, axis=0)
    width, rank = b.shape_of(table)[1].offset, len(b.shape_of(ids))
    numbers, scales = (b.node("Gather", part, ids, axis=0) for part in parts)
    steps = b.node("Sub", b.cast(numbers, "uint8", "float32"), b.scalar(MIDDLE, "float32"))
    found = b.node("Mul", steps, b.node("Unsqueeze", scales, [rank + 1]))
    joined = b.node("Reshape", found, [0] * rank + [width + -width % BLOCK])
    return joined if width % BLOCK == 0 else b.node("Slice", joined, [0], [width], [rank])


@lowers("scatter.src", "scatter.value", "scatter_add", "scatter_.src", "scatter_.value", "scatter_add_")
def _scatter(b: Builder, op: Operation) -> Names:
    kind, axis = kind_of(b, op), axis_of(b, op)
    source = op.args[3]
    values = b.operand(source, kind) if isinstance(source, Ref) else b.filled(source, kind, b.shape_of(op.args[2]))
    options = {"reduction": "add"} if "add" in op.name else {}
    return b.node("ScatterElements", op.args[0], op.args[2], values, axis=axis, **options)


@lowers("index.Tensor")
def _index(b: Builder, op: Operation) -> Names:
    by_axis = op.args[1]
    places = [place for place in by_axis if place is not None]
    name = b.name(op.args[0])
    if len(places) == 1:
        if b.type_of(places[0]) == "bool":
            raise ModelError("it picks by a mask, which makes tensors of unforeseen sizes")
        return b.node("Gather", name, places[0], axis=by_axis.index(places[0]))
    if len(places) != len(by_axis):
        raise ModelError("it picks along axes that are not next to each other")
    rank = max(len(b.shape_of(place)) for place in places)
    shape = b.shape(b.shape_of(op.results[0])[:rank])
    each = [b.node("Expand", b.operand(place, "int64"), shape) for place in places]
    each = [b.node("Unsqueeze", one, [rank]) for one in each]
    return b.node("GatherND", name, b.node("Concat", *each, axis=rank))


@lowers("isin.Tensor_Tensor")
def _isin(b: Builder, op: Operation) -> Names:
    rank = len(b.shape_of(op.args[0]))
    spread = b.node("Unsqueeze", b.operand(op.args[0], "int64"), [rank])
    equal = b.cast(b.node("Equal", spread, b.operand(op.args[1], "int64")), "bool", "int32")
    return b.cast(b.node("ReduceMax", equal, [rank], keepdims=0), "int32", "bool")


# ------------------------------------------------------------------------------------- made of nothing


@lowers("full", "new_full", "full_like")
def _full(b: Builder, op: Operation) -> Names:
    value: Any = op.args[2] if op.name == "aten.new_full.default" else op.args[1]
    kind, sizes = kind_of(b, op), b.shape_of(op.results[0])
    if isinstance(value, Size):
        return b.node("Expand", b.scalar(value, kind), b.shape(sizes))
    return b.filled(value, kind, sizes)


@lowers("arange", "arange.start", "arange.start_step")
def _arange(b: Builder, op: Operation) -> Names:
    start, end, step = (0, *op.args, 1) if len(op.args) == 1 else (*op.args, 1)[:3]
    kind = kind_of(b, op)
    if not any(isinstance(one, Size) for one in (start, end, step)):
        return b.constant(np.arange(start, end, step).astype(kind))
    return b.cast(_range(b, start, end, step), "int64", kind)


def _range(b: Builder, start: Any, end: Any, step: Any) -> str:
    return b.node("Range", *(b.scalar(one, "int64") for one in (start, end, step)))


@lowers("eye", "eye.m")
def _eye(b: Builder, op: Operation) -> Names:
    rows, columns = (_range(b, 0, size, 1) for size in b.shape_of(op.results[0]))
    equal = b.node("Equal", b.node("Unsqueeze", rows, [1]), b.node("Unsqueeze", columns, [0]))
    return b.cast(equal, "bool", kind_of(b, op))
