"""What is done with masks, which are true at real tokens."""

from __future__ import annotations

import math

import pytest
import torch

from laconic.layers.masking import log_weights, mask_scores, scatter_real

MASK = torch.tensor([[True, True, True, False], [True, False, False, False], [False, False, False, False]])


def test_masked_scores() -> None:
    assert mask_scores(torch.tensor([[1.0, -2.0, 3.0, 9.0]]), MASK[:1])[0].tolist() == [1, -2, 3, -math.inf]


def test_logarithms_of_weights_are_finite() -> None:
    weights = torch.tensor([1.0, 0.25, 1e-40, 0.0], requires_grad=True)
    logs = log_weights(weights)
    logs.sum().backward()
    assert logs[:2].tolist() == pytest.approx([0.0, math.log(0.25)])
    assert bool(logs.isfinite().all())
    assert bool(weights.grad.isfinite().all())


def test_values_go_back_to_their_places() -> None:
    assert scatter_real(torch.tensor([1.0, 2.0, 3.0, 4.0]), MASK).tolist() == [[1, 2, 3, 0], [4, 0, 0, 0], [0, 0, 0, 0]]
