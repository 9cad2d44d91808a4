"""R-drop (Liang et al. 2021): two passes with different dropout shall say the same.

    L_i = - log P1(y_i) - log P2(y_i) + alpha / 2 [KL(P1 || P2) + KL(P2 || P1)]

at every target word; the first term is the objective ``nll``, this one is the rest.

Our reading: the divergence is that of the two-way distributions (the gold word, all others together). With copy
heads the distributions are over V words and those of the document, and (B, T, V) of either is more than the whole
pass takes. By the data processing inequality the two-way divergence is never more than the full one, and it is zero
exactly where both passes give the gold word the same probability. It needs nothing but log P(gold), so every model
and every head can have it. With p, q the two probabilities,

    1/2 [KL(p || q) + KL(q || p)] = 1/2 (p - q) (logit p - logit q)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from laconic.config.schema import RunConfig
from laconic.errors import ConfigError
from laconic.objectives.base import Objective, masked_mean, reduce
from laconic.objectives.likelihood import smoothed_or_plain
from laconic.text.base import Tokenizer
from laconic.types import PLAIN_PASS, ModelOutput, Term, TrainingBatch, UpdateContext

_CLOSEST = -1e-6  # log-probabilities are kept below this: the logit of 1 is infinite
_OTHER_NOISE = 0x5DEECE66D  # what the second pass adds to the seed of noise that is not the global generator's


def two_way_divergence(first: Tensor, second: Tensor) -> Tensor:
    """``1/2 (p - q) (logit p - logit q)`` of two log-probabilities, at least 0."""
    first, second = first.clamp_max(_CLOSEST), second.clamp_max(_CLOSEST)
    logits = [each - torch.log(-torch.expm1(each)) for each in (first, second)]
    return 0.5 * (first.exp() - second.exp()) * (logits[0] - logits[1])


class RDrop(Objective):
    """The second pass's likelihood and ``alpha`` times the divergence. Without dropout (validation) that is ``nll``."""

    class Config(Objective.Config):
        """``alpha`` is the paper's."""

        alpha: float = Field(1.0, gt=0)

    config: Config
    name = "r_drop"
    counts_words = True

    def attach(self, model: Any, tokenizer: Tokenizer, run: RunConfig) -> None:
        """Raises:
        ConfigError: the two passes would be equal, or would read different words.
        """
        rates = [run.model[key] for key in run.model if key.endswith("dropout")]
        rates += [module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)]
        if rates and not any(rates):
            raise ConfigError("The objective 'r_drop' compares passes that dropout makes different: set model.dropout.")
        if run.training.teacher_forcing.ratio < 1:
            raise ConfigError(
                "The objective 'r_drop' compares two passes over the same words: set training.teacher_forcing.ratio "
                "to 1."
            )
        self._model = (model,)  # in a tuple: not a submodule

    def forward(self, output: ModelOutput, batch: TrainingBatch, context: UpdateContext = PLAIN_PASS) -> Term:
        mask = output.counted(batch)
        values = -output.gold_log_probs
        self._divergence = torch.zeros_like(values)
        if torch.is_grad_enabled():
            seed = None if context.noise_seed is None else context.noise_seed ^ _OTHER_NOISE
            second = self._model[0](batch, context=replace(context, noise_seed=seed, observe=False))
            self._divergence = two_way_divergence(output.gold_log_probs, second.gold_log_probs)
            own = smoothed_or_plain("nll", context.label_smoothing, second, "smoothed_log_probs", second.gold_log_probs)
            values = self.config.alpha * self._divergence - own
        return reduce(self.name, values, mask, self.config)

    def figures(self, output: ModelOutput, batch: TrainingBatch) -> dict[str, Tensor]:
        """The mean divergence."""
        return {"r_drop_divergence": masked_mean(self._divergence.detach(), output, batch)}
