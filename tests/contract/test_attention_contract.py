"""What every attention mechanism promises, for every entry of the table; variants with options of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.config.names import ATTENTIONS, build
from catchline.layers.attention.additive import Attention
from catchline.search.arrays import select, select_documents
from catchline.types import AttentionOutput, Memory
from samples import rand, randomise
from trees import tensors_in

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
        {"content": False, "history": False, "bias": False},
        {"detach_history": True, "size": 3},
    ],
}
CASES = [{"type": name, **options} for name in ATTENTIONS for options in [{}, *VARIANTS.get(name, [])]]
every_attention = pytest.mark.parametrize("spec", CASES, ids=lambda spec: "-".join(map(str, spec.values())))


def attention_of(spec: dict[str, Any]) -> Attention:
    attention = build("attention", ATTENTIONS, spec, memory_size=D, query_size=Q).double()
    randomise(attention, scale=1.0)
    return attention


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


def close(actual: AttentionOutput, expected: AttentionOutput, rows: Any = slice(None), sources: int = S) -> None:
    torch.testing.assert_close(actual.context[rows], expected.context[rows], atol=1e-13, rtol=0)
    a, e = actual.weights[rows][..., :sources], expected.weights[rows][..., :sources]
    torch.testing.assert_close(a, e, atol=1e-13, rtol=0)


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
def test_padding_and_companions_do_not_matter(spec: dict[str, Any]) -> None:
    attention, states, queries = attention_of(spec), rand(B, S, D), rand(B, 3, Q, seed=1)
    expected = read(attention, memory_of(states), queries)
    other = torch.where(MASK.unsqueeze(-1), states, 50 * rand(B, S, D, seed=9))  # other content
    longer = torch.cat([states, rand(B, 3, D, seed=8)], dim=1)  # more of it
    long_mask = torch.cat([MASK, torch.zeros(B, 3, dtype=torch.bool)], dim=1)
    for t, output in enumerate(read(attention, memory_of(other), queries)):
        close(output, expected[t])
    for t, output in enumerate(read(attention, memory_of(longer, long_mask), queries)):
        close(output, expected[t])
        assert output.weights[..., S:].eq(0).all()
    for b, length in enumerate(LENGTHS):  # alone, and without any padding
        row = slice(b, b + 1)
        alone = read(attention, memory_of(states[row, :length], MASK[row, :length]), queries[row])
        for t, output in enumerate(alone):
            torch.testing.assert_close(output.context, expected[t].context[row], atol=1e-13, rtol=0)
            torch.testing.assert_close(output.weights, expected[t].weights[row, :, :length], atol=1e-13, rtol=0)


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
def test_beams_read_like_documents_of_their_own(spec: dict[str, Any]) -> None:
    """K queries a document into one memory equal K copies of the document, over several steps."""
    attention, beams, states = attention_of(spec), 3, rand(B, S, D)
    queries = rand(B * beams, 3, Q, seed=1)
    index = torch.arange(B).repeat_interleave(beams)
    expected = read(attention, memory_of(states[index], MASK[index]), queries)
    state = select(attention.init_state(memory_of(states)), index)
    for t in range(3):
        output, state = attention(queries[:, t].unflatten(0, (B, beams)), state)
        torch.testing.assert_close(output.weights.flatten(0, 1), expected[t].weights[:, 0], atol=1e-13, rtol=0)
        torch.testing.assert_close(output.context.flatten(0, 1), expected[t].context[:, 0], atol=1e-13, rtol=0)


@every_attention
def test_reordering_commutes_with_reading(spec: dict[str, Any]) -> None:
    attention, beams = attention_of(spec), 2
    queries = rand(B, beams, Q, seed=1), rand(B, beams, Q, seed=2)
    index = torch.tensor([1, 0, 2, 2, 5, 4])  # within each document's two rows
    state = select(attention.init_state(memory_of()), torch.arange(B).repeat_interleave(beams))
    _, state = attention(queries[0], state)
    straight, _ = attention(queries[1], state)
    turned = queries[1].flatten(0, 1)[index].unflatten(0, (B, beams))
    output, _ = attention(turned, select(state, index))
    expected = straight.weights.flatten(0, 1)
    if not attention.recurrent:  # only the queries matter
        torch.testing.assert_close(output.weights.flatten(0, 1), expected[index], atol=1e-13, rtol=0)
    cut, _ = attention(queries[1][[0, 2]], select_documents(state, torch.tensor([0, 2]), beams))
    torch.testing.assert_close(cut.weights, straight.weights[[0, 2]], atol=1e-13, rtol=0)
    history = attention(queries[1][:, [1, 0]], select(state, torch.tensor([1, 0, 3, 2, 5, 4])))[0]
    torch.testing.assert_close(history.weights, straight.weights[:, [1, 0]], atol=1e-13, rtol=0)
    torch.testing.assert_close(history.context, straight.context[:, [1, 0]], atol=1e-13, rtol=0)


@every_attention
def test_memory_is_shared_by_beams(spec: dict[str, Any]) -> None:
    state = attention_of(spec).init_state(memory_of())
    wide = select(state, torch.arange(B).repeat_interleave(8))
    assert [id(t) for t in tensors_in(state, shared=True)] == [id(t) for t in tensors_in(wide, shared=True)]
    assert all(t[0].numel() <= S for t in tensors_in(wide, shared=False)), "a beam carries more than a row of weights"


@every_attention
def test_one_real_token(spec: dict[str, Any]) -> None:
    attention, states = attention_of(spec), rand(1, 1, D).requires_grad_()
    outputs = read(attention, memory_of(states, torch.ones(1, 1, dtype=torch.bool)), rand(1, 3, Q, seed=1))
    for output in outputs:
        assert output.weights.eq(1).all()
        if not getattr(attention.config, "content", False):  # the context is what was read, not made of it
            torch.testing.assert_close(output.context, states, atol=1e-14, rtol=0)
    sum(o.context.sum() for o in outputs).backward()
    assert states.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in attention.parameters())


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
