"""Equations (4) and (5) at their edges: closed gates, words that only padding holds, smoothed labels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.config.base import ConfigBase
from catchline.kernels import dispatch
from catchline.kernels.dispatch import first_positions as _first_positions
from catchline.kernels.dispatch import first_positions as places
from catchline.layers.copying.pointer import (
    CopyHead,
    CopySource,
    EncoderFeatures,
    GoldTokens,
    HeadInput,
    PointerHead,
    build_copy_head,
    step_distribution,
)
from catchline.layers.transformer import CapturedAttention, mean_attention
from catchline.layers.vocabulary import VocabularyProjection
from catchline.papers.coconet import log_width, positional_correlation, rescaled_rows, transfers
from catchline.papers.pointer_generator import (
    attention_weights,
    final_distribution,
    generation_gate,
    gold_copy_log_prob,
    gold_log_prob,
)
from samples import UNK, rand, randomise

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


B_C, T, S_C, H, D, V_C, X_C = 3, 4, 6, 2, 4, 9, 11
WIDE = H * D
IDS_C = torch.tensor([[9, 4, 9, 10, 4, 3], [2, 5, 5, 3, 0, 0], [7, 0, 0, 0, 0, 0]])
MASK_C = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] + [0] * 5]).bool()
EXACT = {"atol": 1e-12, "rtol": 0}


def head_of(name: str = "correlational", *, scale: float = 0.7, specials: tuple[int, ...] = (), **options: Any) -> Any:
    context = {
        "projection": VocabularyProjection(WIDE, V_C),
        "gate_size": 5,
        "unk_id": UNK,
        "special_ids": specials,
    }
    head = build_copy_head({"type": name, **options}, captured=True, **context).double()
    randomise(head, scale=scale)
    return head


def side_of() -> EncoderFeatures:
    states = rand(B_C, S_C, WIDE, seed=1).masked_fill(~MASK_C.unsqueeze(-1), 0.0)
    queries, keys, values = (rand(B_C, S_C, H, D, seed=seed) for seed in (2, 3, 4))
    return EncoderFeatures(states, 2 * queries, keys, values, MASK_C, IDS_C)


def inputs_of() -> HeadInput:
    side = side_of()
    queries, keys = 2 * rand(B_C, T, H, D, seed=6), rand(B_C, S_C, H, D, seed=7)
    tap = CapturedAttention(queries, keys, side.values, MASK_C)
    return HeadInput(rand(B_C, T, WIDE, seed=8), rand(B_C, T, 5), None, tap, mean_attention(tap))


def source_of(head: CopyHead) -> CopySource:
    return CopySource(IDS_C, MASK_C, X_C, places(IDS_C, X_C), head.precompute(side_of()))


def weighed(head: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """alpha and P_final of all steps, and the details."""
    precomputed = head.precompute(side_of())
    weights = head._weights(inputs_of(), precomputed)
    return weights, *head.weigh_all(inputs_of(), weights, precomputed)


def gold_of(smoothing: float = 0.0) -> GoldTokens:
    rows, steps = torch.ones(B_C, T).bool().nonzero(as_tuple=True)
    words = torch.tensor([9, 4, 5, 3, 5, 2, 8, 3, 7, 7, 3, 6])
    return GoldTokens(words, rows, None, smoothing, steps)


def trained(head: CopyHead, smoothing: float = 0.0) -> tuple[Tensor, dict[str, Tensor]]:
    inputs, gold = inputs_of(), gold_of(smoothing)
    at = (gold.rows, gold.steps)
    picked = replace(inputs, hidden=inputs.hidden[at], gate_features=inputs.gate_features[at])
    return head.gold_log_probs(picked, None, source_of(head), gold)


# ------------------------------------------------------------------------------------------------ options


@torch.no_grad()
def test_special_tokens_may_be_excluded() -> None:
    """No mass on them, in alpha, s or p; a document that has nothing else keeps them."""
    head = head_of(exclude_special_from_copy=True, specials=(2, 3, 7))
    alpha, final, _ = weighed(head)
    special = torch.isin(IDS_C, torch.tensor([2, 3])) & MASK_C
    assert special.any()
    for rows in (alpha, final):
        assert rows.transpose(1, 2)[special].eq(0).all()
        torch.testing.assert_close(rows.sum(-1), torch.ones(B_C, T).double(), **EXACT)
    matrix = head.precompute(side_of()).extra.matrix
    assert matrix.unflatten(1, (2, S_C)).movedim(3, 1)[special].eq(0).all()
    assert trained(head)[0].isfinite().all()


# ------------------------------------------------------------------------------------------------- beginning


@torch.no_grad()
def test_an_alpha_that_is_all_elsewhere() -> None:
    """All of alpha on excluded tokens: what is left of nothing is spread evenly."""
    head = head_of("attentional", exclude_special_from_copy=True, specials=(3,))
    weights = torch.zeros(B_C, T, S_C).double()
    weights[0, :, 5], weights[1, :, 3], weights[2, :, 0] = 1.0, 1.0, 1.0
    found = head._weights(replace(inputs_of(), weights=weights), head.precompute(side_of()))
    torch.testing.assert_close(found.sum(-1), torch.ones(B_C, T).double(), **EXACT)
    assert attention_weights(torch.zeros(1, S_C).double(), MASK_C[:1] & (IDS_C[:1] != 3)).allclose(found[0, 0])


def test_a_token_that_looks_at_itself_only() -> None:
    """In float32 nothing is left of its row without the diagonal; it is spread evenly, and the gradient is finite."""
    attention = torch.eye(4)[None].clone()
    attention[0, 1] = torch.tensor([1e-12, 1.0, 3e-12, 0.0])
    attention.requires_grad_()
    allowed = transfers(torch.ones(1, 4).bool(), torch.arange(4)[None], "zero_renorm")
    rows = rescaled_rows(attention, allowed)
    torch.testing.assert_close(rows.sum(-1), torch.ones(1, 4))
    torch.testing.assert_close(rows[0, 0], torch.tensor([0, 1 / 3, 1 / 3, 1 / 3]))
    assert rows[0, 1, 2] > rows[0, 1, 0] > rows[0, 1, 3] > 0
    rows.square().sum().backward()
    assert attention.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("argument", [-1e4, -200.0, -40.0, 40.0])
def test_extreme_widths(dtype: torch.dtype, argument: float) -> None:
    """sigma far below what its square can hold: the two neighbours share all, gradients are finite."""
    size = 30
    gate = torch.full((1, size), argument, dtype=dtype, requires_grad=True)
    mask, ids = torch.ones(1, size).bool(), torch.arange(size)[None]
    widths = log_width(gate, mask.sum(-1))
    matrix = positional_correlation(widths, mask, ids)
    torch.testing.assert_close(matrix.sum(-1), torch.ones(1, size, dtype=dtype))
    if argument < 0:
        torch.testing.assert_close(matrix[0, 4, [3, 5]], torch.tensor([0.5, 0.5], dtype=dtype))
    else:  # from the distance of 16 on all are alike
        assert matrix[0, 0, 15] > matrix[0, 0, 16] == matrix[0, 0, 29]
    matrix[0, 4].square().sum().backward()
    assert gate.grad.isfinite().all()
