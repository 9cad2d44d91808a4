"""Batched beam search over a step function.

Row ``b * K + k`` is hypothesis k of document b. The steps (a) to (g) are those of `_Search.run`.

Of 2K candidates a document, which finish (``config.finish``)? ``see``: an EOS that ranks before the K-th candidate
that continues, with ``early_stopping`` as many as are missing (the code of See et al. 2017). ``within_beam``: an EOS
among the first K, and of all finished hypotheses the best K are kept (fairseq, transformers). ``config.shrink_beam`` is
a third rule: see `_ShrinkingSearch`.

What becomes of a hypothesis of ``max_length`` tokens without EOS (``config.unfinished``)? ``drop``: it counts only as
far as finished ones are missing (See et al.). ``compete``: its score is compared with theirs (transformers; the release
of Chen et al. 2016). ``force_end``: one more step, in which nothing but EOS may come (fairseq). ``free_end``: EOS is
appended, costs nothing and counts in the length, and it competes (``forced_eos_token_id`` of transformers).

When is a document done (``config.early_stopping``)? True: K hypotheses have finished. False: K have, and no alive one
has, as it stands, a better score than the worst of them (the heuristic of transformers). ``never``: no alive one can
become better than the worst that is returned; exact as long as token scores are not positive, and once one is, the
document is searched up to the maximum length.

A beam of one is greedy decoding, whatever the rules: the best token at each step, up to the first EOS. Its rows keep
their order, those of finished documents too: whoever watches the steps finds each document in its row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from catchline.config.schema import SearchConfig
from catchline.errors import ModelError
from catchline.search.hypotheses import (
    FinishedTable,
    History,
    Ranked,
    collect,
    rows_of_documents,
    select,
    select_documents,
    stable_topk,
    top_candidates,
)
from catchline.search.scorers import HypothesesView, Scorer, SpecialIds
from catchline.types import Hypothesis, Memory, StepOutput

StepFunction = Callable[[np.ndarray, Any], tuple[StepOutput, Any]]
COMPACT_BELOW = 0.75  # drop finished documents when fewer than this share of the batch is still alive


@np.errstate(invalid="ignore", divide="ignore")  # differences of minus infinities
def beam_search(
    step: StepFunction, state: Any, *, memory: Memory, config: SearchConfig, specials: SpecialIds, scorers: list[Scorer]
) -> list[list[Hypothesis]]:
    """The best ``config.num_return`` hypotheses of each document, best first.

    Args:
        step: ``step(last_ids (N,), state) -> (StepOutput, state)``, all of NumPy arrays. The search owns the output and
            may write minus infinity into ``scores``; ``last_ids`` are not changed.
        state: the state before the first step, with one row a document: see `catchline.search.hypotheses`.
        memory: what the encoder left; search and its scorers read its size and mask only.
        config: beam, lengths and the rules that are named above.
        scorers: what forbids tokens, changes scores and ranks, in this order
            (`catchline.search.scorers.build_scorers`).
    """
    search = _ShrinkingSearch if config.shrink_beam else _Search
    return search(step, state, memory, config, specials, scorers).run()


@dataclass(slots=True)
class _Alive:
    """The N = B * K hypotheses that are alive."""

    last_ids: np.ndarray  # (N,)
    prefix: np.ndarray  # (N, t)
    totals: np.ndarray  # (N,) float64, minus infinity for rows that hold no hypothesis
    sums: np.ndarray  # (N, 2 + scorers) float64: log-probabilities, model scores, what each scorer added
    origin: np.ndarray  # (N,) node of the last step


class _Search:
    """One run over B documents with beams of K."""

    def __init__(
        self, step: StepFunction, state: Any, memory: Memory, config: SearchConfig, specials: SpecialIds, scorers: list
    ):
        self.step, self.config, self.eos_id, self.scorers = step, config, specials.eos_id, scorers
        self.size, self.greedy = config.beam_size, config.beam_size == 1
        self.stops_early = self.greedy or config.early_stopping is True
        size = memory.mask.shape[0]
        self.documents = np.arange(size)  # those still in the batch
        self.history = History()
        self.finished, self.unfinished = (FinishedTable(size, self.size, len(scorers)) for _ in range(2))
        self.has_grown = np.zeros(size, dtype=bool)  # has any of its tokens ever added something positive?
        self.state = select(state, self.documents.repeat(self.size))
        rows = size * self.size
        for scorer in scorers:
            scorer.start(memory, rows)
        totals = np.full(rows, -np.inf)
        totals[:: self.size] = 0.0  # one hypothesis a document: the others would repeat it
        sums = np.zeros((rows, 2 + len(scorers)))
        prefix = np.empty((rows, 0), dtype=np.int64)
        self.alive = _Alive(np.full(rows, specials.bos_id), prefix, totals, sums, np.arange(rows))

    def run(self) -> list[list[Hypothesis]]:
        """All steps, then the paths of the winners."""
        config = self.config
        for length in range(config.num_steps):
            # (a) ask the model, (b) let the scorers change the scores, (c) take each document's best candidates
            candidates = self._candidates()
            ended, going, dead = self._divided(candidates)
            # (d) move candidates that end in EOS to the finished hypotheses
            if ended.any():
                self._finish(candidates, ended, length)
            # (e) keep the hypotheses of dead beams as unfinished
            dead |= length == config.max_length
            if dead.any():
                wanted = self.alive.totals > -np.inf
                wanted[candidates.rows[ended]] = False  # finished instead
                self._keep_unfinished(wanted & dead.repeat(self.size), length, ended=False)
            if length == config.max_length:
                break  # nothing but EOS could come
            # (f) go on with the best K others
            last = length + 1 == config.num_steps
            if last and config.unfinished == "compete":
                going[:, self.size :] = False  # it competes with what ends in the same step
            self._advance(candidates, going)
            # (g) stop documents that are done and drop them from the batch once they are a quarter of it
            if not last or config.unfinished != "compete":
                self._stop_done(length + 1)
            if last:
                self._keep_unfinished(self.alive.totals > -np.inf, length + 1, ended=config.unfinished == "free_end")
            if last or not self._drop_done():
                break
        unfinished_compete = config.shrink_beam or config.unfinished in ("compete", "free_end")
        return collect(
            self.history, self.finished, self.unfinished, config.num_return, self.scorers, compete=unfinished_compete
        )

    def _candidates(self) -> Candidates:
        """The best 2K continuations of each document."""
        alive = self.alive
        output, self.state = self.step(alive.last_ids, self.state)
        rows = len(alive.origin)  # what explains a step is stored, not the (N, X) tensors
        details = {name: value for name, value in output.details.items() if value.ndim and len(value) == rows}
        self.history.steps.append((alive.origin, output.attention, details))
        view = HypothesesView(alive.prefix, output)
        totals, sums = alive.totals, alive.sums.copy()
        borrowed = np.zeros_like(totals)  # (N,) what counts in the choice of this step only
        for column, scorer in enumerate(self.scorers):
            changed = scorer.on_rows(totals, view)
            if changed is totals:
                continue
            changed = np.where(totals > -np.inf, changed, -np.inf)
            added = np.where(totals > -np.inf, changed - totals, 0.0)
            if scorer.carries_rows:
                sums[:, 2 + column] += added
            else:
                borrowed += added
            totals = changed
        candidates = best_candidates(output, view, self.scorers, totals, sums, self.size)
        candidates.totals = candidates.totals - borrowed[candidates.rows]
        grown = candidates.totals > alive.totals[candidates.rows]
        self.has_grown[self.documents] |= grown.any(axis=1)
        return candidates

    def _divided(self, candidates: Candidates) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(B, C) the candidates that finish, and those that may live on, of which the first K do; (B,) the beams that
        are dead, whose candidates all end or are forbidden."""
        there, ends = candidates.totals > -np.inf, candidates.ids == self.eos_id
        ended, going = there & ends, there & ~ends
        if self.config.finish == "within_beam":
            ended[:, self.size :] = False
        else:
            ended &= going.cumsum(1) - going < self.size
            if self.stops_early and ended.any():
                ended &= self.finished.count(self.documents)[:, None] + ended.cumsum(1) <= self.size
        return ended, going, ~going.any(axis=1)

    def _finish(self, candidates: Candidates, ended: np.ndarray, length: int) -> None:
        """Store the candidates (B, C) that end here."""
        totals = np.full_like(self.alive.totals, -np.inf)
        totals[candidates.rows[ended]] = candidates.totals[ended]
        ranked = self._rank(totals, ended=True)
        self.finished.add(self.documents, ended, ranked, length, candidates.rows, candidates.log_probs, candidates.sums)

    def _keep_unfinished(self, wanted: np.ndarray, length: int, *, ended: bool) -> None:
        """Store the rows ``wanted`` (N,) as unfinished; ``ended``: with the score they have if EOS costs nothing."""
        ranked = self._rank(self.alive.totals, ended=ended)
        rows = np.arange(len(wanted)).reshape(-1, self.size)
        nothing = np.zeros(rows.shape)
        self.unfinished.add(self.documents, wanted[rows], ranked, length, rows, nothing, self.alive.sums[rows])

    def _rank(self, totals: np.ndarray, *, ended: bool) -> Ranked:
        """The final scores of the rows if they stop here, with totals (N,), and what makes them of the totals."""
        view = HypothesesView(self.alive.prefix, ended=ended)
        shares = np.zeros((len(totals), len(self.scorers)))
        for column, scorer in enumerate(self.scorers):
            ranked = scorer.on_hypotheses(totals, view)
            if ranked is not totals:
                shares[:, column] = ranked - totals
                totals = ranked
        return totals, shares

    def _advance(self, candidates: Candidates, going: np.ndarray) -> None:
        """Go on with the best K of each document; everything that has rows follows its parent."""
        order = (~going).argsort(axis=1, kind="stable")[:, : self.size]  # unwanted ones only where others are missing
        beams = np.arange(len(order))[:, None]
        chosen = Candidates(*(getattr(candidates, name)[beams, order] for name in Candidates.__slots__))
        alive, parents, tokens = going[beams, order], chosen.rows.ravel(), chosen.ids.ravel()
        self.history.moves.append((parents, tokens, chosen.log_probs.ravel()))
        if not self.greedy:
            self.state = select(self.state, parents)
        for scorer in self.scorers:
            scorer.select(parents)
        self.alive = _Alive(
            last_ids=tokens,
            prefix=np.concatenate([self.alive.prefix[parents], tokens[:, None]], axis=1),
            totals=np.where(alive, chosen.totals, -np.inf).ravel(),
            sums=chosen.sums.reshape(len(tokens), -1),
            origin=np.arange(len(tokens)),
        )

    def _stop_done(self, length: int) -> None:
        """Documents that need no further step lose their hypotheses."""
        totals = self.alive.totals.reshape(-1, self.size)
        if self.stops_early:
            done = self.finished.count(self.documents) >= self.size
        elif self.config.early_stopping is False:
            best = self._rank(self.alive.totals, ended=False)[0].reshape(totals.shape).max(axis=1)
            done = self.finished.score_of(self.documents, self.size) >= best
        else:
            bounds = self.alive.totals
            for scorer in self.scorers:
                bounds = scorer.bound(bounds, length, self.config.max_length)
            best = bounds.reshape(totals.shape).max(axis=1)
            done = self.finished.score_of(self.documents, self.config.num_return) >= best
            done &= ~self.has_grown[self.documents]
        totals[done] = -np.inf

    def _drop_done(self) -> bool:
        """Drop documents without hypotheses; are any others left?"""
        alive = np.any(self.alive.totals.reshape(-1, self.size) > -np.inf, axis=1)
        count = int(alive.sum())
        if 0 < count <= COMPACT_BELOW * len(alive) and not self.greedy:
            keep = alive.nonzero()[0]
            rows = rows_of_documents(keep, self.size)
            self.state = select_documents(self.state, keep, self.size)
            self.alive = _Alive(*(getattr(self.alive, name)[rows] for name in _Alive.__slots__))
            for scorer in self.scorers:
                scorer.select(rows)
            self.documents = self.documents[keep]
        return count > 0


