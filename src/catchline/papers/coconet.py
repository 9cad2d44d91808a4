"""Correlational copying, equation by equation.

Li et al., "Learn to Copy from the Copying History: Correlational Copy Network for Abstractive Summarization" (EMNLP
2021): CoCoNet.

| paper | here |
| --- | --- |
| Q_t, K_i, V_i | ``queries`` (B, Q, H, d), ``keys`` and values (B, S, H, d): a decoder layer's cross attention |
| alpha_t | ``weights`` (B, Q, S), the mean over the heads |
| lambda_t, u_t, g_t | gates (B, Q), given as the arguments of their sigmoids; lambda is the weight of *generation* |
| P_attCopy, P_coCopy, P_finalCopy | alpha, ``correlational``, ``final`` (B, Q, S), over source positions |
| P_t-1 in (11) | ``history`` (B, Q, S): P_finalCopy of the step before, zero before the first |
| Q^E_j, K^E_i | ``queries``, ``keys`` (B, S, H, d) of the last encoder layer |
| s_{j,i}, p_{j,i} | ``semantic``, ``positional`` (B, S, S); [j, i]: mass moves from position j (then) to i (now) |
| sigma_j | ``log_widths`` (B, S) |
| pst_j, the clipping distance | the token's index, ``clip_distance`` |

``mask`` is true at real tokens, ``copy_mask`` (B, S) where copying may point. (1) to (4) are the Transformer and its
loss; (5) is that of `catchline.papers.pointer_generator` with lambda for p_gen; (6) and (16) are the projections of the
network's own attention; (22) weighs ROUGE. Our readings:

* The recurrence (11)-(14) runs over positions; words meet once, in (5).
* rel_t (12) is "analogous to the transition matrix" without self-transfer: padding and the diagonal of s and of p are
  zeroed and rows rescaled to one, each by itself. Then rel_t is row-stochastic for every u_t and (5) a distribution.
* rel_t is never built: P rel_t = u_t (P s) + (1 - u_t) (P p).
* Where P_co has no mass (the first step, a source of one token) P_final is alpha.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

SelfTransfer = Literal["zero_renorm", "zero", "keep", "type"]
Clip = Literal["clamp", "cutoff", "none"]
Norm = Literal["none", "l1", "softmax"]

FLOOR = 1e-9  # of the mass of a row of s without its diagonal
STEEPEST = 1e4  # of 1 / (2 sigma^2): beyond, all but the nearest positions are zero in float64 too


# ------------------------------------------------------------------------------------ attention and gates: (7)-(10)


def mean_attention(queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """(7)-(9) ``alpha_t = mean_h softmax(Q_t K^T / sqrt(d))``, and (17), (18) of the encoder's; in float32 at least.

    (B, Q, H, d), (B, S, H, d), (B, S) -> (B, Q, S). Zero at padding, and where all is padding.
    """
    wide = torch.promote_types(queries.dtype, torch.float32)
    q, k = queries.transpose(1, 2).to(wide), keys.transpose(1, 2).to(wide)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    return softmax_over(scores, mask[:, None, None]).mean(dim=1)


def softmax_over(scores: Tensor, mask: Tensor) -> Tensor:
    """The softmax of the positions of ``mask``, zero elsewhere and where there are none: (..., S) -> (..., S)."""
    return torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1).masked_fill(~mask, 0.0)


def context_gate(weights: Tensor, projected: Tensor) -> Tensor:
    """(10), (15) ``w . sum_i a_t,i V_i = sum_i a_t,i (w . V_i)``, without the bias.

    weights (B, Q, S), w . V once a document (B, S) -> (B, Q).
    """
    return torch.bmm(weights, projected.unsqueeze(-1)).squeeze(-1)


# ---------------------------------------------------------------------------------------- the recurrence: (11)-(15)


def transferred(parts: Tensor, correlations: Tensor) -> Tensor:
    """(11) ``sum_j P_j rel_t(j, i) = u (P s) + (1 - u) (P p)``: (B, Q, n S), s and p one below the other
    (B, n S, S) -> (B, Q, S)."""
    return torch.bmm(parts.to(correlations.dtype), correlations)


def split_history(history: Tensor, semantic_gate: Tensor) -> Tensor:
    """(12), by linearity: what of the history (B, Q, S) goes through s and what through p, (B, Q, 2, S).

    u is (B, Q, 1), or (B, 1, S) where it belongs to the source position j.
    """
    return history.unsqueeze(-2) * torch.stack([semantic_gate, 1 - semantic_gate], dim=-2)


def normalised(correlational: Tensor, norm: Norm, copy_mask: Tensor) -> Tensor:
    """P_co as it is (``none``), divided by its sum, or (the authors' code) through a softmax over ``copy_mask``."""
    if norm == "none":
        return correlational
    if norm == "softmax":
        return softmax_over(correlational, copy_mask.unsqueeze(1))
    total = correlational.sum(dim=-1, keepdim=True)
    return correlational / torch.where(total > 0, total, 1.0)


def mixed(weights: Tensor, correlational: Tensor, attention_gate: Tensor) -> Tensor:
    """(14) ``P_final = g alpha + (1 - g) P_co``, (B, Q, S) twice and g (B, Q) -> (B, Q, S)."""
    return torch.lerp(correlational, weights, attention_gate.unsqueeze(-1))


# --------------------------------------------------------------------------------- semantic correlation: (17)-(19)


def transfers(copy_mask: Tensor, ids: Tensor, self_transfer: SelfTransfer) -> Tensor:
    """Where mass may go: (B, S), (B, S) -> (B, S, S) bool. Not through padding; not to itself, unless ``keep``;
    with ``type`` not to any position that holds the same token."""
    allowed = copy_mask.unsqueeze(2) & copy_mask.unsqueeze(1)
    if self_transfer == "type":
        return allowed & (ids.unsqueeze(2) != ids.unsqueeze(1))
    if self_transfer != "keep":
        allowed = allowed & ~torch.eye(copy_mask.shape[1], dtype=torch.bool, device=copy_mask.device)
    return allowed


def rescaled_rows(matrix: Tensor, allowed: Tensor) -> Tensor:
    """(19), made a transition matrix: zero outside ``allowed``, then every row divided by its sum, (B, S, S) twice.

    The sum has a floor of 1e-9; what a row lacks to the floor is spread evenly, so that it sums to one all the same.
    A row that may go nowhere is zero.
    """
    rows = matrix.masked_fill(~allowed, 0.0)
    total = rows.sum(dim=-1, keepdim=True)
    lacking = (FLOOR - total).clamp_min(0.0) / allowed.sum(dim=-1, keepdim=True).clamp_min(1)
    return ((rows + lacking) / total.clamp_min(FLOOR)).masked_fill(~allowed, 0.0)


# ------------------------------------------------------------------------------- positional correlation: (20), (21)


def positional_correlation(
    log_widths: Tensor,
    copy_mask: Tensor,
    ids: Tensor,
    *,
    self_transfer: SelfTransfer = "zero_renorm",
    clip: Clip = "clamp",
    clip_distance: int = 16,
    density: bool = False,
) -> Tensor:
    """(20) p (B, S, S) from log sigma (B, S). ``clip``: distances beyond the last count as it, or are out of reach.

    Rows are the softmax of ``- D^2 / (2 sigma^2)`` over where they may go: the density divided by its row's sum, in
    which ``1 / (sqrt(2 pi) sigma)`` cancels, and without its underflow. With ``density`` they are as printed.
    """
    positions = torch.arange(copy_mask.shape[1], device=log_widths.device)
    distances = (positions.unsqueeze(1) - positions).abs()
    within = distances <= clip_distance if clip == "cutoff" else torch.ones_like(distances, dtype=torch.bool)
    distances = distances.clamp_max(clip_distance) if clip == "clamp" else distances
    exponents = -distances.to(log_widths.dtype).square() * steepness(log_widths).unsqueeze(-1)
    allowed = transfers(copy_mask, ids, self_transfer) & within
    if density:
        return torch.exp(exponents - log_widths.unsqueeze(-1) - math.log(2 * math.pi) / 2).masked_fill(~allowed, 0.0)
    if self_transfer != "zero":
        return softmax_over(exponents, allowed)
    return softmax_over(exponents, transfers(copy_mask, ids, "keep") & within).masked_fill(~allowed, 0.0)


def log_width(gate: Tensor, lengths: Tensor) -> Tensor:
    """(21) ``sigma_j = |x| / 2 sigmoid(gate_j)``, its logarithm: (B, S), (B,) -> (B, S)."""
    return logsigmoid(gate) + torch.log(lengths.to(gate.dtype).clamp_min(1) / 2).unsqueeze(-1)


def steepness(log_widths: Tensor) -> Tensor:
    """``1 / (2 sigma^2)``, where it matters: (B, S) -> (B, S)."""
    return torch.exp((-2 * log_widths).clamp_max(math.log(2 * STEEPEST))) / 2
