"""No copying: ``P(w) = softmax(W_o x + b_o)[w]``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from laconic.config.base import ConfigBase
from laconic.kernels.vocabulary import at_least_float32
from laconic.layers.copying.base import CopyHead, CopySource, GoldTokens, HeadInput
from laconic.layers.vocabulary import VocabularyProjection
from laconic.types import AttentionOutput


class VocabularyHead(CopyHead):
    """The plain output layer. Target words outside the vocabulary count as UNK."""

    class Config(ConfigBase):
        """No options."""

    copies = False

    def __init__(self, config: ConfigBase, *, projection: VocabularyProjection, gate_size: int, unk_id: int) -> None:
        super().__init__()
        self.config, self.projection, self.unk_id = config, projection, unk_id

    def forward(
        self, inputs: HeadInput, attention: AttentionOutput | None, source: CopySource, state: Any = None
    ) -> tuple[Tensor, dict[str, Tensor], Any]:
        """(B, Q, F) -> log-probabilities (B, Q, V), in float32 at least."""
        logits = (inputs.project or self.projection)(inputs.hidden)
        logits = logits.to(at_least_float32(logits.dtype))
        # On a CPU a row is read before it is written: in decoding it can make room for its own log-probabilities.
        in_place = logits.device.type == "cpu" and not torch.is_grad_enabled()
        return torch.log_softmax(logits, dim=-1, out=logits if in_place else None), {}, state

    def gold_log_probs(
        self, inputs: HeadInput, scores: Tensor | None, source: CopySource, gold: GoldTokens
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """(M, F) -> (M,); details ``smoothed_log_probs`` (M,) where labels are smoothed."""
        ids = gold.ids.masked_fill(gold.ids >= self.projection.vocab_size, self.unk_id)
        weights = gold.weights
        derivative = None if weights is None else (lambda _, rows: weights[rows])
        log_probs = self.projection.gold_log_probs(inputs.hidden, ids, derivative)
        if not gold.smoothing:
            return log_probs, {}
        return log_probs, {
            "smoothed_log_probs": self.projection.smoothed(log_probs, inputs.hidden, ids, gold.smoothing)
        }
