"""The negative log-likelihood of the gold summary."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from laconic.objectives.base import Objective, masked_mean, reduce, smoothed_or_plain, token_weights
from laconic.types import Batch, ModelOutput, Term


class NegativeLogLikelihood(Objective):
    """``- log P(y_t)`` over real target tokens (of all words, copied or generated).

    With ``label_smoothing`` eps, in training only: ``(1 - eps) log P(y_t) + eps / V sum_v log P(v)``, over all V words
    (torch's formula; fairseq spreads eps over the other V - 1 words today). Validation reports the plain value.
    """

    class Config(Objective.Config):
        label_smoothing: float = Field(0.0, ge=0, lt=1)

    config: Config
    name = "nll"
    counts_words = True

    def forward(self, output: ModelOutput, batch: Batch) -> Term:
        mask = output.token_mask if output.token_mask is not None else batch.target_mask
        assert mask is not None
        values = smoothed_or_plain(self.name, output, batch, "smoothed_log_probs", output.gold_log_probs)
        return reduce(self.name, -values, mask, self.config)

    def figures(self, output: ModelOutput, batch: Batch) -> dict[str, Tensor]:
        """Where labels are smoothed: the mean of the plain ``- log P(y_t)`` and its exponential."""
        if not self.config.label_smoothing:
            return {}
        nll = masked_mean(-output.gold_log_probs.detach(), output, batch)
        return {"nll_plain": nll, "perplexity": torch.exp(nll)}

    def token_weights(self, batch: Batch) -> Tensor:
        """What each target token weighs, (B, T): set as ``batch.token_weights`` before the model's forward
        pass, it saves the vocabulary projection a product (see `laconic.layers.vocabulary`)."""
        assert batch.target_mask is not None
        return token_weights(batch.target_mask, self.config.reduction)
