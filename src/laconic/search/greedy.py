"""Greedy decoding and sampling over the same step function and the same scorers as beam search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from laconic.config.schema import SearchConfig
from laconic.config.section import Section
from laconic.errors import ConfigError, ModelError
from laconic.search.beam import StepFunction
from laconic.search.candidates import TokenScores
from laconic.search.finished import END_LOG_PROB, FINAL, FIXED_COLUMNS, LOG_PROB, MODEL, ROW, STEP, Ranked, rank
from laconic.search.history import History
from laconic.search.results import to_hypothesis
from laconic.search.scorers.base import HypothesesView, Scorer, SpecialIds
from laconic.search.scorers.build import build_scorers
from laconic.search.topk import top_candidates
from laconic.types import Hypothesis, Memory, StepOutput


class Sampling(Section):
    """Draw tokens instead of taking the best. ``top_k`` none draws from all of them."""

    temperature: float = Field(1.0, gt=0)
    top_k: int | None = Field(None, ge=1)
    seed: int = 0


@dataclass(slots=True)
class GreedyToken:
    """What one step chose for each document; what stands in rows that are not ``alive`` means nothing.

    ``ids`` are extended ids and EOS where a document ends. ``shares`` holds what each scorer added.
    """

    ids: Tensor  # (B,)
    alive: Tensor  # (B,) documents that had not ended before this step and could go on
    log_probs: Tensor  # (B,)
    scores: Tensor  # (B,) the model's
    shares: Tensor  # (B, scorers)
    output: StepOutput


def greedy_tokens(
    step: StepFunction,
    state: Any,
    *,
    memory: Memory,
    config: SearchConfig,
    specials: SpecialIds,
    scorers: Sequence[Scorer] | None = None,
    sampling: Sampling | None = None,
) -> Iterator[GreedyToken]:
    """Yield each step's tokens as they are chosen, until every document has ended or ``config.num_steps`` are done."""
    scorers = build_scorers(config, specials) if scorers is None else scorers
    documents, device = memory.batch_size, memory.mask.device
    generator = torch.Generator(device).manual_seed(sampling.seed) if sampling else None
    for scorer in scorers:
        scorer.start(memory, documents)
    last_ids = torch.full((documents,), specials.bos_id, device=device)
    prefix = torch.zeros(documents, 0, dtype=torch.int64, device=device)
    alive = torch.ones(documents, dtype=torch.bool, device=device)
    for _ in range(config.num_steps):
        with torch.inference_mode():
            output, state = step(last_ids, state)
            token = _choose(output, HypothesesView(prefix, output), scorers, alive, generator, sampling)
        yield token
        alive = token.alive & (token.ids != specials.eos_id)
        if not bool(alive.any()):
            return
        last_ids = token.ids
        prefix = torch.cat([prefix, last_ids[:, None]], dim=1)


@torch.inference_mode()
def greedy_search(
    step: StepFunction,
    state: Any,
    *,
    memory: Memory,
    config: SearchConfig,
    specials: SpecialIds,
    scorers: Sequence[Scorer] | None = None,
    sampling: Sampling | None = None,
) -> list[list[Hypothesis]]:
    """One hypothesis a document: the best token at each step, or a drawn one.

    Arguments as of `laconic.search.beam.beam_search`; the result equals that of a beam of one.

    Raises:
        ConfigError: ``config`` asks for more than one hypothesis.
        ModelError: the model gave a score that is not a number.
    """
    if config.num_return != 1:
        raise ConfigError(f"Greedy decoding gives one hypothesis, not search.num_return {config.num_return}.")
    scorers = build_scorers(config, specials) if scorers is None else list(scorers)
    run = _Run(memory, scorers, config, specials.eos_id)
    tokens = greedy_tokens(
        step, state, memory=memory, config=config, specials=specials, scorers=scorers, sampling=sampling
    )
    for token in tokens:
        run.add(token)
    return run.results()


