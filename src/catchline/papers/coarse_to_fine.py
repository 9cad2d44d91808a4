"""Coarse-to-fine attention, equation by equation.

Ling and Rush, "Coarse-to-Fine Attention Models for Document Summarization" (2017). The paper numbers no equation; the
functions follow its section 4: chunk vectors (which section 5 describes), STANDARD, HIER, C2F, rewards and variance
reduction, then what only section 5 says.

| paper | here |
| --- | --- |
| m chunks of n words | C and W |
| h_i, h_ij | word states (B, S, H), (B, C, W, H) |
| h^s_i | chunk vectors (B, C, F) |
| h^dec_t | ``query`` (..., Q, H) |
| alpha^s, alpha^w | ``coarse`` (B, Q, C), ``fine`` (B, Q, C, W), or of the chunks that are read (B, Q, k, W) |
| k_mul, a_t | k chunks are sampled in a step: ``chunks`` (B, Q, k) |
| r_t = log p(y_t) | ``rewards`` (B, T) |
| b_t, beta | ``baseline`` (T,), its rate |
| gamma, lambda | ``discount``, ``scale`` |

``mask`` is true where attention may go. Our readings, where the paper is silent:

* Scores are bilinear (Luong et al.): h_i . (W_1 h^dec_t); a chunk's and a word's have matrices of their own.
* alpha^s under +MULTI is n_i / k with n ~ Mult(k, alpha^s), so the step's policy is sum_i n_i log alpha^s_i.
* At test time k chunks are read too: the best ones, with their probabilities renormalised (the authors' code).
* The final reward A_t, whose display is lost, is lambda sum_{s >= t} gamma^(s-t) (r_s - b_s); the loss is
  - (1/B) sum_b sum_t A_t log p(a_t), with A_t a constant.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# -------------------------------------------------------------------------------------- chunk vectors (section 5)


def chunk_sums(ids: Tensor, words: Tensor, table: Tensor) -> Tensor:
    """BOW: ``h^s_i = sum_j E[w_ij]`` over real words, ``words`` (B, C, W): ids (B, C, W), (V, F) -> (B, C, F)."""
    weights = words.flatten(0, 1).to(table.dtype)
    sums = torch.nn.functional.embedding_bag(ids.flatten(0, 1), table, per_sample_weights=weights, mode="sum")
    return sums.view(*ids.shape[:2], -1)


def max_over_windows(ids: Tensor, words: Tensor, table: Tensor, filters: Tensor) -> Tensor:
    """CONV: ``max_j sum_u K_u E[w_{j+u}]``, a convolution's maximum over time, without the bias.

    R chunks of W words (R, W), which are real (R, W), (V, E), (F, E, u) -> (R, F). Padding counts as zero vectors.
    """
    embedded = table[ids] * words.unsqueeze(-1)
    return torch.conv1d(embedded.transpose(1, 2), filters).amax(dim=-1)


# ---------------------------------------------------------------------------------------- STANDARD and HIER


def attention_scores(query: Tensor, keys: Tensor) -> Tensor:
    """STANDARD: ``h_i . (W_1 h^dec_t)``, of queries that W_1 has multiplied: (B, Q, H), (B, S, H) -> (B, Q, S).

    Of chunks and of the words of a chunk the same.
    """
    return torch.bmm(query, keys.transpose(1, 2))


def attention_weights(scores: Tensor, mask: Tensor) -> Tensor:
    """``alpha = softmax(scores)`` where attention may go, in float32 at least: (..., S) -> (..., S)."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1).masked_fill(~mask, 0.0)


def context(weights: Tensor, states: Tensor) -> Tensor:
    """``c~_t = sum_i alpha_i h_i``: (B, Q, S), (B, S, H) -> (B, Q, H)."""
    return torch.bmm(weights.to(states.dtype), states)


def final_context(context: Tensor, query: Tensor, merge: Callable[[Tensor], Tensor]) -> Tensor:
    """``c_t = tanh(W_2 [c~_t; h^dec_t])``, W_2 as the function ``merge``, (..., 2H) -> (..., H): (..., H) twice."""
    return torch.tanh(merge(torch.cat([context, query], dim=-1)))


