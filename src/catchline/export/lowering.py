"""What torch's operations become in ONNX: the calls that a model makes, one short function each, which adds nodes to
the graph and gives the names of their outputs.

The semantics are torch's: results have the type that torch gave them, negative axes count from the end. Where ONNX has
no such operation there are several. `LOWERINGS` is the table; `catchline.export.shapes` and `catchline.export.products`
add to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from catchline.errors import ModelError
from catchline.export.builder import Builder
from catchline.export.tracing import Operation, Ref
from catchline.runtime.onnx_file import MICROSOFT

Names = str | Sequence[str]  # of one result, or of several
Lowering = Callable[[Builder, Operation], Names]
LOWERINGS: dict[str, Lowering] = {}
LEAST = -3.0e38  # stands for minus infinity where that would be subtracted from itself


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Enter a function for torch's operations ``names``; a name without its form is that of the default one."""

    def enter(function: Lowering) -> Lowering:
        for name in names:
            whole = name if name.startswith("catchline.") else f"aten.{name}"
            LOWERINGS[whole if "." in name else f"{whole}.default"] = function
        return function

    return enter


def lowers_in_a_line(table: Mapping[str, Lowering]) -> None:
    """Enter a function for each key's operations, whose names blanks separate."""
    for names, function in table.items():
        lowers(*names.split())(function)


def _enter(function: Callable[..., Names], operators: Mapping[str, str], forms: Iterable[str]) -> None:
    """Enter ``function(operator, builder, operation)`` for all ``forms`` of operations with one operator each."""
    for name, operator in operators.items():
        lowers(*(name + form for form in forms))(partial(function, operator))


def lower(builder: Builder, operation: Operation) -> None:
    """Write one operation.

    Raises:
        ModelError: nothing in ONNX has been given for it.
    """
    if not operation.results:
        return
    if operation.name not in LOWERINGS:
        raise ModelError(f"it uses the operation {operation.name}, which has no counterpart in the graph")
    try:
        names = LOWERINGS[operation.name](builder, operation)
    except ZeroDivisionError:  # of an axis by the number of axes
        raise ModelError(f"it uses the operation {operation.name} along an axis of a tensor that has none") from None
    builder.result(operation, *([names] if isinstance(names, str) else names))


def kind_of(builder: Builder, operation: Operation) -> str:
    """The type of an operation's first result."""
    return builder.type_of(operation.results[0])


def argument(operation: Operation, place: int, name: str, default: Any = None) -> Any:
    """An argument that is given by place or by name."""
    if len(operation.args) > place:
        return operation.args[place]
    return operation.kwargs.get(name, default)


def axis_of(builder: Builder, operation: Operation, place: int = 1, default: Any = None) -> int:
    """The axis of the first tensor that an operation is given at ``place``, counted from the front."""
    axis = argument(operation, place, "dim", default)
    if axis is None:
        raise ModelError(f"it uses the operation {operation.name} along all axes at once")
    return axis % len(builder.shape_of(operation.args[0]))


def given(builder: Builder, operation: Operation) -> str:
    """The first tensor that an operation is given, in the type of its result."""
    return builder.operand(operation.args[0], kind_of(builder, operation))


# ---------------------------------------------------------------------------------------- in a line

lowers_in_a_line(
    {
        "dropout contiguous clone detach detach_ lift_fresh alias _to_copy": given,
        "to.dtype to.dtype_layout to.device to.other type_as": given,
        "square": lambda b, op: b.node("Mul", op.args[0], op.args[0]),
        "silu": lambda b, op: b.node("Mul", op.args[0], b.node("Sigmoid", op.args[0])),
        "log_sigmoid": lambda b, op: b.node("Neg", b.node("Softplus", b.node("Neg", op.args[0]))),
        "addcmul": lambda b, op: b.node("Add", b.name(op.args[0]), b.node("Mul", *op.args[1:3])),
        "isfinite": lambda b, op: b.node("Less", b.node("Abs", op.args[0]), b.scalar(np.inf, b.type_of(op.args[0]))),
        "isnan": lambda b, op: b.node("IsNaN", op.args[0]),
        "bitwise_not logical_not": lambda b, op: b.node("Not", b.operand(op.args[0], "bool")),
        "ne.Tensor ne.Scalar": lambda b, op: b.node("Not", _comparison("Equal", b, op)),
        "where.self where.ScalarOther where.ScalarSelf where.Scalar": lambda b, op: _chosen(b, op, *op.args[:3]),
        "masked_fill.Scalar masked_fill.Tensor masked_fill_.Scalar masked_fill_.Tensor": (
            lambda b, op: _chosen(b, op, op.args[1], op.args[2], op.args[0])
        ),
        "softmax.int _softmax": lambda b, op: b.node("Softmax", given(b, op), axis=axis_of(b, op)),
        "log_softmax.int log_softmax.int_out _log_softmax": (
            lambda b, op: b.node("LogSoftmax", given(b, op), axis=axis_of(b, op))
        ),
        "cumsum": lambda b, op: b.node("CumSum", given(b, op), b.scalar(axis_of(b, op), "int64")),
        "einsum": lambda b, op: b.node("Einsum", *op.args[1], equation=op.args[0].replace(" ", "")),
    }
)

