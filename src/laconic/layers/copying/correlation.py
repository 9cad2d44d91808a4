"""Correlational copying on Transformers (Li et al., EMNLP 2021): its equations, in order.

| paper | here |
| --- | --- |
| Q_t, K_i, V_i (6) | `CrossTap` of the tapped decoder layer: ``queries``, ``keys``, ``values``, heads apart, unscaled |
| alpha_t (7)-(9) | ``weights`` (B, Q, S), the mean over the heads of `head_attention` |
| lambda_t (10), u_t (13), g_t (15) | sigmoids of ``generation``, ``semantic_gate``, ``attention_gate`` (B, Q) |
| V w_lambda, V w_g | ``readings`` (B, S): gates are linear in V, so V is multiplied once a document |
| P_co_t (11) | ``correlational`` (B, Q, S) |
| P_final_t (14) | ``final`` (B, Q, S); ``history`` is that of the step before |
| Q^E_j, K^E_i, s (16)-(19) | ``queries``, ``keys`` of the last encoder layer, ``semantic`` (B, S, S) |
| sigma_j, p (20)-(21) | ``log_width`` (B, S), ``positional`` (B, S, S) |
| pst_j, the clipping distance 16 | the index of the token, ``clip_distance`` |

Equations (5)-(9) are those of every pointer and live where they are shared: (5) in `pointer.mixture` and
`pointer.gold_log_prob`, (6)-(9) in `laconic.layers.transformer.mean_attention`. Readings that the paper leaves open:

* The recurrence (11)-(14) runs over positions; words meet once, in (5). lambda is the weight of *generation*.
* rel_t (12) is "analogous to the transition matrix" without self-transfer: padding and the diagonal of s and of p are
  zeroed and rows rescaled to one, each by itself. Then rel_t is row-stochastic for every u_t and (5) a distribution.
* rel_t is never built: P rel_t = u_t (P s) + (1 - u_t) (P p).
* Where P_co has no mass (the first step, a source of one token) P_final is alpha.

[j, i]: mass moves from source position j (then) to i (now).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from laconic.layers.masking import masked_softmax

SelfTransfer = Literal["zero_renorm", "zero", "keep", "type"]
Clip = Literal["clamp", "cutoff", "none"]
Norm = Literal["none", "l1", "softmax"]

FLOOR = 1e-9  # of the mass of a row of s without its diagonal
_STEEPEST = 1e4  # of 1 / (2 sigma^2): beyond, all but the nearest positions are zero in float64 too


# ------------------------------------------------------------------------------ gates: (10), (13), (15)


def context_gate(weights: Tensor, readings: Tensor) -> Tensor:
    """``w . sum_i a_t,i V_i = sum_i a_t,i (w . V_i)``, the sum in equations (10) and (15), without the bias.

    weights (B, Q, S), readings (B, S) -> (B, Q).
    """
    return torch.bmm(weights, readings.unsqueeze(-1)).squeeze(-1)


# --------------------------------------------------------------------------------- recurrence: (11)-(15)


def split_history(history: Tensor, semantic_gate: Tensor) -> Tensor:
    """Equation (12), by linearity: what of the history (B, Q, S) goes through s and what through p, (B, Q, 2, S).

    ``semantic_gate`` u is (B, Q, 1), or (B, 1, S) where it belongs to the source position j.
    """
    return history.unsqueeze(-2) * torch.stack([semantic_gate, 1 - semantic_gate], dim=-2)


def normalised(correlational: Tensor, norm: Norm, kept: Tensor) -> Tensor:
    """P_co as it is (``none``), divided by its sum, or (the release) through a softmax over ``kept`` (B, S)."""
    if norm == "none":
        return correlational
    if norm == "softmax":
        return masked_softmax(correlational, kept.unsqueeze(1))
    total = correlational.sum(dim=-1, keepdim=True)
    return correlational / torch.where(total > 0, total, 1.0)


def mixed(weights: Tensor, correlational: Tensor, attention_gate: Tensor) -> Tensor:
    """Equation (14): ``P_final = g alpha + (1 - g) P_co``, (B, Q, S) twice and (B, Q) -> (B, Q, S)."""
    return torch.lerp(correlational, weights, attention_gate.unsqueeze(-1))


# ------------------------------------------------------------------------------- semantic: (16)-(19), b.6


def transfers(kept: Tensor, ids: Tensor, self_transfer: SelfTransfer) -> Tensor:
    """Where mass may go: (B, S), (B, S) -> (B, S, S) bool. Not through padding; not to itself, unless ``keep``;
    with ``type`` not to any position that holds the same token."""
    allowed = kept.unsqueeze(2) & kept.unsqueeze(1)
    if self_transfer == "type":
        return allowed & (ids.unsqueeze(2) != ids.unsqueeze(1))
    if self_transfer != "keep":
        allowed = allowed & ~torch.eye(kept.shape[1], dtype=torch.bool, device=kept.device)
    return allowed


def rescaled_rows(matrix: Tensor, allowed: Tensor) -> Tensor:
    """Zero outside ``allowed``, then every row divided by its sum: (B, S, S) twice -> (B, S, S).

    The sum has a floor of 1e-9; what a row lacks to the floor is spread evenly, so that it sums to one all the same.
    A row that may go nowhere is zero.
    """
    return _RescaledRows.apply(matrix, allowed)


class _RescaledRows(torch.autograd.Function):
    """Written out because autograd would keep two more (B, S, S) tensors and make several on the way back."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, allowed: Tensor) -> Tensor:
        result = matrix.masked_fill(~allowed, 0.0)
        total = result.sum(dim=-1, keepdim=True)
        places = allowed.sum(dim=-1, keepdim=True).clamp_min(1)
        result.add_((FLOOR - total).clamp_min_(0.0) / places).div_(total.clamp_min(FLOOR)).masked_fill_(~allowed, 0.0)
        ctx.save_for_backward(result, total, places, allowed)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, wanted: Tensor) -> tuple[Tensor, None]:
        result, total, places, allowed = ctx.saved_tensors
        gradient = wanted.masked_fill(~allowed, 0.0)
        # Below the floor the sum that is divided by is constant, and what is lacking falls as the row grows.
        even = gradient.sum(dim=-1, keepdim=True) / places
        share = torch.linalg.vecdot(gradient, result).unsqueeze(-1)
        return gradient.sub_(torch.where(total < FLOOR, even, share)).div_(total.clamp_min(FLOOR)).mul_(allowed), None


