"""What torch's operations become in ONNX: the calls that a model makes, one short function each.

The semantics are torch's: results have the type that torch gave them, negative axes count from the end. Where ONNX has
no such operation there are several. `LOWERINGS` is the table; `laconic.export.shapes` and `laconic.export.products`
add to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from laconic.errors import ModelError
from laconic.export.builder import Builder, Lowering
from laconic.export.tracing import Operation, Ref

LOWERINGS: dict[str, Lowering] = {}
LEAST = -3.0e38  # stands for minus infinity where that would be subtracted from itself


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Enter a function for torch's operations ``names``."""

    def enter(function: Lowering) -> Lowering:
        LOWERINGS.update(
            {f"aten.{name}" if "." in name and not name.startswith("laconic.") else name: function for name in names}
        )
        return function

    return enter


def lower(builder: Builder, operation: Operation) -> None:
    """Write one operation.

    Raises:
        ModelError: nothing in ONNX has been given for it.
    """
    if not operation.results:
        return
    if operation.name not in LOWERINGS:
        raise ModelError(f"it uses the operation {operation.name}, which has no counterpart in the graph")
    LOWERINGS[operation.name](builder, operation)


def kind_of(builder: Builder, operation: Operation) -> str:
    """The type of an operation's first result."""
    return builder.type_of(operation.results[0])


def argument(operation: Operation, place: int, name: str, default: Any = None) -> Any:
    """An argument that is given by place or by name."""
    if len(operation.args) > place:
        return operation.args[place]
    return operation.kwargs.get(name, default)


def axis_of(builder: Builder, ref: Ref, axis: int) -> int:
    """An axis counted from the front."""
    rank = len(builder.shape_of(ref))
    return axis + rank if axis < 0 else axis


# --------------------------------------------------------------------------------------- one by one

_UNARY = {
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "relu": "Relu",
    "exp": "Exp",
    "log": "Log",
    "neg": "Neg",
    "sqrt": "Sqrt",
    "abs": "Abs",
    "reciprocal": "Reciprocal",
    "sin": "Sin",
    "cos": "Cos",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "erf": "Erf",
    "isnan": "IsNaN",
    "sign": "Sign",
}
_SAME = (
    "dropout.default",
    "contiguous.default",
    "clone.default",
    "detach.default",
    "lift_fresh.default",
    "alias.default",
    "_to_copy.default",
    "detach_.default",
)


def _unary(operator: str) -> Lowering:
    def write(b: Builder, op: Operation) -> None:
        kind = kind_of(b, op) if operator != "IsNaN" else b.type_of(op.args[0])
        b.result(op, b.node(operator, b.operand(op.args[0], kind)))

    return write


for _name, _operator in _UNARY.items():
    for _form in (f"{_name}.default", f"{_name}_.default"):
        lowers(_form)(_unary(_operator))


@lowers(*_SAME, "to.dtype", "to.dtype_layout", "to.device", "to.other", "type_as.default")
def _same(b: Builder, op: Operation) -> None:
    b.result(op, b.operand(op.args[0], kind_of(b, op)))


@lowers("gelu.default")
def _gelu(b: Builder, op: Operation) -> None:
    if argument(op, 1, "approximate", "none") != "none":
        x = b.name(op.args[0])
        cubed = b.node("Mul", b.node("Mul", b.node("Mul", x, x), x), b.scalar(0.044715, "float32"))
        inner = b.node("Tanh", b.node("Mul", b.node("Add", x, cubed), b.scalar(0.7978845608028654, "float32")))
        half = b.node("Mul", x, b.scalar(0.5, "float32"))
        b.result(op, b.node("Mul", half, b.node("Add", inner, b.scalar(1.0, "float32"))))
        return
    x = b.name(op.args[0])
    spread = b.node("Erf", b.node("Mul", x, b.scalar(0.5**0.5, "float32")))
    b.result(
        op, b.node("Mul", b.node("Mul", x, b.scalar(0.5, "float32")), b.node("Add", spread, b.scalar(1.0, "float32")))
    )


