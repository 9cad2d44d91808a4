"""What a model does in one step, written down as a list of torch's operations.

The model runs as it is, on small made-up documents, and every operation that torch carries out is recorded: no second
description of a mechanism exists that could differ from the first. A run has definite sizes. So it is made several
times with different ones, and the records are laid side by side: where a number differs, it is the product or the sum
of sizes that agrees with all (`sizes_of`). A model whose operations themselves differ cannot be written as a graph, and
neither can one that looks at a value to decide what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations, product
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from catchline.errors import ModelError

_LOOKING = {"aten.is_nonzero.default", "aten.item.default", "aten._local_scalar_dense.default", "aten.equal.default"}
_DEPENDS = "what it computes depends on the text that it reads, which no graph can follow"


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor of a record: the number it was given when it appeared."""

    number: int


@dataclass(frozen=True, slots=True)
class Size:
    """``factor * product(names) + offset``; without names it is the number ``offset``."""

    names: tuple[str, ...] = ()
    factor: int = 1
    offset: int = 0
    plus: tuple[str, ...] = ()  # one more product, added

    @property
    def fixed(self) -> bool:
        return not self.names


@dataclass(slots=True)
class Operation:
    """One operation; tensors are `Ref`."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Ref]


@dataclass(slots=True)
class Recording:
    """One run: its operations, and of each tensor its shape, its type and, where it came from outside, itself."""

    operations: list[Operation] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    types: list[torch.dtype] = field(default_factory=list)
    given: dict[int, Tensor] = field(default_factory=dict)


class Recorder(TorchDispatchMode):
    """Records what happens inside the block. Everything that runs inside runs in inference mode."""

    _should_skip_dynamo = classmethod(lambda _: False)  # else torch imports its compiler, for two seconds

    def __init__(self) -> None:
        super().__init__()
        self.record = Recording()
        self._known: dict[int, Ref] = {}
        self._alive: list[Tensor] = []  # an id is that of one tensor as long as the tensor lives
        self._every: set[Ref] = set()  # the answers to "are all of them true?"
        self._fixed: set[Ref] = set()  # what is made of nothing, whatever the documents are
        self._bases: dict[int, int] = {}  # of a view: the tensor whose numbers it shows

    def ref(self, tensor: Tensor) -> Ref:
        """The number of a tensor; one that nobody made here came from outside."""
        if id(tensor) not in self._known:
            self.record.given[self._new(tensor).number] = tensor
        return self._known[id(tensor)]

    def refs(self, tensors: Mapping[str, Tensor], prefix: str = "") -> dict[str, Ref]:
        """The numbers of tensors that have names."""
        return {prefix + name: self.ref(tensor) for name, tensor in tensors.items()}

    def _new(self, tensor: Tensor) -> Ref:
        ref = Ref(len(self.record.shapes))
        self.record.shapes.append(tuple(tensor.shape))
        self.record.types.append(tensor.dtype)
        self._known[id(tensor)] = ref
        self._alive.append(tensor)
        return ref

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func)
        if name in _LOOKING and not self._is_shortcut(name, args):
            raise ModelError("it looks at a value to decide what to do next")
        given, named = tree_map_only(Tensor, self.ref, (args, kwargs))
        out = func(*args, **kwargs)
        if name == "aten.detach.default":
            self._known[id(out)] = self.ref(args[0])
            self._alive.append(out)
            return out
        flat = [one for one in tree_leaves(out) if isinstance(one, Tensor)]
        if args and isinstance(args[0], Parameter) and all(_is_rows(one, args[0]) for one in flat):
            tree_map_only(Tensor, self.ref, out)  # some rows of a weight are a weight
            return out
        if func._schema.is_mutable and {*self._bases, *self._bases.values()}.intersection(map(id, flat)):
            raise ModelError(f"it writes into a part of a tensor ({name})")  # its views would have to follow
        results = [self._new(one) for one in flat]
        if name == "aten.all.default":
            self._every.add(results[0])
        if all(one in self._fixed for one in tree_leaves((given, named)) if isinstance(one, Ref)):
            self._fixed.update(results)
        for one in flat:
            base = next((id(a) for a in args if isinstance(a, Tensor) and _shares(a, one)), None)
            if base is not None and one is not args[0]:
                self._bases[id(one)] = self._bases.get(base, base)
        self.record.operations.append(Operation(name, given, named, results))
        return out

    def _is_shortcut(self, name: str, args: Any) -> bool:
        """Does no document change the answer? Or is it asked whether everything in a mask is true, and it is not? Then
        the way taken is the one for all."""
        asked = self.ref(args[0])
        if asked in self._fixed:
            return True
        return name == "aten.is_nonzero.default" and asked in self._every and not bool(args[0].numpy())


def _is_rows(part: Tensor, whole: Tensor) -> bool:
    return _shares(part, whole) and part.stride() == whole.stride() and part.shape[1:] == whole.shape[1:]


def _shares(first: Tensor, second: Tensor) -> bool:
    try:
        return first is not second and first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr() != 0
    except RuntimeError:
        return False


# ------------------------------------------------------------------------------------------------ sizes


def sizes_of(runs: Sequence[Mapping[str, int]]) -> Callable[[tuple[int, ...]], Size]:
    """Which expression of the sizes a number is. ``runs`` has the sizes of each run by name.

    The function that comes back gives the expression that is ``values[r]`` in run r; it raises a `ModelError` where
    none is.
    """
    chosen = [names for count in (1, 2, 3) for names in combinations(runs[0], count)]
    products = {names: tuple(prod(run[name] for name in names) for run in runs) for names in chosen}

    @cache
    def fitted(values: tuple[int, ...]) -> Size:
        if len(set(values)) == 1:
            return Size(offset=values[0])
        for names, powers in products.items():
            if values == powers:
                return Size(names)
        for names, powers in products.items():
            if found := _line(powers, values):
                return Size(names, *found)
        for (first, powers), (second, others) in product(products.items(), repeat=2):
            if found := _line([one + other for one, other in zip(powers, others, strict=True)], values):
                return Size(first, *found, plus=second)
        raise ModelError(f"a size is no product or sum of the sizes of a batch ({', '.join(map(str, values))})")

    return fitted


def _line(powers: Sequence[int], values: Sequence[int]) -> tuple[int, int] | None:
    """The factor and offset by which ``values`` follow ``powers``."""
    step = powers[1] - powers[0]
    if not step or (values[1] - values[0]) % step:
        return None
    factor = (values[1] - values[0]) // step
    offset = values[0] - factor * powers[0]
    fits = all(factor * power + offset == value for power, value in zip(powers, values, strict=True))
    return (factor, offset) if fits and factor else None


# -------------------------------------------------------------------------------------------- side by side


@dataclass(slots=True)
class OperationTrace:
    """The records of all runs as one: numbers that are sizes are `Size`, shapes have `Size` in the place of numbers."""

    operations: list[Operation]
    shapes: list[tuple[Size, ...]]
    types: list[torch.dtype]
    given: list[dict[int, Tensor]]  # of each run


def laid_together(records: Sequence[Recording], runs: Sequence[Mapping[str, int]]) -> OperationTrace:
    """The trace of runs with the sizes ``runs``.

    Raises:
        ModelError: the runs did different things.
    """
    size_of = sizes_of(runs)
    first = records[0]
    if any([o.name for o in one.operations] != [o.name for o in first.operations] for one in records):
        raise ModelError(_DEPENDS)
    operations = []
    for same in zip(*(one.operations for one in records), strict=True):
        args, kwargs = _merged([(o.args, o.kwargs) for o in same], size_of)
        operations.append(replace(same[0], args=tuple(args), kwargs=kwargs))
    shapes = [tuple(map(size_of, zip(*same, strict=True))) for same in zip(*(o.shapes for o in records), strict=True)]
    return OperationTrace(operations, shapes, first.types, [one.given for one in records])


def _merged(values: Sequence[Any], size_of: Callable[[tuple[int, ...]], Size]) -> Any:
    first = values[0]
    if isinstance(first, (list, tuple)):
        if any(len(value) != len(first) for value in values):
            raise ModelError(_DEPENDS)
        return [_merged(column, size_of) for column in zip(*values, strict=True)]
    if isinstance(first, dict):
        return {key: _merged([value[key] for value in values], size_of) for key in first}
    if isinstance(first, int) and not isinstance(first, bool) and any(value != first for value in values):
        return size_of(tuple(values))
    if isinstance(first, Ref) and any(value != first for value in values):
        raise ModelError(_DEPENDS)
    return first
