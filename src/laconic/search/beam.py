"""Batched beam search over a step function.

Row ``b * K + k`` is hypothesis k of document b. A step is: (1) ask the model, (2) let the scorers speak,
(3) take the best candidates of each document, (4) put those that end in EOS aside, (5) go on with the best K
others, (6) stop documents that are done and drop them from the batch when enough of them are.

Of 2K candidates a document, which finish (``config.finish``)? ``see``: an EOS that ranks before the K-th candidate
that goes on, as many as are missing (the code of See et al. 2017). ``within_beam``: an EOS among the first K, and of
all that have finished the best K are kept (fairseq, transformers). ``config.shrink_beam`` is a third way: see
`_ShrinkingSearch`.

What becomes of a hypothesis of ``max_length`` tokens without EOS (``config.unfinished``)? ``drop``: it counts only as
far as finished ones are missing (See et al.). ``compete``: its score is compared with theirs (transformers; the release
of Chen et al. 2016). ``force_end``: one more step, in which nothing but EOS may come (fairseq). ``free_end``: EOS is
put there, costs nothing and counts in the length, and it competes (``forced_eos_token_id`` of transformers).

When is a document done (``config.early_stopping``)? True: K hypotheses have finished. False: and none under way has, as
it stands, a better score than the worst of them (the heuristic of transformers). ``never``: none under way can become
better than the worst that is returned; exact as long as token scores are not positive, and once one is, the document is
searched up to the maximum length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from laconic.config.schema import SearchConfig
from laconic.errors import ModelError
from laconic.search.hypotheses import (
    END_LOG_PROB,
    FINAL,
    FIXED_COLUMNS,
    LOG_PROB,
    MODEL,
    ROW,
    STEP,
    FinishedTable,
    History,
    Ranked,
    collect,
    rank,
)
from laconic.search.scorers import HypothesesView, Scorer, SpecialIds, build_scorers
from laconic.search.state import rows_of_documents, select, select_documents
from laconic.search.topk import stable_topk, top_candidates
from laconic.types import Hypothesis, Memory, StepOutput

StepFunction = Callable[[Tensor, Any], tuple[StepOutput, Any]]
COMPACT_BELOW = 0.75  # drop finished documents when fewer than this share of the batch is still alive


@torch.inference_mode()
def beam_search(
    step: StepFunction,
    state: Any,
    *,
    memory: Memory,
    config: SearchConfig,
    specials: SpecialIds,
    scorers: Sequence[Scorer] | None = None,
) -> list[list[Hypothesis]]:
    """The best ``config.num_return`` hypotheses of each document, best first.

    Args:
        step: ``step(last_ids (N,), state) -> (StepOutput, state)``. The tensors it returns belong to the search,
            which may write minus infinity into ``scores``.
        state: the state before the first step, with one row a document.
        memory: what the encoder left; search reads its size and mask only.
        config: beam, lengths and the rules that are named above.
        specials: the ids of UNK, BOS, EOS and PAD.
        scorers: by default those that ``config`` asks for.

    Raises:
        ModelError: the model gave a score that is not a number.
    """
    scorers = build_scorers(config, specials) if scorers is None else list(scorers)
    search = _ShrinkingSearch if config.shrink_beam else _Search
    return search(step, state, memory, config, specials, scorers).run()


@dataclass(slots=True)
class _Rows:
    """The N = D * K prefixes under way."""

    last_ids: Tensor  # (N,)
    prefix: Tensor  # (N, t)
    totals: Tensor  # (N,) float64, minus infinity for rows that hold no hypothesis
    sums: Tensor  # (N, 2 + scorers) float64: log-probabilities, model scores, what each scorer added
    origin: Tensor  # (N,) node of the last step

    def keep(self, index: Tensor) -> _Rows:
        return _Rows(*(getattr(self, name).index_select(0, index) for name in self.__slots__))


class _Search:
    """One run. Q = D * groups beams of K / groups rows are searched side by side."""

    def __init__(
        self, step: StepFunction, state: Any, memory: Memory, config: SearchConfig, specials: SpecialIds, scorers: list
    ):
        self.step, self.config, self.eos_id, self.scorers = step, config, specials.eos_id, scorers
        self.device = memory.mask.device
        self.groups = max([1, *(scorer.num_groups for scorer in scorers)])
        self.group_size = config.beam_size // self.groups
        self.documents = torch.arange(memory.batch_size, device=self.device)  # those still in the batch
        self.history = History()
        beams = memory.batch_size * self.groups
        self.finished = FinishedTable(beams, self.group_size, len(scorers), self.device)
        self.cut = FinishedTable(beams, self.group_size, len(scorers), self.device)
        self.has_grown = False  # has any token ever added something positive?
        self.state = select(state, self.documents.repeat_interleave(config.beam_size))
        for scorer in scorers:
            scorer.start(memory, memory.batch_size * config.beam_size)
        self.rows = self._first_rows(memory.batch_size * config.beam_size, specials.bos_id)

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
                self._cut(self.rows.totals > -torch.inf, length + 1, ended=config.unfinished == "free_end")
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

    def _first_rows(self, count: int, bos_id: int) -> _Rows:
        totals = torch.full((count,), -torch.inf, dtype=torch.float64, device=self.device)
        totals[:: self.group_size] = 0.0  # one hypothesis a group: the others would repeat it
        return _Rows(
            last_ids=torch.full((count,), bos_id, device=self.device),
            prefix=torch.zeros(count, 0, dtype=torch.int64, device=self.device),
            totals=totals,
            sums=torch.zeros(count, 2 + len(self.scorers), dtype=torch.float64, device=self.device),
            origin=torch.arange(count, device=self.device),
        )

    def _beams(self) -> Tensor:
        """(Q,) the beams of the documents that are still in the batch."""
        return rows_of_documents(self.documents, self.groups)

    def _candidates(self) -> Candidates:
        """(1) Ask the model, (2) let the scorers speak, (3) take the best candidates of each beam."""
        rows = self.rows
        output, self.state = self.step(rows.last_ids, self.state)
        self.history.open_step(rows.origin, output)
        view = HypothesesView(rows.prefix, output)
        totals, sums = rows.totals, rows.sums.clone()
        borrowed: Tensor | None = None  # (N,) what only this step's choice may see
        for column, scorer in enumerate(self.scorers):
            changed = scorer.on_rows(totals, view)
            if changed is totals:
                continue
            changed = torch.where(totals > -torch.inf, changed, -torch.inf)
            added = torch.where(totals > -torch.inf, changed - totals, 0.0)
            if scorer.carries_rows:
                sums[:, 2 + column] += added
            else:
                borrowed = added if borrowed is None else borrowed + added
            totals = changed
        scores = TokenScores.of(output, view, self.scorers)
        candidates = best_candidates(
            scores, totals, sums, beam_size=self.config.beam_size, scorers=self.scorers, eos_id=self.eos_id
        )
        if borrowed is not None:
            candidates.totals = candidates.totals - borrowed[candidates.rows]
        self.has_grown |= bool((candidates.totals > rows.totals[candidates.rows]).any())
        return candidates

    def _finish(self, candidates: Candidates, length: int) -> Tensor:
        """(4) Put aside the candidates that end here; (Q, C) which ones."""
        beams = self._beams()
        ended = self._ending(candidates, beams)
        if not bool(ended.any()):
            return ended
        row_totals = torch.full_like(self.rows.totals, -torch.inf)
        row_totals[candidates.rows[ended]] = candidates.totals[ended]
        ranked = self._rank(row_totals, ended=True)
        self.finished.add(beams, self._entries(candidates, ended, ranked, length))
        return ended

    def _ending(self, candidates: Candidates, beams: Tensor) -> Tensor:
        """(Q, C) the candidates that finish."""
        ended = (candidates.ids == self.eos_id) & (candidates.totals > -torch.inf)
        if self.config.finish == "within_beam":
            ended[:, self.group_size :] = False
            return ended
        going = candidates.going_on(self.eos_id).long()
        ended &= going.cumsum(1) - going < self.group_size
        if self.config.early_stopping is True and bool(ended.any()):
            ended &= self.finished.count(beams)[:, None] + ended.cumsum(1) <= self.group_size
        return ended

    def _going_on(self, candidates: Candidates, ended: Tensor) -> Tensor:
        """(Q, C) the candidates that may live on, of which the first K / groups do."""
        return candidates.going_on(self.eos_id)

    def _stuck(self, candidates: Candidates) -> Tensor:
        """(Q,) the beams after which nothing may come."""
        return ~candidates.going_on(self.eos_id).any(1)

    def _keep_stuck(self, candidates: Candidates, ended: Tensor, length: int) -> None:
        """Keep, as unfinished, the rows of beams after which nothing may come."""
        stuck = self._stuck(candidates) | (length == self.config.max_length)
        if not bool(stuck.any()):
            return
        alive = self.rows.totals > -torch.inf
        alive[candidates.rows[ended]] = False  # finished instead
        self._cut(alive & stuck.repeat_interleave(self.group_size), length, ended=False)

    def _cut(self, which: Tensor, length: int, *, ended: bool) -> None:
        """Keep the rows ``which`` (N,) as unfinished; ``ended``: with the score they have if EOS costs nothing."""
        ranked = self._rank(self.rows.totals, ended=ended)
        index = torch.arange(len(which), device=self.device).view(-1, self.group_size)
        nothing = torch.zeros(index.shape, dtype=torch.float64, device=self.device)
        as_candidates = Candidates(index, index, nothing, nothing, self.rows.sums[index])
        self.cut.add(self._beams(), self._entries(as_candidates, which[index], ranked, length))

    def _rank(self, totals: Tensor, *, ended: bool) -> Ranked:
        return rank(self.scorers, totals, HypothesesView(self.rows.prefix, ended=ended))

    def _entries(self, candidates: Candidates, wanted: Tensor, ranked: Ranked, length: int) -> Tensor:
        """(Q, C, F) rows of the table of finished hypotheses; minus infinity where not wanted."""
        entries = torch.empty(*wanted.shape, FIXED_COLUMNS + len(self.scorers), dtype=torch.float64, device=self.device)
        entries[:, :, FINAL] = torch.where(wanted, ranked.scores[candidates.rows], -torch.inf)
        entries[:, :, STEP] = length
        entries[:, :, ROW] = candidates.rows.double()
        entries[:, :, END_LOG_PROB] = candidates.log_probs
        entries[:, :, LOG_PROB] = candidates.sums[:, :, 0]
        entries[:, :, MODEL] = candidates.sums[:, :, 1]
        entries[:, :, FIXED_COLUMNS:] = candidates.sums[:, :, 2:] + ranked.shares[candidates.rows]
        return entries

    def _advance(self, candidates: Candidates, going: Tensor) -> None:
        """(5) Go on with the best K / groups of each beam; everything that has rows follows its parent."""
        chosen, alive = candidates.first(going, self.group_size)
        parents, tokens = chosen.rows.flatten(), chosen.ids.flatten()
        self.history.close_step(parents, tokens, chosen.log_probs.flatten())
        self.state = select(self.state, parents)
        for scorer in self.scorers:
            scorer.select(parents)
        self.rows = _Rows(
            last_ids=tokens,
            prefix=torch.cat([self.rows.prefix.index_select(0, parents), tokens[:, None]], dim=1),
            totals=torch.where(alive, chosen.totals, -torch.inf).flatten(),
            sums=chosen.sums.flatten(0, 1),
            origin=torch.arange(len(tokens), device=self.device),
        )

    def _mark_done(self, length: int) -> None:
        """(6) Beams that need no further step lose their hypotheses."""
        beams, totals = self._beams(), self.rows.totals.view(-1, self.group_size)
        if self.config.early_stopping is True:
            done = self.finished.count(beams) >= self.group_size
        elif self.config.early_stopping is False:
            best = self._rank(self.rows.totals, ended=False).scores.view_as(totals).amax(1)
            done = self.finished.worst_of_best(beams, self.group_size) >= best
        elif self.has_grown:
            return
        else:
            bounds = self.rows.totals
            for scorer in self.scorers:
                bounds = scorer.bound(bounds, length, self.config.max_length)
            best = bounds.view_as(totals).amax(1)
            done = self.finished.worst_of_best(beams, min(self.config.num_return, self.group_size)) >= best
        totals[done] = -torch.inf

    def _drop_done(self) -> bool:
        """Drop documents without hypotheses once they are a quarter of the batch; are any others left?"""
        alive = (self.rows.totals > -torch.inf).view(-1, self.config.beam_size).any(1)
        count = int(alive.sum())
        if 0 < count <= COMPACT_BELOW * len(alive):
            keep = alive.nonzero()[:, 0]
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

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.within = torch.zeros(0)  # (Q, C) the candidates of this step that have a place

    def _ending(self, candidates: Candidates, beams: Tensor) -> Tensor:
        width = self.group_size - self.finished.count(beams)
        rank_of = torch.arange(candidates.ids.shape[1], device=self.device)
        self.within = (rank_of < width[:, None]) & (candidates.totals > -torch.inf)
        return self.within & (candidates.ids == self.eos_id)

    def _going_on(self, candidates: Candidates, ended: Tensor) -> Tensor:
        return self.within & ~ended

    def _stuck(self, candidates: Candidates) -> Tensor:
        return ~self.within.any(1)

    def _mark_done(self, length: int) -> None:
        """Beams that have nothing left lost their hypotheses in `_advance`."""


# ---------------------------------------------------------------------------------------------- the choice of a step


@dataclass(slots=True)
class Addition:
    """Token scores before and after a scorer that adds to them; the difference is its share."""

    column: int
    before: Tensor
    after: Tensor

    def at(self, rows: Tensor, ids: Tensor) -> Tensor:
        """The share of some tokens, in 64 bits."""
        return self.after[rows, ids].double() - self.before[rows, ids].double()


@dataclass(slots=True)
class TokenScores:
    """The scores of all next tokens (N, X): the model's, and with every scorer's changes.

    Scorers that only forbid tokens write into the model's own tensor; a tensor is copied for those that add.
    """

    log_probs: Tensor
    model: Tensor
    total: Tensor
    additions: list[Addition]

    @classmethod
    def of(cls, output: StepOutput, view: HypothesesView, scorers: Sequence[Scorer]) -> TokenScores:
        """Let the scorers change the step's token scores, in order."""
        scores, additions = output.scores, []
        for column, scorer in enumerate(scorers):
            if scorer.adds_to_tokens:
                before, scores = scores, scorer.on_tokens(scores.clone(), view)
                additions.append(Addition(column, before, scores))
            else:
                scores = scorer.on_tokens(scores, view)
        return cls(output.log_probs, output.scores, scores, additions)


