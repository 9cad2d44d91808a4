"""Deferred gradients: what many steps share gets the same gradient as from plain autograd, in every kind of pass."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from catchline.kernels.deferral import collected_of, context, deferred, deferred_linear, dot_scores
from catchline.search.arrays import select_documents
from catchline.types import Shared
from samples import rand

B, S, D, A, T = 2, 3, 4, 5, 3


def leaf(*shape: int, seed: int = 0) -> Tensor:
    return rand(*shape, seed=seed).requires_grad_()


def test_context_of_several_readings() -> None:
    def read(weights: Tensor, values: Tensor) -> Tensor:
        memory = deferred(values)
        first = context(weights[:, :1], memory)
        return context(weights[:, 1:] * first.sum(), memory)  # the second reading depends on the first

    assert gradcheck(read, (leaf(B, 3, S), leaf(B, S, D, seed=1)), fast_mode=True)


def recurrence(inputs: Tensor, weight: Tensor, bias: Tensor | None, *, gathered: bool) -> Tensor:
    """h_t = tanh(x_t + W h_{t-1} + b), T steps."""
    linear = deferred_linear(weight, bias) if gathered else lambda x: torch.nn.functional.linear(x, weight, bias)
    state = inputs.new_zeros(B, A)
    outputs = []
    for t in range(T):
        state = torch.tanh(inputs[:, t] + linear(state))
        outputs.append(state)
    return torch.stack(outputs, 1)


def leaves_of_linear() -> list[Tensor]:
    """Inputs, weight, bias."""
    return [leaf(B, T, A), leaf(A, A, seed=1), leaf(A, seed=2)]


def gathered_and_plain(*parts: Tensor) -> tuple[Tensor, Tensor]:
    return recurrence(*parts, gathered=True), recurrence(*parts, gathered=False)


def test_step_linear() -> None:
    leaves = leaves_of_linear()
    assert gradcheck(lambda *x: recurrence(*x, gathered=True), leaves, fast_mode=True)
    assert gradcheck(lambda *x: recurrence(*x, None, gathered=True), leaves[:2], fast_mode=True)
    torch.testing.assert_close(*gathered_and_plain(*leaves), atol=1e-15, rtol=0)


def grads(output: Tensor, *leaves: Tensor, **options) -> list[Tensor]:
    return list(torch.autograd.grad((output * rand(*output.shape, seed=9)).sum(), leaves, **options))


def assert_equal(actual: list[Tensor], expected: list[Tensor]) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-13, rtol=0)


@pytest.mark.parametrize("before", ["the same", "a part", "only inputs", "failed"])
def test_step_linear_after_another_pass(before: str) -> None:
    """A pass that does not reach the weight, or fails half-way, leaves the steps' shares behind; the next one must not
    count them."""
    leaves = leaves_of_linear()
    output, plain = gathered_and_plain(*leaves)
    expected = grads(plain, *leaves)
    if before == "the same":
        assert_equal(grads(output, *leaves, retain_graph=True), expected)
    elif before == "a part":
        assert_equal(grads(output, leaves[1], retain_graph=True), expected[1:2])
    elif before == "only inputs":
        grads(output, leaves[0], retain_graph=True)
    else:

        def fail(gradient: Tensor) -> None:
            raise RuntimeError("stop here")

        handle = leaves[0].register_hook(fail)
        with pytest.raises(RuntimeError, match="stop here"):
            output.sum().backward(retain_graph=True)
        handle.remove()
    assert_equal(grads(output, *leaves), expected)


def test_memory_after_a_pass_that_did_not_reach_it() -> None:
    weights, values = leaf(B, 2, S), leaf(B, S, D, seed=1)
    memory = deferred(values)
    output = context(weights, memory)
    grads(output, weights, retain_graph=True)
    assert_equal(grads(output, weights, values), grads(weights @ values, weights, values))


@pytest.mark.parametrize("used", [slice(0, 1), slice(1, 2), slice(T - 1, T)])
def test_step_linear_where_only_some_outputs_are_used(used: slice) -> None:
    leaves = leaves_of_linear()
    actual, expected = (grads(output[:, used], *leaves) for output in gathered_and_plain(*leaves))
    assert_equal(actual, expected)


@pytest.mark.parametrize("trained", [(0, 1), (0, 2), (0,), (1, 2)])
def test_frozen_parts(trained: tuple[int, ...]) -> None:
    parts = [part.requires_grad_(number in trained) for number, part in enumerate(leaves_of_linear())]
    actual, expected = (grads(output, *(parts[n] for n in trained)) for output in gathered_and_plain(*parts))
    assert_equal(actual, expected)


def test_gradients_add_up_over_batches() -> None:
    weight, bias = leaf(A, A, seed=1), leaf(A, seed=2)
    for gathered in (True, False):
        for seed in (3, 4):
            recurrence(rand(B, T, A, seed=seed), weight, bias, gathered=gathered).square().sum().backward()
        if gathered:
            actual = [weight.grad, bias.grad]
            weight.grad = bias.grad = None
    assert_equal(actual, [weight.grad, bias.grad])


def test_nothing_is_kept_after_the_backward_pass() -> None:
    inputs, weight, values = leaf(B, T, A), leaf(A, A, seed=1), leaf(B, S, D, seed=2)
    linear, memory = deferred_linear(weight, None), deferred(values)
    output = linear(inputs[:, 0]).sum() * context(leaf(B, 1, S), memory).sum()
    output.backward()
    assert weight.grad is not None
    assert values.grad is not None
    collected = collected_of(memory)
    assert collected is not None
    assert (collected.left, collected.right, collected.total) == ([], [], None)


def test_a_memory_may_be_used_in_any_way_at_once() -> None:
    """As keys, as values, and by an operation that knows of no shares."""
    weights, values, queries = leaf(B, 2, S), leaf(B, S, D, seed=1), leaf(B, 2, D, seed=2)
    found = []
    for prepare in (deferred, lambda values: values):
        memory = prepare(values)
        scores = dot_scores(queries, memory) * memory.sum(dim=2).unsqueeze(1)
        found.append(grads(context(weights * scores, memory) * memory[:, :2], weights, values, queries))
    assert_equal(*found)


def test_without_gradients_nothing_is_collected() -> None:
    values = leaf(B, S, D)
    with torch.no_grad():
        assert deferred(values) is values
        assert not deferred_linear(leaf(A, A), None)(rand(B, A)).requires_grad
    frozen = values.detach()
    assert deferred(frozen) is frozen
    assert collected_of(frozen) is None


def test_states_made_with_gradients_can_be_cut_to_some_documents() -> None:
    """A weight is not a document: search drops finished documents from a state made outside of inference mode."""
    values, linear = leaf(B, S, D), deferred_linear(leaf(A, A), leaf(A))
    state = {"memory": Shared((deferred(values), torch.ones(B, S, dtype=torch.bool))), "linear": linear}
    cut = select_documents(state, torch.tensor([1]), 2)
    assert cut["linear"] is linear
    memory, mask = cut["memory"].tree
    torch.testing.assert_close(memory, values[1:])
    assert mask.shape == (1, S)
    assert_equal(grads(memory.sin(), values), grads(values[1:].sin(), values))
