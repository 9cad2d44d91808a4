"""The hypotheses of a search: what they are worth where they stop, the best that have finished, their paths.

Nothing is re-ordered while the search runs: each step leaves its arrays with back-pointers, a table keeps the best
ends, and only the winning paths are followed from their last step to their first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from laconic.search.scorers import HypothesesView, Scorer
from laconic.search.topk import stable_topk
from laconic.types import Hypothesis, StepOutput

FINAL, STEP, ROW, END_LOG_PROB, LOG_PROB, MODEL = range(6)
FIXED_COLUMNS = 6  # then one column a scorer


class FinishedTable:
    """``table`` (Q, K, F): for each of Q beams, K entries in descending order of their final score.

    The columns are the final score (minus infinity: no entry), the step and input row where the path ends,
    the log-probability of EOS, the sum of log-probabilities, the sum of model scores, and each scorer's sum.
    """

    def __init__(self, beams: int, size: int, num_scorers: int):
        self.table = np.zeros((beams, size, FIXED_COLUMNS + num_scorers))
        self.table[:, :, FINAL] = -np.inf

    def count(self, beams: np.ndarray) -> np.ndarray:
        """The number of entries (q,) of some beams."""
        return (self.table[beams, :, FINAL] > -np.inf).sum(-1)

    def worst_of_best(self, beams: np.ndarray, count: int) -> np.ndarray:
        """The final score (q,) of entry ``count`` of some beams; minus infinity where there are fewer."""
        return self.table[beams, count - 1, FINAL]

    def add(self, beams: np.ndarray, entries: np.ndarray) -> None:
        """Merge ``entries`` (q, C, F) into the tables of the beams (q,); the best K stay, earlier ones first."""
        merged = np.concatenate([self.table[beams], entries], axis=1)
        _, order = stable_topk(merged[:, :, FINAL], self.table.shape[1])
        self.table[beams] = np.take_along_axis(merged, order[:, :, None], axis=1)


@dataclass(slots=True)
class Ranked:
    """The final scores (N,) of hypotheses and each scorer's share (N, scorers) in what made them final."""

    scores: np.ndarray
    shares: np.ndarray


def rank(scorers: Sequence[Scorer], totals: np.ndarray, view: HypothesesView) -> Ranked:
    """Final scores of the rows if they stop here, with totals (N,)."""
    shares = np.zeros((len(totals), len(scorers)))
    for column, scorer in enumerate(scorers):
        ranked = scorer.on_hypotheses(totals, view)
        if ranked is not totals:
            shares[:, column] = ranked - totals
            totals = ranked
    return Ranked(totals, shares)


@dataclass(slots=True)
class StepRecord:
    """One step. Its input rows (N,) become nodes (M,): the hypotheses that live on after it."""

    origin: np.ndarray  # (N,) the previous step's node behind each input row
    attention: np.ndarray | None  # (N, S)
    details: dict[str, np.ndarray]  # (N, ...)
    parents: np.ndarray | None = None  # (M,) the input row each node grew from; None after the last step
    tokens: np.ndarray | None = None  # (M,)
    log_probs: np.ndarray | None = None  # (M,)


@dataclass(slots=True)
class Path:
    """A path read back. Arrays have a row for EOS where the path ended in it."""

    ids: list[int]
    log_probs: list[float]
    attention: np.ndarray | None
    details: dict[str, np.ndarray]


