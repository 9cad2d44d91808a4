"""Equations (4) and (5) at their edges: closed gates, words that only padding holds, smoothed labels."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.config.base import ConfigBase
from catchline.kernels import dispatch
from catchline.kernels.dispatch import first_positions as _first_positions
from catchline.layers.copying.pointer import CopySource, GoldTokens, HeadInput, PointerHead, step_distribution
from catchline.layers.vocabulary import VocabularyProjection
from catchline.papers.pointer_generator import (
    attention_weights,
    final_distribution,
    generation_gate,
    gold_copy_log_prob,
    gold_log_prob,
)
from samples import rand

B, Q, S, V, X = 2, 3, 5, 6, 9
IDS = torch.tensor([[6, 2, 6, 7, 2], [8, 6, 0, 0, 0]])  # repeated words, words outside V, padding
MASK = torch.tensor([[True] * 5, [True, True, False, False, False]])


def decoded(*inputs: Any) -> Tensor:
    """A step as search makes it."""
    with torch.no_grad():
        return step_distribution(*inputs)


def source(extended: int = X, ids: Tensor = IDS, mask: Tensor = MASK) -> CopySource:
    return CopySource(ids, mask, extended, _first_positions(ids, extended))


def parts(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (B, Q, V), gate (B, Q), attention weights (B, Q, S)."""
    weights = attention_weights(rand(B, Q, S, seed=seed + 2), MASK.unsqueeze(1))
    return rand(B, Q, V, seed=seed), rand(B, Q, seed=seed + 1), weights


def test_mixture_without_words_outside_the_vocabulary() -> None:
    ids = IDS % V
    logits, gate, weights = parts()
    expected = final_distribution(logits, gate, weights, ids.unsqueeze(1).expand(-1, Q, -1), V)
    actual = decoded(logits.clone(), gate, weights, source(V, ids))
    torch.testing.assert_close(actual, expected, atol=1e-13, rtol=0)


@pytest.mark.skipif(not dispatch.ENABLED, reason="the written-out form underflows, the kernel does not")
@pytest.mark.parametrize("gate", [-800.0, 800.0])
def test_a_saturated_gate(gate: float) -> None:
    """p_gen is exactly 0 or 1 in floating point; log-probabilities stay right and the loss stays finite."""
    logits, _, weights = parts()
    saturated = torch.full((B, Q), gate, dtype=torch.float64)
    log_probs = decoded(logits.clone(), saturated, weights, source())
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(B, Q, dtype=torch.float64))
    if gate < 0:  # everything is copied, yet a word that can only be generated keeps a finite log-probability
        assert float(log_probs[0, 0, 6].exp()) == pytest.approx(float(weights[0, 0, 0] + weights[0, 0, 2]))
        assert float(log_probs[0, 0, 1]) == pytest.approx(-800 + float(logits[0, 0].log_softmax(-1)[1]))
    else:
        torch.testing.assert_close(log_probs[..., 1], logits.log_softmax(-1)[..., 1])


def test_first_positions() -> None:
    assert _first_positions(IDS, X).tolist() == [[0, 1, 0, 3, 1], [0, 1, 2, 2, 2]]


@pytest.mark.parametrize("masked", [True, False])
def test_gold_copy_of_a_word_that_only_padding_holds(masked: bool) -> None:
    """Id 0 stands in the padding of the second row; it is not in the source."""
    scores = (rand(B, S).masked_fill(~MASK, -torch.inf) if masked else rand(B, S)).requires_grad_()
    actual = gold_copy_log_prob(scores, torch.tensor([2, 0]), IDS, MASK)
    assert actual[1] == -math.inf
    log_vocab = torch.full((B,), -1.0, dtype=torch.float64)
    gold_log_prob(torch.zeros(B, dtype=torch.float64), log_vocab, actual).sum().backward()
    assert bool(scores.grad.isfinite().all())
    assert scores.grad[1].tolist() == [0.0] * S


def test_gold_log_prob_where_one_way_is_closed() -> None:
    gate = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    log_vocab = torch.tensor([-math.inf, -1.0], dtype=torch.float64, requires_grad=True)
    log_copy = torch.tensor([-2.0, -math.inf], dtype=torch.float64, requires_grad=True)
    value = gold_log_prob(gate, log_vocab, log_copy)
    assert value.tolist() == pytest.approx([-2 - math.log(2), -1 - math.log(2)])
    value.sum().backward()
    assert gate.grad.tolist() == pytest.approx([-0.5, 0.5])
    assert log_vocab.grad.tolist() == [0, 1]
    assert log_copy.grad.tolist() == [1, 0]


def head(seed: int = 0) -> PointerHead:
    torch.manual_seed(seed)
    return PointerHead(ConfigBase(), projection=VocabularyProjection(4, V), gate_size=3, unk_id=1).double()


def test_a_copied_word_whose_attention_underflows() -> None:
    """See's form (probability, then logarithm) gives an infinite loss here."""
    layer = head().float()
    scores = torch.tensor([[-500.0, 0.0, -500.0, 0.0, 0.0]], requires_grad=True)
    inputs = HeadInput(torch.zeros(1, 4), torch.zeros(1, 3))
    value, _ = layer.gold_log_probs(inputs, scores, source(), GoldTokens(torch.tensor([6]), torch.tensor([0])))
    log_copy = -500 + math.log(2) - math.log(3)  # two of -500 among three of 0 and two of -500
    expected = log_copy + math.log(1 - float(layer.gate.bias.detach().sigmoid()))
    assert float(value.detach()) == pytest.approx(expected)
    value.backward()
    assert bool(scores.grad.isfinite().all())


@pytest.mark.parametrize("hidden_size", [None, 3])
def test_label_smoothing_is_over_all_words_of_the_mixture(hidden_size: int | None) -> None:
    """(1 - eps) log P(gold) + eps / V sum_w log P(w), value and gradient, against equation (5) written out."""
    projection = VocabularyProjection(4, V, hidden_size=hidden_size)
    head = PointerHead(ConfigBase(), projection=projection, gate_size=2, unk_id=1).double()
    hidden, features, scores = (rand(B, Q, width, seed=width).requires_grad_() for width in (4, 2, S))
    rows, steps = torch.ones(B, Q).bool().nonzero(as_tuple=True)
    ids = torch.tensor([6, 2, 4, 8, 5, 6])  # copied, both, generated; outside V, generated, outside V
    gold = GoldTokens(ids, rows, None, 0.3, steps, torch.ones(B, Q).bool())
    inputs = HeadInput(hidden[rows, steps], features[rows, steps])
    values, details = head.gold_log_probs(inputs, scores[rows, steps], CopySource(IDS, MASK, X), gold)
    copies = attention_weights(scores, MASK.unsqueeze(1).expand(B, Q, S))
    gates = generation_gate(features, head.gate.weight, head.gate.bias)
    all_ids = IDS.masked_fill(~MASK, 0).unsqueeze(1).expand(B, Q, S)
    log_probs = final_distribution(projection(hidden), gates, copies, all_ids, X)[rows, steps]
    plain = log_probs.gather(1, ids[:, None])[:, 0]
    expected = 0.7 * plain + 0.3 * log_probs[:, :V].mean(dim=-1)
    torch.testing.assert_close(values, plain)
    torch.testing.assert_close(details["smoothed_log_probs"], expected)
    leaves = [hidden, features, scores, *head.parameters()]
    found = torch.autograd.grad(details["smoothed_log_probs"].sum(), leaves)
    torch.testing.assert_close(found, torch.autograd.grad(expected.sum(), leaves))
