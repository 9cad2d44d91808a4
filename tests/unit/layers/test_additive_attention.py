"""Equations (1)-(3), (6), (7): the scores and their gradients, however they are cut into blocks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.kernels import attention
from laconic.kernels.deferral import deferred
from laconic.layers.attention.additive import AdditiveAttention
from laconic.papers import pointer_generator
from laconic.types import Memory
from samples import rand

B, S, D, A, H = 2, 4, 3, 5, 6


def scored(states: Tensor, queries: Tensor, v: Tensor, coverage: Tensor | None, w: Tensor | None) -> Tensor:
    return attention.attention_scores(deferred(states), queries, v, coverage, w)


@pytest.fixture(params=[1, 2 * S * A, 2**18], ids=["one pair a block", "two pairs", "one block"])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_BLOCK_ON_CPU", request.param)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("covers", [False, True])
@pytest.mark.parametrize("queries", [1, 3, 4])
def test_scores_and_gradients(queries: int, covers: bool) -> None:
    tensors = [rand(B, S, A), rand(B, queries, A, seed=1), rand(A, seed=2)]
    extra = [rand(B, queries, S, seed=3).abs(), rand(A, seed=4)] if covers else []
    inputs = [tensor.requires_grad_() for tensor in tensors + extra]

    def both(function) -> tuple[Tensor, list[Tensor]]:
        value = function(*inputs, *([] if covers else [None, None]))
        weight = rand(*value.shape, seed=5)
        return value, list(torch.autograd.grad((value * weight).sum(), inputs))

    value, grads = both(scored)
    expected, wanted = both(pointer_generator.attention_scores)
    torch.testing.assert_close(value, expected, atol=1e-13, rtol=0)
    torch.testing.assert_close(grads, wanted, atol=1e-12, rtol=0)


def module(**options) -> AdditiveAttention:
    torch.manual_seed(0)
    result = AdditiveAttention(AdditiveAttention.Config(size=A, **options), memory_size=D, query_size=H).double()
    with torch.no_grad():
        for parameter in result.parameters():
            parameter.uniform_(-1, 1)
    return result


def memory_of(states: Tensor, mask: Tensor) -> Memory:
    return Memory(states, mask, torch.zeros(mask.shape, dtype=torch.int64), 10)


MASK = torch.tensor([[True, True, True, True], [True, True, False, False]])


def test_detached_coverage_sends_no_gradient_back() -> None:
    states, queries = rand(B, S, D), rand(B, 1, H, seed=1)
    found = []
    for detach in (False, True):
        attention = module(coverage=True, detach_coverage=detach)
        state = attention.init_state(memory_of(states, MASK))
        state["coverage"] = rand(B, S, seed=3).abs().requires_grad_()
        output, new_state = attention(queries, state)
        (gradient,) = torch.autograd.grad(output.context.sum(), state["coverage"], allow_unused=True)
        found.append(gradient is not None and bool(gradient.abs().max() > 0))
        torch.testing.assert_close(new_state["coverage"], state["coverage"] + output.weights[:, 0])
    assert found == [True, False]


def test_coverage_waits_for_its_phase() -> None:
    attention = module(coverage=True, coverage_from_start=False)
    assert attention.coverage_vector is not None
    assert attention.switches() == {"coverage": False}
    assert not attention.recurrent
    assert "coverage" not in attention.init_state(memory_of(rand(B, S, D), MASK))
    attention.switch({"coverage": True})
    assert attention.recurrent
    assert attention.init_state(memory_of(rand(B, S, D), MASK))["coverage"].tolist() == [[0.0] * S] * B
    assert module().switches() == {}


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


def test_coverage_of_a_half_precision_memory_is_summed_in_float32() -> None:
    attention = AdditiveAttention(AdditiveAttention.Config(coverage=True), memory_size=D, query_size=H).bfloat16()
    state = attention.init_state(memory_of(rand(B, S, D).bfloat16(), MASK))
    assert state["coverage"].dtype == torch.float32
    output, state = attention(rand(B, 1, H, seed=1).bfloat16(), state)
    assert state["coverage"].dtype == torch.float32
    assert output.context.dtype == torch.bfloat16
    torch.testing.assert_close(state["coverage"].sum(-1), torch.ones(B), atol=1e-5, rtol=0)
