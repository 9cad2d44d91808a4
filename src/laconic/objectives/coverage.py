"""The coverage loss: do not attend where you have attended before."""

from __future__ import annotations

import torch
from torch import Tensor

from laconic.objectives.base import Objective, reduce
from laconic.types import Batch, ModelOutput, Term


def coverage_loss(weights: Tensor, coverage: Tensor) -> Tensor:
    """Equation (8): ``covloss_t = sum_i min(a^t_i, c^t_i)``, (B, T, S) and (B, T, S) -> (B, T), in [0, 1].

    c^t excludes a^t, so the loss of the first step is zero. Gradients reach a^t through both arguments.
    """
    return torch.minimum(weights, coverage).sum(dim=-1)


class CoverageLoss(Objective):
    """``weight * covloss_t`` over real decoder steps; zero while coverage is switched off."""

    class Config(Objective.Config):
        needs = "coverage"
        remedy = "attention that keeps coverage: set model.attention to {type: additive, coverage: true}"

    name = "coverage"
    counts_words = True

    def forward(self, output: ModelOutput, batch: Batch) -> Term:
        mask = output.token_mask if output.token_mask is not None else batch.target_mask
        assert mask is not None
        losses = output.coverage_losses
        if losses is None:
            losses = torch.zeros_like(output.gold_log_probs)
        return reduce(self.name, losses, mask, self.config)
