"""Losses: the likelihood of the gold summary, by the model and by an opponent, and what attention should be like.

Equation (9) of Duan et al. 2019,

    (9)  maximise  J = sum_i log P_c(y_i) + lambda log P_o(y_i)

is two objectives, ``nll`` for the first term and one of the opponent's for the second; ``weight`` is lambda. Both
divide by the number of target words, so together they are -J / words.

Coverage asks attention not to read one position twice, guidance to read where the document is central. The latter is
that of SAGCopy (Xu et al., ACL 2020), over real source positions; gradients reach both, and the mean is over real
target steps:

    loss = sum_b KL( mean_t alpha_b,t || c_b )
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from catchline.errors import ConfigError, TrainingError
from catchline.objectives.base import Objective, count_of, masked_mean, token_weights
from catchline.types import PLAIN_PASS, ModelOutput, Term, TrainingBatch, UpdateContext

LOWEST_MEAN = -50.0  # of log P_o, with `MinusSoftmax`
_SMALLEST = 1e-9  # of a centrality
_REMEDY = "an opponent attention: set model.opponent, for example to {type: max, layer: 2, head: 4}"


class NegativeLogLikelihood(Objective):
    """``- log P(y_t)`` over real target tokens (of all words, copied or generated). With ``label_smoothing`` eps, in
    training only: ``(1 - eps) log P(y_t) + eps / V sum_v log P(v)``, over all V words (torch's formula; fairseq spreads
    eps over the other V - 1 words today). Validation reports the plain value."""

    class Config(Objective.Config):
        label_smoothing: float = Field(0.0, ge=0, lt=1)

    config: Config
    name = "nll"
    counts_words = True

    def values(self, output: ModelOutput, batch: TrainingBatch, context: UpdateContext) -> Tensor:
        if not context.label_smoothing:
            return -output.gold_log_probs
        if "smoothed_log_probs" not in output.details:
            raise ConfigError("This model cannot smooth labels: set label_smoothing of the objective nll to 0.")
        return -output.details["smoothed_log_probs"]

    def figures(self, output: ModelOutput, batch: TrainingBatch) -> dict[str, Tensor]:
        """Where labels are smoothed or words summed: the mean of the plain ``- log P(y_t)`` and its exponential."""
        if not self.config.label_smoothing and self.config.reduction not in ("sentence", "sum"):
            return {}
        nll = masked_mean(-output.gold_log_probs.detach(), output, batch)
        return {"nll_plain": nll, "perplexity": torch.exp(nll)}

    def wants(self, batch: TrainingBatch, context: UpdateContext) -> UpdateContext:
        """Label smoothing, and what each target token weighs, (B, T), which saves the vocabulary projection a product
        (see `catchline.kernels.vocabulary`)."""
        weights = token_weights(batch.target_mask, self.config.reduction)
        return replace(context, token_weights=weights, label_smoothing=self.config.label_smoothing)


class OpponentLikelihood(Objective):
    """``- log P_o(y_t)`` over real target tokens; needs a model with an opponent (``model.opponent``)."""

    class Config(NegativeLogLikelihood.Config):
        """``weight`` is lambda (row 21 of docs/contrastive.md), ``label_smoothing`` row 22."""

        needs = "opponent"
        remedy = _REMEDY

    config: Config
    name = "opponent"
    counts_words = True

    def wants(self, batch: TrainingBatch, context: UpdateContext) -> UpdateContext:
        return replace(context, opponent_smoothing=self.config.label_smoothing)

    def values(self, output: ModelOutput, batch: TrainingBatch, context: UpdateContext) -> Tensor:
        return -self.needed(output, "opponent_smoothed" if context.opponent_smoothing else "opponent_log_probs")

    def figures(self, output: ModelOutput, batch: TrainingBatch) -> dict[str, Tensor]:
        """Where labels are smoothed: the mean of the plain ``- log P_o(y_t)``."""
        if not self.config.label_smoothing:
            return {}
        plain = self.needed(output, "opponent_log_probs").detach()
        return {"opponent_plain": masked_mean(-plain, output, batch)}


class MinusSoftmax(Objective):
    """Footnote 3's variant: maximise ``log P_c - lambda log P_o`` with a softmax (``model.opponent.output: softmax``).
    It has no lower bound: making P_o of the gold word ever smaller pays ever more. The paper says that it "failed to
    train"; so do we, in one sentence, as soon as the mean log P_o of an update is below -50."""

    class Config(Objective.Config):
        needs = "opponent"
        remedy = _REMEDY

    config: Config
    name = "minus_softmax"
    counts_words = True

    def values(self, output: ModelOutput, batch: TrainingBatch, context: UpdateContext) -> Tensor:
        return self.needed(output, "opponent_log_probs")

    def check(self, value: float, update: int) -> None:
        """``value`` is the update's mean log P_o of the gold words. Raises TrainingError: it is below the limit."""
        if value < LOWEST_MEAN:
            raise TrainingError(
                f"The mean log P_o of the gold words is {value:.1f} at update {update}, below {LOWEST_MEAN:g}: the "
                "objective log P_c - lambda log P_o has no bound and diverges, as footnote 3 of the paper reports. To "
                "train a model, use the objective 'opponent' with model.opponent.output softmin."
            )


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
