"""Batched beam search over a step function.

Row ``b * K + k`` is hypothesis k of document b. A step is: (1) ask the model, (2) let the scorers speak,
(3) take the best candidates of each document, (4) put those that end in EOS aside, (5) go on with the best K
others, (6) stop documents that are done and drop them from the batch when enough of them are.

Of 2K candidates a document, which finish (``config.finish``)? ``see``: an EOS that ranks before the K-th candidate
that goes on, with ``early_stopping`` as many as are missing (the code of See et al. 2017). ``within_beam``: an EOS
among the first K, and of all that have finished the best K are kept (fairseq, transformers). ``config.shrink_beam`` is
a third way: see `_ShrinkingSearch`.

What becomes of a hypothesis of ``max_length`` tokens without EOS (``config.unfinished``)? ``drop``: it counts only as
far as finished ones are missing (See et al.). ``compete``: its score is compared with theirs (transformers; the release
of Chen et al. 2016). ``force_end``: one more step, in which nothing but EOS may come (fairseq). ``free_end``: EOS is
put there, costs nothing and counts in the length, and it competes (``forced_eos_token_id`` of transformers).

When is a document done (``config.early_stopping``)? True: K hypotheses have finished. False: K have, and none under way
has, as it stands, a better score than the worst of them (the heuristic of transformers). ``never``: none under way can
become better than the worst that is returned; exact as long as token scores are not positive, and once one is, the
document is searched up to the maximum length.

A beam of one is greedy decoding, whatever the rules: the best token at each step, up to the first EOS. Its rows stay
where they are, documents that are done too: who watches the steps finds each document in its row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from catchline.config.schema import SearchConfig
from catchline.errors import ModelError
from catchline.search.hypotheses import FinishedTable, History, Ranked, collect, rank
from catchline.search.scorers import HypothesesView, Scorer, SpecialIds
from catchline.search.state import rows_of_documents, select, select_documents
from catchline.search.topk import stable_topk, top_candidates
from catchline.types import Hypothesis, Memory, StepOutput

StepFunction = Callable[[np.ndarray, Any], tuple[StepOutput, Any]]
COMPACT_BELOW = 0.75  # drop finished documents when fewer than this share of the batch is still alive


@np.errstate(invalid="ignore", divide="ignore")  # differences of minus infinities
def beam_search(
    step: StepFunction,
    state: Any,
    *,
    memory: Memory,
    config: SearchConfig,
    specials: SpecialIds,
    scorers: list[Scorer],
) -> list[list[Hypothesis]]:
    """The best ``config.num_return`` hypotheses of each document, best first.

    Args:
        step: ``step(last_ids (N,), state) -> (StepOutput, state)``, all of NumPy arrays. What it returns belongs to the
            search, which may write minus infinity into ``scores``; ``last_ids`` stay as they are.
        state: the state before the first step, with one row a document: see `catchline.search.state`.
        memory: what the encoder left; search and its scorers read its size and mask only.
        config: beam, lengths and the rules that are named above.
        scorers: what forbids tokens, changes scores and ranks, in this order
        (`catchline.search.scorers.build_scorers`).

    Raises:
        ModelError: the model gave a score that is not a number.
    """
    search = _ShrinkingSearch if config.shrink_beam else _Search
    return search(step, state, memory, config, specials, scorers).run()


@dataclass(slots=True)
class _Rows:
    """The N = D * K prefixes under way."""

    last_ids: np.ndarray  # (N,)
    prefix: np.ndarray  # (N, t)
    totals: np.ndarray  # (N,) float64, minus infinity for rows that hold no hypothesis
    sums: np.ndarray  # (N, 2 + scorers) float64: log-probabilities, model scores, what each scorer added
    origin: np.ndarray  # (N,) node of the last step

    def keep(self, index: np.ndarray) -> _Rows:
        return _Rows(*(getattr(self, name)[index] for name in self.__slots__))


class _Search:
    """One run. Q = D * groups beams of K / groups rows are searched side by side."""

    def __init__(
        self, step: StepFunction, state: Any, memory: Memory, config: SearchConfig, specials: SpecialIds, scorers: list
    ):
        self.step, self.config, self.eos_id, self.scorers = step, config, specials.eos_id, scorers
        self.groups = max([1, *(scorer.num_groups for scorer in scorers)])
        self.group_size = config.beam_size // self.groups
        self.greedy = config.beam_size == 1
        self.stops_early = self.greedy or config.early_stopping is True
        self.documents = np.arange(memory.batch_size)  # those still in the batch
        self.history = History()
        beams, rows = memory.batch_size * self.groups, memory.batch_size * config.beam_size
        self.finished = FinishedTable(beams, self.group_size, len(scorers))
        self.cut = FinishedTable(beams, self.group_size, len(scorers))
        self.has_grown = np.zeros(memory.batch_size, dtype=bool)  # has any token of it ever added something positive?
        self.state = select(state, self.documents.repeat(config.beam_size))
        for scorer in scorers:
            scorer.start(memory, rows)
        totals = np.full(rows, -np.inf)
        totals[:: self.group_size] = 0.0  # one hypothesis a group: the others would repeat it
        sums = np.zeros((rows, 2 + len(scorers)))
        prefix = np.empty((rows, 0), dtype=np.int64)
        self.rows = _Rows(np.full(rows, specials.bos_id), prefix, totals, sums, np.arange(rows))

    def run(self) -> list[list[Hypothesis]]:
        """All steps, then the paths of the winners."""
        config = self.config
        for length in range(config.num_steps):
            candidates = self._candidates()
            ended = self._finish(candidates, length)
            self._keep_stuck(candidates, ended, length)
            if length == config.max_length:
                break  # nothing but EOS could come
            going, last = self._going_on(candidates, ended), length + 1 == config.num_steps
            if last and config.unfinished == "compete":
                going[:, self.group_size :] = False  # it competes with what ends in the same step
            self._advance(candidates, going)
            if not last or config.unfinished != "compete":
                self._mark_done(length + 1)
            if last:
                self._cut(self.rows.totals > -np.inf, length + 1, ended=config.unfinished == "free_end")
            if last or not self._drop_done():
                break
        return collect(
            self.history,
            self.finished.table,
            self.cut.table,
            groups=self.groups,
            num_return=config.num_return,
            scorers=self.scorers,
            cut_compete=config.shrink_beam or config.unfinished in ("compete", "free_end"),
        )

    def _beams(self) -> np.ndarray:
        """(Q,) the beams of the documents that are still in the batch."""
        return rows_of_documents(self.documents, self.groups)

    def _candidates(self) -> Candidates:
        """(1) Ask the model, (2) let the scorers speak, (3) take the best candidates of each beam."""
        rows = self.rows
        output, self.state = self.step(rows.last_ids, self.state)
        self.history.open_step(rows.origin, output)
        view = HypothesesView(rows.prefix, output)
        totals, sums = rows.totals, rows.sums.copy()
        borrowed: np.ndarray | None = None  # (N,) what only this step's choice may see
        for column, scorer in enumerate(self.scorers):
            changed = scorer.on_rows(totals, view)
            if changed is totals:
                continue
            alive = totals > -np.inf
            changed = np.where(alive, changed, -np.inf)
            added = np.where(alive, changed - totals, 0.0)
            if scorer.carries_rows:
                sums[:, 2 + column] += added
            else:
                borrowed = added if borrowed is None else borrowed + added
            totals = changed
        scores = TokenScores(output, view, self.scorers)
        candidates = self._best(scores, totals, sums)
        if borrowed is not None:
            candidates.totals = candidates.totals - borrowed[candidates.rows]
        grown = candidates.totals > rows.totals[candidates.rows]
        self.has_grown[self.documents] |= grown.reshape(len(self.documents), -1).any(axis=1)
        return candidates

    def _best(self, scores: TokenScores, totals: np.ndarray, sums: np.ndarray) -> Candidates:
        """The best 2K / groups candidates of each beam; groups of a document choose one after the other.

        ``totals`` (N,) are minus infinity for rows that hold no hypothesis, ``sums`` (N, 2 + scorers) what they are
        made of.
        """
        rows = np.arange(len(totals)).reshape(-1, self.config.beam_size)
        if self.groups == 1:
            return _best_of_group(scores, scores.total, totals, sums, rows, [])
        size, parts = self.group_size, list[Candidates]()
        for group in range(self.groups):
            index = rows[:, group * size : (group + 1) * size]
            token_scores, additions = scores.total[index], []  # (D, size, X), a copy
            if group:
                going = [part.first(part.going_on(self.eos_id), size) for part in parts]
                chosen = np.concatenate([candidates.ids for candidates, _ in going], axis=1)
                alive = np.concatenate([wanted for _, wanted in going], axis=1)
                for column, scorer in enumerate(self.scorers):
                    if scorer.num_groups > 1:
                        before, token_scores = token_scores, scorer.on_group(token_scores.copy(), chosen, alive)
                        additions.append((column, _flat(before), _flat(token_scores)))
            parts.append(_best_of_group(scores, _flat(token_scores), totals, sums, index, additions))
        return Candidates(
            *(_flat(np.stack([getattr(part, name) for part in parts], axis=1)) for name in Candidates.__slots__)
        )

    def _finish(self, candidates: Candidates, length: int) -> np.ndarray:
        """(4) Put aside the candidates that end here; (Q, C) which ones."""
        beams = self._beams()
        ended = self._ending(candidates, beams)
        if not ended.any():
            return ended
        row_totals = np.full_like(self.rows.totals, -np.inf)
        row_totals[candidates.rows[ended]] = candidates.totals[ended]
        ranked = self._rank(row_totals, ended=True)
        self.finished.add(beams, ended, ranked, length, candidates.rows, candidates.log_probs, candidates.sums)
        return ended

    def _ending(self, candidates: Candidates, beams: np.ndarray) -> np.ndarray:
        """(Q, C) the candidates that finish."""
        ended = (candidates.ids == self.eos_id) & (candidates.totals > -np.inf)
        if self.config.finish == "within_beam":
            ended[:, self.group_size :] = False
            return ended
        going = candidates.going_on(self.eos_id)
        ended &= going.cumsum(1) - going < self.group_size
        if self.stops_early and ended.any():
            ended &= self.finished.count(beams)[:, None] + ended.cumsum(1) <= self.group_size
        return ended

    def _going_on(self, candidates: Candidates, ended: np.ndarray) -> np.ndarray:
        """(Q, C) the candidates that may live on, of which the first K / groups do."""
        return candidates.going_on(self.eos_id)

    def _stuck(self, candidates: Candidates) -> np.ndarray:
        """(Q,) the beams after which nothing may come."""
        return ~np.any(candidates.going_on(self.eos_id), axis=1)

    def _keep_stuck(self, candidates: Candidates, ended: np.ndarray, length: int) -> None:
        """Keep, as unfinished, the rows of beams after which nothing may come."""
        stuck = self._stuck(candidates) | (length == self.config.max_length)
        if not stuck.any():
            return
        alive = self.rows.totals > -np.inf
        alive[candidates.rows[ended]] = False  # finished instead
        self._cut(alive & stuck.repeat(self.group_size), length, ended=False)

    def _cut(self, which: np.ndarray, length: int, *, ended: bool) -> None:
        """Keep the rows ``which`` (N,) as unfinished; ``ended``: with the score they have if EOS costs nothing."""
        ranked = self._rank(self.rows.totals, ended=ended)
        index = np.arange(len(which)).reshape(-1, self.group_size)
        nothing = np.zeros(index.shape)
        self.cut.add(self._beams(), which[index], ranked, length, index, nothing, self.rows.sums[index])

    def _rank(self, totals: np.ndarray, *, ended: bool) -> Ranked:
        return rank(self.scorers, totals, HypothesesView(self.rows.prefix, ended=ended))

    def _advance(self, candidates: Candidates, going: np.ndarray) -> None:
        """(5) Go on with the best K / groups of each beam; everything that has rows follows its parent."""
        chosen, alive = candidates.first(going, self.group_size)
        parents, tokens = chosen.rows.ravel(), chosen.ids.ravel()
        self.history.close_step(parents, tokens, chosen.log_probs.ravel())
        if not self.greedy:
            self.state = select(self.state, parents)
        for scorer in self.scorers:
            scorer.select(parents)
        self.rows = _Rows(
            last_ids=tokens,
            prefix=np.concatenate([self.rows.prefix[parents], tokens[:, None]], axis=1),
            totals=np.where(alive, chosen.totals, -np.inf).ravel(),
            sums=chosen.sums.reshape(len(tokens), -1),
            origin=np.arange(len(tokens)),
        )

    def _mark_done(self, length: int) -> None:
        """(6) Beams that need no further step lose their hypotheses."""
        beams, totals = self._beams(), self.rows.totals.reshape(-1, self.group_size)
        if self.stops_early:
            done = self.finished.count(beams) >= self.group_size
        elif self.config.early_stopping is False:
            best = self._rank(self.rows.totals, ended=False)[0].reshape(totals.shape).max(axis=1)
            done = self.finished.worst_of_best(beams, self.group_size) >= best
        else:
            bounds = self.rows.totals
            for scorer in self.scorers:
                bounds = scorer.bound(bounds, length, self.config.max_length)
            best = bounds.reshape(totals.shape).max(axis=1)
            done = self.finished.worst_of_best(beams, min(self.config.num_return, self.group_size)) >= best
            done &= ~self.has_grown[self.documents].repeat(self.groups)
        totals[done] = -np.inf

    def _drop_done(self) -> bool:
        """Drop documents without hypotheses once they are a quarter of the batch; are any others left?"""
        alive = np.any(self.rows.totals.reshape(-1, self.config.beam_size) > -np.inf, axis=1)
        count = int(alive.sum())
        if 0 < count <= COMPACT_BELOW * len(alive) and not self.greedy:
            keep = alive.nonzero()[0]
            rows = rows_of_documents(keep, self.config.beam_size)
            self.state = select_documents(self.state, keep, self.config.beam_size)
            self.rows = self.rows.keep(rows)
            for scorer in self.scorers:
                scorer.select(rows)
            self.documents = self.documents[keep]
        return count > 0


class _ShrinkingSearch(_Search):
    """The search of Chen et al.'s released code: a finished hypothesis gives up its place.

    With f hypotheses finished, a step takes the best K - f candidates and no more; those in EOS are put aside and are
    not made up for. It ends when K have finished, none lives or ``max_length`` tokens, EOS counted, have been
    predicted; what still lives then competes with what has finished.
    """

    within: np.ndarray  # (Q, C) the candidates of this step that have a place

    def _ending(self, candidates: Candidates, beams: np.ndarray) -> np.ndarray:
        width = self.group_size - self.finished.count(beams)
        rank_of = np.arange(candidates.ids.shape[1])
        self.within = (rank_of < width[:, None]) & (candidates.totals > -np.inf)
        return self.within & (candidates.ids == self.eos_id)

    def _going_on(self, candidates: Candidates, ended: np.ndarray) -> np.ndarray:
        return self.within & ~ended

    def _stuck(self, candidates: Candidates) -> np.ndarray:
        return ~np.any(self.within, axis=1)

    def _mark_done(self, length: int) -> None:
        """Beams that have nothing left lost their hypotheses in `_advance`."""


# ---------------------------------------------------------------------------------------------- the choice of a step


Addition = tuple[int, np.ndarray, np.ndarray]  # the number of a scorer, and token scores before and after it


def add_shares(additions: Sequence[Addition], sums: np.ndarray, rows: np.ndarray, ids: np.ndarray) -> None:
    """Add what each scorer has added to some tokens, in 64 bits, to their ``sums`` (..., 2 + scorers)."""
    for column, before, after in additions:
        sums[..., 2 + column] += after[rows, ids].astype(np.float64) - before[rows, ids]


class TokenScores:
    """The scores of all next tokens (N, X): the model's, and in ``total`` with every scorer's changes, in order.

    Scorers that only forbid tokens write into the model's own array; it is copied for those that add.
    """

    def __init__(self, output: StepOutput, view: HypothesesView, scorers: Sequence[Scorer]) -> None:
        self.log_probs, self.model, self.total = output.log_probs, output.scores, output.scores
        self.additions: list[Addition] = []
        for column, scorer in enumerate(scorers):
            if scorer.adds_to_tokens:
                before, self.total = self.total, scorer.on_tokens(self.total.copy(), view)
                self.additions.append((column, before, self.total))
            else:
                self.total = scorer.on_tokens(self.total, view)

    def add_to(self, sums: np.ndarray, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Add what the tokens ``ids`` after ``rows`` are worth to their ``sums`` (..., 2 + scorers); returns their
        log-probabilities in 64 bits."""
        log_probs: np.ndarray = self.log_probs[rows, ids].astype(np.float64)
        sums[..., 0] += log_probs
        sums[..., 1] += self.model[rows, ids]
        add_shares(self.additions, sums, rows, ids)
        return log_probs


