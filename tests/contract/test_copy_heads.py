"""What every copy head promises, for every entry of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.config.names import COPY_HEADS
from catchline.layers.copying.pointer import (
    CopyHead,
    CopySource,
    EncoderFeatures,
    GoldTokens,
    HeadInput,
    VocabularyProjection,
    build_copy_head,
)
from catchline.layers.transformer import CapturedAttention
from catchline.papers.pointer_generator import attention_weights
from catchline.types import AttentionOutput
from samples import UNK, rand, randomise

B, Q, S, F, G, V, X = 2, 3, 5, 4, 6, 8, 11
IDS = torch.tensor([[8, 2, 8, 9, 2], [10, 3, 0, 0, 0]])
MASK = torch.tensor([[True] * 5, [True, True, False, False, False]])

CORRELATIONAL: list[dict[str, Any]] = [
    {"clip_mode": "cutoff", "clip_distance": 2, "self_transfer": "keep"},
    {"self_transfer": "type", "clip_mode": "none"},
    {"use_semantic": False, "context_heads": "per_head"},
    {"use_positional": False, "detach_history": False, "co_norm": "l1"},
    {"preset": "release", "prob_floor": None},
    {"u_input": "source_state", "g_input": "concat", "sigma_bias_init": -2.0},
    {"exclude_special_from_copy": True},
]
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "attentional": [{"lambda_input": "decoder_state"}, {"values": "encoder_states"}, {"context_heads": "per_head"}],
    "guided": [{"centrality": "outdegree"}, {"centrality": "indegree-3"}],
    "correlational": CORRELATIONAL,
}
CASES = [{"type": name, **options} for name in COPY_HEADS for options in [{}, *VARIANTS.get(name, [])]]
every_head = pytest.mark.parametrize("spec", CASES, ids=lambda spec: "-".join(map(str, spec.values())))
HEADS, WIDTH = 2, F // 2


def head_of(spec: dict[str, Any], seed: int = 0) -> CopyHead:
    context = {"projection": VocabularyProjection(F, V), "gate_size": G, "unk_id": UNK}
    return randomise(build_copy_head(spec, captured=True, special_ids=[3], **context).double(), seed=seed, scale=1.0)


def first_positions(ids: Tensor) -> Tensor:
    return torch.tensor([[row.index(word) for word in row] for row in ids.tolist()])


def side_of(ids: Tensor = IDS, mask: Tensor = MASK) -> EncoderFeatures:
    """An encoder's output; what stands at padding is zero in the states and anything in the projections."""
    states = rand(B, S, F, seed=20).masked_fill(~MASK.unsqueeze(-1), 0.0)
    queries, keys, values = (rand(B, S, HEADS, WIDTH, seed=seed) for seed in (21, 22, 23))
    return EncoderFeatures(states, queries, keys, values, mask, ids)


def source_of(head: CopyHead, ids: Tensor = IDS, mask: Tensor = MASK, size: int = X, side: Any = None) -> CopySource:
    source = CopySource(ids, mask, size, first_positions(ids))
    if head.reads_captured:
        source.precomputed = head.precompute(side or side_of(ids, mask))
    return source


def inputs_of(seed: int = 0) -> tuple[HeadInput, AttentionOutput]:
    scores = (2 * rand(B, Q, S, seed=seed + 2)).masked_fill(~MASK.unsqueeze(1), -torch.inf)
    weights = attention_weights(scores, MASK.unsqueeze(1))
    attention = AttentionOutput(rand(B, Q, 3, seed=seed + 3), weights, scores)
    queries, side = rand(B, Q, HEADS, WIDTH, seed=seed + 4), side_of()
    tap = CapturedAttention(queries, side.keys, side.values, MASK)
    return HeadInput(rand(B, Q, F, seed=seed), rand(B, Q, G, seed=seed + 1), None, tap, weights), attention