@dataclass(slots=True)
class Candidates:
    """The C best continuations of each of Q beams, best first; those of no hypothesis have minus infinity."""

    rows: Tensor  # (Q, C) the input row continued
    ids: Tensor  # (Q, C)
    totals: Tensor  # (Q, C) float64
    log_probs: Tensor  # (Q, C) float64, of this token
    sums: Tensor  # (Q, C, 2 + scorers) float64: log-probabilities, model scores, each scorer's share

    def going_on(self, eos_id: int) -> Tensor:
        """(Q, C) which are hypotheses that do not end here."""
        return (self.totals > -torch.inf) & (self.ids != eos_id)

    def first(self, wanted: Tensor, count: int) -> tuple[Candidates, Tensor]:
        """The first ``count`` wanted candidates of each beam, then unwanted ones; (Q, count) which are wanted."""
        order = wanted.logical_not().to(torch.uint8).sort(dim=-1, stable=True).indices[:, :count]
        taken = Candidates(
            rows=self.rows.gather(1, order),
            ids=self.ids.gather(1, order),
            totals=self.totals.gather(1, order),
            log_probs=self.log_probs.gather(1, order),
            sums=self.sums.gather(1, order[:, :, None].expand(-1, -1, self.sums.shape[2])),
        )
        return taken, wanted.gather(1, order)


