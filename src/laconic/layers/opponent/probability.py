"""The opponent probability and the joint score: equations (4) to (9) of Duan et al. 2019.

    (4), (5)  z1 = LN(alpha_o v),  z2 = FC2(ReLU(FC1(z1))),  z3 = LN(z1 + z2)
    (6)-(8)   P_o = softmin(W z3),   softmin(x)_v = exp(-x_v) / sum_u exp(-x_u)
    (9)       J = log P_c + lambda log P_o

| paper | here |
| --- | --- |
| z3 | ``features`` (..., F) |
| W | ``projection.weight`` (V, F), without bias, a parameter of its own |
| log P_o | `log_softmin` of the scores; computed as ``log_softmax(W (-z3))`` |
| lambda | the weight of the objective ``opponent`` in training, ``lambda_decode`` in decoding |

What the equations say. ``softmin(W z)`` is ``softmax((-W) z)``, and W is free, untied, without bias and drawn from a
symmetric distribution, so the minus changes nothing that can be observed: P_o is a second, weaker predictor of the
*same* next word, from a context that leaves out what the first one looked at most, and both are trained to be right.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

DecodeScore = Literal["joint", "pc", "po"]


def log_softmin(scores: Tensor) -> Tensor:
    """Equations (7) and (8): ``log softmin(s) = log_softmax(-s)``, (..., V) -> (..., V).

    Not the logarithm of a softmin, which is minus infinity as soon as one score exceeds the least by about 104.
    """
    return torch.log_softmax(-scores, dim=-1)


def joint_score(log_conventional: Tensor, opponent_logits: Tensor, weight: float, unknown: int) -> Tensor:
    """Equation (9) for every word of a decoding step: ``log P_c + lambda log P_o``, (N, X) and (N, V) -> (N, X).

    ``opponent_logits`` are W (-z3). A score, not a log-probability: it is not normalised. Words outside V, which only
    a copy head can write, count as ``unknown`` for P_o (our reading).
    """
    words = opponent_logits.shape[-1]
    shift = weight * torch.logsumexp(opponent_logits, dim=-1, keepdim=True)
    known = torch.add(log_conventional[..., :words], opponent_logits, alpha=weight).sub_(shift)
    if log_conventional.shape[-1] == words:
        return known
    unseen = weight * opponent_logits[..., unknown : unknown + 1] - shift
    return torch.cat([known, log_conventional[..., words:] + unseen], dim=-1)
