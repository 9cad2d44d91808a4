"""Distraction, equation by equation.

Chen, Zhu, Ling, Wei and Jiang, "Distraction-Based Neural Networks for Document Summarization" (IJCAI 2016).

| paper | here |
| --- | --- |
| h_i | ``states[:, i]`` (B, S, D) |
| e(x), e(y_{t-1}) | embeddings (..., E); y_0 is the zero vector |
| r, u, h~ | gates and candidate (N, H); kept is z = 1 - u |
| s'_t, s_t | the decoder's state before and after it has read the content, (N, H) |
| U_a h_i | ``keys[:, i]`` (B, S, A) |
| W_a s'_t + b_att | ``queries`` (B, Q, A); Q are the beams of one step |
| v_a, b_a | ``score_vector``, ``history_vector`` (A,) |
| alpha'_t, alpha_t | ``scores``, ``weights`` (B, Q, S) |
| A_t = sum_{j<t} alpha_j | ``history`` (B, Q, S) |
| c'_t, c_t | ``content`` before and after M1, (..., D) |
| C_t = sum_{j<t} c_j | ``past`` (..., D) |
| W_c, U_c, diagonal | ``content_vector``, ``past_vector`` (D,) |
| lambda_1, lambda_2, lambda_3 | the weights of M3's three terms |

``mask`` (B, S) is true at real tokens. (6) and (7) say that a summary's log-probability is the sum of its words'; (9)
``s_t = GRU_1(s'_t, c_t)`` and (10) ``s'_t = GRU_2(s_{t-1}, e(y_{t-1}))`` are (2) to (5) with parameters of their own,
(10) first. Our readings, where the paper is silent:

* The sums start at zero for every document and follow the hypothesis in search. C_t adds up the distracted c_j, not
  c'_j. Without M1 there is no tanh: c_t = c'_t.
* u weighs the new candidate in (2). Here z = 1 - u weighs the old state, as in torch: the same family of functions.
* (13) has a bias b_att, and the GRU one a gate, as in the authors' code.
* At t = 1 there is no past and M3 is zero. (18) adds the similarities, so *negative* lambda_2 and lambda_3 punish
  repetition.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

# ------------------------------------------------------------------------------- encoding and generation: (1)-(10)


def gru(inputs: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor | None = None) -> Tensor:
    """(1) ``h_i = GRU(h_{i-1}, e(x_i))`` from h_0 = 0, time in front: (S, B, E) -> (S, B, H).

    ``weight_ih`` (3H, E) are [W_r; W_z; W], ``weight_hh`` (3H, H) [U_r; U_z; U], ``bias`` (3H,).
    """
    size = weight_hh.shape[1]
    products = linear(inputs, weight_ih, bias)
    state, states = products.new_zeros(products.shape[1], size), []
    for product in products:
        r, z = gru_gates(product[:, : 2 * size], linear(state, weight_hh[: 2 * size]))
        state = gru_state(gru_candidate(product[:, 2 * size :], linear(r * state, weight_hh[2 * size :])), z, state)
        states.append(state)
    return torch.stack(states) if states else products.new_zeros(*products.shape[:2], size)


def gru_state(candidate: Tensor, z: Tensor, state: Tensor) -> Tensor:
    """(2) ``h_i = (1 - u_i) * h_{i-1} + u_i * h~_i`` with z = 1 - u, all (N, H)."""
    return torch.lerp(candidate, state, z)


def gru_candidate(of_input: Tensor, of_state: Tensor) -> Tensor:
    """(3) ``h~_i = tanh(W e(x_i) + U (r_i * h_{i-1}))`` of the two products, (N, H): r goes *before* U."""
    return torch.tanh(of_input + of_state)


def gru_gates(of_input: Tensor, of_state: Tensor) -> tuple[Tensor, Tensor]:
    """(4), (5) ``r, z = sigmoid(W e(x_i) + U h_{i-1})`` of the two products, (N, 2H) in the order r, z."""
    r, z = torch.sigmoid(of_input + of_state).chunk(2, dim=-1)
    return r, z


def readout(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(8) inside W_o: ``tanh(V_o e(y_{t-1}) + U_o s_t + C_o c_t)``, (..., E + H + D) -> (..., q).

    ``features`` are [e; s_t; c_t], c_t the distracted one; the matrices stand side by side in ``weight``.
    """
    return torch.tanh(linear(features, weight, bias))


# -------------------------------------------------------------------------------- distraction in training: (11)-(14)


def content_distraction(content: Tensor, past: Tensor, content_vector: Tensor, past_vector: Tensor) -> Tensor:
    """(11), M1 ``c_t = tanh(W_c c'_t - U_c sum_{j<t} c_j)``, the matrices diagonal: all (..., D)."""
    return torch.tanh(content_vector * content - past_vector * past)


def context(weights: Tensor, states: Tensor) -> Tensor:
    """(12) ``c'_t = sum_i alpha_{t,i} h_i``: (B, Q, S), (B, S, D) -> (B, Q, D)."""
    return torch.bmm(weights.to(states.dtype), states)


def attention_scores(
    keys: Tensor,
    queries: Tensor,
    score_vector: Tensor,
    history: Tensor | None = None,
    history_vector: Tensor | None = None,
) -> Tensor:
    """(13) ``v_a . tanh(W_a s'_t + U_a h_i + b_att - b_a A_{t,i})``; without the history what M2 is compared with.

    keys (B, S, A), queries (B, Q, A), v_a (A,), A_t (B, Q, S), b_a (A,) -> (B, Q, S).
    """
    z = keys.unsqueeze(1) + queries.unsqueeze(2)
    if history is not None and history_vector is not None:
        z = z - history_vector * history.unsqueeze(-1)
    return torch.tanh(z) @ score_vector.to(z.dtype)


def attention_weights(scores: Tensor, mask: Tensor) -> Tensor:
    """(14) ``alpha_t = softmax(alpha'_t)`` over real tokens, in float32 at least; padding has zero: (..., S)."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1).masked_fill(~mask, 0.0)


# -------------------------------------------------------------------------------- distraction in decoding: (15)-(18)


def attention_distance(present: Tensor, past: Tensor) -> Tensor:
    """(15) ``d_alpha,t = min_{i<t} KL(alpha_t, alpha_i)``: (N, S), earlier steps (N, t, S) -> (N,).

    A weight that underflowed counts as the smallest normal number; at padding both are zero, and so is the term.
    """
    tiny = torch.finfo(present.dtype).tiny
    logs, past_logs = present.clamp_min(tiny).log(), past.clamp_min(tiny).log()
    return (present.unsqueeze(1) * (logs.unsqueeze(1) - past_logs)).sum(dim=-1).amin(dim=-1)


def similarity(present: Tensor, past: Tensor) -> Tensor:
    """(16), (17) ``max_{i<t} cosine(c_t, c_i)``, of s the same: (N, W), earlier steps (N, t, W) -> (N,)."""
    return torch.cosine_similarity(present.unsqueeze(1), past, dim=-1).amax(dim=-1)


def distracted_score(
    log_prob: Tensor, attention: Tensor, content: Tensor, state: Tensor, weights: tuple[float, float, float]
) -> Tensor:
    """(18), one step: ``log p(y_t) + lambda_1 d_alpha,t + lambda_2 d_c,t + lambda_3 d_s,t``, all (N,)."""
    return log_prob + weights[0] * attention + weights[1] * content + weights[2] * state
