"""Losses of the attention: coverage (not twice at one position) and guidance (where the document is central).

The guidance loss is that of SAGCopy (Xu et al., ACL 2020), over real source positions; gradients reach both, and the
mean is over real target steps:

    loss = sum_b KL( mean_t alpha_b,t || c_b )
"""

from __future__ import annotations

import torch
from torch import Tensor

from catchline.objectives.base import Objective, count_of
from catchline.types import PLAIN_PASS, ModelOutput, Term, TrainingBatch, UpdateContext

_SMALLEST = 1e-9


def guidance_divergence(attention: Tensor, centrality: Tensor, steps: Tensor, source: Tensor) -> Tensor:
    """``KL(a || c) = sum_i a_i (log a_i - log c_i)`` over real source positions: (B, T, S), (B, S) -> (B,). ``steps``
    (B, T) and ``source`` (B, S) are true at real tokens. a is the mean of the attention over real steps; c is kept
    within [1e-9, 1 - 1e-9]."""
    attended = (attention * steps.unsqueeze(-1)).sum(dim=1) / steps.sum(dim=1, keepdim=True).clamp_min(1)
    expected = centrality.clamp(_SMALLEST, 1 - _SMALLEST)
    return (torch.xlogy(attended, attended.clamp_min(_SMALLEST) / expected) * source).sum(dim=-1)


class CoverageLoss(Objective):
    """``weight * covloss_t`` over real decoder steps; zero while coverage is switched off."""

    class Config(Objective.Config):
        needs = "coverage"
        remedy = "attention that keeps coverage: set model.attention to {type: additive, coverage: true}"

    name = "coverage"
    counts_words = True

    def values(self, output: ModelOutput, batch: TrainingBatch, context: UpdateContext) -> Tensor:
        losses = output.coverage_losses
        return torch.zeros_like(output.gold_log_probs) if losses is None else losses


class Guidance(Objective):
    """``weight * KL`` of each document, divided by what ``reduction`` counts: target ``token``s, so that it is added to
    the token-summed loss before the division, or documents (``example``, ``sentence``)."""

    class Config(Objective.Config):
        needs = "centrality"
        remedy = "a copy head with a centrality: set model.head to {type: guided}"

    name = "guidance"

    def forward(self, output: ModelOutput, batch: TrainingBatch, context: UpdateContext = PLAIN_PASS) -> Term:
        mask, centrality = output.counted(batch), self.needed(output, "centrality")
        assert output.attention is not None, "heads with a centrality copy by attention"
        divergence = guidance_divergence(output.attention, centrality, mask, batch.source_mask)
        count = count_of(mask, self.config.reduction).to(divergence.dtype)
        return Term(self.name, divergence.sum(), count, self.config.weight)
