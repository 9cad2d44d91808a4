"""The hypotheses of a search: their final scores, the best that have finished, their paths; and the arrays of a step.

Nothing is re-ordered while the search runs: each step leaves its arrays with back-pointers, a table keeps the best
ends, and only the winning paths are followed from their last step to their first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from catchline.errors import ModelError
from catchline.types import Hypothesis, Shared

if TYPE_CHECKING:
    from catchline.search.scorers import Scorer

FINAL, STEP, ROW, END_LOG_PROB, LOG_PROB, MODEL = range(6)
FIXED_COLUMNS = 6  # then one column a scorer
BLOCK = 64  # columns; rows that are shorter than its square have smaller blocks
SHORT = 512  # columns that are looked at one by one

Ranked = tuple[np.ndarray, np.ndarray]  # final scores (N,) and each scorer's share (N, scorers) in them


class FinishedTable:
    """``table`` (B, K, F): for each of B documents, K entries in descending order of their final score. The columns are
    the final score (minus infinity: no entry), the step and row where the path ends, the log-probability of EOS, the
    sum of log-probabilities, the sum of model scores, and each scorer's sum."""

    def __init__(self, documents: int, size: int, num_scorers: int):
        self.table = np.zeros((documents, size, FIXED_COLUMNS + num_scorers))
        self.table[:, :, FINAL] = -np.inf

    def count(self, documents: np.ndarray) -> np.ndarray:
        """The number of entries (D,) of some documents."""
        return (self.table[documents, :, FINAL] > -np.inf).sum(-1)

    def score_of(self, documents: np.ndarray, rank: int) -> np.ndarray:
        """The final score (D,) of the entry of this rank, from 1; minus infinity where there are fewer."""
        return self.table[documents, rank - 1, FINAL]

    def add(
        self,
        documents: np.ndarray,
        wanted: np.ndarray,
        ranked: Ranked,
        step: int,
        rows: np.ndarray,
        end_log_probs: np.ndarray,
        sums: np.ndarray,
    ) -> None:
        """Merge the ``wanted`` (D, C) of the candidates that stop at ``step`` into the tables of the documents (D,).
        The best K stay, earlier ones first. ``rows`` and ``end_log_probs`` are (D, C), ``sums`` (D, C, 2 + scorers)."""
        scores, shares = ranked
        entries = np.empty((*wanted.shape, self.table.shape[2]))
        entries[:, :, FINAL] = np.where(wanted, scores[rows], -np.inf)
        entries[:, :, STEP] = step
        entries[:, :, ROW] = rows
        entries[:, :, END_LOG_PROB] = end_log_probs
        entries[:, :, LOG_PROB:] = sums
        entries[:, :, FIXED_COLUMNS:] += shares[rows]
        merged = np.concatenate([self.table[documents], entries], axis=1)
        _, order = stable_topk(merged[:, :, FINAL], self.table.shape[1])
        self.table[documents] = np.take_along_axis(merged, order[:, :, None], axis=1)


@dataclasses.dataclass(slots=True)
class History:
    """All steps so far. The input rows (N,) of a step become nodes (M,): the hypotheses that live on after it."""

    # of each step: the previous step's node behind each input row (N,), attention (N, S), details (N, ...)
    steps: list[tuple[np.ndarray, np.ndarray | None, dict[str, np.ndarray]]] = dataclasses.field(default_factory=list)
    # of each step but the last: the input row that each node (M,) grew from, its token, its log-probability
    moves: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = dataclasses.field(default_factory=list)

    def paths(self, steps: np.ndarray, rows: np.ndarray, finished: np.ndarray) -> list[Hypothesis]:
        """Hypotheses without scores: follow M paths back from input row ``rows`` (M,) of step ``steps`` (M,).
        ``finished`` (M,) says that EOS was predicted at that step; otherwise the path ends one token earlier and the
        step's own row does not count. Of a step that was never taken the rows are the nodes of the last one."""
        if not len(steps):
            return []
        longest = int(steps.max())
        ids = np.zeros((len(rows), longest), dtype=np.int64)
        log_probs = np.zeros((len(rows), longest))
        pointers = np.zeros((len(rows), min(longest + 1, len(self.steps))), dtype=np.int64)
        pointer = rows
        for step in range(pointers.shape[1] - 1, -1, -1):
            active = steps > step  # the others end here or have not begun
            if step < longest:
                node = np.where(active, pointer, 0)
                if step + 1 < len(self.steps):
                    node = self.steps[step + 1][0][node]
                parents, tokens, chosen = self.moves[step]
                ids[:, step], log_probs[:, step] = tokens[node], chosen[node]
                pointer = np.where(active, parents[node], pointer)
            pointers[:, step] = np.where(steps >= step, pointer, 0)
        attention = _gather([shown for _, shown, _ in self.steps], pointers)
        names = self.steps[0][2]
        details = {name: _gather([found.get(name) for _, _, found in self.steps], pointers) for name in names}
        paths = []
        for i, (length, ended) in enumerate(zip(steps.tolist(), finished.tolist(), strict=True)):
            used = length + ended
            paths.append(
                Hypothesis(
                    ids=ids[i, :length].tolist(),
                    score=0.0,
                    log_prob=0.0,
                    token_log_probs=log_probs[i, :length].tolist(),
                    finished=ended,
                    attention=None if attention is None else attention[i, :used].copy(),
                    details={name: value[i, :used].copy() for name, value in details.items() if value is not None},
                )
            )
        return paths


