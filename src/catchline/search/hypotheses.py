"""The hypotheses of a search: their final scores, the best that have finished, their paths.

Nothing is re-ordered while the search runs: each step leaves its arrays with back-pointers, a table keeps the best
ends, and only the winning paths are followed from their last step to their first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from catchline.errors import ModelError
from catchline.search.arrays import stable_topk
from catchline.search.scorers import HypothesesView, Scorer
from catchline.types import Hypothesis, StepOutput

FINAL, STEP, ROW, END_LOG_PROB, LOG_PROB, MODEL = range(6)
FIXED_COLUMNS = 6  # then one column a scorer

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


def rank(scorers: Sequence[Scorer], totals: np.ndarray, view: HypothesesView) -> Ranked:
    """The final scores of the rows if they stop here, with totals (N,), and what makes them of the totals."""
    shares = np.zeros((len(totals), len(scorers)))
    for column, scorer in enumerate(scorers):
        ranked = scorer.on_hypotheses(totals, view)
        if ranked is not totals:
            shares[:, column] = ranked - totals
            totals = ranked
    return totals, shares


class History:
    """All steps so far. The input rows (N,) of a step become nodes (M,): the hypotheses that live on after it."""

    def __init__(self) -> None:
        # of each step: the previous step's node behind each input row (N,), attention (N, S), details (N, ...)
        self.steps: list[tuple[np.ndarray, np.ndarray | None, dict[str, np.ndarray]]] = []
        # of each step but the last: the input row that each node (M,) grew from, its token, its log-probability
        self.moves: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def open_step(self, origin: np.ndarray, output: StepOutput) -> None:
        """Store what explains a step: attention and details, not the (N, X) tensors."""
        rows = len(origin)
        details = {name: value for name, value in output.details.items() if value.ndim and len(value) == rows}
        self.steps.append((origin, output.attention, details))

    def close_step(self, parents: np.ndarray, tokens: np.ndarray, log_probs: np.ndarray) -> None:
        """Store which rows went on with which tokens."""
        self.moves.append((parents, tokens, log_probs))

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
