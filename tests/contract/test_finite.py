"""No input may give what is no number: any mask with a real token, any 32-bit input up to 1e4, every attention, every
opponent, every copy head, every objective; values and gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from test_models import CASES, TRIED, built, loss_of
from torch import Tensor, nn

from catchline.config.names import ATTENTIONS, OPPONENTS, build
from catchline.layers.copying.captured import guided_weights
from catchline.layers.opponent import DecoderShape
from catchline.layers.transformer import log_weights
from catchline.papers.contrastive import opponent_weights
from catchline.types import Memory, UpdateContext
from samples import UNK, VOCAB, random_batch

B, S, D = 2, 4, 3
LARGEST = 1e4


def tensors(*shape: int) -> st.SearchStrategy[Tensor]:
    numbers = st.floats(-LARGEST, LARGEST, width=32)
    return arrays(np.float32, shape, elements=numbers).map(lambda values: torch.tensor(values, requires_grad=True))


def masks(*shape: int) -> st.SearchStrategy[Tensor]:
    """Every row has a real position; which ones are real is free."""
    row = st.lists(st.booleans(), min_size=shape[-1], max_size=shape[-1]).filter(any)
    count = int(np.prod(shape[:-1]))
    return st.lists(row, min_size=count, max_size=count).map(lambda rows: torch.tensor(rows).view(*shape))


def assert_finite(values: Iterable[Tensor], leaves: Iterable[Tensor], module: nn.Module | None = None) -> None:
    """``values`` and what their sum sends back to ``leaves`` and to the parameters of ``module``."""
    values = list(values)
    assert all(bool(value.isfinite().all()) for value in values)
    parameters = {} if module is None else dict(module.named_parameters())
    everything = {**{f"input {n}": leaf for n, leaf in enumerate(leaves)}, **parameters}
    wanted = {name: tensor for name, tensor in everything.items() if tensor.requires_grad}
    total = torch.stack([value.sum() for value in values]).sum()
    found = torch.autograd.grad(total, list(wanted.values()), allow_unused=True, retain_graph=True)
    bad = [name for name, g in zip(wanted, found, strict=True) if g is not None and not bool(g.isfinite().all())]
    assert not bad


# ---------------------------------------------------------------------------------------- attention

READERS: list[dict[str, Any]] = [{"type": name} for name in ATTENTIONS] + [{"type": "additive", "coverage": True}]


@pytest.mark.parametrize("spec", READERS, ids=str)
@settings(max_examples=15)
@given(states=tensors(B, S, D), queries=tensors(B, 2, D), mask=masks(B, S))
def test_attention(spec: dict[str, Any], states: Tensor, queries: Tensor, mask: Tensor) -> None:
    torch.manual_seed(0)
    attention = build("attention", ATTENTIONS, spec, memory_size=D, query_size=D)
    state, values = attention.init_state(Memory(states, mask, torch.zeros(B, S).long(), 9)), []
    for t in range(2):
        output, state = attention(queries[:, t : t + 1], state)
        values += [output.context, output.weights, output.scores[mask.unsqueeze(1)]]
    assert_finite(values, [states, queries], attention)


KINDS = [(kind, normalizer) for kind in OPPONENTS for normalizer in ("softmax", "renorm")]


@pytest.mark.parametrize(("kind", "normalizer"), KINDS)
@settings(max_examples=6)
@given(queries=tensors(B, 2, 2, D), keys=tensors(B, S, 2, D), values=tensors(B, S, 2, D), mask=masks(B, S))
def test_opponents(kind: str, normalizer: str, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> None:
    torch.manual_seed(0)
    spec = {"type": kind, "layer": 0, "head": 1, "normalizer": normalizer}
    opponent = build("opponent", OPPONENTS, spec, shape=DecoderShape(1, 2, D), vocab_size=VOCAB, unk_id=UNK)
    reading = opponent.read(queries, keys, values, mask)
    kept = reading.allowed.any(dim=-1)
    torch.testing.assert_close(reading.opponent.sum(-1), kept.float())  # rows sum to one, or keep nothing
    assert_finite([reading.opponent, opponent.features(reading.context)], [queries, keys, values], opponent)


def test_a_peaked_head_leaves_even_weights_to_its_opponent() -> None:
    """``renorm`` of alpha_c exactly one-hot: nothing says who of the rest is ahead."""
    kept = torch.tensor([False, True, True, False])
    found = opponent_weights(torch.tensor([1.0, 0.0, 0.0, 0.0]), kept, "renorm")
    assert found.tolist() == [0.0, 0.5, 0.5, 0.0]
    sharp = opponent_weights(torch.tensor([1.0, 3e-20, 1e-20, 0.0]), kept, "renorm")
    torch.testing.assert_close(sharp, torch.tensor([0.0, 0.75, 0.25, 0.0]))


def test_weights_that_all_but_underflowed() -> None:
    """A weight of 1e-38 beside a bias that lifts it: 1 / 1e-38 leaves no room for the gradient that it multiplies."""
    weights = torch.tensor([[[1.0, 2e-38]]], requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    lifted = guided_weights(weights, torch.tensor([[0.0, 1.0]]), torch.tensor(60.0), mask)
    assert_finite([LARGEST * lifted[..., 1]], [weights])
    assert_finite([LARGEST * log_weights(weights)], [weights])


# ------------------------------------------------------------------------------- models and objectives


@pytest.mark.parametrize("name", [name for name in TRIED if CASES[name]["type"] != "bart"])
@settings(max_examples=4)
@given(embeddings=tensors(VOCAB, 12), lengths=st.lists(st.integers(1, 7), min_size=2, max_size=2))
def test_models(name: str, embeddings: Tensor, lengths: list[int]) -> None:
    """With the objectives that each has a term for."""
    torch.manual_seed(0)
    model = built(name)
    with torch.no_grad():
        model.embedding.weight.copy_(embeddings.repeat(1, 6)[:, : model.embedding.embedding_dim])
    batch = random_batch(lengths, (3, 2))
    assert_finite([loss_of(model(batch, context=UpdateContext(noise_seed=1)), batch)], [], model)
