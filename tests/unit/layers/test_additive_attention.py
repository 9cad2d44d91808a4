"""Coverage: when it is on, and what it starts with. Its numbers and gradients are in tests/parity."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from catchline.errors import ConfigError
from catchline.layers.attention.additive import AdditiveAttention

B, S, D, A, H = 2, 4, 3, 5, 6


def module(**options) -> AdditiveAttention:
    torch.manual_seed(0)
    result = AdditiveAttention(AdditiveAttention.Config(size=A, **options), memory_size=D, query_size=H).double()
    with torch.no_grad():
        for parameter in result.parameters():
            parameter.uniform_(-1, 1)
    return result


def test_a_switch_is_true_or_false() -> None:
    attention = AdditiveAttention(AdditiveAttention.Config(size=4, coverage=True), memory_size=3, query_size=2)
    attention.switch({"coverage": False})
    assert not attention.coverage_on
    for wrong in ("nope", 1, None):
        with pytest.raises(ConfigError, match="'coverage' is true or false"):
            attention.switch({"coverage": wrong})


def test_initial_values_of_the_coverage_vector() -> None:
    def vector(**options) -> Tensor:
        torch.manual_seed(0)
        config = AdditiveAttention.Config(coverage=True, **options)
        return AdditiveAttention(config, memory_size=D, query_size=H).coverage_vector

    assert vector().tolist() == [0.0] * D, "and the default width is the memory's"
    assert vector(coverage_init="default", size=50).abs().min() > 0