class _ShrinkingSearch(_Search):
    """The search of Chen et al.'s released code: a finished hypothesis gives up its place. With f hypotheses finished,
    a step takes the best K - f candidates and no more; those in EOS finish and are not replaced. It ends when K have
    finished, none is alive or ``max_length`` tokens, EOS counted, have been predicted; what is alive then competes with
    what has finished."""

    def _divided(self, candidates: Candidates) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        width = self.size - self.finished.count(self.documents)
        ranks = np.arange(candidates.ids.shape[1])
        within = (ranks < width[:, None]) & (candidates.totals > -np.inf)  # those that have a place
        ended = within & (candidates.ids == self.eos_id)
        return ended, within & ~ended, ~np.any(within, axis=1)

    def _stop_done(self, length: int) -> None:
        """Beams that have nothing left lost their hypotheses in `_advance`."""


# ---------------------------------------------------------------------------------------------- the choice of a step


@dataclass(slots=True)
class Candidates:
    """The C best continuations of each of B beams, best first; those of no hypothesis have minus infinity."""

    rows: np.ndarray  # (B, C) the row continued
    ids: np.ndarray  # (B, C)
    totals: np.ndarray  # (B, C) float64
    log_probs: np.ndarray  # (B, C) float64, of this token
    sums: np.ndarray  # (B, C, 2 + scorers) float64: log-probabilities, model scores, each scorer's share