def _gather(arrays: list[np.ndarray | None], pointers: np.ndarray) -> np.ndarray | None:
    """(M, T, ...) the rows of each step's array that lie on the paths."""
    used = [array[pointers[:, step]] for step, array in enumerate(arrays[: pointers.shape[1]]) if array is not None]
    return np.stack(used, axis=1) if len(used) == pointers.shape[1] else None


def collect(
    history: History,
    finished: FinishedTable,
    unfinished: FinishedTable,
    num_return: int,
    scorers: Sequence[Scorer],
    *,
    compete: bool,
) -> list[list[Hypothesis]]:
    """The best ``num_return`` hypotheses of each document: finished ones first, then unfinished ones; with ``compete``
    the better one first."""
    entries = np.concatenate([finished.table, unfinished.table], axis=1)  # (B, 2K, F)
    final = entries[:, :, FINAL]
    is_finished = np.broadcast_to(np.arange(final.shape[1]) < final.shape[1] // 2, final.shape)
    order = np.lexsort((-final, ~is_finished & (not compete)))
    valid = np.isfinite(np.take_along_axis(final, order, axis=1))
    documents, ranks = (valid & (valid.cumsum(axis=1) <= num_return)).nonzero()
    columns = order[documents, ranks]
    chosen = entries[documents, columns]
    steps, rows = chosen[:, STEP].astype(np.int64), chosen[:, ROW].astype(np.int64)
    results: list[list[Hypothesis]] = [[] for _ in final]
    paths = history.paths(steps, rows, is_finished[documents, columns])
    for document, path, entry in zip(documents.tolist(), paths, chosen.tolist(), strict=True):
        results[document].append(path)
        path.score, path.log_prob, path.terms["model"] = entry[FINAL], entry[LOG_PROB], entry[MODEL]
        if path.finished:
            path.token_log_probs.append(entry[END_LOG_PROB])
        for scorer, amount in zip(scorers, entry[FIXED_COLUMNS:], strict=True):
            if amount:  # scorers that only forbid tokens, or had no reason to speak, add nothing
                path.terms[scorer.name] = path.terms.get(scorer.name, 0.0) + amount
    if not all(results):
        raise ModelError("A scorer of the search, or the model, gave a summary a score that is not a finite number.")
    return results


# ------------------------------------------------------------------------------------------------- work on arrays


def select(tree: Any, index: Any, documents: tuple[Any, int] | None = None) -> Any:
    """The decoder state ``tree`` with row ``index[i]`` of every array or tensor at row i.

    A state is a nested structure of dicts, lists, tuples, named tuples and dataclasses whose arrays or tensors have
    N = B * K rows in front. `Shared` parts have B documents in front: they are the same objects or, with ``documents``
    (their indices, and the beams of each), those of them. An object with methods ``select(index)`` and
    ``select_documents(document_index, beams)`` (a cache) re-orders itself; both return the re-ordered object.

    ``index`` (M,), of the leaves' own kind, may repeat and omit rows, so this also widens one row a document to K
    beams. Scalars (zero-dimensional tensors, numbers, strings, ``None``) are returned as they are. Tensors are known by
    their methods, so that nothing here needs torch.
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

    A partition of 50,000 columns costs several passes. One pass of maxima over blocks leaves few columns: the ``count``
    best blocks of a row hold ``count`` entries that are not below the worst of these maxima, so only blocks that reach
    it are opened. A block is every (X / size)-th column: processors take maxima of neighbouring blocks side by side.
    Scores on another device find theirs there (`catchline.search.torch_bridge.DeviceScores`)."""
    if not isinstance(scores, np.ndarray):
        return scores.top(count)
    rows, width = scores.shape
    count = min(count, width)
    if block is None:
        block = 1 if width < SHORT else 16 if width < BLOCK * BLOCK else BLOCK
    blocks = width // block
    if block == 1 or blocks < max(count, block):
        best, block = scores, 1
    else:  # the maxima of the blocks: block b has the columns b, b + blocks, b + 2 blocks, ...
        best = scores[:, : blocks * block].reshape(rows, block, blocks).max(axis=1)
        over = width - blocks * block  # fewer than a block's columns: the first blocks have one more
        np.maximum(best[:, :over], scores[:, blocks * block :], out=best[:, :over])
    top = np.partition(best, best.shape[1] - count, axis=1)[:, -count:]
    floor = np.maximum(top[:, :1], np.finfo(scores.dtype).min)  # minus infinity is nobody's candidate
    row, column = np.divmod(np.flatnonzero(best >= floor), best.shape[1])
    values, row, ids = _opened(scores, floor, row, column, best.shape[1], block)
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
