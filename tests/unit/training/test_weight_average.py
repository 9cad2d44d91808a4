"""The running average: plain mean first, exponential with the horizon afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from laconic.training.optim import WeightAverage


def test_mean_then_exponential() -> None:
    model = nn.Linear(1, 1, bias=False)
    average = WeightAverage(model, horizon=3)
    expected = 0.0
    for update, value in enumerate((2.0, 4.0, 9.0, 1.0, -5.0), start=1):
        with torch.no_grad():
            model.weight.fill_(value)
        average.update()
        expected += (value - expected) / min(update, 3)
        if update <= 3:
            assert expected == pytest.approx(sum((2.0, 4.0, 9.0)[:update]) / update)
        assert float(average.mean["weight"]) == pytest.approx(expected, rel=1e-6)


def test_the_models_own_weights_come_back() -> None:
    model = nn.Linear(2, 2)
    average = WeightAverage(model, horizon=2)
    average.update()
    with torch.no_grad():
        model.weight.add_(1.0)
    own = model.weight.detach().clone()

    def fail() -> None:
        with average.applied():
            assert torch.equal(model.weight, average.mean["weight"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert torch.equal(model.weight, own)
