"""The opponent's part of the contrastive objective: equation (9) of Duan et al. 2019.

    (9)  maximise  J = sum_i log P_c(y_i) + lambda log P_o(y_i)

as two objectives, ``nll`` for the first term and one of these for the second; ``weight`` is lambda. Both divide by the
number of target words, so together they are -J / words.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from laconic.errors import ConfigError, TrainingError
from laconic.objectives.base import Objective, masked_mean, reduce, smoothed_or_plain
from laconic.types import Batch, ModelOutput, Term

_REMEDY = "an opponent attention: set model.opponent, for example to {type: max, layer: 2, head: 4}"


def opponent_log_probs(name: str, output: ModelOutput) -> Tensor:
    """log P_o of the gold words, (B, T).

    Raises:
        ConfigError: the model has no opponent.
    """
    if "opponent_log_probs" not in output.details:
        raise ConfigError(f"The objective '{name}' needs {_REMEDY}, or leave the objective out.")
    return output.details["opponent_log_probs"]


class OpponentLikelihood(Objective):
    """``- log P_o(y_t)`` over real target tokens; needs a model with an opponent (``model.opponent``)."""

    class Config(Objective.Config):
        needs = "opponent"
        remedy = _REMEDY

        weight: float = Field(0.2, ge=0)  # lambda (c.21)
        label_smoothing: float = Field(0.0, ge=0, lt=1)  # c.22

    config: Config
    name = "opponent"
    counts_words = True

    def forward(self, output: ModelOutput, batch: Batch) -> Term:
        mask = output.token_mask if output.token_mask is not None else batch.target_mask
        assert mask is not None
        plain = opponent_log_probs(self.name, output)
        values = smoothed_or_plain(self.name, output, batch, "opponent_smoothed", plain)
        return reduce(self.name, -values, mask, self.config)

    def figures(self, output: ModelOutput, batch: Batch) -> dict[str, Tensor]:
        """Where labels are smoothed: the mean of the plain ``- log P_o(y_t)``."""
        if not self.config.label_smoothing:
            return {}
        return {"opponent_plain": masked_mean(-opponent_log_probs(self.name, output).detach(), output, batch)}


class MinusSoftmax(Objective):
    """Footnote 3's variant: maximise ``log P_c - lambda log P_o`` with a softmax (``model.opponent.output: softmax``).

    It has no lower bound: making P_o of the gold word ever smaller pays ever more. The paper says that it "failed to
    train"; so do we, in one sentence, as soon as the mean log P_o of an update is below ``limit``.
    """

    class Config(Objective.Config):
        needs = "opponent"
        remedy = _REMEDY

        weight: float = Field(0.2, ge=0)  # lambda
        limit: float = Field(-50.0, lt=0)

    config: Config
    name = "minus_softmax"
    counts_words = True

    def forward(self, output: ModelOutput, batch: Batch) -> Term:
        mask = output.token_mask if output.token_mask is not None else batch.target_mask
        assert mask is not None
        return reduce(self.name, opponent_log_probs(self.name, output), mask, self.config)

    def check(self, value: float, update: int) -> None:
        """``value`` is the update's mean log P_o of the gold words.

        Raises:
            TrainingError: it is below the limit.
        """
        if not value < self.config.limit:
            return
        raise TrainingError(
            f"The mean log P_o of the gold words is {value:.1f} at update {update}, below {self.config.limit:g} "
            "(an even guess over 32,000 words is -10.4): the objective log P_c - lambda log P_o has no bound and "
            "diverges, as footnote 3 of the paper reports. This row is expected to end so; to train a model, use the "
            "objective 'opponent' with model.opponent.output softmin."
        )