def log_coarse_weights(scores: Tensor, mask: Tensor) -> Tensor:
    """HIER: ``ln alpha^s`` over the document's own chunks, minus infinity at others: (B, Q, C) -> (B, Q, C)."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return torch.log_softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)


def hierarchical_weights(coarse: Tensor, fine: Tensor) -> Tensor:
    """HIER: ``alpha_ij = alpha^s_i alpha^w_ij``; (B, Q, C) and (B, Q, C, W) -> (B, Q, C, W), summing to one."""
    return coarse.unsqueeze(-1) * fine


def sparsemax(scores: Tensor, mask: Tensor) -> Tensor:
    """The softmax's sparse relative, tried for alpha^s: the Euclidean projection onto the simplex, over the last axis
    (Martins and Astudillo 2016)."""
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min / 4)
    scores = scores - scores.detach().amax(dim=-1, keepdim=True)  # no overflow, and room for the threshold's digits
    ordered = scores.sort(dim=-1, descending=True).values
    counts = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
    sums = ordered.cumsum(dim=-1)
    support = 1 + counts * ordered > sums
    size = support.sum(dim=-1, keepdim=True)
    threshold = (sums.gather(-1, size - 1) - 1) / size
    return (scores - threshold).clamp_min(0.0) * mask


def entropy(log_weights: Tensor) -> Tensor:
    """``- sum_i alpha_i ln alpha_i`` in nats, how sharp the coarse attention is: (..., C) -> (...).

    0 ln 0 is 0: minus infinity goes before the product, whose gradient there is no number.
    """
    finite = log_weights.masked_fill(log_weights == -torch.inf, 0.0)
    return -(finite.exp() * finite).sum(dim=-1)


# ------------------------------------------------------------------------------------------------------ C2F


def sample_chunks(log_coarse: Tensor, noise: Tensor) -> Tensor:
    """C2F in training: ``a_1, ..., a_k ~ Categorical(alpha^s)`` with replacement; (B, Q, C) -> (B, Q, k).

    The largest of ln alpha^s plus standard Gumbel noise (B, Q, k, C) is such a sample.
    """
    return (log_coarse.detach().unsqueeze(2) + noise).argmax(dim=-1)


def best_chunks(coarse: Tensor, count: int, *, uniform: bool = False) -> tuple[Tensor, Tensor]:
    """C2F in evaluation: the k most probable chunks and their shares, (B, Q, k) each.

    Shares are the probabilities renormalised; with ``uniform`` 1 / k each. One chunk has share one. Where a document
    has fewer chunks than ``count``, the missing ones have share zero. Ties go to the chunk that stands first.
    """
    count = min(count, coarse.shape[-1])
    if count == 1:  # topk does not promise which of equals it takes
        chunks = coarse.argmax(dim=-1, keepdim=True)
        return chunks, torch.ones_like(chunks, dtype=coarse.dtype)
    chunks = coarse.sort(dim=-1, descending=True, stable=True).indices[..., :count]
    shares = coarse.gather(-1, chunks)
    chunks = torch.where(shares > 0, chunks, chunks[..., :1])  # never one that the document does not have
    shares = (shares > 0).to(shares.dtype) if uniform else shares
    return chunks, shares / shares.sum(dim=-1, keepdim=True)


def shared_context(shares: Tensor, contexts: Tensor) -> Tensor:
    """C2F: ``c~ = sum_i share_i sum_j alpha^w_ij h_ij``, of the chunks' own sums (B, Q, k, H) -> (B, Q, H)."""
    return (shares.unsqueeze(-1).to(contexts.dtype) * contexts).sum(dim=2)


def policy_log_prob(log_coarse: Tensor, chunks: Tensor) -> Tensor:
    """``log p(a_t) = sum_i n_i ln alpha^s_i``: (B, Q, C), (B, Q, k) -> (B, Q)."""
    return log_coarse.gather(-1, chunks).sum(dim=-1)


# -------------------------------------------------------------------------- rewards and variance reduction


def discounted_sums(values: Tensor, discount: float) -> Tensor:
    """``G_t = sum_{s >= t} gamma^(s-t) v_s``: (B, T) -> (B, T)."""
    sums, total = [], torch.zeros_like(values[:, 0])
    for value in reversed(values.unbind(dim=1)):
        total = value + discount * total
        sums.append(total)
    return torch.stack(sums[::-1], dim=1)


def updated_baseline(baseline: Tensor, sums: Tensor, counts: Tensor, rate: float) -> Tensor:
    """``b_t <- b_t + beta (mean_b r_bt - b_t)``; steps that no example reaches keep theirs. All (T,)."""
    mean = sums / counts.clamp_min(1)
    return torch.where(counts > 0, (1 - rate) * baseline + rate * mean, baseline)


def reinforce_advantages(
    rewards: Tensor, baseline: Tensor, mask: Tensor, *, discount: float, scale: float, of_return: bool = False
) -> Tensor:
    """``A_t = lambda sum_{s >= t} gamma^(s-t) (r_s - b_s)`` over real steps, (B, T); zero after the end.

    With ``of_return`` the baseline is one of the discounted sum: ``A_t = lambda (G_t - b_t)``.
    """
    if of_return:
        return scale * (discounted_sums(rewards * mask, discount) - baseline) * mask
    return scale * discounted_sums((rewards - baseline) * mask, discount) * mask
