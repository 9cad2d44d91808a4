"""The pointer-generator's head: generate a word from the vocabulary, or copy one from the source.

Equations (4) and (5) of `laconic.papers.pointer_generator`: ``inputs.gate_features`` (..., G) are [h*_t; s_t; x_t],
``gate`` holds [w_h*; w_s; w_x] and b_ptr, ``source.extended_ids`` are the words w_i.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from laconic.config.base import ConfigBase
from laconic.layers.copying.base import CopyHead, CopySource, GoldTokens, HeadInput
from laconic.layers.copying.mixture import gold_mixture, source_words, step_distribution
from laconic.layers.vocabulary import VocabularyProjection
from laconic.papers.pointer_generator import (
    attention_weights,
    generation_gate,
    gold_copy_log_prob,
)
from laconic.types import AttentionOutput


class PointerHead(CopyHead):
    """p_gen and the mixture; see the file's table of symbols."""

    class Config(ConfigBase):
        """No options."""

    def __init__(self, config: ConfigBase, *, projection: VocabularyProjection, gate_size: int, unk_id: int) -> None:
        super().__init__()
        self.config, self.projection, self.unk_id = config, projection, unk_id
        self.gate = nn.Linear(gate_size, 1)

    def forward(
        self, inputs: HeadInput, attention: AttentionOutput | None, source: CopySource, state: Any = None
    ) -> tuple[Tensor, dict[str, Tensor], Any]:
        """One step: log P(w) (B, Q, X); details p_gen (B, Q) and copy_probs (B, Q, S) = (1 - p_gen) a^t."""
        assert attention is not None
        gate = generation_gate(inputs.gate_features, self.gate.weight, self.gate.bias)
        logits = (inputs.project or self.projection)(inputs.hidden)
        logits, weights = logits.to(gate.dtype), attention.weights.to(gate.dtype)
        log_probs = step_distribution(logits, gate, weights, source)
        copy_probs = torch.sigmoid(-gate).unsqueeze(-1) * attention.weights
        return log_probs, {"p_gen": torch.sigmoid(gate), "copy_probs": copy_probs}, state

    def gold_log_probs(
        self, inputs: HeadInput, scores: Tensor | None, source: CopySource, gold: GoldTokens
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """M target tokens: log P(gold) (M,), details p_gen (M,) and, where labels are smoothed,
        ``smoothed_log_probs`` (M,)."""
        assert scores is not None
        gate = generation_gate(inputs.gate_features, self.gate.weight, self.gate.bias)
        scores, mask = scores.to(gate.dtype), source.mask[gold.rows]
        log_copy = gold_copy_log_prob(scores, gold.ids, source.extended_ids[gold.rows], mask)
        ids = gold.ids.masked_fill(gold.ids >= self.projection.vocab_size, self.unk_id)
        words = None
        if gold.smoothing:
            with torch.autocast(gate.device.type, enabled=False):
                mixed = gate, attention_weights(scores, mask)
                words = source_words(inputs.hidden.to(gate.dtype), self.projection, source, gold, ids, mixed)
        log_probs, mean = gold_mixture(inputs.hidden, self.projection, gold, gate, log_copy, ids, words)
        details = {"p_gen": torch.sigmoid(gate)}
        if mean is not None:
            details["smoothed_log_probs"] = (1 - gold.smoothing) * log_probs + gold.smoothing * mean
        return log_probs, details
