"""Contrastive attention, equation by equation.

Duan, Yu, Yin, Zhang, Luo and Zhang, "Contrastive Attention Mechanism for Abstractive Sentence Summarization" (EMNLP
2019).

| paper | here |
| --- | --- |
| q, k, v of the chosen head | ``queries`` (..., Q, d), ``keys`` (..., S, d), ``values`` (B, S, F) |
| alpha_c | ``weights`` (B, Q, S) |
| opponent(alpha_c) in (3) | a table of variants: which positions are ``allowed`` (B, Q, S), and the scores of those |
| alpha_o, attention_o = alpha_o v | `opponent_weights` (B, Q, S), `opponent_context` (B, Q, F) |
| z_1, z_2, z_3 | (..., F) |
| W | (V, F), without bias, its own parameter |
| lambda | the weight of log P_o, in training and in decoding |

``mask`` is true at real tokens. Our readings, where the paper is silent or printed otherwise:

* The second softmax, in (3), is over *probabilities*, as the paper and its authors' code have it: what is left after
  the largest weight went lies between 0 and 1/2, so alpha_o is nearly uniform over the positions that are allowed (its
  entries differ by a factor of at most e^(1/2)). Padding is excluded once more, because a weight of 0 would count e^0.
  Where nothing is left (a single position, all weights equal) alpha_o is zero.
* FeedForward in (5) has one hidden layer with ReLU, as the Transformer's.
* softmin(W z) is softmax(-W z), and W is free, without bias and drawn from a symmetric distribution, so the minus
  changes nothing that can be observed: P_o is a second, weaker predictor of the *same* next word, from a context that
  leaves out what the first one looked at most, and both are trained to be right. So z_3 carries the minus.
* Words outside V, which only a copy head can write, count as UNK for P_o.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear, pad

Ties = Literal["all", "first", "distinct"]
Rule = Literal["until_over", "while_over"]
Normalizer = Literal["softmax", "renorm"]
Norm = tuple[Tensor, Tensor]  # a layer norm's scale and shift (F,)
Linear = tuple[Tensor, Tensor]  # a layer's weight (out, in) and bias (out,)

# --------------------------------------------------------------------------------------- opponent attention: (1)-(3)


def conventional_weights(queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """(2) ``alpha_c = softmax(q k^T / sqrt(d))`` over real tokens, in float32 at least; (1) is alpha_c v.

    (..., Q, d), (..., S, d), (..., S) -> (..., Q, S). Zero at padding; a source of nothing but padding gets zeros.
    """
    wide = torch.promote_types(queries.dtype, torch.float32)
    scores = (queries.to(wide) * queries.shape[-1] ** -0.5) @ keys.to(wide).transpose(-1, -2)
    return softmax_over(scores, mask.unsqueeze(-2))


def softmax_over(scores: Tensor, mask: Tensor) -> Tensor:
    """The softmax of the positions of ``mask``, zero elsewhere and where there are none: (..., S) -> (..., S)."""
    return torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1).masked_fill(~mask, 0.0)


@torch.no_grad()
def without_largest(weights: Tensor, mask: Tensor, k: int = 1, ties: Ties = "all") -> Tensor:
    """(3), opponent(alpha_c): which positions stay when the k largest weights go; (B, Q, S), (B, 1, S) -> (B, Q, S).

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
        rank = pad(falls, (1, 0)).cumsum(dim=-1)  # 0 for the largest value, 1 for the next different one
        least = values.masked_fill(rank >= k, torch.inf).amin(dim=-1, keepdim=True)
    return mask & (ranked < least)


@torch.no_grad()
def without_run(weights: Tensor, mask: Tensor, ratio: float, rule: Rule) -> Tensor:
    """(3) under the dynamic masking of Table 3: which positions stay; (B, Q, S), (B, 1, S) -> (B, Q, S).

    The weights in falling order are w_1 >= w_2 >= ...; w_1 goes. ``until_over``, the paper's words ("go on masking
    two neighbors until the ratio between them is over a threshold"): w_{i+1} goes too as long as
    ``w_i / w_{i+1} <= ratio``. ``while_over``, the other way round: as long as ``w_i / w_{i+1} > ratio``.
    """
    values, order = weights.masked_fill(~mask, -1.0).sort(dim=-1, descending=True, stable=True)
    over = values[..., :-1] > ratio * values[..., 1:]  # no division: a weight may be zero
    more = over if rule == "while_over" else ~over
    run = torch.cat([torch.ones_like(values[..., :1], dtype=torch.bool), (~more).long().cumsum(dim=-1) == 0], dim=-1)
    return mask & ~torch.zeros_like(run).scatter_(-1, order, run)