def of_queries(queries: slice, rows: slice = slice(None), tokens: slice = slice(None)) -> tuple[Any, Any]:
    """Some queries of some documents, of which only some tokens are there."""
    inputs, attention = inputs_of()
    tap = inputs.cross
    tap = CapturedAttention(
        tap.queries[rows, queries], tap.keys[rows, tokens], tap.values[rows, tokens], tap.mask[rows, tokens]
    )
    weights = inputs.weights[rows, queries, tokens]
    part = HeadInput(inputs.hidden[rows, queries], inputs.gate_features[rows, queries], None, tap, weights)
    return part, AttentionOutput(attention.context[rows, queries], weights, None)


def history_of(head: CopyHead, side: EncoderFeatures | None = None) -> Tensor | None:
    """What a head that remembers might remember: a distribution over the real tokens for every query (B Q, S)."""
    if head.first_state(side or side_of()) is None:
        return None
    return attention_weights(rand(B, Q, S, seed=9), MASK.unsqueeze(1)).flatten(0, 1)


@torch.no_grad()
def step(head: CopyHead, source: CopySource | None = None) -> Tensor:
    """log P of one step as decoding computes it."""
    inputs, attention = inputs_of()
    return head(inputs, attention, source or source_of(head), history_of(head))[0]


def successive(head: CopyHead) -> Tensor:
    """log P of Q successive steps, each made after the one before: (B, Q, X)."""
    state, source, found = head.first_state(side_of()), source_of(head), []
    for q in range(Q):
        inputs, attention = of_queries(slice(q, q + 1))
        log_probs, _, state = head(inputs, attention, source, state)
        found.append(log_probs)
    return torch.cat(found, dim=1)


@every_head
def test_with_gradients_the_values_are_the_same(spec: dict[str, Any]) -> None:
    head = head_of(spec)
    source = source_of(head, IDS.masked_fill(~MASK, 9))  # a word that only padding has
    inputs, attention = inputs_of()
    log_probs, _, _ = head(inputs, attention, source, history_of(head))
    assert log_probs.requires_grad
    torch.testing.assert_close(log_probs, step(head, source), atol=1e-13, rtol=0)
    log_probs.exp().square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())


def every_word(head: CopyHead) -> tuple[Tensor, Tensor, Tensor]:
    """Each (document, query, word) with a probability: rows, queries, words."""
    return step(head).isfinite().nonzero(as_tuple=True)


@every_head
def test_gold_log_probs_are_entries_of_the_distribution(spec: dict[str, Any]) -> None:
    """For every word there is, with its gradients; a word the head does not know counts as UNK."""
    head = head_of(spec)
    rows, queries, words = every_word(head)
    leaves = list(head.parameters())
    for weights in (None, torch.ones(len(words)).double(), rand(len(words), seed=7).abs()):
        inputs, attention = inputs_of()
        picked = replace(inputs, hidden=inputs.hidden[rows, queries], gate_features=inputs.gate_features[rows, queries])
        gold = GoldTokens(words, rows, weights, steps=queries)
        values, details = head.gold_log_probs(picked, attention.scores[rows, queries], source_of(head), gold)
        expected = successive(head)[rows, queries, words]
        torch.testing.assert_close(values, expected, atol=1e-12, rtol=0)
        assert all(value.shape == values.shape for value in details.values())
        loss = rand(len(words), seed=7).abs()
        actual = torch.autograd.grad((loss * values).sum(), leaves, allow_unused=True)
        wanted = torch.autograd.grad((loss * expected).sum(), leaves, allow_unused=True)
        for a, w in zip(actual, wanted, strict=True):
            assert (a is None) == (w is None)
            if a is not None:
                torch.testing.assert_close(a, w, atol=1e-12, rtol=0)
    if not head.copies:
        outside = GoldTokens(torch.tensor([X - 1]), torch.tensor([0]))
        inputs, attention = inputs_of()
        picked = HeadInput(inputs.hidden[:1, 0], inputs.gate_features[:1, 0])
        value, _ = head.gold_log_probs(picked, None, source_of(head), outside)
        torch.testing.assert_close(value[0], head(inputs, attention, source_of(head))[0][0, 0, UNK])