@lowers("square.default")
def _square(b: Builder, op: Operation) -> None:
    b.result(op, b.node("Mul", b.name(op.args[0]), b.name(op.args[0])))


@lowers("silu.default")
def _silu(b: Builder, op: Operation) -> None:
    x = b.name(op.args[0])
    b.result(op, b.node("Mul", x, b.node("Sigmoid", x)))


@lowers("log_sigmoid.default")
def _log_sigmoid(b: Builder, op: Operation) -> None:
    b.result(op, b.node("Neg", b.node("Softplus", b.node("Neg", b.name(op.args[0])))))


@lowers("bitwise_not.default", "logical_not.default")
def _not(b: Builder, op: Operation) -> None:
    b.result(op, b.node("Not", b.operand(op.args[0], "bool")))


@lowers("isfinite.default")
def _isfinite(b: Builder, op: Operation) -> None:
    x = b.name(op.args[0])
    b.result(op, b.node("Less", b.node("Abs", x), b.scalar(np.inf, b.type_of(op.args[0]))))


# ------------------------------------------------------------------------------------- two by two

_BINARY = {"mul": "Mul", "div": "Div", "pow": "Pow", "maximum": "Max", "minimum": "Min"}
_COMPARISONS = {"eq": "Equal", "lt": "Less", "gt": "Greater", "le": "LessOrEqual", "ge": "GreaterOrEqual"}
_LOGIC = {"bitwise_and": "And", "__and__": "And", "logical_and": "And", "bitwise_or": "Or", "__or__": "Or"}
_FORMS = ("Tensor", "Scalar", "default", "Tensor_Scalar", "Scalar_Tensor", "Tensor_Tensor")


def _binary(operator: str) -> Lowering:
    def write(b: Builder, op: Operation) -> None:
        kind = kind_of(b, op)
        if kind == "bool":
            b.result(op, b.node("And", b.name(op.args[0]), b.name(op.args[1])))
            return
        b.result(op, b.node(operator, b.operand(op.args[0], kind), b.operand(op.args[1], kind)))

    return write


for _name, _operator in _BINARY.items():
    for _form in _FORMS:
        lowers(f"{_name}.{_form}")(_binary(_operator))
        lowers(f"{_name}_.{_form}")(_binary(_operator))


@lowers(
    "add.Tensor", "sub.Tensor", "add.Scalar", "sub.Scalar", "add_.Tensor", "sub_.Tensor", "rsub.Scalar", "rsub.Tensor"
)
def _sum(b: Builder, op: Operation) -> None:
    kind, alpha = kind_of(b, op), argument(op, 2, "alpha", 1)
    first, second = op.args[:2] if "rsub" not in op.name else op.args[1::-1]
    left, right = b.operand(first, kind), b.operand(second, kind)
    if alpha != 1:
        right = b.node("Mul", right, b.scalar(alpha, kind))
    b.result(op, b.node("Add" if "add" in op.name else "Sub", left, right))


@lowers("floor_divide.default", "div.Tensor_mode", "div.Scalar_mode")
def _floor_divide(b: Builder, op: Operation) -> None:
    kind = kind_of(b, op)
    if kind != "int64":
        raise ModelError("it divides and rounds numbers that are not whole")
    b.result(op, b.node("Div", b.operand(op.args[0], kind), b.operand(op.args[1], kind)))


@lowers("remainder.Scalar", "remainder.Tensor")
def _remainder(b: Builder, op: Operation) -> None:
    kind = kind_of(b, op)
    b.result(op, b.node("Mod", b.operand(op.args[0], kind), b.operand(op.args[1], kind)))


def _comparison(operator: str) -> Lowering:
    def write(b: Builder, op: Operation) -> None:
        kinds = [b.type_of(one) for one in op.args[:2] if isinstance(one, Ref)]
        kind = next((k for k in ("float64", "float32", "int64", "int32") if k in kinds), "int64")
        if kind == "int64" and any(isinstance(one, float) for one in op.args[:2]):
            kind = "float32"
        b.result(op, b.node(operator, b.operand(op.args[0], kind), b.operand(op.args[1], kind)))

    return write