def one_minus(weights: Tensor) -> Tensor:
    """(3), another opponent of section 3.2.1: the scores ``1 - alpha_c``; no position goes."""
    return 1 - weights


def inverse(weights: Tensor, mask: Tensor, eps: float) -> Tensor:
    """(3), the third: the scores ``1 / alpha_c``, alpha_c at least ``eps``; no position goes."""
    return torch.reciprocal(weights.masked_fill(~mask, 1.0).clamp_min(eps))  # at padding 1 / 0 would not be finite


def opponent_weights(scores: Tensor, allowed: Tensor, normalizer: Normalizer = "softmax") -> Tensor:
    """(3) ``alpha_o = softmax(opponent(alpha_c))``: (B, Q, S), and the positions that are left (B, Q, S) -> (B, Q, S).

    ``softmax`` is the paper's, over probabilities. ``renorm`` divides by the sum instead: alpha_c without its maximum,
    rescaled, which is what a softmax of masked *logits* would give and is as sharp as alpha_c itself; where all that is
    left has underflowed, it is even. Rows that have nothing left are zero; every other row sums to one.
    """
    if normalizer == "renorm":
        scores = scores.clamp_min(1e8 * torch.finfo(scores.dtype).tiny).log()
    return softmax_over(scores, allowed)


def opponent_context(opponent: Tensor, values: Tensor) -> Tensor:
    """``attention_o = alpha_o v``: (B, Q, S) and (B, S, F) -> (B, Q, F), in float32 at least."""
    return opponent @ values.to(opponent.dtype)


# ------------------------------------------------------------------------------ opponent probability: (4)-(9)


def first_norm(context: Tensor, norm: Norm) -> Tensor:
    """(4) ``z_1 = LayerNorm(attention_o)``: (..., F) -> (..., F)."""
    return layer_norm(context.to(norm[0].dtype), norm[0].shape, *norm)


def feed_forward(z1: Tensor, expand: Linear, contract: Linear) -> Tensor:
    """(5) ``z_2 = FeedForward(z_1) = W_2 relu(W_1 z_1 + b_1) + b_2``."""
    return linear(torch.relu(linear(z1, *expand)), *contract)


def last_norm(z1: Tensor, z2: Tensor, norm: Norm) -> Tensor:
    """(6) ``z_3 = LayerNorm(z_1 + z_2)``."""
    return layer_norm(z1 + z2, norm[0].shape, *norm)


def log_opponent(features: Tensor, weight: Tensor) -> Tensor:
    """(7) ``P_o = softmin(W z_3)``, its logarithm: (..., F), (V, F) -> (..., V)."""
    return log_softmin(linear(features, weight))


def log_softmin(scores: Tensor) -> Tensor:
    """(8) ``softmin(v)_i = exp(-v_i) / sum_j exp(-v_j)``, its logarithm, which is log_softmax(-v): (..., V).

    Not the logarithm of a softmin, which is minus infinity as soon as one score exceeds the least by about 104.
    """
    return torch.log_softmax(-scores, dim=-1)


def joint_score(log_conventional: Tensor, opponent_logits: Tensor, weight: float, unknown: int) -> Tensor:
    """(9) ``J = log P_c + lambda log P_o`` for every word of a decoding step: (N, X) and (N, V) -> (N, X).

    ``opponent_logits`` are W (-z_3). A score, not a log-probability: it is not normalised. Words outside V count as
    ``unknown`` for P_o.
    """
    words = opponent_logits.shape[-1]
    shift = weight * torch.logsumexp(opponent_logits, dim=-1, keepdim=True)
    known = torch.add(log_conventional[..., :words], opponent_logits, alpha=weight).sub_(shift)
    if log_conventional.shape[-1] == words:
        return known
    unseen = weight * opponent_logits[..., unknown : unknown + 1] - shift
    return torch.cat([known, log_conventional[..., words:] + unseen], dim=-1)
