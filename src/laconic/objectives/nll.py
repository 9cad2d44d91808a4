"""The negative log-likelihood of the gold summary."""

from __future__ import annotations

from torch import Tensor

from laconic.objectives.base import Objective, reduce, token_weights
from laconic.types import Batch, ModelOutput, Term


class NegativeLogLikelihood(Objective):
    """``- log P(y_t)`` over real target tokens (of all words, copied or generated)."""

    name = "nll"

    def forward(self, output: ModelOutput, batch: Batch) -> Term:
        mask = output.token_mask if output.token_mask is not None else batch.target_mask
        assert mask is not None
        return reduce(self.name, -output.gold_log_probs, mask, self.config)

    def token_weights(self, batch: Batch) -> Tensor:
        """What each target token weighs, (B, T): set as ``batch.token_weights`` before the model's forward
        pass, it saves the vocabulary projection a product (see `laconic.layers.vocabulary`)."""
        assert batch.target_mask is not None
        return token_weights(batch.target_mask, self.config.reduction)