def semantic_correlation(attention: Tensor, kept: Tensor, ids: Tensor, self_transfer: SelfTransfer) -> Tensor:
    """Equation (19) made a transition matrix: the encoder's attention (B, S, S), heads averaged -> s (B, S, S).

    ``zero`` takes the diagonal away and leaves the rows short; ``keep`` leaves it.
    """
    allowed = transfers(kept, ids, self_transfer)
    if self_transfer != "zero":
        return rescaled_rows(attention, allowed)
    return rescaled_rows(attention, transfers(kept, ids, "keep")).masked_fill(~allowed, 0.0)


# --------------------------------------------------------------------------------- positional: (20)-(21)


def log_width(gate: Tensor, lengths: Tensor) -> Tensor:
    """Equation (21), its logarithm: ``sigma_j = |x| / 2 sigmoid(gate_j)``, (B, S), (B,) -> (B, S)."""
    return logsigmoid(gate) + torch.log(lengths.to(gate.dtype).clamp_min(1) / 2).unsqueeze(-1)


def steepness(log_widths: Tensor) -> Tensor:
    """``1 / (2 sigma^2)``, where it matters: (B, S) -> (B, S)."""
    return torch.exp((-2 * log_widths).clamp_max(math.log(2 * _STEEPEST))) / 2


def clipped_distances(size: int, clip: Clip, clip_distance: int, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """D(j, i) (S, S) of equation (20), and where ``cutoff`` forbids to go (none: nowhere)."""
    positions = torch.arange(size, device=like.device)
    distances = (positions.unsqueeze(1) - positions).abs()
    beyond = distances > clip_distance if clip == "cutoff" else None
    if clip == "clamp":
        distances = distances.clamp_max(clip_distance)
    return distances.to(like.dtype), beyond


def positional_correlation(
    log_widths: Tensor,
    kept: Tensor,
    ids: Tensor,
    *,
    self_transfer: SelfTransfer = "zero_renorm",
    clip: Clip = "clamp",
    clip_distance: int = 16,
    density: bool = False,
) -> Tensor:
    """Equation (20): p (B, S, S) from log sigma (B, S).

    Rows are the softmax of ``- D^2 / (2 sigma^2)`` over where they may go: the density divided by its row's sum, in
    which ``1 / (sqrt(2 pi) sigma)`` cancels, and without its underflow. With ``density`` they are as printed.
    """
    distances, beyond = clipped_distances(kept.shape[1], clip, clip_distance, log_widths)
    allowed = transfers(kept, ids, self_transfer)
    if beyond is not None:
        allowed = allowed & ~beyond
    exponents = -distances.square() * steepness(log_widths).unsqueeze(-1)
    if density:
        return torch.exp(exponents - log_widths.unsqueeze(-1) - math.log(2 * math.pi) / 2).masked_fill(~allowed, 0.0)
    if self_transfer != "zero":
        return masked_softmax(exponents, allowed)
    own = transfers(kept, ids, "keep")
    return masked_softmax(exponents, own if beyond is None else own & ~beyond).masked_fill(~allowed, 0.0)
