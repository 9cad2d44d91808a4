"""Attention with M1 and M2: the equations on numbers, the invariants of the histories, what starts where."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from laconic.config.names import ATTENTIONS, build
from laconic.kernels.dispatch import distracted_scores
from laconic.layers.attention.distraction import DistractionAttention
from laconic.papers.distraction import content_distraction
from laconic.types import AttentionOutput, Memory
from samples import randomise

B, S, D, Q, A = 3, 6, 4, 5, 7
MASK = torch.arange(S) < torch.tensor([6, 3, 1])[:, None]
EXACT = {"atol": 1e-13, "rtol": 0}


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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


def test_content_distraction_on_numbers() -> None:
    content, past = torch.tensor([0.5, -1.0]), torch.tensor([2.0, 3.0])
    result = content_distraction(content, past, torch.tensor([1.0, 0.5]), torch.tensor([0.25, -0.1]))
    torch.testing.assert_close(result, torch.tanh(torch.tensor([0.5 - 0.5, -0.5 + 0.3])))


def test_scores_on_numbers() -> None:
    """A = 1, one position: v tanh(key + query - b_a A)."""
    keys = torch.tensor([[[0.3]]], dtype=torch.float64)
    vectors = torch.tensor([1.5], dtype=torch.float64), torch.tensor([[[0.8]]], dtype=torch.float64)
    queries = torch.tensor([[[0.4]]], dtype=torch.float64)
    scores = distracted_scores(keys, queries, vectors[0], vectors[1], torch.tensor([0.5], dtype=torch.float64))
    expected = 1.5 * torch.tanh(torch.tensor(0.3 + 0.4 - 0.5 * 0.8, dtype=torch.float64))
    torch.testing.assert_close(scores.flatten()[0], expected, **EXACT)


def test_histories_are_the_sums_of_what_was_read() -> None:
    """Sum of A_t = t - 1, zero at padding; C_t adds up the distracted contents."""
    outputs, states = read(attention_of(), 2 * rand(B, 4, Q, seed=1))
    for t, state in enumerate(states):
        torch.testing.assert_close(state["history"].sum(-1), torch.full((B,), float(t)).double(), **EXACT)
        assert state["history"][~MASK].eq(0).all()
        contents = sum((o.context[:, 0] for o in outputs[:t]), torch.zeros(B, D).double())
        torch.testing.assert_close(state["contents"], contents, **EXACT)
    assert all(o.context.abs().max() < 1 for o in outputs)  # inside the tanh


def test_without_m1_there_is_no_tanh() -> None:
    attention = attention_of(content=False)
    outputs, states = read(attention, 2 * rand(B, 3, Q, seed=1))
    for output in outputs:
        torch.testing.assert_close(output.context, output.weights @ memory_of().states, **EXACT)
    assert "contents" not in states[0]
    assert attention.content_vector is None


def test_without_m2_there_is_no_history_in_the_energies() -> None:
    """The same as b_a = 0; and with both off, plain additive attention."""
    queries = rand(B, 4, Q, seed=1)
    with_m2 = attention_of(content=False)
    plain = attention_of(content=False, history=False)
    assert not plain.recurrent
    additive = build("attention", ATTENTIONS, {"type": "additive", "size": A}, memory_size=D, query_size=Q).double()
    shared = {n: p for n, p in with_m2.state_dict().items() if n != "history_vector"}
    plain.load_state_dict(shared)
    additive.load_state_dict(shared)
    before = [o.weights for o in read(with_m2, queries)[0]]
    with torch.no_grad():
        with_m2.history_vector.zero_()
    without, _ = read(with_m2, queries)
    for t, (a, b, c) in enumerate(zip(without, read(plain, queries)[0], read(additive, queries)[0], strict=True)):
        torch.testing.assert_close(a.weights, b.weights, **EXACT)
        torch.testing.assert_close(c.weights, b.weights, **EXACT)
        torch.testing.assert_close(c.context, b.context, **EXACT)
        # at the first step M2 is inert, and there is one real token in the last document
        assert ((before[t] - a.weights).abs().amax(dim=(1, 2)) > 1e-6).tolist() == [t > 0, t > 0, False]


def test_adding_to_every_energy_changes_nothing() -> None:
    """tanh saturated in one unit of W_a s' for all positions: a constant v_k more for each."""
    attention, queries = attention_of(history=False, content=False, size=2), rand(B, 2, Q, seed=1)
    with torch.no_grad():
        attention.memory_projection.weight[1] = 0
        attention.query_projection.weight[1] = 0
        attention.query_projection.bias[1] = 0
    before = read(attention, queries)[0]
    with torch.no_grad():
        attention.query_projection.bias[1] = 50.0
    for a, b in zip(read(attention, queries)[0], before, strict=True):
        torch.testing.assert_close(a.weights, b.weights, **EXACT)
        shift = (a.scores - b.scores)[MASK.unsqueeze(1)]
        torch.testing.assert_close(shift, attention.score_vector[1].expand_as(shift), **EXACT)


@pytest.mark.parametrize("steps", [1, 3])
def test_distraction_learns_from_the_second_step_on(steps: int) -> None:
    attention = attention_of()
    outputs, _ = read(attention, rand(B, steps, Q, seed=1))
    sum((rand(*o.context.shape, seed=t + 2) * o.context).sum() for t, o in enumerate(outputs)).backward()
    for vector in (attention.history_vector, attention.content_history_vector):
        assert bool(vector.grad.abs().max() > 1e-6) == (steps > 1)


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
