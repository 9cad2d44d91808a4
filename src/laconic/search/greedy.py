"""Greedy decoding over the same step function and the same scorers as beam search, with less to carry."""

from __future__ import annotations

from typing import Any

import numpy as np

from laconic.config.schema import SearchConfig
from laconic.errors import ConfigError, ModelError
from laconic.search.beam import StepFunction, TokenScores
from laconic.search.hypotheses import FinishedTable, History, collect, rank
from laconic.search.scorers import HypothesesView, Scorer, SpecialIds
from laconic.search.topk import top_candidates
from laconic.types import Hypothesis, Memory, StepOutput


@np.errstate(invalid="ignore", divide="ignore")  # differences of minus infinities
def greedy_search(
    step: StepFunction,
    state: Any,
    *,
    memory: Memory,
    config: SearchConfig,
    specials: SpecialIds,
    scorers: list[Scorer],
) -> list[list[Hypothesis]]:
    """One hypothesis a document: the best token at each step.

    Arguments and errors as of `laconic.search.beam.beam_search`; the result equals that of a beam of one.

    Raises:
        ConfigError: ``config`` asks for more than one hypothesis.
    """
    if config.num_return != 1:
        raise ConfigError(f"Greedy decoding gives one hypothesis, not search.num_return {config.num_return}.")
    run = _GreedyRun(memory, scorers, config, specials)
    for _ in range(config.num_steps):
        output, state = step(run.last_ids, state)
        run.advance(output)
        if not run.alive.any():
            break
    return collect(run.history, run.finished.table, run.cut.table, scorers=scorers)


class _GreedyRun:
    def __init__(self, memory: Memory, scorers: list[Scorer], config: SearchConfig, specials: SpecialIds):
        self.scorers, self.config, self.eos_id = scorers, config, specials.eos_id
        count = memory.batch_size
        for scorer in scorers:
            scorer.start(memory, count)
        self.history = History()
        self.rows = np.arange(count)
        self.last_ids = np.full(count, specials.bos_id)
        self.prefix = np.empty((count, 0), dtype=np.int64)
        self.sums = np.zeros((count, 2 + len(scorers)))
        self.alive = np.ones(count, dtype=bool)
        self.finished = FinishedTable(count, 1, len(scorers))
        self.cut = FinishedTable(count, 1, len(scorers))

    def advance(self, output: StepOutput) -> None:
        """One step; documents that end or get stuck are closed with their final score."""
        rows, nothing = self.rows, np.zeros(len(self.rows))
        added = np.zeros_like(self.sums)
        view = HypothesesView(self.prefix, output)
        for column, scorer in enumerate(self.scorers, start=2):
            amount = scorer.on_rows(nothing, view)
            if scorer.carries_rows:
                added[:, column] = amount
        scores = TokenScores(output, view, self.scorers)
        values, ids = (part[:, 0] for part in top_candidates(scores.total, 1))
        if (np.isnan(values) & self.alive).any():
            raise ModelError("The model gave a token score that is not a number; its weights are probably damaged.")
        log_probs = scores.add_to(added, rows, ids)
        going = self.alive & (values > -np.inf)
        ended = going & (ids == self.eos_id)
        beyond = self.prefix.shape[1] == self.config.max_length  # nothing but EOS may come
        stuck = self.alive & ~ended & (~going | beyond)
        self.history.open_step(rows, output)
        if stuck.any():
            self._close(stuck, nothing, finished=False)
        self.sums = self.sums + np.where(going[:, None], added, 0.0)
        if ended.any():
            self._close(ended, log_probs, finished=True)
        self.alive = going & ~ended & ~stuck
        self.history.close_step(rows, ids, log_probs)
        self.last_ids, self.prefix = ids, np.concatenate([self.prefix, ids[:, None]], axis=1)
        if self.prefix.shape[1] == self.config.num_steps and self.alive.any():
            self._close(self.alive, nothing, finished=False, free_end=self.config.unfinished == "free_end")

    def _close(self, which: np.ndarray, end_log_probs: np.ndarray, *, finished: bool, free_end: bool = False) -> None:
        view = HypothesesView(self.prefix, ended=finished or free_end)
        ranked = rank(self.scorers, self.sums[:, 1:].sum(-1), view)
        if not np.isfinite(ranked[0][which]).all():
            raise ModelError(
                "A scorer of the search, or the model, gave a summary a score that is not a finite number."
            )
        table, rows = self.finished if finished else self.cut, self.rows[:, None]
        table.add(self.rows, which[:, None], ranked, view.length, rows, end_log_probs[:, None], self.sums[:, None])
