"""Attentional copying, "AttnCopy" (equations 5-10): copy by the cross attention of a Transformer, its heads averaged.

P_copy_t = alpha_t
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from laconic.layers.copying.base import HeadInput
from laconic.layers.copying.tapped import TappedConfig, TappedHead, TappedSource, Weighed


class AttentionalHead(TappedHead):
    """Options: `TappedConfig`."""

    class Config(TappedConfig):
        """Nothing of its own."""

    def weigh_step(self, inputs: HeadInput, weights: Tensor, source: TappedSource, state: Any) -> tuple[Weighed, Any]:
        """alpha."""
        return self.weigh_all(inputs, weights, source), state

    def weigh_all(self, inputs: HeadInput, weights: Tensor, source: TappedSource) -> Weighed:
        """alpha."""
        return Weighed(weights, weights, {})
