"""The guidance loss of SAGCopy (Xu et al., ACL 2020): copy where the document is central.

    loss = sum_b KL( mean_t alpha_b,t || c_b )

over real source positions; gradients reach both. The mean is over real target steps.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from laconic.errors import ConfigError
from laconic.objectives.base import Objective
from laconic.types import Batch, ModelOutput, Term

_SMALLEST = 1e-9


def guidance_divergence(attention: Tensor, centrality: Tensor, steps: Tensor, source: Tensor, over: str) -> Tensor:
    """``KL(a || c) = sum_i a_i (log a_i - log c_i)`` over real source positions: (B, T, S), (B, S) -> (B,).

    ``steps`` (B, T) and ``source`` (B, S) are true at real tokens. a is the ``mean`` or the ``max`` of the attention
    over real steps; c is kept within [1e-9, 1 - 1e-9].
    """
    real = steps.unsqueeze(-1)
    if over == "mean":
        attended = (attention * real).sum(dim=1) / steps.sum(dim=1, keepdim=True).clamp_min(1)
    else:
        attended = attention.masked_fill(~real, 0.0).amax(dim=1)
    expected = centrality.clamp(_SMALLEST, 1 - _SMALLEST)
    return (torch.xlogy(attended, attended.clamp_min(_SMALLEST) / expected) * source).sum(dim=-1)


class Guidance(Objective):
    """``weight * KL`` of each document, divided by what ``reduction`` counts: target ``token``s, so that it is added to
    the token-summed loss before the division, or documents (``example``, ``sentence``)."""

    class Config(Objective.Config):
        needs = "centrality"
        remedy = "a copy head with a centrality: set model.head to {type: guided}"

        weight: float = Field(1.0, ge=0)
        over: Literal["mean", "max"] = "mean"

    config: Config
    name = "guidance"

    def forward(self, output: ModelOutput, batch: Batch) -> Term:
        """The term of one micro-batch.

        Raises:
            ConfigError: the model has no centrality.
        """
        if "centrality" not in output.details or output.attention is None:
            raise ConfigError(f"The objective 'guidance' needs {self.config.remedy}, or leave the objective out.")
        mask = output.token_mask if output.token_mask is not None else batch.target_mask
        assert mask is not None
        divergence = guidance_divergence(
            output.attention, output.details["centrality"], mask, batch.source_mask, self.config.over
        )
        count = {"token": mask.sum(), "sum": torch.ones((), device=mask.device)}.get(
            self.config.reduction, mask.any(dim=1).sum()
        )
        return Term(self.name, divergence.sum(), count.to(divergence.dtype), self.config.weight)