for _name, _operator in _COMPARISONS.items():
    for _form in ("Tensor", "Scalar"):
        lowers(f"{_name}.{_form}")(_comparison(_operator))


@lowers("ne.Tensor", "ne.Scalar")
def _unequal(b: Builder, op: Operation) -> None:
    _comparison("Equal")(b, op)
    b.result(op, b.node("Not", b.name(op.results[0])))


for _name, _operator in _LOGIC.items():

    def _logic(b: Builder, op: Operation, operator: str = _operator) -> None:
        b.result(op, b.node(operator, b.operand(op.args[0], "bool"), b.operand(op.args[1], "bool")))

    for _form in ("Tensor", "default", "Scalar"):
        lowers(f"{_name}.{_form}")(_logic)


@lowers("clamp.default", "clamp_min.default", "clamp_max.default", "clamp_min_.default", "clamp_max_.default")
def _clamp(b: Builder, op: Operation) -> None:
    kind = kind_of(b, op)
    least = argument(op, 1, "min") if "max" not in op.name else None
    most = argument(op, 2, "max") if "clamp.d" in op.name else argument(op, 1, "max") if "max" in op.name else None
    found = b.operand(op.args[0], kind)
    found = found if least is None else b.node("Max", found, b.operand(least, kind))
    b.result(op, found if most is None else b.node("Min", found, b.operand(most, kind)))