def best_candidates(
    output: StepOutput, view: HypothesesView, scorers: Sequence[Scorer], totals: np.ndarray, sums: np.ndarray, size: int
) -> Candidates:
    """The best 2K candidates of each document, K = ``size``: by the scores (N, X) of all next tokens, the model's with
    every scorer's changes, in order. ``totals`` (N,) are minus infinity for rows that hold no hypothesis, ``sums``
    (N, 2 + scorers) their parts. Scorers that only forbid tokens write into the model's own array; it is copied for
    those that add."""
    scores = output.scores
    additions: list[tuple[int, np.ndarray, np.ndarray]] = []  # of each scorer that adds, the scores before and after it
    for column, scorer in enumerate(scorers):
        if scorer.adds_to_tokens:
            before, scores = scores, scorer.on_tokens(scores.copy(), view)
            additions.append((column, before, scores))
        else:
            scores = scorer.on_tokens(scores, view)
    values, ids = top_candidates(scores, 2 * size)  # (N, m)
    kept = values.shape[1]
    summed = np.where(totals[:, None] > -np.inf, totals[:, None] + values, -np.inf).reshape(-1, size * kept)
    if np.isnan(summed).any():
        raise ModelError("The model returned a token score that is not a number; its weights are probably damaged.")
    best, position = stable_topk(summed, 2 * size)  # (B, C)
    document = np.arange(len(best))[:, None]
    ids = ids.reshape(-1, size * kept)[document, position]
    rows = position // kept + size * document
    parts = sums[rows]
    log_probs = output.log_probs[rows, ids].astype(np.float64)
    parts[..., 0] += log_probs
    parts[..., 1] += output.scores[rows, ids]
    for column, before, after in additions:
        parts[..., 2 + column] += after[rows, ids].astype(np.float64) - before[rows, ids]
    return Candidates(rows, ids, best, log_probs, parts)
