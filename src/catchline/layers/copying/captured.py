"""What the copy heads of Transformers have in common: lambda, the mixture, and what is read of the source once.

    (10)  lambda_t = sigmoid(w_lambda . sum_i alpha_t,i V_i + b_lambda)
    (5)   P_t(w)   = lambda_t P_gen_t(w) + (1 - lambda_t) sum_{i: x_i = w} P_copy_t(i)

A subclass says what P_copy is: `CapturedHead.weigh_step` for one step, `CapturedHead.weigh_all` for all steps of a
training pass. Everything but the vocabulary's logits is computed in float32 at least, with autocast off.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import linear

from catchline.config.base import ConfigBase
from catchline.kernels.dispatch import mean_attention
from catchline.layers.copying.pointer import (
    CopySource,
    EncoderFeatures,
    GoldTokens,
    HeadInput,
    MixtureHead,
    floored,
    step_distribution,
)
from catchline.layers.transformer import head_attention, log_weights
from catchline.papers.coconet import softmax_over
from catchline.types import AttentionOutput

SMALLEST_COPY = 1e-30  # of the copy probability of a word of the source, so that its logarithm has a gradient


class CapturedConfig(ConfigBase):
    """Options that all copy heads of Transformers share; numbers are those of docs/coconet.md.
    ``exclude_special_from_copy`` excludes padding, BOS and EOS; a document of nothing but special tokens keeps them."""

    values: Literal["v_proj", "encoder_states"] = "v_proj"  # 15
    lambda_input: Literal["context", "decoder_state"] = "context"  # 16
    lambda_bias_init: float = 0.0  # 17
    context_heads: Literal["mean", "per_head"] = "mean"  # sum_i alpha_i V_i with the heads' mean, or head by head
    prob_floor: float | None = Field(None, gt=0, lt=0.5)  # 25
    exclude_special_from_copy: bool = False  # 27

    @model_validator(mode="after")
    def _values_have_heads(self) -> CapturedConfig:
        if self.context_heads == "per_head" and self.values == "encoder_states":
            raise ValueError("context_heads per_head reads the heads' own values: set values to v_proj")
        return self


@dataclass(slots=True)
class Precomputed:
    """What all steps of a document share, B in front. ``extra`` is the subclass's."""

    copy_mask: Tensor  # (B, S) bool: where copying may point
    gate_values: Tensor | None  # (B, S, n) w . V of each gate that reads a context; (B, S, H, n) where heads stay apart
    extra: Any = None


Copied = tuple[Tensor, dict[str, Tensor]]  # P_copy (B, Q, S), and details that explain it


