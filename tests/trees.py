"""Looking into decoder states: the tensors of a nested structure, and whether they have changed."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from catchline.types import Shared


def tensors_in(node: Any, *, shared: bool | None = None, inside: bool = False) -> list[Tensor]:
    """Every tensor of a tree; with ``shared`` only those inside (or only those outside of) `Shared` parts."""
    if isinstance(node, Tensor):
        return [node] if shared is None or shared == inside else []
    if isinstance(node, Shared):
        return tensors_in(node.tree, shared=shared, inside=True)
    if isinstance(node, dict):
        children: list[Any] = list(node.values())
    elif isinstance(node, list | tuple):
        children = list(node)
    elif dataclasses.is_dataclass(node) and not isinstance(node, type):
        children = [getattr(node, field.name) for field in dataclasses.fields(node)]
    else:
        return []
    return [tensor for child in children for tensor in tensors_in(child, shared=shared, inside=inside)]


class Unmodified:
    """``with Unmodified(tree, ...)``: no tensor of the trees may be written to."""

    def __init__(self, *trees: Any) -> None:
        self.tensors = [tensor for tree in trees for tensor in tensors_in(tree)]
        self.copies = [tensor.detach().clone() for tensor in self.tensors]

    def __enter__(self) -> Unmodified:
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is None:
            assert all(torch.equal(t, c) for t, c in zip(self.tensors, self.copies, strict=True)), "an input changed"


def tensors_on(module: nn.Module) -> set[tuple[str, str]]:
    """The attributes of a module tree that hold tensors and are neither parameters nor buffers."""
    owned = {id(t) for t in [*module.parameters(), *module.buffers()]}
    return {
        (name, key)
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if key not in ("_parameters", "_buffers", "_modules")
        if any(id(tensor) not in owned for tensor in tensors_in(value))
    }
