"""From the tables of a search to `Hypothesis` objects."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from laconic.search.finished import END_LOG_PROB, FINAL, FIXED_COLUMNS, LOG_PROB, MODEL, ROW, STEP
from laconic.search.history import History, Path
from laconic.search.scorers.base import Scorer
from laconic.types import Hypothesis

MODEL_TERM = "model"  # the name, among `Hypothesis.terms`, of the sum of the model's own scores


def collect(
    history: History,
    finished: Tensor,
    cut: Tensor,
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
    entries = torch.cat([_by_score(table, documents) for table in (finished, cut)], dim=1)  # (B, 2K, F)
    is_finished_entry = torch.arange(entries.shape[1], device=entries.device) < entries.shape[1] // 2
    is_finished_entry = is_finished_entry.expand(documents, -1)
    if cut_compete:
        order = entries[:, :, FINAL].sort(dim=1, descending=True, stable=True).indices
        entries = entries.gather(1, order[:, :, None].expand_as(entries))
        is_finished_entry = is_finished_entry.gather(1, order)
    valid = entries[:, :, FINAL] > -torch.inf
    if groups == 1:  # hypotheses of one beam differ from each other; those of several groups need not
        valid &= valid.cumsum(1) <= num_return
    documents_of, columns = valid.nonzero(as_tuple=True)
    chosen = entries[documents_of, columns]
    ended = is_finished_entry[documents_of, columns]
    paths = history.paths(chosen[:, STEP].long(), chosen[:, ROW].long(), ended)
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


def _by_score(table: Tensor, documents: int) -> Tensor:
    """(B, K, F) the entries of all groups of a document in descending order."""
    entries = table.reshape(documents, -1, table.shape[2])
    order = entries[:, :, FINAL].sort(dim=1, descending=True, stable=True).indices
    return entries.gather(1, order[:, :, None].expand_as(entries))