class CapturedHead(MixtureHead):
    """See the file's docstring. ``Class(config, projection=..., gate_size=..., unk_id=..., special_ids=...)``; D is the
    projection's input size, ``gate_size`` is not used. Gates start at N(0, 0.02), from a copy of the global generator,
    so that the rest of the model starts, from equal seeds, with equal weights whatever its head."""

    reads_captured = True
    config: Any

    def __init__(self, config: ConfigBase, *, special_ids: Sequence[int] = (), **shared: Any) -> None:
        super().__init__(config, **shared)
        self.special_ids = sorted(set(special_ids))
        hidden = self.projection.hidden
        self.width = int(self.projection.weight.shape[1]) if hidden is None else hidden.in_features
        with torch.random.fork_rng(devices=[]):
            self._build()

    def _build(self) -> None:
        """Make the gates; subclasses add theirs."""
        self.generation = gate(self.width, self.config.lambda_bias_init)

    # ------------------------------------------------------------------------- what subclasses say

    def weigh_step(self, inputs: HeadInput, weights: Tensor, source: Precomputed, state: Any) -> tuple[Copied, Any]:
        """One step of K beams a document, alpha (B, K, S) -> P_copy and the next state; of heads without one as
        `weigh_all`."""
        return self.weigh_all(inputs, weights, source), state

    @abstractmethod
    def weigh_all(self, inputs: HeadInput, weights: Tensor, source: Precomputed) -> Copied:
        """All steps of a training pass, alpha (B, T, S) -> P_copy (B, T, S) and details (B, T)."""

    def context_gates(self) -> list[Tensor]:
        """The weights (D,) of the gates that read contexts, lambda's first."""
        return [self.generation.weight[0]] if self.config.lambda_input == "context" else []

    def copy_mask(self, features: EncoderFeatures) -> Tensor:
        """Where copying may point: (B, S) bool."""
        if not self.config.exclude_special_from_copy:
            return features.mask
        special = torch.tensor(self.special_ids, dtype=features.ids.dtype, device=features.ids.device)
        ordinary = features.mask & ~torch.isin(features.ids, special)
        return torch.where(ordinary.any(dim=1, keepdim=True), ordinary, features.mask)

    def precompute_extra(self, features: EncoderFeatures, copy_mask: Tensor) -> Any:
        """What the subclass reads of the source once."""
        return None

    # -------------------------------------------------------------------------------- the interface

    def precompute(self, features: EncoderFeatures) -> Precomputed:
        """Where copying may point, V w of the gates, and the subclass's part."""
        with torch.autocast(features.states.device.type, enabled=False):
            copy_mask, gate_values, gates = self.copy_mask(features), None, self.context_gates()
            if gates:
                weight = precise(torch.stack(gates))  # (n, D)
                if self.config.context_heads == "per_head":
                    parts = weight.unflatten(-1, features.values.shape[2:])  # (n, H, d)
                    gate_values = torch.einsum("bshd,nhd->bshn", precise(features.values).to(weight.dtype), parts)
                else:
                    values = features.values.flatten(2) if self.config.values == "v_proj" else features.states
                    gate_values = linear(precise(values).to(weight.dtype), weight)  # V (B, S, D)
            return Precomputed(copy_mask, gate_values, self.precompute_extra(features, copy_mask))

    def forward(
        self, inputs: HeadInput, attention: AttentionOutput | None, source: CopySource, state: Any = None
    ) -> tuple[Tensor, dict[str, Tensor], Any]:
        """One step: log P(w) (B, Q, X); details p_gen (B, Q), copy_probs (B, Q, S) = (1 - lambda) P_copy, p_final."""
        precomputed: Precomputed = source.precomputed
        with torch.autocast(inputs.hidden.device.type, enabled=False):
            weights = self._weights(inputs, precomputed)
            (final, details), state = self.weigh_step(inputs, weights, precomputed, state)
            gates = self._generation_gate(inputs, weights, precomputed)
        logits = (inputs.project or self.projection)(inputs.hidden).to(gates.dtype)
        log_probs = step_distribution(logits, gates, final, source)
        if self.config.prob_floor is not None:
            log_probs = torch.where(log_probs.isfinite(), floored(log_probs, self.config.prob_floor), log_probs)
        copied = torch.sigmoid(-gates).unsqueeze(-1) * final
        return log_probs, {"p_gen": torch.sigmoid(gates), "copy_probs": copied, "p_final": final, **details}, state

    def gold_log_probs(
        self, inputs: HeadInput, scores: Tensor | None, source: CopySource, gold: GoldTokens
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """M target tokens: log P(gold) (M,), details p_gen and the subclass's (M,)."""
        assert gold.steps is not None, "this head needs to know the step of each target token"
        precomputed: Precomputed = source.precomputed
        at = (gold.rows, gold.steps)
        with torch.autocast(inputs.hidden.device.type, enabled=False):
            weights = self._weights(inputs, precomputed)
            final, explained = self.weigh_all(inputs, weights, precomputed)
            gates = self._generation_gate(inputs, weights, precomputed, at)
            final = final[at]  # (M, S)
            matches = (source.extended_ids[gold.rows] == gold.ids.unsqueeze(-1)) & precomputed.copy_mask[gold.rows]
            copied = torch.where(matches, final, 0.0).sum(dim=-1).clamp_min(SMALLEST_COPY).log()
            copied = copied.masked_fill(~matches.any(dim=-1), -torch.inf)
        floor = self.config.prob_floor
        log_probs, details = self.gold_mixture(inputs, source, gold, gates, copied, final, floor)
        return log_probs, details | {name: value[at] for name, value in explained.items()}

    # ---------------------------------------------------------------------------------------- parts

    def _weights(self, inputs: HeadInput, precomputed: Precomputed) -> Tensor:
        """alpha (B, Q, S) over where copying may point."""
        assert inputs.weights is not None, "this head needs the weights of the captured attention"
        weights = precise(inputs.weights)
        if not self.config.exclude_special_from_copy:
            return weights
        total = weights.masked_fill(~precomputed.copy_mask.unsqueeze(1), 0.0).sum(dim=-1, keepdim=True)
        lacking = (SMALLEST_COPY - total).clamp_min(0.0)
        even = lacking / precomputed.copy_mask.sum(dim=-1).clamp_min(1)[:, None, None]
        return ((weights + even) / total.clamp_min(SMALLEST_COPY)).masked_fill(~precomputed.copy_mask.unsqueeze(1), 0.0)

    def gate_context(self, inputs: HeadInput, weights: Tensor, precomputed: Precomputed, gates: slice) -> Tensor:
        """``w . sum_i alpha_i V_i`` of some context gates, (B, Q, n), with the heads' mean or head by head."""
        assert precomputed.gate_values is not None
        gate_values = precomputed.gate_values[..., gates]
        if gate_values.dim() == 3:
            return torch.bmm(weights.to(gate_values.dtype), gate_values)
        assert inputs.cross is not None, "contexts head by head need the captured attention itself"
        heads = zip(inputs.cross.queries.unbind(2), inputs.cross.keys.unbind(2), gate_values.unbind(2), strict=True)
        parts = [torch.bmm(head_attention(q, k, precomputed.copy_mask), values) for q, k, values in heads]
        return torch.stack(parts).sum(dim=0)

    def _generation_gate(
        self, inputs: HeadInput, weights: Tensor, precomputed: Precomputed, at: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """The argument of equation (10)'s sigmoid: (B, Q), or (M,) of the steps ``at``."""
        if self.config.lambda_input == "decoder_state":
            return gate_of(precise(inputs.hidden), self.generation)
        logits = self.gate_context(inputs, weights, precomputed, slice(0, 1)).squeeze(-1) + self.generation.bias
        return logits if at is None else logits[at]


class AttentionalHead(CapturedHead):
    """Attentional copying, "AttnCopy" (equations 5-10): P_copy_t = alpha_t. Options: `CapturedConfig`."""

    Config = CapturedConfig

    def weigh_all(self, inputs: HeadInput, weights: Tensor, source: Precomputed) -> Copied:
        return weights, {}


def gate(size: int, bias: float = 0.0) -> nn.Linear:
    """A gate's weights N(0, 0.02) and its bias."""
    layer = nn.Linear(size, 1)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.constant_(layer.bias, bias)
    return layer


def gate_of(features: Tensor, layer: nn.Linear) -> Tensor:
    """The argument of a gate's sigmoid: (..., D) -> (...)."""
    weight = precise(layer.weight)
    return linear(features.to(weight.dtype), weight, precise(layer.bias)).squeeze(-1)


def precise(values: Tensor) -> Tensor:
    """In float32 at least."""
    return values.float() if values.dtype.itemsize < 4 else values


def encoder_attention(features: EncoderFeatures) -> Tensor:
    """The encoder's self-attention of real tokens, its heads averaged; padding's rows are zero: (B, S, S)."""
    attention = mean_attention(features.queries, features.keys, features.mask)
    return attention.masked_fill(~features.mask.unsqueeze(-1), 0.0)


# ------------------------------------------------------------------------------------------------ guided by centrality


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
    """Copying guided by centrality, "SAGCopy" (Xu et al., ACL 2020): **a reconstruction**.

    What is public of that system gives the centrality and the guidance loss (`catchline.objectives.losses`), not how
    the centrality enters the copying. Our reading, to be named as such with every result:

        alpha'_t,i ~ alpha_t,i exp(w_c |x| c_i),    P_copy_t = alpha'_t

    with one learned scalar w_c, ``guide``, that starts at 0, where this is attentional copying; c is the
    ``centrality`` (B, S), which sums to one over real tokens. lambda_t (10) reads alpha_t. Train it with the objective
    ``guidance``.
    """

    class Config(CapturedConfig):
        """``centrality``: who is central. The default is the one whose published scores are quoted most."""

        centrality: Literal["outdegree", "indegree-1", "indegree-2", "indegree-3"] = "indegree-2"
        feeds: ClassVar[tuple[str, ...]] = ("centrality",)  # what objectives find in the pass of a model with this part

    def _build(self) -> None:
        super()._build()
        self.guide = nn.Parameter(torch.zeros(()))

    def precompute_extra(self, features: EncoderFeatures, copy_mask: Tensor) -> Tensor:
        """The centrality (B, S)."""
        attention = encoder_attention(features)
        name, _, order = self.config.centrality.partition("-")
        if name == "outdegree":
            return outdegree(attention, features.mask)
        return indegree(attention, features.mask, int(order))

    def of_document(self, precomputed: Any) -> dict[str, Tensor]:
        return {"centrality": precomputed.extra}

    def weigh_all(self, inputs: HeadInput, weights: Tensor, source: Precomputed) -> Copied:
        mask = None if inputs.cross is None else inputs.cross.mask
        return guided_weights(weights, source.extra, self.guide, source.copy_mask, mask), {}
