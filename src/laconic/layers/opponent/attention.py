"""Opponent attention: where the decoder would look if it were kept from where it looks.

Duan et al. 2019, "Contrastive Attention Mechanism for Abstractive Sentence Summarization", equations (2) and (3).

    (2)  alpha_c = softmax(q k^T / sqrt(d))                      of the chosen heads of one decoder layer
    (3)  alpha_o = softmax(s),  s = alpha_c with its maximum (its k largest, ...) taken out

| paper | here |
| --- | --- |
| q, k, v of the chosen heads | ``queries`` (B, Q, h, d), ``keys`` and ``values`` (B, S, h, d) |
| alpha_c | ``weights`` (B, Q, S) |
| the weights that are set to zero | the positions where ``kept`` (B, Q, S) is false |
| the argument s of the second softmax | ``scores`` (B, Q, S), of which only those that are kept count |
| alpha_o | `opponent_weights` (B, Q, S) |

Readings. The second softmax is over *probabilities*, as the paper and its authors' code have it: what is left after
the largest weight went lies between 0 and 1/2, so alpha_o is nearly uniform over the positions that are kept (its
entries differ by a factor of at most e^(1/2)). Padding is excluded once more, because a weight of 0 would count e^0.
Where nothing is left (a single position, all weights equal) alpha_o is zero. All of this is computed in float32 at
least: in bfloat16 the maximum of a row is often shared by two positions.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from laconic.layers.masking import log_weights, masked_softmax
from laconic.layers.transformer import head_attention

Ties = Literal["all", "first", "distinct"]
Rule = Literal["until_over", "while_over"]
Normalizer = Literal["softmax", "renorm"]
Empty = Literal["zero", "alpha"]


def opponent_context(opponent: Tensor, values: Tensor) -> Tensor:
    """``alpha_o v``: (B, Q, S) and (B, S, F) -> (B, Q, F), in float32 at least."""
    with torch.autocast(values.device.type, enabled=False):
        return opponent @ values.to(opponent.dtype)


def conventional_weights(queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """Equation (2): alpha_c of the heads given, averaged over them.

    (B, Q, h, d), (B, S, h, d) and the source's mask (B, S) -> (B, Q, S). A source of nothing but padding gets zeros.
    """
    return head_attention(queries.transpose(1, 2), keys.transpose(1, 2), mask.unsqueeze(1)).mean(dim=1)


@torch.no_grad()
def without_largest(weights: Tensor, mask: Tensor, k: int = 1, ties: Ties = "all") -> Tensor:
    """Which positions stay when the k largest weights go: (B, Q, S), mask (B, 1, S) -> (B, Q, S).

    ``all``: every position whose weight is at least the k-th largest goes (the default reading; with k = 1 every
    position that has the maximum). ``first``: exactly k go, the leftmost ones of equal weights. ``distinct``: the k
    largest *different* values go, each with all its positions (k rounds of the authors' loop).
    """
    ranked = weights.masked_fill(~mask, -1.0)
    if ties == "first":
        going = ranked.sort(dim=-1, descending=True, stable=True).indices[..., :k]
        return mask & torch.ones_like(ranked, dtype=torch.bool).scatter_(-1, going, False)
    if ties == "all":
        least = ranked.topk(min(k, ranked.shape[-1]), dim=-1).values[..., -1:]
    else:
        values = ranked.sort(dim=-1, descending=True).values
        falls = (values[..., 1:] < values[..., :-1]).long()
        rank = nn.functional.pad(falls, (1, 0)).cumsum(dim=-1)  # 0 for the largest value, 1 for the next different one
        least = values.masked_fill(rank >= k, torch.inf).amin(dim=-1, keepdim=True)
    return mask & (ranked < least)


@torch.no_grad()
def without_run(weights: Tensor, mask: Tensor, ratio: float, rule: Rule) -> Tensor:
    """Which positions stay under dynamic masking: (B, Q, S), mask (B, 1, S) -> (B, Q, S).

    The weights in falling order are w_1 >= w_2 >= ...; w_1 goes. ``until_over``, the paper's words ("go on masking
    two neighbors until the ratio between them is over a threshold"): w_{i+1} goes too as long as
    ``w_i / w_{i+1} <= ratio``. ``while_over``, the other way round: as long as ``w_i / w_{i+1} > ratio``.
    """
    values, order = weights.masked_fill(~mask, -1.0).sort(dim=-1, descending=True, stable=True)
    over = values[..., :-1] > ratio * values[..., 1:]  # no division: a weight may be zero
    more = over if rule == "while_over" else ~over
    run = torch.cat([torch.ones_like(values[..., :1], dtype=torch.bool), more.long().cumprod(dim=-1).bool()], dim=-1)
    return mask & ~torch.zeros_like(run).scatter_(-1, order, run)


def opponent_weights(scores: Tensor, kept: Tensor, normalizer: Normalizer = "softmax") -> Tensor:
    """Equation (3), the second half: alpha_o from the scores of the positions that are kept, (B, Q, S) -> (B, Q, S).

    ``softmax`` is the paper's, over probabilities. ``renorm`` divides by the sum instead: alpha_c without its maximum,
    rescaled, which is what a softmax of masked *logits* would give and is as sharp as alpha_c itself; where all that is
    kept has underflowed, it is even. Rows that keep nothing are zero; every other row sums to one.
    """
    return masked_softmax(scores if normalizer == "softmax" else log_weights(scores), kept)


@torch.no_grad()
def behaviour(weights: Tensor, kept: Tensor, mask: Tensor, ends: Tensor, counted: Tensor) -> dict[str, Tensor]:
    """What the opponent does to alpha_c, as means over the decoder steps where ``counted`` (B, Q) is true.

    ``weights`` and ``kept`` (B, Q, S), ``mask`` (B, 1, S), ``ends`` (B, S) the positions of END in the source. The
    largest weight and the entropy (nats) of alpha_c, how many positions were masked, the share of steps that have
    nothing left, and of those whose END was masked.
    """
    steps = counted.sum().clamp_min(1)
    masked = mask & ~kept
    entropy = -torch.xlogy(weights, weights).sum(dim=-1)
    values = {
        "alpha_max": weights.amax(dim=-1),
        "alpha_entropy": entropy,
        "masked_positions": masked.sum(dim=-1),
        "nothing_left": ~kept.any(dim=-1),
        "masked_end": (masked & ends.unsqueeze(1)).any(dim=-1),
    }
    return {name: (value.to(weights.dtype) * counted).sum() / steps for name, value in values.items()}
