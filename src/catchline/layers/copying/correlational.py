"""Correlational copying, "CoCoNet" (Li et al., EMNLP 2021): what was copied before says what is copied next.

The equations are in `catchline.papers.coconet`; this module holds the gates and runs the recurrence (11) to (15) over
the steps of a training pass, or one step of search. s and p are made once a document and shared by the beams;
P_final_{t-1}, (N, S), is what a hypothesis carries. In training one function takes all steps of the paper's form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from catchline.errors import ConfigError
from catchline.kernels.dispatch import copying_history
from catchline.layers.copying.captured import (
    CapturedConfig,
    CapturedHead,
    Copied,
    Precomputed,
    encoder_attention,
    gate,
    gate_of,
    precise,
)
from catchline.layers.copying.pointer import CopySource, EncoderFeatures, GoldTokens, HeadInput
from catchline.papers import coconet

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "release": {
        "co_norm": "softmax",
        "normalise": "none",
        "self_transfer": "keep",
        "u_input": "source_state",
        "sigma_input": "encoder_state",
        "g_input": "concat",
        "values": "encoder_states",
        "lambda_input": "decoder_state",
        "prob_floor": 1e-6,
    },
    "literal": {"self_transfer": "zero", "normalise": "none", "first_step": "literal"},
}


class CorrelationalConfig(CapturedConfig):
    """Numbers are those of docs/coconet.md; ``preset`` gives values for the keys that are not given themselves.
    ``paper``: the defaults. ``release``: the authors' code, without its faults. ``literal``: the equations as printed,
    which give no probability distribution. A head whose options do not is not trained unless ``allow_literal_training``
    says so. ``normalise`` none leaves p a density; ``self_transfer`` then rescales s alone."""

    preset: Literal["paper", "release", "literal"] = "paper"
    detach_history: bool = False  # 2
    co_norm: coconet.Norm = "none"  # 3
    normalise: Literal["row", "none"] = "row"  # 5
    self_transfer: coconet.SelfTransfer = "zero_renorm"  # 6, 7
    clip_mode: coconet.Clip = "clamp"  # 8
    clip_distance: int = Field(16, ge=1, le=65_536)
    u_input: Literal["decoder_query", "source_state"] = "decoder_query"  # 11
    sigma_input: Literal["encoder_query", "encoder_state"] = "encoder_query"  # 12
    sigma_bias_init: float = 0.0  # 17
    g_input: Literal["sum", "concat"] = "sum"  # 14
    first_step: Literal["attention", "literal"] = "attention"  # 18
    use_semantic: bool = True
    use_positional: bool = True
    allow_literal_training: bool = False

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        preset = values.get("preset", "paper")
        return {**PRESETS.get(preset, {}), **values} if isinstance(preset, str) else values

    @model_validator(mode="after")
    def _fits(self) -> CorrelationalConfig:
        if not (self.use_semantic or self.use_positional):
            raise ValueError("use_semantic and use_positional are both false: take the copy head attentional instead")
        return self

    @property
    def is_distribution(self) -> bool:
        """Do the probabilities of every step sum to one?"""
        if self.first_step == "literal":
            return False
        rows = self.normalise == "row" or not self.use_positional
        return self.co_norm != "none" or (rows and self.self_transfer != "zero")


@dataclass(slots=True)
class Correlations:
    """s and p of a document."""

    matrix: Tensor  # (B, n S, S), s above p where both are used
    source_gate: Tensor | None  # (B, 1, S) u, where it belongs to the source position

    def transferred(self, history: Tensor, split: Tensor | None) -> Tensor:
        """(11) ``u (P s) + (1 - u) (P p)``: (B, Q, S), u as in `split_history` -> (B, Q, S)."""
        parts = history if split is None else coconet.split_history(history, split).flatten(2)
        return coconet.transferred(parts, self.matrix)


class CorrelationalHead(CapturedHead):
    """CoCoNet; options: `CorrelationalConfig`."""

    Config = CorrelationalConfig
    config: CorrelationalConfig

    def _build(self) -> None:
        super()._build()
        c = self.config
        self.attention_gate = gate(self.width * (2 if c.g_input == "concat" else 1))
        self.semantic_gate = gate(self.width) if c.use_semantic and c.use_positional else None
        self.spread = gate(self.width, c.sigma_bias_init) if c.use_positional else None

    # ------------------------------------------------------------------------------- of the document

    def context_gates(self) -> list[Tensor]:
        """w_lambda (unless it reads the decoder's state), w_g for alpha's context, w_g for P_co's."""
        weight = self.attention_gate.weight[0]
        return [*super().context_gates(), weight[: self.width], weight[-self.width :]]

    def precompute_extra(self, features: EncoderFeatures, copy_mask: Tensor) -> Correlations:
        """s and p, each once a document."""
        c, parts = self.config, []
        if c.use_semantic:
            parts.append(self._semantic(features, copy_mask))
        if self.spread is not None:
            given = features.queries.flatten(2) if c.sigma_input == "encoder_query" else features.states
            widths = coconet.log_width(gate_of(precise(given), self.spread), features.mask.sum(dim=-1))  # (B, S)
            parts.append(
                coconet.positional_correlation(
                    widths,
                    copy_mask,
                    features.ids,
                    self_transfer=c.self_transfer,
                    clip=c.clip_mode,
                    clip_distance=c.clip_distance,
                    density=c.normalise == "none",
                )
            )
        source_gate = None
        if c.u_input == "source_state" and self.semantic_gate is not None:
            source_gate = torch.sigmoid(gate_of(precise(features.states), self.semantic_gate)).unsqueeze(1)
        return Correlations(torch.cat(parts, dim=1), source_gate)

    def _semantic(self, features: EncoderFeatures, copy_mask: Tensor) -> Tensor:
        """(19) made a transition matrix, s (B, S, S). ``self_transfer`` ``zero`` takes the diagonal away and leaves the
        rows short; ``keep`` leaves it."""
        ids, self_transfer = features.ids, self.config.self_transfer
        allowed, attention = coconet.transfers(copy_mask, ids, self_transfer), encoder_attention(features)
        if self_transfer != "zero":
            return coconet.rescaled_rows(attention, allowed)
        rows = coconet.rescaled_rows(attention, coconet.transfers(copy_mask, ids, "keep"))
        return rows.masked_fill(~allowed, 0.0)

    def first_state(self, features: EncoderFeatures) -> Tensor:
        """Nothing has been copied: (B, S) zeros."""
        return precise(features.states.new_zeros(features.mask.shape))

    # ------------------------------------------------------------------------------------- the steps

    def gold_log_probs(
        self, inputs: HeadInput, scores: Tensor | None, source: CopySource, gold: GoldTokens
    ) -> tuple[Tensor, dict[str, Tensor]]:
        c = self.config
        if self.training and torch.is_grad_enabled() and not (c.is_distribution or c.allow_literal_training):
            raise ConfigError(
                "The copy head's options (self_transfer zero, normalise none or first_step literal) give no "
                "probability distribution, so its loss has no meaning: use model.head.preset paper, or set "
                "model.head.allow_literal_training to true to study it anyway."
            )
        return super().gold_log_probs(inputs, scores, source, gold)

    def weigh_step(self, inputs: HeadInput, weights: Tensor, source: Precomputed, state: Any) -> tuple[Copied, Any]:
        """One step of the recurrence for K beams; the state is P_final of the step before, (N, S)."""
        history = torch.zeros_like(weights) if state is None else state.view_as(weights).to(weights.dtype)
        split, attended, gate_values = self._gates(inputs, weights, source)
        final, correlational, attention_gate = self._recur(history, weights, split, attended, source, gate_values)
        details = self._gate_details(history, split, attention_gate) | {"copy_correlational": correlational}
        return (final, details), final.flatten(0, 1)

    def weigh_all(self, inputs: HeadInput, weights: Tensor, source: Precomputed) -> Copied:
        """The recurrence over T steps."""
        c, of_source = self.config, source.extra.source_gate is not None
        split, attended, gate_values = self._gates(inputs, weights, source)
        of_paper = c.co_norm == "none" and c.first_step == "attention" and not (c.detach_history or of_source)
        if copying_history is not None and of_paper:
            final, gates = copying_history(weights, split, attended, gate_values, source.extra.matrix)
        else:
            splits = [split] * weights.shape[1] if split is None or of_source else split.split(1, dim=1)
            history, parts = torch.zeros_like(weights[:, :1]), []
            for step in zip(weights.split(1, dim=1), splits, attended.split(1, dim=1), strict=True):
                parts.append(self._recur(history, *step, source, gate_values))
                history = parts[-1][0].detach() if c.detach_history else parts[-1][0]
            final, _, gates = (torch.cat(each, dim=1) for each in zip(*parts, strict=True))
        before = F.pad(final.detach()[:, :-1], (0, 0, 1, 0))
        return final, self._gate_details(before, split, gates)

    def _recur(
        self,
        history: Tensor,
        weights: Tensor,
        split: Tensor | None,
        attended: Tensor,
        source: Precomputed,
        gate_values: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Equations (11)-(15) once: P_final, P_co (B, Q, S) and g (B, Q)."""
        c = self.config
        raw = source.extra.transferred(history, split)
        correlational = coconet.normalised(raw, c.co_norm, source.copy_mask)
        has_mass = raw.sum(dim=-1) > 0
        if c.co_norm == "softmax":
            correlational = correlational * has_mass.unsqueeze(-1)
        attention_gate = torch.sigmoid(attended + coconet.context_gate(correlational, gate_values))
        if c.first_step == "attention":
            attention_gate = torch.where(has_mass, attention_gate, 1.0)
        return coconet.mixed(weights, correlational, attention_gate), correlational, attention_gate

    def _gates(self, inputs: HeadInput, weights: Tensor, source: Precomputed) -> tuple[Tensor | None, Tensor, Tensor]:
        """What the recurrence reads at Q beams of one step, or at all T: u, (B, Q, 1) or (B, 1, S), none where only one
        of s and p is used; what alpha adds to g's argument, its bias included, (B, Q); and w_g . V_i for P_co, (B, S),
        V's heads together, as P_co has none."""
        number = len(super().context_gates())
        attended = self.gate_context(inputs, weights, source, slice(number, number + 1)).squeeze(-1)
        assert source.gate_values is not None
        values = source.gate_values[..., -1]
        values = values if values.dim() == 2 else values.sum(dim=2)
        return self._semantic_gate(inputs, source), attended + self.attention_gate.bias, values

    def _semantic_gate(self, inputs: HeadInput, source: Precomputed) -> Tensor | None:
        """u (13): (B, Q, 1), or (B, 1, S) of the source; none where one of s and p is not used."""
        if self.semantic_gate is None or source.extra.source_gate is not None:
            return source.extra.source_gate
        assert inputs.cross is not None, "this head needs the captured attention"
        queries = precise(inputs.cross.queries.flatten(2))  # all heads side by side, (B, Q, D)
        return torch.sigmoid(gate_of(queries, self.semantic_gate)).unsqueeze(-1)

    def _gate_details(self, history: Tensor, split: Tensor | None, attention_gate: Tensor) -> dict[str, Tensor]:
        """u (of the source: its mean under the history) and g, (B, Q)."""
        if split is None:
            semantic = torch.full_like(attention_gate, float(self.config.use_semantic))
        elif self.config.u_input == "decoder_query":
            semantic = split.squeeze(-1)
        else:
            semantic = (history * split).sum(dim=-1) / history.sum(dim=-1).clamp_min(1e-30)
        return {"copy_semantic_gate": semantic, "copy_attention_gate": attention_gate}