class _Run:
    """Adds up the steps and closes each document's hypothesis where it ends."""

    def __init__(self, memory: Memory, scorers: list[Scorer], config: SearchConfig, eos_id: int):
        self.scorers, self.config, self.eos_id = scorers, config, eos_id
        self.history = History()
        count, device = memory.batch_size, memory.mask.device
        self.everyone = torch.arange(count, device=device)
        self.prefix = torch.zeros(count, 0, dtype=torch.int64, device=device)
        self.sums = torch.zeros(count, 2 + len(scorers), dtype=torch.float64, device=device)
        self.open = torch.ones(count, dtype=torch.bool, device=device)
        self.entries: dict[int, tuple[list[float], bool]] = {}

    def add(self, token: GreedyToken) -> None:
        """One step; documents that end or get stuck are closed with their final score."""
        self.history.open_step(self.everyone, token.output)
        ended = token.alive & (token.ids == self.eos_id)
        beyond = self.prefix.shape[1] == self.config.max_length  # nothing but EOS may come
        stuck = self.open & ~ended & (~token.alive | beyond)
        nothing = torch.zeros_like(token.log_probs)
        if bool(stuck.any()):
            self._close(stuck, nothing, self._rank(ended=False), finished=False)
        added = torch.cat([token.log_probs[:, None], token.scores[:, None], token.shares], dim=1)
        self.sums = self.sums + torch.where(token.alive[:, None], added, 0.0)
        if bool(ended.any()):
            self._close(ended, token.log_probs, self._rank(ended=True), finished=True)
        self.open = self.open & ~ended & ~stuck
        self.history.close_step(self.everyone, token.ids, token.log_probs)
        self.prefix = torch.cat([self.prefix, token.ids[:, None]], dim=1)
        if self.prefix.shape[1] == self.config.num_steps and bool(self.open.any()):
            ranked = self._rank(ended=self.config.unfinished == "free_end")
            self._close(self.open, nothing, ranked, finished=False)

    def _rank(self, *, ended: bool) -> Ranked:
        return rank(self.scorers, self.sums[:, 1:].sum(-1), HypothesesView(self.prefix, ended=ended))

    def _close(self, which: Tensor, end_log_probs: Tensor, ranked: Ranked, *, finished: bool) -> None:
        shares = self.sums[:, 2:] + ranked.shares
        for row in which.nonzero()[:, 0].tolist():
            entry = [0.0] * FIXED_COLUMNS
            entry[FINAL], entry[STEP], entry[ROW] = float(ranked.scores[row]), self.prefix.shape[1], row
            entry[END_LOG_PROB] = float(end_log_probs[row])
            entry[LOG_PROB], entry[MODEL] = self.sums[row, :2].tolist()
            self.entries[row] = (entry + shares[row].tolist(), finished)

    def results(self) -> list[list[Hypothesis]]:
        """The hypotheses in the order of the documents."""
        device = self.everyone.device
        entries = [self.entries[row] for row in range(len(self.everyone))]
        steps = torch.tensor([int(entry[STEP]) for entry, _ in entries], device=device)
        paths = self.history.paths(steps, self.everyone, torch.tensor([ended for _, ended in entries], device=device))
        return [
            [to_hypothesis(path, entry, ended, self.scorers)]
            for path, (entry, ended) in zip(paths, entries, strict=True)
        ]


def _choose(
    output: StepOutput,
    view: HypothesesView,
    scorers: Sequence[Scorer],
    alive: Tensor,
    generator: torch.Generator | None,
    sampling: Sampling | None,
) -> GreedyToken:
    rows = torch.arange(len(alive), device=alive.device)
    shares = torch.zeros(len(alive), len(scorers), dtype=torch.float64, device=alive.device)
    zeros = torch.zeros(len(alive), dtype=torch.float64, device=alive.device)
    for column, scorer in enumerate(scorers):
        added = scorer.on_rows(zeros, view)
        if scorer.carries_rows:
            shares[:, column] = added
    scores = TokenScores.of(output, view, scorers)
    if sampling is None:
        values, ids = (part[:, 0] for part in top_candidates(scores.total, 1))
    else:
        values, ids = _draw(scores.total, sampling, generator)
    if bool((values.isnan() & alive).any()):
        raise ModelError("The model gave a token score that is not a number; its weights are probably damaged.")
    for layer in scores.layers:
        shares[:, layer.column] += layer.after[rows, ids].double() - layer.before[rows, ids].double()
    return GreedyToken(
        ids=ids,
        alive=alive & (values > -torch.inf),
        log_probs=scores.log_probs[rows, ids].double(),
        scores=scores.model[rows, ids].double(),
        shares=shares,
        output=output,
    )


def _draw(scores: Tensor, sampling: Sampling, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """One token a row, with probability proportional to exp(score / temperature)."""
    if sampling.top_k is not None:
        values, ids = top_candidates(scores, sampling.top_k)
    else:
        values, ids = scores, None
    stuck = values.amax(-1, keepdim=True) == -torch.inf
    probs = torch.where(stuck, 0.0, values / sampling.temperature).softmax(-1)
    drawn = probs.multinomial(1, generator=generator)
    chosen = drawn if ids is None else ids.gather(1, drawn)
    return values.gather(1, drawn)[:, 0], chosen[:, 0]
