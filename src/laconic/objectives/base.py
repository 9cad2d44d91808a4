"""The interface of training objectives."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from laconic.config.base import ConfigBase
from laconic.config.schema import RunConfig
from laconic.errors import ConfigError
from laconic.text.base import Tokenizer
from laconic.types import Batch, ModelOutput, Term

Reduction = Literal["token", "example", "sentence", "sum"]


class Objective(nn.Module):
    """A sum and what to divide it by. ``Class(config)``; the loop adds ``weight * sum / count``.

    The loop divides once, by the counts summed over all micro-batches and ranks.
    """

    class Config(ConfigBase):
        """``needs`` is what the objective reads of the pass beside the likelihood, one of the ``feeds`` of models and
        their parts; ``remedy`` says what to set where nothing feeds it (`laconic.config.names`)."""

        needs: ClassVar[str] = ""
        remedy: ClassVar[str] = ""

        weight: float = Field(1.0, ge=0)
        reduction: Reduction = "token"

    config: Config
    name: str = ""
    counts_words: bool = False  # is the count that of `reduce` over the tokens that count? then equal reductions agree

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    @abstractmethod
    def forward(self, output: ModelOutput, batch: Batch) -> Term:
        """The term of one micro-batch."""

    def attach(self, model: Any, tokenizer: Tokenizer, run: RunConfig) -> None:
        """Called once, before training, for objectives that need more than the teacher-forced pass.

        Raises:
            ConfigError: the objective cannot act in this run.
        """

    looks_ahead: bool = False  # must it see the whole minibatch, all micro-batches and processes, before `forward`?

    def see(self, output: ModelOutput, batch: Batch) -> None:
        """A micro-batch of the coming update, for objectives that look ahead."""

    def seen(self) -> None:
        """All of the update's micro-batches have been seen; called on every process."""

    def figures(self, output: ModelOutput, batch: Batch) -> dict[str, Tensor]:
        """Further scalars for the log, asked for where a line of it is due (``batch.observe``)."""
        return {}

    def check(self, value: float, update: int) -> None:
        """Called with an update's unweighted value before the weights change; may raise a ``TrainingError``."""


def token_weights(mask: Tensor, reduction: Reduction, dtype: torch.dtype = torch.float32) -> Tensor:
    """What each token of a (B, T) mask weighs in the sum: 1, or 1 / T_b for ``example`` (specification c.25)."""
    weights = mask.to(dtype)
    return weights / weights.sum(dim=1, keepdim=True).clamp_min(1) if reduction == "example" else weights


def smoothed_or_plain(name: str, output: ModelOutput, batch: Batch, key: str, plain: Tensor) -> Tensor:
    """Label-smoothed log-probabilities ``output.details[key]`` where the batch asks for them, else ``plain``.

    Raises:
        ConfigError: the model was asked for them and has none.
    """
    if not batch.label_smoothing.get(name):
        return plain
    if key not in output.details:
        raise ConfigError(f"This model cannot smooth labels: set label_smoothing of the objective {name} to 0.")
    return output.details[key]


def masked_mean(values: Tensor, output: ModelOutput, batch: Batch) -> Tensor:
    """The mean of ``values`` (B, T) over the tokens that count."""
    mask = output.token_mask if output.token_mask is not None else batch.target_mask
    assert mask is not None
    return (values * mask).sum() / mask.sum().clamp_min(1)


def reduce(name: str, values: Tensor, mask: Tensor, config: Objective.Config) -> Term:
    """Sum per-token ``values`` (B, T) over real tokens.

    ``token``: mean over tokens. ``example``: mean over each example's tokens, then over examples (See et al.).
    ``sentence``: sum over each example's tokens, mean over examples. ``sum``: the plain sum.
    """
    total = (values * token_weights(mask, config.reduction, values.dtype)).sum()
    if config.reduction == "sum":
        count = torch.ones((), device=values.device)
    else:
        count = mask.sum() if config.reduction == "token" else mask.any(dim=1).sum()
    return Term(name, total, count.to(values.dtype), config.weight)
