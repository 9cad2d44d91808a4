"""Equations (1)-(3), (6), (7): the scores and their gradients, however they are cut into blocks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck

from laconic.kernels import additive
from laconic.kernels.deferral import deferred
from laconic.layers.attention.additive import AdditiveAttention
from laconic.types import Memory

B, S, D, A, H = 2, 4, 3, 5, 6


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plain_scores(keys: Tensor, queries: Tensor, v: Tensor, coverage: Tensor | None, w: Tensor | None) -> Tensor:
    """Equation (7), one number at a time."""
    rows = []
    for b in range(keys.shape[0]):
        for q in range(queries.shape[1]):
            for i in range(keys.shape[1]):
                inside = keys[b, i] + queries[b, q]
                if coverage is not None and w is not None:
                    inside = inside + w * coverage[b, q, i]
                rows.append((v * torch.tanh(inside)).sum())
    return torch.stack(rows).view(keys.shape[0], queries.shape[1], keys.shape[1])


def scored(states: Tensor, queries: Tensor, v: Tensor, coverage: Tensor | None, w: Tensor | None) -> Tensor:
    return additive.attention_scores(deferred(states), queries, v, coverage, w)


@pytest.fixture(params=[1, 2 * S * A, 2**18], ids=["one pair a block", "two pairs", "one block"])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(additive, "_BLOCK_ON_CPU", request.param)
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
    expected, wanted = both(plain_scores)
    torch.testing.assert_close(value, expected, atol=1e-13, rtol=0)
    for gradient, reference in zip(grads, wanted, strict=True):
        torch.testing.assert_close(gradient, reference, atol=1e-12, rtol=0)


@pytest.mark.parametrize("covers", [False, True])
@pytest.mark.parametrize("queries", [1, 3])
def test_gradcheck(queries: int, covers: bool) -> None:
    inputs = [rand(B, S, A), rand(B, queries, A, seed=1), rand(A, seed=2)]
    inputs += [rand(B, queries, S, seed=3).abs(), rand(A, seed=4)] if covers else []
    rest = () if covers else (None, None)
    assert gradcheck(lambda *x: scored(*x, *rest), [tensor.requires_grad_() for tensor in inputs])


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


@pytest.mark.parametrize("covers", [False, True])
def test_readings_one_after_another(covers: bool) -> None:
    """Weights, contexts and coverage of three steps, and all gradients, against the loops of the paper."""
    attention = module(coverage=covers)
    states, queries = rand(B, S, D).requires_grad_(), rand(B, 3, H, seed=1).requires_grad_()
    leaves = [states, queries, *attention.parameters()]

    def ours() -> list[Tensor]:
        state, results = attention.init_state(memory_of(states, MASK)), []
        for t in range(3):
            output, state = attention(queries[:, t : t + 1], state)
            results += [output.weights[:, 0], output.context[:, 0]]
            results += [output.aux["coverage"][:, 0]] if covers else []
        return results

    def reference() -> list[Tensor]:
        results: list[Tensor] = []
        w_h, project = attention.memory_projection.weight, attention.query_projection
        coverage = torch.zeros(B, S, dtype=torch.float64)
        for t in range(3):
            weights, contexts = [], []
            for b in range(B):
                energies = []
                for i in range(int(MASK[b].sum())):
                    inside = w_h @ states[b, i] + project.weight @ queries[b, t] + project.bias
                    if covers:
                        inside = inside + attention.coverage_vector * coverage[b, i]
                    energies.append(attention.score_vector @ torch.tanh(inside))
                a = torch.softmax(torch.stack(energies), 0)
                contexts.append(sum(a[i] * states[b, i] for i in range(len(a))))
                weights.append(nn.functional.pad(a, (0, S - len(a))))
            results += [torch.stack(weights), torch.stack(contexts)] + ([coverage] if covers else [])
            coverage = coverage + torch.stack(weights)
        return results

    def total(results: list[Tensor]) -> Tensor:
        return sum((rand(*value.shape, seed=i) * value).sum() for i, value in enumerate(results))

    actual, expected = ours(), reference()
    for value, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(value, wanted, atol=1e-13, rtol=0)
    grads = torch.autograd.grad(total(actual), leaves)
    for gradient, wanted in zip(grads, torch.autograd.grad(total(expected), leaves), strict=True):
        torch.testing.assert_close(gradient, wanted, atol=1e-12, rtol=0)


def test_all_queries_at_once_equal_one_after_another() -> None:
    attention, states, queries = module(), rand(B, S, D), rand(B, 3, H, seed=1)
    state = attention.init_state(memory_of(states, MASK))
    together, _ = attention(queries, state)
    for t in range(3):
        alone, state = attention(queries[:, t : t + 1], state)
        torch.testing.assert_close(alone.weights[:, 0], together.weights[:, t], atol=1e-14, rtol=0)
        torch.testing.assert_close(alone.context[:, 0], together.context[:, t], atol=1e-14, rtol=0)


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
