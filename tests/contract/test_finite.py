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
from torch import Tensor, nn

from catchline.config.names import ATTENTIONS, CHUNK_ATTENTIONS, COARSE_ENCODERS, MODELS, OBJECTIVES, OPPONENTS, build
from catchline.layers.copying.captured import guided_weights
from catchline.layers.opponent import DecoderShape
from catchline.layers.transformer import log_weights
from catchline.papers.contrastive import opponent_weights
from catchline.types import Memory, UpdateContext
from samples import IDS, TRANSFORMER, UNK, VOCAB, random_batch

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

SIZES = {"encoder_layers": 1, "decoder_layers": 1, "hidden_size": 8, "num_heads": 2, "feed_forward_size": 8}
OPPOSED_ONE = TRANSFORMER | SIZES | {"opponent": {"type": "max", "layer": 0, "head": 1}}
COARSE = {"type": "coarse_to_fine", "embedding_size": 8, "hidden_size": 4, "dropout": 0.0}
COARSE |= {"chunks": None, "chunk_words": 2}
NLL, COVERAGE = {"type": "nll"}, {"type": "coverage"}
OPPOSED = [NLL, {"type": "opponent"}]
CHOSEN = [NLL, {"type": "reinforce"}]
CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "seq2seq": (
        {"type": "seq2seq", "embedding_size": 8, "encoder_hidden": 4, "hidden_size": 4}
        | {"attention": {"type": "additive", "coverage": True}, "head": {"type": "pointer"}},
        [NLL, COVERAGE],
    ),
    "distraction": ({"type": "distraction", "embedding_size": 8, "hidden_size": 4, "head": {"type": "pointer"}}, [NLL]),
    "transformer pointer": (OPPOSED_ONE | {"head": {"type": "pointer"}}, [NLL, {"type": "minus_softmax"}]),
    **{
        f"transformer {head}": (OPPOSED_ONE | {"head": {"type": head}}, OPPOSED)
        for head in ("vocabulary", "attentional", "correlational")
    },
    "transformer guided": (OPPOSED_ONE | {"head": {"type": "guided"}}, [*OPPOSED, {"type": "guidance"}]),
    **{
        f"{attention} {coarse}": (COARSE | {"attention": {"type": attention}, "coarse": {"type": coarse}}, CHOSEN)
        for attention in CHUNK_ATTENTIONS
        for coarse in COARSE_ENCODERS
    },
    "sparsemax": (COARSE | {"attention": {"type": "hierarchical", "normalizer": "sparsemax"}}, CHOSEN),
    "masked padding": (COARSE | {"mask_padding": True, "chunks": 4, "chunk_words": 3}, CHOSEN),
}


def test_every_objective_has_a_case() -> None:
    assert {spec["type"] for _, objectives in CASES.values() for spec in objectives} == set(OBJECTIVES)


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=4)
@given(embeddings=tensors(VOCAB, 8), lengths=st.lists(st.integers(1, 7), min_size=2, max_size=2))
def test_objectives(case: str, embeddings: Tensor, lengths: list[int]) -> None:
    torch.manual_seed(0)
    spec, objectives = CASES[case]
    model = build("model", MODELS, spec, vocab_size=VOCAB, **IDS)
    with torch.no_grad():
        model.embedding.weight.copy_(embeddings)
    batch = random_batch(lengths, (3, 2))
    output, terms = model(batch, context=UpdateContext(noise_seed=1)), []
    for objective in objectives:
        term = build("objective", OBJECTIVES, objective)(output, batch)
        terms.append(term.weight * term.sum / term.count)
    assert_finite(terms, [], model)
