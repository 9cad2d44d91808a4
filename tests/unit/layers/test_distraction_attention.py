"""Attention with M1 and M2: gradients through the histories, what starts where."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from laconic.config.names import ATTENTIONS, build
from laconic.layers.attention.distraction import DistractionAttention
from laconic.types import AttentionOutput, Memory
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


def read(attention: DistractionAttention, queries: Tensor) -> tuple[list[AttentionOutput], list[dict[str, Any]]]:
    """The readings, and the state before each and after the last."""
    states, outputs = [attention.init_state(memory_of())], []
    for t in range(queries.shape[1]):
        output, state = attention(queries[:, t : t + 1], states[-1])
        outputs.append(output)
        states.append(state)
    return outputs, states


@pytest.mark.parametrize("detach", [False, True])
def test_gradients_through_the_histories(detach: bool) -> None:
    """The first query reaches a later reading through A and C alone."""
    attention = attention_of(detach_history=detach)
    queries = rand(B, 2, Q, seed=1).requires_grad_()
    outputs, _ = read(attention, queries)
    (rand(B, 1, D, seed=2) * outputs[1].context).sum().backward()
    assert bool(queries.grad[0, 0].abs().max() > 1e-8) == (not detach)


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


def test_histories_are_float32_at_least() -> None:
    attention = attention_of().bfloat16()
    state = attention.init_state(memory_of(dtype=torch.bfloat16))
    for t in range(3):
        output, state = attention(rand(B, 1, Q, seed=t).bfloat16(), state)
        assert output.context.dtype == torch.bfloat16
        assert state["history"].dtype == state["contents"].dtype == output.weights.dtype == torch.float32
    torch.testing.assert_close(state["history"].sum(-1), torch.full((B,), 3.0))


def test_no_bias() -> None:
    assert attention_of(bias=False).query_projection.bias is None
    assert attention_of().query_projection.bias is not None