# --------------------------------------------------------------------------------------- one by one

_SAME_NAME = (
    *("tanh", "sigmoid", "relu", "exp", "log", "neg", "sqrt", "abs", "reciprocal"),
    *("sin", "cos", "floor", "ceil", "round", "erf", "sign"),
)
_UNARY = {name: name.capitalize() for name in _SAME_NAME}
_enter(lambda operator, b, op: b.node(operator, given(b, op)), _UNARY, ("", "_"))


@lowers("gelu")
def _gelu(b: Builder, op: Operation) -> Names:
    x = op.args[0]
    if argument(op, 1, "approximate", "none") == "none":
        return b.node("Gelu", x, domain=MICROSOFT)
    cubed = b.node("Mul", b.node("Mul", b.node("Mul", x, x), x), b.scalar(0.044715, "float32"))
    spread = b.node("Tanh", b.node("Mul", b.node("Add", x, cubed), b.scalar(0.7978845608028654, "float32")))
    return b.node("Mul", b.node("Mul", x, b.scalar(0.5, "float32")), b.node("Add", spread, b.scalar(1.0, "float32")))


# ------------------------------------------------------------------------------------- two by two

_BINARY = {"mul": "Mul", "div": "Div", "pow": "Pow", "maximum": "Max", "minimum": "Min", "remainder": "Mod"}
_COMPARISONS = {"eq": "Equal", "lt": "Less", "gt": "Greater", "le": "LessOrEqual", "ge": "GreaterOrEqual"}
_LOGIC = {"bitwise_and": "And", "__and__": "And", "logical_and": "And", "bitwise_or": "Or", "__or__": "Or"}
_FORMS = (".Tensor", ".Scalar", ".default", ".Tensor_Scalar", ".Scalar_Tensor", ".Tensor_Tensor")


def _typed(operator: str, b: Builder, op: Operation, kind: str) -> str:
    """Both operands as ``kind``."""
    return b.node(operator, b.operand(op.args[0], kind), b.operand(op.args[1], kind))


def _binary(operator: str, b: Builder, op: Operation) -> Names:
    kind = kind_of(b, op)
    if kind == "bool":  # ONNX counts with numbers only
        operator = "Or" if operator == "Max" else "And"
    return _typed(operator, b, op, kind)


_enter(_binary, _BINARY, (*_FORMS, *(f"_{form}" for form in _FORMS)))


@lowers(
    "add.Tensor", "sub.Tensor", "add.Scalar", "sub.Scalar", "add_.Tensor", "sub_.Tensor", "rsub.Scalar", "rsub.Tensor"
)
def _sum(b: Builder, op: Operation) -> Names:
    kind, alpha = kind_of(b, op), argument(op, 2, "alpha", 1)
    first, second = op.args[:2] if "rsub" not in op.name else op.args[1::-1]
    left, right = b.operand(first, kind), b.operand(second, kind)
    right = right if alpha == 1 else b.node("Mul", right, b.scalar(alpha, kind))
    return b.node("Add" if "add" in op.name else "Sub", left, right)


@lowers("floor_divide", "div.Tensor_mode", "div.Scalar_mode")
def _floor_divide(b: Builder, op: Operation) -> Names:
    if kind_of(b, op) != "int64":
        raise ModelError("it divides and rounds numbers that are not whole")
    first, second = (b.operand(one, "int64") for one in op.args[:2])
    if op.kwargs.get("rounding_mode") != "trunc":  # ONNX rounds towards zero
        first = b.node("Sub", first, b.node("Mod", first, second))
    return b.node("Div", first, second)


def _comparison(operator: str, b: Builder, op: Operation) -> str:
    kinds = [b.type_of(one) for one in op.args[:2] if isinstance(one, Ref)]
    kind = next((k for k in ("float64", "float32", "int64", "int32") if k in kinds), "int64")
    if kind == "int64" and any(isinstance(one, float) for one in op.args[:2]):
        kind = "float32"
    return _typed(operator, b, op, kind)


_enter(_comparison, _COMPARISONS, (".Tensor", ".Scalar"))


