"""What every attention mechanism promises, for every entry of the table; variants with options of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.config.names import ATTENTIONS, build
from catchline.layers.attention.additive import Attention
from catchline.types import AttentionOutput, Memory
from samples import rand, randomise

B, S, D, Q = 3, 6, 4, 5
LENGTHS = (6, 3, 1)
MASK = torch.arange(S) < torch.tensor(LENGTHS)[:, None]

# Every entry in its default form, and these forms besides.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "additive": [
        {"coverage": True},
        {"coverage": True, "detach_coverage": True, "size": 3},
        {"coverage": True, "coverage_from_start": False, "coverage_init": "default"},
    ],
    "distraction": [
        {"content": False},
        {"history": False, "m1_init": "released"},
        {"content": False, "history": False},
        {"detach_history": True, "size": 3},
    ],
}
CASES = [{"type": name, **options} for name in ATTENTIONS for options in [{}, *VARIANTS.get(name, [])]]
every_attention = pytest.mark.parametrize("spec", CASES, ids=lambda spec: "-".join(map(str, spec.values())))


def attention_of(spec: dict[str, Any]) -> Attention:
    return randomise(build("attention", ATTENTIONS, spec, memory_size=D, query_size=Q).double(), scale=1.0)


def memory_of(states: Tensor | None = None, mask: Tensor = MASK) -> Memory:
    states = rand(B, S, D) if states is None else states
    return Memory(states, mask, torch.zeros(mask.shape, dtype=torch.int64), 10)


def read(attention: Attention, memory: Memory, queries: Tensor) -> list[AttentionOutput]:
    """Step by step: queries (B, T, Q)."""
    state, outputs = attention.init_state(memory), []
    for t in range(queries.shape[1]):
        output, state = attention(queries[:, t : t + 1], state)
        outputs.append(output)
    return outputs


@every_attention
def test_weights_are_a_distribution_over_real_tokens(spec: dict[str, Any]) -> None:
    attention = attention_of(spec)
    for output in read(attention, memory_of(), 3 * rand(B, 4, Q, seed=1)):
        assert output.weights.shape == (B, 1, S)
        assert output.context.shape == (B, 1, D)
        assert output.weights.ge(0).all()
        torch.testing.assert_close(output.weights.sum(-1), torch.ones(B, 1).double(), atol=1e-12, rtol=0)
        assert output.weights.masked_select(~MASK.unsqueeze(1)).eq(0).all()
        assert output.scores is not None
        assert output.scores.masked_select(~MASK.unsqueeze(1)).eq(-torch.inf).all()
        assert output.scores.masked_select(MASK.unsqueeze(1)).isfinite().all()


@every_attention
def test_padding_gets_no_gradient(spec: dict[str, Any]) -> None:
    attention, states = attention_of(spec), rand(B, S, D).requires_grad_()
    outputs = read(attention, memory_of(states), rand(B, 3, Q, seed=1))
    sum((o.context.square().sum() + o.weights.square().sum()) for o in outputs).backward()
    assert states.grad[~MASK].eq(0).all()
    assert states.grad[0].ne(0).any()


@every_attention
def test_all_queries_at_once(spec: dict[str, Any]) -> None:
    """A mechanism that is not recurrent reads the steps of a sequence in one call."""
    attention, queries = attention_of(spec), rand(B, 4, Q, seed=1)
    if attention.recurrent:
        pytest.skip("a recurrent mechanism takes one step at a time")
    together, _ = attention(queries, attention.init_state(memory_of()))
    for t, output in enumerate(read(attention, memory_of(), queries)):
        torch.testing.assert_close(output.context[:, 0], together.context[:, t], atol=1e-13, rtol=0)
        torch.testing.assert_close(output.weights[:, 0], together.weights[:, t], atol=1e-13, rtol=0)


@every_attention
def test_what_is_summed_over_the_steps_is_float32_at_least(spec: dict[str, Any]) -> None:
    attention = attention_of(spec).bfloat16()
    state, queries = attention.init_state(memory_of(rand(B, S, D).bfloat16())), rand(B, 3, Q, seed=1).bfloat16()
    for t in range(3):
        assert {state[name].dtype for name in ("coverage", "history", "contents") if name in state} <= {torch.float32}
        output, state = attention(queries[:, t : t + 1], state)
        assert (output.context.dtype, output.weights.dtype) == (torch.bfloat16, torch.float32)
    for name in {"coverage", "history"} & state.keys():
        torch.testing.assert_close(state[name].sum(-1), torch.full((B,), 3.0), atol=1e-5, rtol=0)
