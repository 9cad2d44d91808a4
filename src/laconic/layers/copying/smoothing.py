"""Label smoothing of a mixture without its (M, V) probabilities.

    sum_w log P(w) = V log lambda + sum_w log P_gen(w)
                     + sum over distinct source words of [log P(w) - log lambda - log P_gen(w)]

The first sum is one product with the output matrix's mean row (`VocabularyProjection.smoothed`); the last needs the
logits of the source's own words, one (B, T, D) by (B, D, S) product.

A floor under every probability (`prob_floor`, the release's) leaves no such formula: there, and only there, the
distribution is written out, a few rows at a time and again in the backward pass.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from laconic.layers.copying.base import CopySource, GoldTokens, first_positions
from laconic.layers.copying.pointer import final_distribution
from laconic.layers.vocabulary import VocabularyProjection

_NUMBERS_AT_ONCE = 2**24  # of rows of the distribution that is written out


def distinct(source: CopySource, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Where each token's word occurs first among the real tokens (B, S), and the first places of words of V (B, S)."""
    nothing = source.extended_vocab_size
    ids = source.extended_ids.masked_fill(~source.mask, nothing)
    first = first_positions(ids, nothing + 1)
    places = torch.arange(ids.shape[1], device=ids.device)
    return first, (first == places) & source.mask & (ids < vocab_size)


def source_logits(
    features: Tensor, projection: VocabularyProjection, source: CopySource, gold: GoldTokens, steps: int
) -> Tensor:
    """The logits of the source's own words: features (M, F) -> (M, S); words outside V have those of word 0.

    ``steps`` is T, the number of steps that ``gold.steps`` counts.
    """
    assert gold.steps is not None
    ids = source.extended_ids.masked_fill(source.extended_ids >= projection.vocab_size, 0)
    words, bias = F.embedding(ids, projection.weight).to(features.dtype), projection.bias[ids]
    grid = features.new_zeros(len(ids), steps, features.shape[-1]).index_put((gold.rows, gold.steps), features)
    return torch.bmm(grid, words.transpose(1, 2))[gold.rows, gold.steps] + bias[gold.rows]


def copied_excess(relative: Tensor, log_vocab: Tensor, counted: Tensor) -> Tensor:
    """The last sum, ``sum softplus(log (1 - lambda) P_copy(w) - log lambda P_gen(w))``: (M, S), (M,), (M, S) -> (M,).

    ``relative`` is the argument of the softplus without the log P_gen of the *gold* word, which `log_vocab` is;
    ``counted`` the places that stand for a word.
    """
    return torch.where(counted, F.softplus(relative - log_vocab.unsqueeze(-1)), 0.0).sum(dim=-1)


def excess_slope(relative: Tensor, log_vocab: Tensor, counted: Tensor) -> Tensor:
    """d `copied_excess` / d log_vocab, (M,)."""
    return -torch.where(counted, torch.sigmoid(relative - log_vocab.unsqueeze(-1)), 0.0).sum(dim=-1)


def floored_mean(
    inputs: Tensor, gate: Tensor, copied: Tensor, ids: Tensor, projection: VocabularyProjection, size: int, floor: float
) -> Tensor:
    """``1 / V sum_w log max(floor, P(w))`` over the words of V: (M, F), (M,), (M, S), (M, S) -> (M,).

    ``ids`` are extended ids, below ``size``.
    """

    def of_rows(inputs: Tensor, gate: Tensor, copied: Tensor, ids: Tensor) -> Tensor:
        log_probs = final_distribution(projection(inputs).to(gate.dtype), gate, copied, ids, size)
        return log_probs[:, : projection.vocab_size].clamp(math.log(floor), math.log1p(-floor)).mean(dim=-1)

    rows = max(1, _NUMBERS_AT_ONCE // size)
    parts = zip(inputs.split(rows), gate.split(rows), copied.split(rows), ids.split(rows), strict=True)
    return torch.cat([checkpoint(of_rows, *part, use_reentrant=False) for part in parts])
