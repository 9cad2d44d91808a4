"""Copying guided by centrality, "SAGCopy" (Xu et al., ACL 2020), as a copy head: **a reconstruction**.

What is public of that system gives the centrality and the guidance loss (`laconic.objectives.attention`), not how the
centrality enters the copying. Our reading, to be named as such with every result:

    alpha'_t,i ~ alpha_t,i exp(w_c |x| c_i),    P_copy_t = alpha'_t

with one learned scalar w_c that starts at 0, where this is attentional copying. lambda_t (10) reads alpha_t.

| there | here |
| --- | --- |
| A, encoder self-attention of the last layer, heads averaged | ``attention`` (B, S, S), rows of padding zero |
| c | ``centrality`` (B, S), sums to one over real tokens |
| w_c | ``guide`` |
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from laconic.layers.copying.base import EncoderFeatures, HeadInput
from laconic.layers.copying.captured import CapturedConfig, CapturedHead, Precomputed, Weighed, encoder_attention
from laconic.layers.masking import log_weights
from laconic.papers.coconet import softmax_over

_DAMPING = 0.85


def outdegree(attention: Tensor, mask: Tensor) -> Tensor:
    """``c_i = 1 / |x| sum_j A(j, i)``: how much token i is looked at; (B, S, S), (B, S) -> (B, S)."""
    return attention.sum(dim=1) / mask.sum(dim=-1, keepdim=True).clamp_min(1)


def indegree(attention: Tensor, mask: Tensor, order: int) -> Tensor:
    """Indegree-``order``: ``T(j, i) = A(j, i) / sum_j' A(j', i)``, ``c_j = 1 / |x| sum_i T(j, i)`` and then
    ``order - 1`` times ``c <- 0.85 T c + 0.15 c`` (the damping mixes with the c before, not with a uniform one)."""
    transition = attention / (attention.sum(dim=1, keepdim=True) + 1e-6)
    centrality = transition.sum(dim=-1) / mask.sum(dim=-1, keepdim=True).clamp_min(1)
    for _ in range(order - 1):
        stepped = torch.bmm(transition, centrality.unsqueeze(-1)).squeeze(-1)
        centrality = _DAMPING * stepped + (1 - _DAMPING) * centrality
    return centrality


def guided_weights(
    weights: Tensor, centrality: Tensor, strength: Tensor, copy_mask: Tensor, mask: Tensor | None = None
) -> Tensor:
    """``alpha' ~ alpha exp(w_c |x| c)`` where copying may point, ``copy_mask``: (B, Q, S), (B, S), scalar -> (B, Q, S).

    |x| counts the real tokens, ``mask`` (B, S), also those that are never copied (none: those of ``copy_mask``).
    """
    bias = strength * (copy_mask if mask is None else mask).sum(dim=-1, keepdim=True) * centrality
    return softmax_over(log_weights(weights) + bias.unsqueeze(1), copy_mask.unsqueeze(1))


class GuidedHead(CapturedHead):
    """SAGCopy, reconstructed; see the file's docstring. Train it with the objective ``guidance``."""

    class Config(CapturedConfig):
        """``centrality``: who is central. The default is the one whose published scores are quoted most."""

        centrality: Literal["outdegree", "indegree-1", "indegree-2", "indegree-3"] = "indegree-2"
        feeds: ClassVar[tuple[str, ...]] = ("centrality",)  # what objectives find in the pass of a model with this part

    def _build(self) -> None:
        super()._build()
        self.guide = nn.Parameter(torch.zeros(()))

    def precompute_extra(self, features: EncoderFeatures, copy_mask: Tensor) -> Tensor:
        """The centrality (B, S)."""
        attention = encoder_attention(features, features.mask)
        name, _, order = self.config.centrality.partition("-")
        return (
            outdegree(attention, features.mask)
            if name == "outdegree"
            else indegree(attention, features.mask, int(order))
        )

    def of_document(self, precomputed: Any) -> dict[str, Tensor]:
        """``centrality`` (B, S)."""
        return {"centrality": precomputed.extra}

    def weigh_step(self, inputs: HeadInput, weights: Tensor, source: Precomputed, state: Any) -> tuple[Weighed, Any]:
        """alpha'."""
        return self.weigh_all(inputs, weights, source), state

    def weigh_all(self, inputs: HeadInput, weights: Tensor, source: Precomputed) -> Weighed:
        """alpha'."""
        mask = None if inputs.cross is None else inputs.cross.mask
        return Weighed(guided_weights(weights, source.extra, self.guide, source.copy_mask, mask), weights, {})
