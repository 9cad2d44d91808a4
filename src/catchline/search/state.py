"""Re-ordering of decoder states, the same for every model.

A state is a nested structure of dicts, lists, tuples, named tuples and dataclasses whose arrays or tensors have
N = B * K decoder rows in front. What stands inside `catchline.types.Shared` has B documents in front.
An object with methods ``select(index)`` and ``select_documents(document_index, beams)`` (a wrapped
transformers cache, for example) is asked to do it itself; both return the re-ordered object.

The index is of the leaves' own kind, an array or a tensor. Tensors are known by their methods, so that nothing here
needs torch.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from catchline.types import Shared


def select(tree: Any, index: Any, documents: tuple[Any, int] | None = None) -> Any:
    """Return ``tree`` with row ``index[i]`` of every array or tensor at row i; `Shared` parts are the same objects, or
    those of the ``documents``, where these are chosen, with their beams.

    ``index`` (M,) may repeat and omit rows, so this also widens one row a document to K beams.
    Scalars (zero-dimensional tensors, numbers, strings, ``None``) are left as they are.
    """
    if isinstance(tree, dict):
        return type(tree)((key, select(value, index, documents)) for key, value in tree.items())
    if isinstance(tree, Shared):
        return Shared(select(tree.tree, documents[0])) if documents else tree
    if isinstance(tree, np.ndarray):
        return tree.take(index, axis=0) if tree.ndim else tree
    if hasattr(tree, "index_select"):
        return tree.index_select(0, index) if tree.ndim else tree
    if hasattr(tree, "select") and hasattr(tree, "select_documents") and not isinstance(tree, type):
        return tree.select_documents(*documents) if documents else tree.select(index)
    if isinstance(tree, list | tuple):
        values = [select(value, index, documents) for value in tree]
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree)]
        return dataclasses.replace(tree, **{name: select(getattr(tree, name), index, documents) for name in names})
    return tree


def select_documents(tree: Any, document_index: Any, beams: int) -> Any:
    """Return ``tree`` for the documents ``document_index`` (D,) only, each with its ``beams`` rows.

    `Shared` parts are cut along B, everything else along N = B * ``beams``.
    """
    return select(tree, rows_of_documents(document_index, beams), (document_index, beams))


def rows_of_documents(document_index: Any, beams: int) -> Any:
    """The decoder rows (D * beams,) of some documents: ``b * beams + k``; an array or a tensor, as the argument is."""
    offsets: Any = np.arange(beams)
    if not isinstance(document_index, np.ndarray):
        offsets = document_index.new_tensor(offsets)
    return (document_index[:, None] * beams + offsets).reshape(-1)
