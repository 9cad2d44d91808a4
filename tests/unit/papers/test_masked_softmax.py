"""Each paper's softmax, and the pointer-generator's log-sum-exp, under a mask, where a naive version gives NaN."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from catchline.papers import coarse_to_fine, coconet, contrastive, distraction, pointer_generator
from catchline.papers.pointer_generator import log_sum_exp

SCORES = torch.tensor([[1.0, -2.0, 3.0, 9.0], [0.5, 7.0, 7.0, 7.0], [2.0, 2.0, 2.0, 2.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True, False], [True, False, False, False], [False, False, False, False]])
SOFTMAXES = [
    pointer_generator.attention_weights,
    distraction.attention_weights,
    coarse_to_fine.attention_weights,
    contrastive.softmax_over,
    coconet.softmax_over,
]
Softmax = Callable[[Tensor, Tensor], Tensor]


@pytest.mark.parametrize("softmax", SOFTMAXES)
def test_softmax_equals_the_softmax_of_the_real_tokens(softmax: Softmax) -> None:
    weights = softmax(SCORES, MASK)
    torch.testing.assert_close(weights[0, :3], torch.softmax(SCORES[0, :3], -1), atol=1e-15, rtol=0)
    assert weights[0, 3] == 0
    assert weights[1].tolist() == [1, 0, 0, 0]
    assert weights[2].tolist() == [0, 0, 0, 0], "a row without real tokens is zero, not NaN"
    assert gradcheck(lambda x: softmax(x, MASK), SCORES.clone().requires_grad_())


def test_logsumexp_values() -> None:
    value = log_sum_exp(SCORES, MASK)
    assert float(value[0]) == pytest.approx(math.log(math.exp(1) + math.exp(-2) + math.exp(3)), abs=1e-14)
    assert float(value[1]) == pytest.approx(0.5, abs=1e-15)
    assert value[2] == -math.inf


def test_logsumexp_gradients() -> None:
    """Also of a row without real positions, where a plain logsumexp over -inf sends NaN back."""
    scores = SCORES.clone().requires_grad_()
    log_sum_exp(scores, MASK).sum().backward()
    torch.testing.assert_close(scores.grad[0, :3], torch.softmax(SCORES[0, :3], -1), atol=1e-15, rtol=0)
    assert scores.grad[0, 3] == 0
    assert scores.grad[1].tolist() == [1, 0, 0, 0]
    assert scores.grad[2].tolist() == [0, 0, 0, 0]
    naive = SCORES.clone().requires_grad_()
    torch.logsumexp(naive + torch.where(MASK, 0.0, -math.inf), -1).exp().sum().backward()
    assert naive.grad[2].isnan().any(), "the trap that this function avoids is no longer one"
    assert gradcheck(lambda x: log_sum_exp(x, MASK)[:2], SCORES.clone().requires_grad_())


def test_logsumexp_over_scores_that_are_already_minus_infinity() -> None:
    """Padding carries -inf before a second mask excludes everything."""
    scores = SCORES.masked_fill(~MASK, -math.inf).requires_grad_()
    log_sum_exp(scores, MASK & torch.tensor([True, False, False, False])).sum().backward()
    assert bool(scores.grad.isfinite().all())
    assert scores.grad.tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