def best_candidates(
    scores: TokenScores, totals: Tensor, sums: Tensor, *, beam_size: int, scorers: Sequence[Scorer], eos_id: int
) -> Candidates:
    """The best 2 * beam_size / groups candidates of each group of beams of each document.

    Args:
        scores: the scores (N, X) of the next tokens, N = D * beam_size.
        totals: (N,) the running totals, minus infinity for rows that hold no hypothesis.
        sums: (N, 2 + scorers) the running sums that ``totals`` is made of.
        beam_size: hypotheses a document.
        scorers: may split the beam into groups, which then choose one after the other.
        eos_id: the id that ends a hypothesis.
    """
    groups = max([1, *(scorer.num_groups for scorer in scorers)])
    if groups == 1:
        return _best_of_group(scores, scores.total, totals, sums, _row_index(totals, beam_size), [])
    rows = _row_index(totals, beam_size)
    size = beam_size // groups
    parts: list[Candidates] = []
    for group in range(groups):
        index = rows[:, group * size : (group + 1) * size]
        token_scores, additions = scores.total[index], []  # (D, size, X), a copy
        if group:
            going = [part.first(part.going_on(eos_id), size) for part in parts]
            chosen = torch.cat([candidates.ids for candidates, _ in going], dim=1)
            alive = torch.cat([wanted for _, wanted in going], dim=1)
            for column, scorer in enumerate(scorers):
                if scorer.num_groups > 1:
                    before, token_scores = token_scores, scorer.on_group(token_scores.clone(), chosen, alive)
                    additions.append(Addition(column, before.flatten(0, 1), token_scores.flatten(0, 1)))
        parts.append(_best_of_group(scores, token_scores.flatten(0, 1), totals, sums, index, additions))
    return Candidates(
        *(torch.stack([getattr(part, name) for part in parts], dim=1).flatten(0, 1) for name in Candidates.__slots__)
    )


