"""The pointer-generator's head: generate a word from the vocabulary, or copy one from the source.

Equations (4) and (5) of `laconic.papers.pointer_generator`: ``inputs.gate`` (..., G) is [h*_t; s_t; x_t], ``gate``
holds [w_h*; w_s; w_x] and b_ptr, ``source.extended_ids`` are the words w_i.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from laconic.config.base import ConfigBase
from laconic.kernels.dispatch import final_distribution
from laconic.layers.copying.base import CopyHead, CopySource, GoldTokens, HeadInput
from laconic.layers.copying.smoothing import copied_excess, excess_slope, source_words
from laconic.layers.masking import NEGATIVE_INFINITY
from laconic.layers.vocabulary import VocabularyProjection
from laconic.papers.pointer_generator import (
    attention_weights,
    generation_gate,
    gold_copy_log_prob,
    gold_log_prob,
)
from laconic.types import AttentionOutput


def step_distribution(logits: Tensor, gate: Tensor, copy_probs: Tensor, source: CopySource) -> Tensor:
    """Equation (5) for one step, of the document's ids: (B, Q, V), (B, Q), (B, Q, S) -> (B, Q, X); may overwrite the
    logits."""
    ids = source.extended_ids.unsqueeze(1).expand_as(copy_probs)
    first = None if source.first is None else source.first.unsqueeze(1).expand_as(copy_probs)
    return final_distribution(logits, gate, copy_probs, ids, source.extended_vocab_size, first)


def gold_mixture(
    hidden: Tensor,
    projection: VocabularyProjection,
    gold: GoldTokens,
    gates: Tensor,
    copied: Tensor,
    ids: Tensor,
    words: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor | None]:
    """Equation (5) of M gold words, without any (M, V) tensor that is kept; and the mean of all V words' log P.

    Args:
        hidden: (M, F) what the projection reads.
        projection: the vocabulary's.
        gold: the words.
        gates: (M,) the argument of the sigmoid of p_gen (lambda).
        copied: (M,) the gold words' log copy probability, -inf where the source lacks them.
        ids: (M,) theirs, UNK in the place of words outside V.
        words: `source_words`, where labels are smoothed; without them there is no mean.
    """
    size, smoothing, outside = projection.vocab_size, gold.smoothing, gold.ids >= projection.vocab_size
    with torch.no_grad():
        frozen_gates, frozen_copied = gates.detach(), copied.detach()
        frozen_words = None if words is None else (words[0].detach(), words[1])

    def derivative(log_vocab: Tensor, rows: slice) -> Tensor:
        """d loss / d log P_vocab(gold): the share of P(gold) that was generated (none for words outside V) and,
        with label smoothing, what it does to the mean of all words."""
        generated = logsigmoid(frozen_gates[rows]) + log_vocab.masked_fill(outside[rows], NEGATIVE_INFINITY)
        share = torch.exp(generated - torch.logaddexp(generated, logsigmoid(-frozen_gates[rows]) + frozen_copied[rows]))
        if frozen_words is not None:
            slope = excess_slope(frozen_words[0][rows], log_vocab, frozen_words[1][rows])
            share = (1 - smoothing) * share + smoothing * (1 + slope / size)
        return share if gold.weights is None else share * gold.weights[rows]

    log_vocab = projection.gold_log_probs(hidden, ids, derivative)
    log_probs = gold_log_prob(gates, log_vocab.masked_fill(outside, NEGATIVE_INFINITY), copied)
    if words is None:
        return log_probs, None
    mean = projection.smoothed(log_vocab, hidden.to(gates.dtype), ids, 1.0) + logsigmoid(gates)
    return log_probs, mean + copied_excess(words[0], log_vocab, words[1]) / size


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
        gate = generation_gate(inputs.gate, self.gate.weight, self.gate.bias)
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
        gate = generation_gate(inputs.gate, self.gate.weight, self.gate.bias)
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
