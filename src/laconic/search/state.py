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
from typing import Any

import numpy as np

from laconic.types import Shared


def select(tree: Any, index: Any) -> Any:
    """Return ``tree`` with row ``index[i]`` of every array or tensor at row i; `Shared` parts are the same objects.

    ``index`` (M,) may repeat and omit rows, so this also widens one row a document to K beams.
    Scalars (zero-dimensional tensors, numbers, strings, ``None``) are left as they are.
    """
    return _walk(tree, index)


def select_documents(tree: Any, document_index: Any, beams: int) -> Any:
    """Return ``tree`` for the documents ``document_index`` (D,) only, each with its ``beams`` rows.

    `Shared` parts are cut along B, everything else along N = B * ``beams``.
    """
    return _walk(tree, rows_of_documents(document_index, beams), (document_index, beams))


def rows_of_documents(document_index: Any, beams: int) -> Any:
    """The decoder rows (D * beams,) of some documents: ``b * beams + k``; an array or a tensor, as the argument is."""
    offsets: Any = np.arange(beams)
    if not isinstance(document_index, np.ndarray):
        offsets = document_index.new_tensor(offsets)
    return (document_index[:, None] * beams + offsets).reshape(-1)


def _walk(node: Any, rows: Any, documents: tuple[Any, int] | None = None) -> Any:
    """``rows`` of every array and tensor; ``documents``, where these are chosen, and their beams."""
    if isinstance(node, dict):
        return type(node)((key, _walk(value, rows, documents)) for key, value in node.items())
    if isinstance(node, Shared):
        return Shared(select(node.tree, documents[0])) if documents else node
    if isinstance(node, np.ndarray):
        return node.take(rows, axis=0) if node.ndim else node
    if hasattr(node, "index_select"):
        return node.index_select(0, rows) if node.ndim else node
    if hasattr(node, "select") and hasattr(node, "select_documents") and not isinstance(node, type):
        return node.select_documents(*documents) if documents else node.select(rows)
    if isinstance(node, list | tuple):
        values = [_walk(value, rows, documents) for value in node]
        return type(node)(*values) if hasattr(node, "_fields") else type(node)(values)
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        names = [field.name for field in dataclasses.fields(node)]
        return dataclasses.replace(node, **{name: _walk(getattr(node, name), rows, documents) for name in names})
    return node