def _row_index(totals: Tensor, beam_size: int) -> Tensor:
    return torch.arange(len(totals), device=totals.device).view(-1, beam_size)


def _best_of_group(
    scores: TokenScores,
    token_scores: Tensor,
    totals: Tensor,
    sums: Tensor,
    index: Tensor,
    group_additions: list[Addition],
) -> Candidates:
    """``index`` (D, k) names the rows whose token scores (D * k, X) are given."""
    documents, size = index.shape
    values, ids = top_candidates(token_scores, 2 * size)  # (D * k, m)
    kept = values.shape[1]
    prefix = totals[index][:, :, None]  # (D, k, 1)
    summed = torch.where(prefix > -torch.inf, prefix + values.view(documents, size, kept), -torch.inf)
    best, position = stable_topk(summed.flatten(1), min(2 * size, size * kept))  # (D, C)
    if bool(best.isnan().any()):
        raise ModelError("The model gave a token score that is not a number; its weights are probably damaged.")
    ids = ids.view(documents, size * kept).gather(1, position)
    local = position // kept
    rows = index.gather(1, local)
    log_probs = scores.log_probs[rows, ids].double()
    shares = torch.zeros(*rows.shape, sums.shape[1], dtype=torch.float64, device=rows.device)
    shares[:, :, 0] = log_probs
    shares[:, :, 1] = scores.model[rows, ids].double()
    for addition in scores.additions:
        shares[:, :, 2 + addition.column] += addition.at(rows, ids)
    in_group = local + size * torch.arange(documents, device=rows.device)[:, None]
    for addition in group_additions:
        shares[:, :, 2 + addition.column] += addition.at(in_group, ids)
    return Candidates(rows, ids, best, log_probs, sums[rows] + shares)
