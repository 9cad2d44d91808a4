"""Label smoothing of a mixture without its (M, V) probabilities.

    sum_w log P(w) = V log lambda + sum_w log P_gen(w)
                     + sum over distinct source words of [log P(w) - log lambda - log P_gen(w)]

The first sum is one product with the output matrix's mean row (`VocabularyProjection.smoothed`); the last needs the
logits of the source's own words, one (B, T, D) by (B, D, S) product.

Every head that mixes its copies into the vocabulary's distribution smooths labels so; lambda is p_gen there.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from laconic.layers.copying.base import CopySource, GoldTokens, first_positions
from laconic.layers.vocabulary import VocabularyProjection

_SMALLEST_COPY = 1e-30  # of the copy probability of a word of the source, so that its logarithm has a gradient


def distinct(source: CopySource, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Where each token's word occurs first among the real tokens (B, S), and the first places of words of V (B, S)."""
    nothing = source.extended_vocab_size
    ids = source.extended_ids.masked_fill(~source.mask, nothing)
    first = first_positions(ids, nothing + 1)
    places = torch.arange(ids.shape[1], device=ids.device)
    return first, (first == places) & source.mask & (ids < vocab_size)


def source_logits(features: Tensor, projection: VocabularyProjection, source: CopySource, gold: GoldTokens) -> Tensor:
    """The logits of the source's own words: features (M, F) -> (M, S); words outside V have those of word 0."""
    assert gold.steps is not None, "smoothing needs to know the step of each target token"
    steps = int(gold.steps.max()) + 1 if gold.steps.numel() else 1
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


def source_words(
    hidden: Tensor,
    projection: VocabularyProjection,
    source: CopySource,
    gold: GoldTokens,
    ids: Tensor,
    mixed: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """What `copied_excess` reads of the source's own words, (M, S) twice.

    Args:
        hidden: (M, F) what the projection reads, in float32 at least.
        projection: the vocabulary's.
        source: of the documents.
        gold: the target words, with their steps.
        ids: (M,) theirs, UNK in the place of words outside V.
        mixed: the argument (M,) of lambda's sigmoid, and P_copy over positions (M, S).
    """
    gates, copies = mixed
    features = hidden if projection.hidden is None else projection.hidden(hidden)
    logits = source_logits(features, projection, source, gold)
    own = (features * F.embedding(ids, projection.weight)).sum(dim=-1) + projection.bias[ids]
    first, counted = distinct(source, projection.vocab_size)
    copied = torch.zeros_like(copies).scatter_add(-1, first[gold.rows], copies)
    relative = copied.clamp_min(_SMALLEST_COPY).log() - logits + (own - gates).unsqueeze(-1)
    return relative, counted[gold.rows] & (copied > 0)