@lowers("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(b: Builder, op: Operation) -> None:
    kind = kind_of(b, op)
    through = "int32" if kind == "bool" else kind  # onnxruntime chooses among numbers only
    condition, given = b.operand(op.args[0], "bool"), [b.operand(one, through) for one in op.args[1:3]]
    b.result(op, b.cast(b.node("Where", condition, *given), through, kind))


@lowers("masked_fill.Scalar", "masked_fill.Tensor", "masked_fill_.Scalar", "masked_fill_.Tensor")
def _masked_fill(b: Builder, op: Operation) -> None:
    kind = kind_of(b, op)
    through = "int32" if kind == "bool" else kind
    given = b.operand(op.args[2], through), b.operand(op.args[0], through)
    b.result(op, b.cast(b.node("Where", b.name(op.args[1]), *given), through, kind))


@lowers("logaddexp.default")
def _logaddexp(b: Builder, op: Operation) -> None:
    first, second = (b.name(one) for one in op.args[:2])
    peak = b.node("Max", b.node("Max", first, second), b.scalar(LEAST, kind_of(b, op)))
    summed = b.node("Add", *(b.node("Exp", b.node("Sub", one, peak)) for one in (first, second)))
    b.result(op, b.node("Add", peak, b.node("Log", summed)))


@lowers("lerp.Tensor", "lerp.Scalar")
def _lerp(b: Builder, op: Operation) -> None:
    kind = kind_of(b, op)
    start, end, weight = (b.operand(one, kind) for one in op.args[:3])
    b.result(op, b.node("Add", start, b.node("Mul", weight, b.node("Sub", end, start))))


@lowers("addcmul.default")
def _addcmul(b: Builder, op: Operation) -> None:
    total, first, second = (b.name(one) for one in op.args[:3])
    b.result(op, b.node("Add", total, b.node("Mul", first, second)))


# --------------------------------------------------------------------------------------- along an axis


@lowers("softmax.int", "log_softmax.int", "_softmax.default", "_log_softmax.default", "log_softmax.int_out")
def _softmax(b: Builder, op: Operation) -> None:
    kind = kind_of(b, op)
    operator = "LogSoftmax" if "log" in op.name else "Softmax"
    b.result(op, b.node(operator, b.operand(op.args[0], kind), axis=axis_of(b, op.args[0], op.args[1])))


def _axes(b: Builder, op: Operation) -> list[int]:
    given = argument(op, 1, "dim")
    if given is None or given == []:
        return list(range(len(b.shape_of(op.args[0]))))
    return [axis_of(b, op.args[0], axis) for axis in (given if isinstance(given, list) else [given])]


_REDUCTIONS = {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "amax": "ReduceMax",
    "amin": "ReduceMin",
    "logsumexp": "ReduceLogSumExp",
}


def _reduction(operator: str) -> Lowering:
    def write(b: Builder, op: Operation) -> None:
        kind, keep = kind_of(b, op), int(bool(argument(op, 2, "keepdim", False)))
        given, axes = b.operand(op.args[0], kind), _axes(b, op)
        if operator in ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum", "ReduceLogSumExp"):
            b.result(op, b.node(operator, given, b.constant(axes), keepdims=keep))

    return write


for _name, _operator in _REDUCTIONS.items():
    for _form in ("default", "dim", "dim_IntList"):
        lowers(f"{_name}.{_form}")(_reduction(_operator))


@lowers("any.dim", "any.default", "all.dim", "all.default")
def _any(b: Builder, op: Operation) -> None:
    keep, axes = int(bool(argument(op, 2, "keepdim", False))), _axes(b, op)
    numbers = b.operand(op.args[0], "int32")
    operator = "ReduceMax" if "any" in op.name else "ReduceMin"
    b.result(op, b.cast(b.node(operator, numbers, b.constant(axes), keepdims=keep), "int32", "bool"))


@lowers("argmax.default")
def _argmax(b: Builder, op: Operation) -> None:
    axis = axis_of(b, op.args[0], argument(op, 1, "dim"))
    kind = b.type_of(op.args[0])
    given = b.operand(op.args[0], "int32" if kind in ("int64", "bool") else kind)
    b.result(op, b.node("ArgMax", given, axis=axis, keepdims=int(bool(argument(op, 2, "keepdim", False)))))


@lowers("max.dim", "min.dim")
def _max(b: Builder, op: Operation) -> None:
    axis, keep = axis_of(b, op.args[0], op.args[1]), int(bool(argument(op, 2, "keepdim", False)))
    name, ends = b.name(op.args[0]), ("ReduceMax", "ArgMax") if "max" in op.name else ("ReduceMin", "ArgMin")
    b.result(
        op,
        b.node(ends[0], name, b.constant([axis]), keepdims=keep),
        b.node(ends[1], name, axis=axis, keepdims=keep),
    )


@lowers("topk.default")
def _topk(b: Builder, op: Operation) -> None:
    axis = axis_of(b, op.args[0], argument(op, 2, "dim", -1))
    largest = int(bool(argument(op, 3, "largest", True)))
    count = b.node("Min", b.size(op.args[1]), b.size(b.shape_of(op.args[0])[axis]))  # a document may be shorter
    b.result(op, *b.nodes("TopK", (b.name(op.args[0]), count), 2, axis=axis, largest=largest, sorted=1))


@lowers("sort.default", "sort.stable")
def _sort(b: Builder, op: Operation) -> None:
    stable = op.name.endswith("stable")
    axis = axis_of(b, op.args[0], argument(op, 2 if stable else 1, "dim", -1))
    descending = int(bool(argument(op, 3 if stable else 2, "descending", False)))
    count = b.size(b.shape_of(op.args[0])[axis])
    kind = b.type_of(op.args[0])
    given = b.operand(op.args[0], "int32" if kind in ("bool", "uint8") else kind)
    values, places = b.nodes("TopK", (given, count), 2, axis=axis, largest=descending, sorted=1)
    b.result(op, b.cast(values, "int32" if kind in ("bool", "uint8") else kind, kind), places)


@lowers("cumsum.default")
def _cumsum(b: Builder, op: Operation) -> None:
    axis = axis_of(b, op.args[0], op.args[1])
    b.result(op, b.node("CumSum", b.operand(op.args[0], kind_of(b, op)), b.scalar(axis, "int64")))
