"""The pointer-generator's head: generate a word from the vocabulary, or copy one from the source.

Equations (4) and (5) of `catchline.papers.pointer_generator`: ``inputs.gate_features`` (..., G) are [h*_t; s_t; x_t],
``gate`` holds [w_h*; w_s; w_x] and b_ptr, ``source.extended_ids`` are the words w_i.

Every head that copies uses the mixture, equation (5): in one step of decoding, for the gold words of a training pass,
and in label smoothing without (M, V) probabilities:

    sum_w log P(w) = V log lambda + sum_w log P_gen(w)
                     + sum over distinct source words of [log P(w) - log lambda - log P_gen(w)]

The first sum is one product with the output matrix's mean row (`VocabularyProjection.smoothed`); the last needs the
logits of the source's own words, one (B, T, D) by (B, D, S) product. lambda is p_gen.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import logsigmoid

from catchline.config.base import ConfigBase
from catchline.kernels.dispatch import final_distribution, first_positions
from catchline.layers.copying.base import CopyHead, CopySource, GoldTokens, HeadInput, known_ids
from catchline.layers.vocabulary import VocabularyProjection
from catchline.papers.pointer_generator import attention_weights, generation_gate, gold_copy_log_prob, gold_log_prob
from catchline.types import AttentionOutput

SMALLEST_COPY = 1e-30  # of the copy probability of a word of the source, so that its logarithm has a gradient


def distinct(source: CopySource, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Where each token's word occurs first among the real tokens (B, S), and the first places of words of V (B, S)."""
    nothing = source.extended_vocab_size
    ids = source.extended_ids.masked_fill(~source.mask, nothing)
    first = first_positions(ids, nothing + 1)
    places = torch.arange(ids.shape[1], device=ids.device)
    return first, (first == places) & source.mask & (ids < vocab_size)


def copied_excess(relative: Tensor, log_vocab: Tensor, counted: Tensor) -> Tensor:
    """The last sum, ``sum softplus(log (1 - lambda) P_copy(w) - log lambda P_gen(w))``: (M, S), (M,), (M, S) -> (M,).

    ``relative`` is the argument of the softplus without the log P_gen of the *gold* word, which `log_vocab` is;
    ``counted`` the places that stand for a word.
    """
    return torch.where(counted, F.softplus(relative - log_vocab.unsqueeze(-1)), 0.0).sum(dim=-1)


def excess_slope(relative: Tensor, log_vocab: Tensor, counted: Tensor) -> Tensor:
    """d `copied_excess` / d log_vocab, (M,)."""
    return -torch.where(counted, torch.sigmoid(relative - log_vocab.unsqueeze(-1)), 0.0).sum(dim=-1)


