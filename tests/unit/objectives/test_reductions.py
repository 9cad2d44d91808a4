"""The four reductions, and what they are divided by; coverage and guidance losses by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.config.names import OBJECTIVES, build
from catchline.objectives.attention import guidance_divergence
from catchline.objectives.base import token_weights
from catchline.types import PLAIN_PASS, ModelOutput, TrainingBatch

MASK = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])
VALUES = torch.tensor([[-1.0, -2.0, -3.0], [-4.0, 0.0, 0.0], [-5.0, -6.0, 0.0]], dtype=torch.float64)
# by hand: the real tokens are 1, 2, 3 | 4 | 5, 6
EXPECTED = {"token": 21 / 6, "example": (2 + 4 + 5.5) / 3, "sentence": 21 / 3, "sum": 21.0}


def objective(name: str, **options: Any):
    return build("objective", OBJECTIVES, {"type": name, **options})


def batch(mask: Tensor = MASK) -> TrainingBatch:
    ids = torch.zeros(mask.shape, dtype=torch.int64)
    return TrainingBatch(ids, ids, mask, 5, target_input_ids=ids, target_ids=ids, target_mask=mask)


@pytest.mark.parametrize("reduction", EXPECTED)
@pytest.mark.parametrize("name", ["nll", "coverage"])
def test_reductions(name: str, reduction: str) -> None:
    junk = VALUES.masked_fill(~MASK, 99.0)  # what stands at padding must not count
    output = ModelOutput(gold_log_probs=junk, coverage_losses=-junk)
    term = objective(name, reduction=reduction, weight=0.5)(output, batch())
    assert float(term.sum / term.count) == pytest.approx(EXPECTED[reduction])
    assert (term.name, term.weight) == (name, 0.5)


@pytest.mark.parametrize("reduction", EXPECTED)
def test_tokens_that_do_not_count(reduction: str) -> None:
    """``token_mask`` rules: an example that has none left is no example."""
    mask = torch.tensor([[True, False, True], [False, False, False], [True, True, False]])
    expected = {"token": 15 / 4, "example": (2 + 5.5) / 2, "sentence": 15 / 2, "sum": 15.0}
    term = objective("nll", reduction=reduction)(ModelOutput(gold_log_probs=VALUES, token_mask=mask), batch())
    assert float(term.sum / term.count) == pytest.approx(expected[reduction])


@pytest.mark.parametrize("reduction", ["token", "example", "sentence"])
def test_sums_and_counts_add_up_over_micro_batches(reduction: str) -> None:
    layer = objective("nll", reduction=reduction)
    terms = [layer(ModelOutput(gold_log_probs=VALUES[rows]), batch(MASK[rows])) for rows in (slice(0, 1), slice(1, 3))]
    whole = sum(term.sum for term in terms) / sum(term.count for term in terms)
    assert float(whole) == pytest.approx(EXPECTED[reduction])


@pytest.mark.parametrize("reduction", EXPECTED)
def test_the_hint_of_token_weights_is_the_derivative(reduction: str) -> None:
    """Up to one factor: what `NegativeLogLikelihood.wants` promises the vocabulary projection."""
    layer = objective("nll", reduction=reduction)
    values = VALUES.clone().requires_grad_()
    term = layer(ModelOutput(gold_log_probs=values), batch())
    (gradient,) = torch.autograd.grad(-term.sum, values)
    torch.testing.assert_close(gradient, layer.wants(batch(), PLAIN_PASS).token_weights.double(), atol=1e-7, rtol=0)
    torch.testing.assert_close(token_weights(MASK, reduction).bool(), MASK)


# ------------------------------------------------------------------------------------ guidance

ATTENTION = torch.tensor([[[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]], [[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]]])
CENTRALITY = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
REAL_STEPS = torch.tensor([[True, False], [True, True]])
SOURCE = torch.tensor([[True, True, True], [True, True, False]])


def kl(weights: list[float]) -> float:
    return sum(a * math.log(a / c) for a, c in zip(weights, (0.5, 0.3, 0.2), strict=False))


def test_only_real_steps_and_positions_count() -> None:
    found = guidance_divergence(ATTENTION, CENTRALITY, REAL_STEPS, SOURCE)
    assert found.tolist() == pytest.approx([kl([0.5, 0.25, 0.25]), kl([0.625, 0.1875])], abs=1e-6)


def test_what_nobody_attends_to_and_what_is_not_central_is_finite() -> None:
    attention = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]], requires_grad=True)
    steps, source = torch.tensor([[True], [False]]), torch.ones(2, 2, dtype=torch.bool)
    found = guidance_divergence(attention, torch.tensor([[0.0, 1.0]] * 2), steps, source)
    assert found.tolist() == [pytest.approx(9 * math.log(10)), 0.0]
    found.sum().backward()
    assert attention.grad is not None
    assert bool(attention.grad.isfinite().all())


@pytest.mark.parametrize(("reduction", "count"), [("token", 3), ("example", 2), ("sentence", 2), ("sum", 1)])
def test_what_the_sum_is_divided_by(reduction: str, count: int) -> None:
    ids = torch.zeros(2, 3, dtype=torch.int64)
    batch = TrainingBatch(ids, ids, SOURCE, 5, target_input_ids=ids, target_ids=ids, target_mask=REAL_STEPS)
    output = ModelOutput(torch.zeros(2, 2), attention=ATTENTION, details={"centrality": CENTRALITY})
    term = build("objective", OBJECTIVES, {"type": "guidance", "reduction": reduction, "weight": 3.0})(output, batch)
    assert (float(term.count), term.weight) == (count, 3.0)
    assert float(term.sum) == pytest.approx(kl([0.5, 0.25, 0.25]) + kl([0.625, 0.1875]), abs=1e-6)