@dataclass(slots=True)
class Candidates:
    """The C best continuations of each of Q beams, best first; those of no hypothesis have minus infinity."""

    rows: np.ndarray  # (Q, C) the input row continued
    ids: np.ndarray  # (Q, C)
    totals: np.ndarray  # (Q, C) float64
    log_probs: np.ndarray  # (Q, C) float64, of this token
    sums: np.ndarray  # (Q, C, 2 + scorers) float64: log-probabilities, model scores, each scorer's share

    def going_on(self, eos_id: int) -> np.ndarray:
        """(Q, C) which are hypotheses that do not end here."""
        return (self.totals > -np.inf) & (self.ids != eos_id)

    def first(self, wanted: np.ndarray, count: int) -> tuple[Candidates, np.ndarray]:
        """The first ``count`` wanted candidates of each beam, then unwanted ones; (Q, count) which are wanted."""
        order = (~wanted).argsort(axis=1, kind="stable")[:, :count]
        beams = np.arange(len(order))[:, None]
        taken = Candidates(*(getattr(self, name)[beams, order] for name in Candidates.__slots__))
        return taken, wanted[beams, order]


def _flat(values: np.ndarray) -> np.ndarray:
    """(A, B, ...) -> (A * B, ...)."""
    return values.reshape(-1, *values.shape[2:])


def _best_of_group(
    scores: TokenScores,
    token_scores: np.ndarray,
    totals: np.ndarray,
    sums: np.ndarray,
    index: np.ndarray,
    group_additions: list[Addition],
) -> Candidates:
    """``index`` (D, k) names the rows whose token scores (D * k, X) are given."""
    documents, size = index.shape
    values, ids = top_candidates(token_scores, 2 * size)  # (D * k, m)
    kept = values.shape[1]
    prefix = totals[index][:, :, None]  # (D, k, 1)
    summed = np.where(prefix > -np.inf, prefix + values.reshape(documents, size, kept), -np.inf)
    summed = summed.reshape(documents, size * kept)
    if np.isnan(summed).any():
        raise ModelError("The model gave a token score that is not a number; its weights are probably damaged.")
    best, position = stable_topk(summed, 2 * size)  # (D, C)
    document = np.arange(documents)[:, None]
    ids = ids.reshape(documents, size * kept)[document, position]
    local = position // kept
    rows = index[document, local]
    added = sums[rows]
    log_probs = scores.add_to(added, rows, ids)
    add_shares(group_additions, added, local + size * document, ids)
    return Candidates(rows, ids, best, log_probs, added)