@dataclass(slots=True)
class History:
    """The records of all steps so far."""

    records: list[StepRecord] = field(default_factory=list)

    def open_step(self, origin: np.ndarray, output: StepOutput) -> None:
        """Store what explains a step: attention and details, not the (N, X) tensors."""
        rows = len(origin)
        details = {name: value for name, value in output.details.items() if value.ndim and len(value) == rows}
        self.records.append(StepRecord(origin, output.attention, details))

    def close_step(self, parents: np.ndarray, tokens: np.ndarray, log_probs: np.ndarray) -> None:
        """Store which rows went on with which tokens."""
        record = self.records[-1]
        record.parents, record.tokens, record.log_probs = parents, tokens, log_probs

    def paths(self, steps: np.ndarray, rows: np.ndarray, finished: np.ndarray) -> list[Path]:
        """Follow M paths back from input row ``rows`` (M,) of step ``steps`` (M,).

        ``finished`` (M,) says that EOS was predicted at that step; otherwise the path ends one token
        earlier and the step's own row does not count. Of a step that was never taken the rows are the nodes of the
        last one.
        """
        if not len(steps):
            return []
        longest = int(steps.max())
        ids = np.zeros((len(rows), longest), dtype=np.int64)
        log_probs = np.zeros((len(rows), longest))
        pointers = np.zeros((len(rows), min(longest + 1, len(self.records))), dtype=np.int64)
        pointer = rows
        for step in range(pointers.shape[1] - 1, -1, -1):
            record = self.records[step]
            active = steps > step  # the others end here or have not begun
            if step < longest:
                assert record.parents is not None
                assert record.tokens is not None
                assert record.log_probs is not None
                node = np.where(active, pointer, 0)
                if step + 1 < len(self.records):
                    node = self.records[step + 1].origin[node]
                ids[:, step] = record.tokens[node]
                log_probs[:, step] = record.log_probs[node]
                pointer = np.where(active, record.parents[node], pointer)
            pointers[:, step] = np.where(steps >= step, pointer, 0)
        return self._cut(ids, log_probs, pointers, steps, finished)

    def _cut(
        self, ids: np.ndarray, log_probs: np.ndarray, pointers: np.ndarray, steps: np.ndarray, finished: np.ndarray
    ) -> list[Path]:
        attention = self._gather([record.attention for record in self.records], pointers)
        names = self.records[0].details
        details = {n: self._gather([record.details.get(n) for record in self.records], pointers) for n in names}
        ids_list, log_prob_list = ids.tolist(), log_probs.tolist()
        paths = []
        for i, (length, ended) in enumerate(zip(steps.tolist(), finished.tolist(), strict=True)):
            rows = length + bool(ended)
            paths.append(
                Path(
                    ids_list[i][:length],
                    log_prob_list[i][:length],
                    None if attention is None else attention[i, :rows].copy(),
                    {name: value[i, :rows].copy() for name, value in details.items() if value is not None},
                )
            )
        return paths

    def _gather(self, arrays: list[np.ndarray | None], pointers: np.ndarray) -> np.ndarray | None:
        """(M, T, ...) the rows of each step's array that lie on the paths."""
        used = [array[pointers[:, step]] for step, array in enumerate(arrays[: pointers.shape[1]]) if array is not None]
        return np.stack(used, axis=1) if len(used) == pointers.shape[1] else None


MODEL_TERM = "model"  # the name, among `Hypothesis.terms`, of the sum of the model's own scores


def collect(
    history: History,
    finished: np.ndarray,
    cut: np.ndarray,
    *,
    groups: int,
    num_return: int,
    scorers: Sequence[Scorer],
    cut_compete: bool = False,
) -> list[list[Hypothesis]]:
    """The best ``num_return`` distinct hypotheses of each document: finished ones first, then those cut.

    ``finished`` and ``cut`` are the tables (B * groups, K / groups, F) of `FinishedTable`; with ``cut_compete``
    the better one comes first, finished or not.
    """
    documents = finished.shape[0] // groups
    entries = np.concatenate([_by_score(table, documents) for table in (finished, cut)], axis=1)  # (B, 2K, F)
    is_finished_entry = np.arange(entries.shape[1]) < entries.shape[1] // 2
    is_finished_entry = np.broadcast_to(is_finished_entry, entries.shape[:2])
    if cut_compete:
        order = (-entries[:, :, FINAL]).argsort(axis=1, kind="stable")
        entries = np.take_along_axis(entries, order[:, :, None], axis=1)
        is_finished_entry = np.take_along_axis(is_finished_entry, order, axis=1)
    valid = entries[:, :, FINAL] > -np.inf
    if groups == 1:  # hypotheses of one beam differ from each other; those of several groups need not
        valid &= valid.cumsum(axis=1) <= num_return
    documents_of, columns = valid.nonzero()
    chosen = entries[documents_of, columns]
    ended = is_finished_entry[documents_of, columns]
    paths = history.paths(chosen[:, STEP].astype(np.int64), chosen[:, ROW].astype(np.int64), ended)
    results: list[list[Hypothesis]] = [[] for _ in range(documents)]
    for document, path, entry, is_finished in zip(
        documents_of.tolist(), paths, chosen.tolist(), ended.tolist(), strict=True
    ):
        known = results[document]
        if len(known) < num_return and all(other.ids != path.ids for other in known):
            known.append(to_hypothesis(path, entry, is_finished, scorers))
    return results


def to_hypothesis(path: Path, entry: Sequence[float], finished: bool, scorers: Sequence[Scorer]) -> Hypothesis:
    """Join a path with its row of the table."""
    terms = {MODEL_TERM: entry[MODEL]}
    for scorer, amount in zip(scorers, entry[FIXED_COLUMNS:], strict=True):
        if amount:  # scorers that only forbid tokens, or had no reason to speak, add nothing
            terms[scorer.name] = terms.get(scorer.name, 0.0) + amount
    return Hypothesis(
        ids=path.ids,
        score=entry[FINAL],
        log_prob=entry[LOG_PROB],
        token_log_probs=path.log_probs + ([entry[END_LOG_PROB]] if finished else []),
        finished=finished,
        attention=path.attention,
        details=path.details,
        terms=terms,
    )


def _by_score(table: np.ndarray, documents: int) -> np.ndarray:
    """(B, K, F) the entries of all groups of a document in descending order."""
    entries = table.reshape(documents, -1, table.shape[2])
    order = (-entries[:, :, FINAL]).argsort(axis=1, kind="stable")
    return np.take_along_axis(entries, order[:, :, None], axis=1)
