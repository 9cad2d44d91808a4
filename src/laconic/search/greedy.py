"""Greedy decoding over the same step function and the same scorers as beam search, with less to carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from laconic.config.schema import SearchConfig
from laconic.errors import ConfigError, ModelError
from laconic.search.beam import StepFunction, TokenScores
from laconic.search.hypotheses import (
    END_LOG_PROB,
    FINAL,
    FIXED_COLUMNS,
    LOG_PROB,
    MODEL,
    ROW,
    STEP,
    History,
    rank,
    to_hypothesis,
)
from laconic.search.scorers import HypothesesView, Scorer, SpecialIds, build_scorers
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
    scorers: Sequence[Scorer] | None = None,
) -> list[list[Hypothesis]]:
    """One hypothesis a document: the best token at each step.

    Arguments as of `laconic.search.beam.beam_search`; the result equals that of a beam of one.

    Raises:
        ConfigError: ``config`` asks for more than one hypothesis.
        ModelError: the model gave a score that is not a number.
    """
    if config.num_return != 1:
        raise ConfigError(f"Greedy decoding gives one hypothesis, not search.num_return {config.num_return}.")
    scorers = build_scorers(config, specials) if scorers is None else list(scorers)
    run = _GreedyRun(memory, scorers, config, specials)
    for _ in range(config.num_steps):
        output, state = step(run.last_ids, state)
        run.advance(output)
        if not run.alive.any():
            break
    return run.results()


class _GreedyRun:
    """Adds up the steps and closes each document's hypothesis where it ends."""

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
        self.closed: dict[int, tuple[list[float], bool]] = {}  # by document: its row of the table, and whether in EOS

    def advance(self, output: StepOutput) -> None:
        """One step; documents that end or get stuck are closed with their final score."""
        rows, nothing = self.rows, np.zeros(len(self.rows))
        added = np.zeros_like(self.sums)
        view = HypothesesView(self.prefix, output)
        for column, scorer in enumerate(self.scorers, start=2):
            amount = scorer.on_rows(nothing, view)
            if scorer.carries_rows:
                added[:, column] = amount
        scores = TokenScores.of(output, view, self.scorers)
        values, ids = (part[:, 0] for part in top_candidates(scores.total, 1))
        if (np.isnan(values) & self.alive).any():
            raise ModelError("The model gave a token score that is not a number; its weights are probably damaged.")
        log_probs = scores.log_probs[rows, ids].astype(np.float64)
        added[:, 0], added[:, 1] = log_probs, scores.model[rows, ids]
        for addition in scores.additions:
            added[:, 2 + addition.column] += addition.at(rows, ids)

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
        shares = self.sums[:, 2:] + ranked.shares
        for row in which.nonzero()[0].tolist():
            entry = [0.0] * FIXED_COLUMNS
            entry[FINAL], entry[STEP], entry[ROW] = float(ranked.scores[row]), self.prefix.shape[1], row
            entry[END_LOG_PROB] = float(end_log_probs[row])
            entry[LOG_PROB], entry[MODEL] = self.sums[row, :2].tolist()
            self.closed[row] = (entry + shares[row].tolist(), finished)

    def results(self) -> list[list[Hypothesis]]:
        """The hypotheses in the order of the documents."""
        closed = [self.closed[row] for row in range(len(self.rows))]
        steps = np.array([int(entry[STEP]) for entry, _ in closed])
        ended = np.array([finished for _, finished in closed])
        paths = self.history.paths(steps, self.rows, ended)
        return [
            [to_hypothesis(path, entry, finished, self.scorers)]
            for path, (entry, finished) in zip(paths, closed, strict=True)
        ]
