"""From the token scores of all rows to the best candidates of each beam, with what each is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.errors import ModelError
from laconic.search.scorers.base import HypothesesView, Scorer
from laconic.search.topk import stable_topk, top_candidates
from laconic.types import StepOutput


@dataclass(slots=True)
class Layer:
    """Token scores before and after a scorer that adds to them; the difference is its share."""

    column: int
    before: Tensor
    after: Tensor


@dataclass(slots=True)
class TokenScores:
    """The scores of all next tokens (N, X): the model's, and with every scorer's changes.

    Scorers that only forbid tokens write into the model's own tensor; a tensor is copied for those that add.
    """

    log_probs: Tensor
    model: Tensor
    total: Tensor
    layers: list[Layer]

    @classmethod
    def of(cls, output: StepOutput, view: HypothesesView, scorers: Sequence[Scorer]) -> TokenScores:
        """Let the scorers change the step's token scores, in order."""
        scores, layers = output.scores, []
        for column, scorer in enumerate(scorers):
            if scorer.adds_to_tokens:
                before, scores = scores, scorer.on_tokens(scores.clone(), view)
                layers.append(Layer(column, before, scores))
            else:
                scores = scorer.on_tokens(scores, view)
        return cls(output.log_probs, output.scores, scores, layers)


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


def choose(
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
        token_scores, layers = scores.total[index], []  # (D, size, X), a copy
        if group:
            going = [part.first(part.going_on(eos_id), size) for part in parts]
            chosen = torch.cat([candidates.ids for candidates, _ in going], dim=1)
            alive = torch.cat([wanted for _, wanted in going], dim=1)
            for column, scorer in enumerate(scorers):
                if scorer.num_groups > 1:
                    before, token_scores = token_scores, scorer.on_group(token_scores.clone(), chosen, alive)
                    layers.append(Layer(column, before.flatten(0, 1), token_scores.flatten(0, 1)))
        parts.append(_best_of_group(scores, token_scores.flatten(0, 1), totals, sums, index, layers))
    return Candidates(
        *(torch.stack([getattr(part, name) for part in parts], dim=1).flatten(0, 1) for name in Candidates.__slots__)
    )


def _row_index(totals: Tensor, beam_size: int) -> Tensor:
    return torch.arange(len(totals), device=totals.device).view(-1, beam_size)


def _best_of_group(
    scores: TokenScores, token_scores: Tensor, totals: Tensor, sums: Tensor, index: Tensor, group_layers: list[Layer]
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
    for layer in scores.layers:
        shares[:, :, 2 + layer.column] += layer.after[rows, ids].double() - layer.before[rows, ids].double()
    in_group = local + size * torch.arange(documents, device=rows.device)[:, None]
    for layer in group_layers:
        shares[:, :, 2 + layer.column] += layer.after[in_group, ids].double() - layer.before[in_group, ids].double()
    return Candidates(rows, ids, best, log_probs, sums[rows] + shares)
