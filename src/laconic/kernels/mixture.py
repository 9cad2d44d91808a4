"""The mixture of generating and copying for one step of decoding, in place."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from laconic.papers import pointer_generator


def final_distribution(
    vocabulary_logits: Tensor,
    gate: Tensor,
    copy_probs: Tensor,
    source_ids: Tensor,
    extended_vocab_size: int,
    first: Tensor | None = None,
) -> Tensor:
    """`laconic.papers.pointer_generator.final_distribution`: (B, Q, V), (B, Q), (B, Q, S), (B, Q, S) -> (B, Q, X).

    The logits may be X wide, minus infinity beyond V; they are overwritten. ``first`` (B, Q, S) is where each token's
    id occurs first in its document. Under gradients, or without it, this is the plain form.

    All words get log p_gen + log P_vocab(w) in one pass; then the words of the source, and only they, get their copy
    probability added. The result has one (B, Q, X) tensor and nothing else of that size.
    """
    if first is None or torch.is_grad_enabled():
        return pointer_generator.final_distribution(
            vocabulary_logits, gate, copy_probs, source_ids, extended_vocab_size
        )
    batch, queries, columns = vocabulary_logits.shape
    log_gen, log_copy = logsigmoid(gate).unsqueeze(-1), logsigmoid(-gate).unsqueeze(-1)
    shift = _normaliser(vocabulary_logits).unsqueeze(-1) - log_gen
    if columns == extended_vocab_size:  # no words outside V, or room for them is there already
        log_probs = vocabulary_logits.sub_(shift)
    else:
        log_probs = vocabulary_logits.new_empty(batch, queries, extended_vocab_size)
        torch.sub(vocabulary_logits, shift, out=log_probs[..., :columns])
        log_probs[..., columns:] = float("-inf")
    # The copy probabilities of a repeated word meet at its first position and are read from there by all
    # its positions, so that the scatter below writes equal values where it writes twice.
    summed = torch.zeros_like(copy_probs).scatter_add_(-1, first, copy_probs).gather(-1, first)
    both = torch.logaddexp(log_probs.gather(-1, source_ids), log_copy + summed.to(log_probs.dtype).log())
    return log_probs.scatter_(-1, source_ids, both)


def _normaliser(logits: Tensor) -> Tensor:
    """``logsumexp`` over the last axis of (B, Q, V), document by document: the exponentials stay in the cache."""
    peak = logits.amax(dim=-1, keepdim=True)
    sums = torch.stack([torch.sub(*pair).exp_().sum(dim=-1) for pair in zip(logits, peak, strict=True)])
    return sums.log_().add_(peak.squeeze(-1))


def first_positions(ids: Tensor, size: int) -> Tensor:
    """Where each id occurs first in its row: (B, S) ids below ``size`` -> (B, S) positions."""
    positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    table = ids.new_full((ids.shape[0], size), ids.shape[1])
    return table.scatter_reduce_(1, ids, positions, reduce="amin").gather(1, ids)
