"""The pointer-generator with coverage, equation by equation.

Wu, Zhao, Wu and Li, "Headline Writer: Better Abstractive Text Summarization with Attention and Pointer Generator
Network", whose numbers these are; the model is that of See, Liu and Manning, "Get To The Point" (ACL 2017).

| paper | here |
| --- | --- |
| h_i | ``states[:, i]`` (B, S, D): what the encoder says of source token i |
| s_t | the decoder's state at step t; a tensor (B, Q, ...) holds Q steps, or the Q beams of one step |
| W_h h_i | ``keys[:, i]`` (B, S, A) |
| W_s s_t + b_attention | ``queries[:, t]`` (B, Q, A) |
| v, w_c | ``score_vector``, ``coverage_vector`` (A,) |
| e^t_i, a^t_i | ``scores``, ``weights`` (B, Q, S) |
| c^t_i | ``coverage`` (B, Q, S) |
| h*_t | the context (B, Q, D) |
| w_i | ``source_ids`` (..., S), extended ids: words outside the vocabulary V are V, V + 1, ... in their document |

``mask`` (B, S), or broadcast to the scores, is true at real tokens. Our readings, where the paper is silent:

* Padding has weight zero; a source of nothing but padding has zero weights.
* Words outside the vocabulary get ids of their own in each document (See et al.); P_vocab is zero there, and the sum
  of (5) is empty for words that are not in the source.
* p_gen is kept as the argument of its sigmoid and (5) also given in logarithms: p_gen saturates and attention
  underflows, their logarithms do not.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear, logsigmoid


def attention_scores(
    keys: Tensor,
    queries: Tensor,
    score_vector: Tensor,
    coverage: Tensor | None = None,
    coverage_vector: Tensor | None = None,
) -> Tensor:
    """(1) ``e = v . tanh(W_h h + W_s s + b)``, and (7) with coverage, ``v . tanh(W_h h + W_s s + b + w_c c)``.

    keys (B, S, A), queries (B, Q, A), v (A,), c (B, Q, S), w_c (A,) -> (B, Q, S).
    """
    z = keys.unsqueeze(1) + queries.unsqueeze(2)  # (B, Q, S, A)
    if coverage is not None and coverage_vector is not None:
        z = z + coverage_vector * coverage.unsqueeze(-1)
    return torch.tanh(z) @ score_vector.to(z.dtype)


def attention_weights(scores: Tensor, mask: Tensor) -> Tensor:
    """(2) ``a^t = softmax(e^t)`` over real tokens, in float32 at least: (..., S) -> (..., S)."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1).masked_fill(~mask, 0.0)


def context(weights: Tensor, states: Tensor) -> Tensor:
    """(3) ``h*_t = sum_i a^t_i h_i``: (B, Q, S), (B, S, D) -> (B, Q, D)."""
    return torch.bmm(weights.to(states.dtype), states)


def vocabulary_log_probs(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``log P_vocab = log softmax(W_o x + b_o)``, not numbered: (..., F), (V, F), (V,) -> (..., V)."""
    logits = linear(features, weight) + bias
    return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)


def gold_log_probs(features: Tensor, weight: Tensor, bias: Tensor, gold: Tensor) -> Tensor:
    """`vocabulary_log_probs` of one word a row: (M, F), ids below V (M,) -> (M,)."""
    return vocabulary_log_probs(features, weight, bias).gather(-1, gold.unsqueeze(-1)).squeeze(-1)


def generation_gate(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(4) ``p_gen = sigmoid(w_h* . h*_t + w_s . s_t + w_x . x_t + b_ptr)``: the argument of the sigmoid.

    ``features`` (..., G) are [h*_t; s_t; x_t], ``weight`` (1, G) [w_h*; w_s; w_x] -> (...), in float32 at least.
    """
    gate = linear(features, weight, bias).squeeze(-1)
    return gate.to(torch.promote_types(gate.dtype, torch.float32))


def final_distribution(
    vocabulary_logits: Tensor, gate: Tensor, copy_probs: Tensor, source_ids: Tensor, extended_vocab_size: int
) -> Tensor:
    """(5) ``P(w) = p_gen P_vocab(w) + (1 - p_gen) sum_{i: w_i = w} a^t_i``, its logarithm for all X words.

    Logits (..., V), the sigmoid's argument (...), a^t (..., S), w_i (..., S) -> (..., X); minus infinity for words that
    are neither in the vocabulary nor in the source.
    """
    p_gen = torch.sigmoid(gate).unsqueeze(-1)
    probs = vocabulary_logits.new_zeros(*vocabulary_logits.shape[:-1], extended_vocab_size)
    probs[..., : vocabulary_logits.shape[-1]] = p_gen * torch.softmax(vocabulary_logits, dim=-1)
    probs = probs.scatter_add(-1, source_ids, (1 - p_gen) * copy_probs)
    impossible = probs == 0  # taken out before the logarithm, whose gradient there is no number
    return probs.masked_fill(impossible, 1.0).log().masked_fill(impossible, float("-inf"))


def gold_log_prob(gate: Tensor, log_vocab: Tensor, log_copy: Tensor) -> Tensor:
    """(5) for one word: ``logaddexp(log p_gen + log P_vocab(w), log(1 - p_gen) + log sum a_i)``, all (M,).

    A word outside the vocabulary has ``log_vocab`` minus infinity, one outside the source ``log_copy``. Gradients stay
    finite when one of the two is minus infinity, as long as not both are.
    """
    return torch.logaddexp(logsigmoid(gate) + log_vocab, logsigmoid(-gate) + log_copy)


def gold_copy_log_prob(scores: Tensor, gold: Tensor, source_ids: Tensor, mask: Tensor) -> Tensor:
    """(5), the sum for one word, ``log sum_{i: w_i = gold} a_i``, from attention scores.

    (M, S), (M,), (M, S), (M, S) -> (M,). The match is ANDed with the mask: padding carries an id too, and it may be
    the gold one.
    """
    matches = (source_ids == gold.unsqueeze(-1)) & mask
    return log_sum_exp(scores, matches) - log_sum_exp(scores, mask)


def log_sum_exp(scores: Tensor, mask: Tensor) -> Tensor:
    """``log sum exp`` over the positions of ``mask``; minus infinity for a row that has none: (..., S) -> (...).

    The others take part in neither the value nor the gradient, also where there is none (a plain logsumexp over minus
    infinity would send NaN back).
    """
    peak = scores.detach().masked_fill(~mask, float("-inf")).amax(dim=-1, keepdim=True)
    peak = peak.masked_fill(peak == float("-inf"), 0.0)
    # What does not count is replaced before the exponential, so that none of it can overflow.
    summed = (torch.where(mask, scores - peak, 0.0).exp() * mask).sum(dim=-1)
    empty = summed == 0
    value = torch.log(torch.where(empty, 1.0, summed)) + peak.squeeze(-1)
    return value.masked_fill(empty, float("-inf"))


def next_coverage(coverage: Tensor, weights: Tensor) -> Tensor:
    """(6) ``c^t = sum_{t' < t} a^t'``, one step of it: c^{t+1} = c^t + a^t. c^0 = 0, and c^t excludes a^t."""
    return coverage + weights


def coverage_loss(weights: Tensor, coverage: Tensor) -> Tensor:
    """(8) ``covloss_t = sum_i min(a^t_i, c^t_i)``, (B, T, S) twice -> (B, T), in [0, 1].

    The loss of the first step is zero. Gradients reach a^t through both arguments.
    """
    return torch.minimum(weights, coverage).sum(dim=-1)
