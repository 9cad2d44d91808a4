"""Re-ordering of decoder states, the same for every model.

A state is a nested structure of dicts, lists, tuples, named tuples and dataclasses whose tensors have
N = B * K decoder rows in front. What stands inside `laconic.types.Shared` has B documents in front.
An object with methods ``select(index)`` and ``select_documents(document_index, beams)`` (a wrapped
transformers cache, for example) is asked to do it itself; both return the re-ordered object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from laconic.types import Shared

Change = Callable[[Any], Any]


def select(tree: Any, index: Tensor) -> Any:
    """Return ``tree`` with row ``index[i]`` of every tensor at row i; `Shared` parts are the same objects.

    ``index`` (M,) may repeat and omit rows, so this also widens one row a document to K beams.
    Scalars (zero-dimensional tensors, numbers, strings, ``None``) are left as they are.
    """

    def change(node: Any) -> Any:
        if isinstance(node, Shared):
            return node
        if isinstance(node, Tensor):
            return node.index_select(0, index) if node.dim() else node
        return node.select(index)

    return _walk(tree, change)


def select_documents(tree: Any, document_index: Tensor, beams: int) -> Any:
    """Return ``tree`` for the documents ``document_index`` (D,) only, each with its ``beams`` rows.

    `Shared` parts are cut along B, everything else along N = B * ``beams``.
    """
    rows = rows_of_documents(document_index, beams)

    def change(node: Any) -> Any:
        if isinstance(node, Shared):
            return Shared(select(node.tree, document_index))
        if isinstance(node, Tensor):
            return node.index_select(0, rows) if node.dim() else node
        return node.select_documents(document_index, beams)

    return _walk(tree, change)


def rows_of_documents(document_index: Tensor, beams: int) -> Tensor:
    """The decoder rows (D * beams,) of some documents: ``b * beams + k``."""
    offsets = torch.arange(beams, device=document_index.device)
    return (document_index[:, None] * beams + offsets).flatten()


def _walk(node: Any, change: Change) -> Any:
    if isinstance(node, Tensor | Shared) or _selects_itself(node):
        return change(node)
    if isinstance(node, dict):
        return type(node)((key, _walk(value, change)) for key, value in node.items())
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return type(node)(*(_walk(value, change) for value in node))
    if isinstance(node, list | tuple):
        return type(node)(_walk(value, change) for value in node)
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        changed = {field.name: _walk(getattr(node, field.name), change) for field in dataclasses.fields(node)}
        return dataclasses.replace(node, **changed)
    return node


def _selects_itself(node: Any) -> bool:
    return not isinstance(node, type) and hasattr(node, "select") and hasattr(node, "select_documents")
