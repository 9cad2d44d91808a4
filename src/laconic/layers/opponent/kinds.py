"""The opponents: what becomes of the largest weight (Duan et al. 2019, section 3.2, Table 3 and footnote 2)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from laconic.layers.opponent.attention import Rule, Ties, without_largest, without_run
from laconic.layers.opponent.branch import Opponent, OpponentConfig


class MaskMaximum(Opponent):
    """The position of the largest weight goes; the rest keep their weights. The paper's choice."""

    class Config(OpponentConfig):
        ties: Ties = "all"  # c.11

    def scored(self, weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return weights, without_largest(weights, mask, 1, self.config.ties)


class MaskTopK(Opponent):
    """The k largest weights go."""

    class Config(OpponentConfig):
        k: int = Field(2, ge=1, le=65_536)
        ties: Ties = "all"  # c.12

    def scored(self, weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return weights, without_largest(weights, mask, self.config.k, self.config.ties)


class MaskDynamic(Opponent):
    """The largest weight goes, and its followers for as long as neighbours are (or are not) nearly equal (c.13)."""

    class Config(OpponentConfig):
        ratio: float = Field(1.02, ge=1)
        rule: Rule = "until_over"

    def scored(self, weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return weights, without_run(weights, mask, self.config.ratio, self.config.rule)


class OneMinus(Opponent):
    """``softmax(1 - alpha_c)``: no position goes; the largest weight becomes the smallest."""

    def scored(self, weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return 1 - weights, mask.expand_as(weights)


class Inverse(Opponent):
    """``softmax(1 / alpha_c)``, alpha_c at least ``eps``: of a peaked head close to one-hot at its *least* attended
    position (c.14)."""

    class Config(OpponentConfig):
        eps: float = Field(1e-6, gt=0)

    def scored(self, weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        real = weights.masked_fill(~mask, 1.0)  # padding takes no part, and 1 / 0 would not be finite
        return torch.reciprocal(real.clamp_min(self.config.eps)), mask.expand_as(weights)


class Unmasked(Opponent):
    """``softmax(alpha_c)``: nothing is taken away. For comparison."""

    def scored(self, weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return weights, mask.expand_as(weights)
