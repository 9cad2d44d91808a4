"""The hypotheses a search has finished: the best K of each beam, as one small table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.search.scorers.base import HypothesesView, Scorer
from laconic.search.topk import stable_topk

FINAL, STEP, ROW, END_LOG_PROB, LOG_PROB, MODEL = range(6)
FIXED_COLUMNS = 6  # then one column a scorer


class FinishedTable:
    """``table`` (Q, K, F): for each of Q beams, K entries in descending order of their final score.

    The columns are the final score (minus infinity: no entry), the step and input row where the path ends,
    the log-probability of EOS, the sum of log-probabilities, the sum of model scores, and each scorer's sum.
    """

    def __init__(self, beams: int, size: int, num_scorers: int, device: torch.device):
        self.table = torch.zeros(beams, size, FIXED_COLUMNS + num_scorers, dtype=torch.float64, device=device)
        self.table[:, :, FINAL] = -torch.inf

    def count(self, beams: Tensor) -> Tensor:
        """The number of entries (q,) of some beams."""
        return (self.table[beams, :, FINAL] > -torch.inf).sum(-1)

    def worst_of_best(self, beams: Tensor, count: int) -> Tensor:
        """The final score (q,) of entry ``count`` of some beams; minus infinity where there are fewer."""
        return self.table[beams, count - 1, FINAL]

    def add(self, beams: Tensor, entries: Tensor) -> None:
        """Merge ``entries`` (q, C, F) into the tables of the beams (q,); the best K stay, earlier ones first."""
        merged = torch.cat([self.table[beams], entries], dim=1)
        _, order = stable_topk(merged[:, :, FINAL], self.table.shape[1])
        self.table[beams] = merged.gather(1, order[:, :, None].expand(-1, -1, merged.shape[2]))


@dataclass(slots=True)
class Ranked:
    """The final scores (N,) of hypotheses and each scorer's share (N, scorers) in what made them final."""

    scores: Tensor
    shares: Tensor


def rank(scorers: Sequence[Scorer], totals: Tensor, view: HypothesesView) -> Ranked:
    """Final scores of the rows if they stop here, with totals (N,)."""
    shares = []
    for scorer in scorers:
        ranked = scorer.on_hypotheses(totals, view)
        shares.append(torch.zeros_like(totals) if ranked is totals else ranked - totals)
        totals = ranked
    return Ranked(totals, torch.stack(shares, dim=1) if shares else totals.new_zeros(len(totals), 0))