def source_words(
    hidden: Tensor,
    projection: VocabularyProjection,
    source: CopySource,
    gold: GoldTokens,
    ids: Tensor,
    mixed: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """What `copied_excess` reads of the source's own words, (M, S) twice.

    ``hidden`` (M, F) is what the projection reads, in float32 at least, ``ids`` (M,) are the gold words', UNK in the
    place of words outside V, ``mixed`` the argument (M,) of lambda's sigmoid, and P_copy over positions (M, S).
    """
    assert gold.steps is not None, "smoothing needs to know the step of each target token"
    assert gold.mask is not None, "and how many there are"
    gates, copies = mixed
    features = hidden if projection.hidden is None else projection.hidden(hidden)
    of_source = source.extended_ids.masked_fill(source.extended_ids >= projection.vocab_size, 0)
    words, bias = F.embedding(of_source, projection.weight).to(features.dtype), projection.bias[of_source]
    grid = features.new_zeros(*gold.mask.shape, features.shape[-1]).index_put((gold.rows, gold.steps), features)
    logits = gold.at(torch.bmm(grid, words.transpose(1, 2))) + bias[gold.rows]  # words outside V: those of word 0
    own = (features * F.embedding(ids, projection.weight)).sum(dim=-1) + projection.bias[ids]
    first, counted = distinct(source, projection.vocab_size)
    copied = torch.zeros_like(copies).scatter_add(-1, first[gold.rows], copies)
    relative = copied.clamp_min(SMALLEST_COPY).log() - logits + (own - gates).unsqueeze(-1)
    return relative, counted[gold.rows] & (copied > 0)


def step_distribution(logits: Tensor, gate: Tensor, copy_probs: Tensor, source: CopySource) -> Tensor:
    """Equation (5) for one step, of the document's ids: (B, Q, V), (B, Q), (B, Q, S) -> (B, Q, X); may overwrite the
    logits."""
    ids = source.extended_ids.unsqueeze(1).expand_as(copy_probs)
    first = None if source.first is None else source.first.unsqueeze(1).expand_as(copy_probs)
    return final_distribution(logits, gate, copy_probs, ids, source.extended_vocab_size, first)


class MixtureHead(CopyHead):
    """A head that copies: equation (5) of the gold words."""

    def gold_mixture(
        self,
        inputs: HeadInput,
        source: CopySource,
        gold: GoldTokens,
        gates: Tensor,
        copied: Tensor,
        places: Tensor | None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """log P(gold) (M,) without any (M, V) tensor that is kept; details p_gen (M,) and, where labels are smoothed,
        ``smoothed_log_probs`` (M,).

        ``gates`` (M,) are the argument of the sigmoid of p_gen (lambda), ``copied`` (M,) the gold words' log copy
        probability, -inf where the source lacks them, ``places`` (M, S) P_copy over positions, which smoothing reads
        (none: nothing is smoothed).
        """
        projection, hidden, smoothing = self.projection, inputs.hidden, gold.smoothing
        ids, size = known_ids(gold, projection, self.unk_id), projection.vocab_size
        outside, words = gold.ids >= size, None
        if smoothing and places is not None:
            with torch.autocast(gates.device.type, enabled=False):
                words = source_words(hidden.to(gates.dtype), projection, source, gold, ids, (gates, places))
        with torch.no_grad():
            frozen_gates, frozen_copied = gates.detach(), copied.detach()
            frozen_words = None if words is None else (words[0].detach(), words[1])

        def derivative(log_vocab: Tensor, rows: slice) -> Tensor:
            """d loss / d log P_vocab(gold): the share of P(gold) that was generated (none for words outside V) and,
            with label smoothing, what it does to the mean of all words."""
            generated = logsigmoid(frozen_gates[rows]) + log_vocab.masked_fill(outside[rows], -torch.inf)
            copies = logsigmoid(-frozen_gates[rows]) + frozen_copied[rows]
            share = torch.exp(generated - torch.logaddexp(generated, copies))
            if frozen_words is not None:
                slope = excess_slope(frozen_words[0][rows], log_vocab, frozen_words[1][rows])
                share = (1 - smoothing) * share + smoothing * (1 + slope / size)
            return share if gold.weights is None else share * gold.weights[rows]

        log_vocab = projection.gold_log_probs(hidden, ids, derivative)
        log_probs = gold_log_prob(gates, log_vocab.masked_fill(outside, -torch.inf), copied)
        details = {"p_gen": torch.sigmoid(gates)}
        if words is not None:
            mean = projection.smoothed(log_vocab, hidden.to(gates.dtype), ids, 1.0) + logsigmoid(gates)
            mean = mean + copied_excess(words[0], log_vocab, words[1]) / size
            details["smoothed_log_probs"] = (1 - smoothing) * log_probs + smoothing * mean
        return log_probs, details


class PointerHead(MixtureHead):
    """p_gen and the mixture; see the file's table of symbols."""

    def __init__(self, config: ConfigBase, *, gate_size: int, **shared: Any) -> None:
        super().__init__(config, gate_size=gate_size, **shared)
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
        """M target tokens: log P(gold) (M,) and details as of `gold_mixture`."""
        assert scores is not None
        gate = generation_gate(inputs.gate_features, self.gate.weight, self.gate.bias)
        scores, mask = scores.to(gate.dtype), source.mask[gold.rows]
        log_copy = gold_copy_log_prob(scores, gold.ids, source.extended_ids[gold.rows], mask)
        places = attention_weights(scores, mask) if gold.smoothing else None
        return self.gold_mixture(inputs, source, gold, gate, log_copy, places)
