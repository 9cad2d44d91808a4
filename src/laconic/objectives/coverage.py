"""The coverage loss: do not attend where you have attended before."""

from __future__ import annotations

import torch

from laconic.objectives.base import Objective, reduce
from laconic.types import Batch, ModelOutput, Term


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
