"""Array work of the search: re-ordering of decoder states, and the best entries of wide rows.

A state is a nested structure of dicts, lists, tuples, named tuples and dataclasses whose arrays or tensors have
N = B * K decoder rows in front. Whatever is inside `catchline.types.Shared` has B documents in front. An object with
methods ``select(index)`` and ``select_documents(document_index, beams)`` (a cache, for example) re-orders itself; both
return the re-ordered object. The index is of the leaves' own kind, an array or a tensor. Tensors are known by their
methods, so that nothing here needs torch.

A partition of 50,000 columns costs several passes. One pass of maxima over blocks leaves few columns: the ``count``
best blocks of a row hold ``count`` entries that are not below the worst of these maxima. So nothing below it can be
among the best ``count``, and only blocks that reach it are opened. A block is every (X / size)-th column: the maxima of
neighbouring blocks are then taken side by side, which is what processors do fast.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from catchline.types import Shared

BLOCK = 64  # columns; rows that are shorter than its square have smaller blocks
SHORT = 512  # columns that are looked at one by one


def select(tree: Any, index: Any, documents: tuple[Any, int] | None = None) -> Any:
    """``tree`` with row ``index[i]`` of every array or tensor at row i.

    `Shared` parts are the same objects or, with ``documents`` (their indices, and the beams of each), those of them.

    ``index`` (M,) may repeat and omit rows, so this also widens one row a document to K beams.
    Scalars (zero-dimensional tensors, numbers, strings, ``None``) are returned as they are.
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
    """Return ``tree`` for the documents ``document_index`` (D,) only, each with its ``beams`` rows. `Shared` parts are
    cut along B, everything else along N = B * ``beams``."""
    return select(tree, rows_of_documents(document_index, beams), (document_index, beams))


def rows_of_documents(document_index: Any, beams: int) -> Any:
    """The decoder rows (D * beams,) of some documents: ``b * beams + k``; an array or a tensor, as the argument is."""
    offsets: Any = np.arange(beams)
    if not isinstance(document_index, np.ndarray):
        offsets = document_index.new_tensor(offsets)
    return (document_index[:, None] * beams + offsets).reshape(-1)


def top_candidates(scores: Any, count: int, block: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The ``count`` largest entries of each row of ``scores`` (N, X): values and ids (N, min(count, X)).

    Descending; of equal values the lower id comes first, also across the cut. Which ids have values of minus
    infinity is not defined. A row that holds NaN gives nothing but NaN.

    Scores on another device find theirs there (`catchline.search.torch_bridge.DeviceScores`).
    """
    if not isinstance(scores, np.ndarray):
        return scores.top(count)
    rows, width = scores.shape
    count = min(count, width)
    if block is None:
        block = 1 if width < SHORT else 16 if width < BLOCK * BLOCK else BLOCK
    best, size = _maxima(scores, block, count)
    top = np.partition(best, best.shape[1] - count, axis=1)[:, -count:]
    floor = np.maximum(top[:, :1], np.finfo(scores.dtype).min)  # minus infinity is nobody's candidate
    row, column = np.divmod(np.flatnonzero(best >= floor), best.shape[1])
    values, row, ids = _opened(scores, floor, row, column, best.shape[1], size)
    order = np.lexsort((ids, -values, row))
    first = row.searchsorted(np.arange(rows + 1))  # where each row's entries begin; at least ``count`` unless forbidden
    place = first[:-1, None] + np.arange(count)
    if len(order) and (first[1:] - first[:-1]).min() >= count:
        taken = order[place]
        return values[taken], ids[taken]
    there = place < first[1:, None]
    taken = np.append(order, 0)[np.where(there, place, -1)]
    values, ids = np.append(values, np.zeros(1, values.dtype)), np.append(ids, 0)
    found = np.where(there, values[taken], values.dtype.type(-np.inf)), np.where(there, ids[taken], 0)
    found[0][np.isnan(top).any(axis=1)] = np.nan
    return found


def _maxima(scores: np.ndarray, size: int, count: int) -> tuple[np.ndarray, int]:
    """The maxima of the blocks and how many columns these have: block b has b, b + blocks, b + 2 blocks, ..."""
    rows, width = scores.shape
    blocks = width // size
    if size == 1 or blocks < max(count, size):
        return scores, 1
    best = scores[:, : blocks * size].reshape(rows, size, blocks).max(axis=1)
    over = width - blocks * size  # fewer than a block's columns: the first blocks have one more
    np.maximum(best[:, :over], scores[:, blocks * size :], out=best[:, :over])
    return best, size


def _opened(
    scores: np.ndarray, floor: np.ndarray, row: np.ndarray, column: np.ndarray, blocks: int, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The entries (M,) of the blocks ``column`` of rows ``row`` that reach the row's ``floor``: values, rows, ids."""
    if size == 1:
        return scores[row, column], row, column
    width = scores.shape[1]
    ids = column[:, None] + blocks * np.arange(size + 1)  # the last is outside of the row, or the block's one more
    values = scores.take(width * row[:, None] + np.minimum(ids, width - 1))
    chosen = np.flatnonzero((values >= floor[row]) & (ids < width))
    return values.take(chosen), row.take(chosen // (size + 1)), ids.take(chosen)


def stable_topk(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``count`` largest of each row of a narrow matrix, descending, and where they stand; of equal values the lower
    index comes first."""
    index = (-values).argsort(axis=-1, kind="stable")[:, :count]
    return np.take_along_axis(values, index, axis=-1), index
