"""Attention with M1 and M2: what starts where. Its numbers and gradients are in tests/parity."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.config.names import ATTENTIONS, build
from catchline.layers.attention.distraction import DistractionAttention
from catchline.types import Memory
from samples import rand, randomise

B, S, D, Q, A = 3, 6, 4, 5, 7
MASK = torch.arange(S) < torch.tensor([6, 3, 1])[:, None]


def attention_of(**options: Any) -> DistractionAttention:
    spec = {"type": "distraction", "size": A, **options}
    attention: DistractionAttention = build("attention", ATTENTIONS, spec, memory_size=D, query_size=Q)
    attention.double()
    randomise(attention, scale=1.0)
    return attention


def memory_of(mask: Tensor = MASK, dtype: torch.dtype = torch.float64) -> Memory:
    return Memory(rand(B, S, D).to(dtype), mask, torch.zeros(mask.shape, dtype=torch.int64), 10)


@pytest.mark.parametrize("m1_init", ["identity", "released"])
def test_what_starts_where(m1_init: str) -> None:
    torch.manual_seed(0)
    spec = {"type": "distraction", "size": 400, "m1_init": m1_init}
    attention = build("attention", ATTENTIONS, spec, memory_size=500, query_size=Q)
    for vector in (attention.history_vector, attention.content_history_vector):
        assert float(vector.detach().std()) == pytest.approx(0.01, rel=0.15)
    if m1_init == "identity":
        assert attention.content_vector.eq(1).all()
    else:
        assert float(attention.content_vector.detach().std()) == pytest.approx(0.01, rel=0.15)


def test_no_bias() -> None:
    assert attention_of(bias=False).query_projection.bias is None
    assert attention_of().query_projection.bias is not None
