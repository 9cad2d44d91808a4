"""Re-ordering of decoder states, the same for every model.

A state is a nested structure of dicts, lists, tuples, named tuples and dataclasses whose arrays or tensors have
N = B * K decoder rows in front. What stands inside `laconic.types.Shared` has B documents in front.
An object with methods ``select(index)`` and ``select_documents(document_index, beams)`` (a wrapped
transformers cache, for example) is asked to do it itself; both return the re-ordered object.

The index is of the leaves' own kind, an array or a tensor. Tensors are known by their methods, so that nothing here
needs torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from laconic.types import Shared

Change = Callable[[Any], Any]


def select(tree: Any, index: Any) -> Any:
    """Return ``tree`` with row ``index[i]`` of every array or tensor at row i; `Shared` parts are the same objects.

    ``index`` (M,) may repeat and omit rows, so this also widens one row a document to K beams.
    Scalars (zero-dimensional tensors, numbers, strings, ``None``) are left as they are.
    """

    def change(node: Any) -> Any:
        if isinstance(node, Shared):
            return node
        return _taken(node, index) if _has_rows(node) else node.select(index)

    return _walk(tree, change)


def select_documents(tree: Any, document_index: Any, beams: int) -> Any:
    """Return ``tree`` for the documents ``document_index`` (D,) only, each with its ``beams`` rows.

    `Shared` parts are cut along B, everything else along N = B * ``beams``.
    """
    rows = rows_of_documents(document_index, beams)

    def change(node: Any) -> Any:
        if isinstance(node, Shared):
            return Shared(select(node.tree, document_index))
        return _taken(node, rows) if _has_rows(node) else node.select_documents(document_index, beams)

    return _walk(tree, change)


def rows_of_documents(document_index: Any, beams: int) -> Any:
    """The decoder rows (D * beams,) of some documents: ``b * beams + k``; an array or a tensor, as the argument is."""
    offsets: Any = np.arange(beams)
    if not isinstance(document_index, np.ndarray):
        offsets = document_index.new_tensor(offsets)
    return (document_index[:, None] * beams + offsets).reshape(-1)


def _has_rows(node: Any) -> bool:
    return isinstance(node, np.ndarray) or hasattr(node, "index_select")


def _taken(node: Any, index: Any) -> Any:
    """The rows ``index`` of an array or tensor; a scalar as it is."""
    if not node.ndim:
        return node
    return node.take(index, axis=0) if isinstance(node, np.ndarray) else node.index_select(0, index)


def _walk(node: Any, change: Change) -> Any:
    if isinstance(node, dict):
        return type(node)((key, _walk(value, change)) for key, value in node.items())
    if isinstance(node, Shared) or _has_rows(node) or _selects_itself(node):
        return change(node)
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
