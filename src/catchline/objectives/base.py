"""The interface of training objectives."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from catchline.config.base import ConfigBase
from catchline.errors import ConfigError
from catchline.types import PLAIN_PASS, ModelOutput, Term, TrainingBatch, UpdateContext

Reduction = Literal["token", "example", "sentence", "sum"]


class Objective(nn.Module):
    """A sum and what to divide it by. ``Class(config)``; the update adds ``weight * sum / count``. The loop divides
    once, by the counts summed over all micro-batches and ranks. What an objective remembers are buffers, kept in
    checkpoints; what is learnt belongs to the model."""

    class Config(ConfigBase):
        """``needs`` is what the objective reads of the pass beside the likelihood, one of the ``feeds`` of models and
        their parts; ``remedy`` says what to set where nothing feeds it (`catchline.config.names`)."""

        needs: ClassVar[str] = ""
        remedy: ClassVar[str] = ""

        weight: float = Field(1.0, ge=0)
        reduction: Reduction = "token"

    config: Config
    name: str = ""  # in the log; that of the class where it has none
    counts_words: bool = False  # is the count that of `forward`? then equal reductions agree

    def __init_subclass__(cls) -> None:
        cls.name = cls.name or cls.__name__

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def wants(self, batch: TrainingBatch, context: UpdateContext) -> UpdateContext:
        """``context`` with what this objective wants of the pass of a micro-batch in training."""
        return context

    def forward(self, output: ModelOutput, batch: TrainingBatch, context: UpdateContext = PLAIN_PASS) -> Term:
        """The term of one micro-batch: `values` summed over the tokens that count. ``context`` is what the pass was
        asked for. ``reduction`` ``token``: mean over tokens. ``example``: mean over each example's tokens, then over
        examples (See et al.). ``sentence``: sum over each example's tokens, mean over examples. ``sum``: the plain sum.
        """
        values, mask, reduction = self.values(output, batch, context), output.counted(batch), self.config.reduction
        total = (values * token_weights(mask, reduction, values.dtype)).sum()
        return Term(self.name, total, count_of(mask, reduction).to(values.dtype), self.config.weight)

    def values(self, output: ModelOutput, batch: TrainingBatch, context: UpdateContext) -> Tensor:
        """What each target token adds to the sum, (B, T); of objectives without another `forward`."""
        raise NotImplementedError

    def needed(self, output: ModelOutput, name: str) -> Tensor:
        """What the pass left of this ``name`` in its details. Raises: ConfigError: the model has none."""
        if name not in output.details:
            raise ConfigError(f"The objective '{self.name}' needs {self.config.remedy}, or leave the objective out.")
        return output.details[name]

    looks_ahead: bool = False  # must it see the whole minibatch, all micro-batches and processes, before `forward`?

    def see(self, output: ModelOutput, batch: TrainingBatch) -> None:
        """A micro-batch of the coming update, for objectives that look ahead."""

    def seen(self) -> None:
        """All of the update's micro-batches have been seen; called on every process."""

    def figures(self, output: ModelOutput, batch: TrainingBatch) -> dict[str, Tensor]:
        """Further scalars for the log, asked for where a line of it is due (`UpdateContext.observe`)."""
        return {}

    def check(self, value: float, update: int) -> None:
        """Called with an update's unweighted value before the weights change; may raise a ``TrainingError``."""


def token_weights(mask: Tensor, reduction: Reduction, dtype: torch.dtype = torch.float32) -> Tensor:
    """What each token of a (B, T) mask weighs in the sum: 1, or 1 / T_b for ``example``."""
    weights = mask.to(dtype)
    return weights / weights.sum(dim=1, keepdim=True).clamp_min(1) if reduction == "example" else weights


def masked_mean(values: Tensor, output: ModelOutput, batch: TrainingBatch) -> Tensor:
    """The mean of ``values`` (B, T) over the tokens that count."""
    mask = output.counted(batch)
    return (values * mask).sum() / mask.sum().clamp_min(1)


def count_of(mask: Tensor, reduction: Reduction) -> Tensor:
    """What a sum over the tokens of a (B, T) mask is divided by: tokens, examples or, a plain sum, 1."""
    if reduction == "sum":
        return torch.ones((), device=mask.device)
    return mask.sum() if reduction == "token" else mask.any(dim=1).sum()