_enter(partial(_typed, kind="bool"), _LOGIC, (".Tensor", ".default", ".Scalar"))


@lowers("clamp", "clamp_min", "clamp_max", "clamp_min_", "clamp_max_")
def _clamp(b: Builder, op: Operation) -> Names:
    kind = kind_of(b, op)
    least = argument(op, 1, "min") if "max" not in op.name else None
    most = argument(op, 2, "max") if "clamp.d" in op.name else argument(op, 1, "max") if "max" in op.name else None
    found = b.operand(op.args[0], kind)
    found = found if least is None else b.node("Max", found, b.operand(least, kind))
    return found if most is None else b.node("Min", found, b.operand(most, kind))


def _chosen(b: Builder, op: Operation, condition: Any, yes: Any, no: Any) -> Names:
    kind = kind_of(b, op)
    through = "int32" if kind == "bool" else kind  # onnxruntime chooses among numbers only
    operands = b.operand(condition, "bool"), b.operand(yes, through), b.operand(no, through)
    return b.cast(b.node("Where", *operands), through, kind)


@lowers("logaddexp")
def _logaddexp(b: Builder, op: Operation) -> Names:
    peak = b.node("Max", b.node("Max", *op.args[:2]), b.scalar(LEAST, kind_of(b, op)))
    summed = b.node("Add", *(b.node("Exp", b.node("Sub", one, peak)) for one in op.args[:2]))
    return b.node("Add", peak, b.node("Log", summed))


@lowers("lerp.Tensor", "lerp.Scalar")
def _lerp(b: Builder, op: Operation) -> Names:
    kind = kind_of(b, op)
    start, end, weight = (b.operand(one, kind) for one in op.args[:3])
    return b.node("Add", start, b.node("Mul", weight, b.node("Sub", end, start)))


# --------------------------------------------------------------------------------------- along an axis


def _axes(b: Builder, op: Operation) -> list[int]:
    axes, rank = argument(op, 1, "dim"), len(b.shape_of(op.args[0]))
    if axes is None or axes == []:
        return list(range(rank))
    return [axis % rank for axis in (axes if isinstance(axes, list) else [axes])]


def _keep(op: Operation) -> int:
    return int(bool(argument(op, 2, "keepdim", False)))


_REDUCTIONS = {"sum": "Sum", "mean": "Mean", "amax": "Max", "amin": "Min", "logsumexp": "LogSumExp"}
_REDUCTIONS |= {"any": "Max", "all": "Min"}


def _reduction(operator: str, b: Builder, op: Operation) -> Names:
    kind = kind_of(b, op)
    through = "int32" if kind == "bool" else kind
    numbers = b.operand(op.args[0], through)
    return b.cast(b.node(f"Reduce{operator}", numbers, _axes(b, op), keepdims=_keep(op)), through, kind)


_enter(_reduction, _REDUCTIONS, (".default", ".dim", ".dim_IntList"))


@lowers("argmax")
def _argmax(b: Builder, op: Operation) -> Names:
    kind = b.type_of(op.args[0])
    numbers = b.operand(op.args[0], "int32" if kind in ("int64", "bool") else kind)
    return b.node("ArgMax", numbers, axis=axis_of(b, op), keepdims=_keep(op))


@lowers("max.dim", "min.dim")
def _max(b: Builder, op: Operation) -> Names:
    axis, keep, end = axis_of(b, op), _keep(op), "Max" if "max" in op.name else "Min"
    most = b.node(f"Reduce{end}", op.args[0], [axis], keepdims=keep)
    return most, b.node(f"Arg{end}", op.args[0], axis=axis, keepdims=keep)


@lowers("topk")
def _topk(b: Builder, op: Operation) -> Names:
    axis = axis_of(b, op, 2, -1)
    largest = int(bool(argument(op, 3, "largest", True)))
    count = b.node("Min", b.size(op.args[1]), b.size(b.shape_of(op.args[0])[axis]))  # a document may be shorter
    return b.nodes("TopK", (op.args[0], count), 2, axis=axis, largest=largest, sorted=1)


@lowers("sort", "sort.stable")
def _sort(b: Builder, op: Operation) -> Names:
    place = 2 if op.name.endswith("stable") else 1
    axis = axis_of(b, op, place, -1)
    descending = int(bool(argument(op, place + 1, "descending", False)))
    count = b.size(b.shape_of(op.args[0])[axis])
    kind = b.type_of(op.args[0])
    through = "int32" if kind in ("bool", "uint8") else kind
    numbers = b.operand(op.args[0], through)
    values, places = b.nodes("TopK", (numbers, count), 2, axis=axis, largest=descending, sorted=1)
    return b.cast(values, through, kind), places
