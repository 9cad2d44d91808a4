"""Equations of the papers that modules run in another form: the two are equal."""

from __future__ import annotations

import math

import numpy as np
import torch

from catchline.layers.copying.pointer import GoldTokens
from catchline.layers.opponent import DecoderShape, MaskMaximum
from catchline.papers import coarse_to_fine, contrastive, distraction, pointer_generator
from catchline.search.distraction import directions, divergence_sides
from samples import rand

N, T, S = 3, 4, 6


def test_additive_attention_on_numbers() -> None:
    """v . tanh(W h + U s + b + w c) with A = 1."""
    k, q, v, c, w = (torch.tensor(x, dtype=torch.float64) for x in ([[[0.3]]], [[[0.4]]], [1.5], [[[0.8]]], [0.5]))
    assert math.isclose(float(pointer_generator.attention_scores(k, q, v)), 1.5 * math.tanh(0.3 + 0.4))
    assert math.isclose(float(pointer_generator.attention_scores(k, q, v, c, w)), 1.5 * math.tanh(0.7 + 0.5 * 0.8))
    assert math.isclose(float(distraction.attention_scores(k, q, v, c, w)), 1.5 * math.tanh(0.7 - 0.5 * 0.8))


def test_distraction_in_decoding_is_what_search_adds() -> None:
    """(15) to (18) with the vectors of past steps, and as the search's inner products."""
    attention, past = torch.softmax(rand(N, S), -1), torch.softmax(rand(N, T, S, seed=1), -1)
    attention[:, -1] = past[..., -1] = 0.0  # padding
    left, _ = divergence_sides(attention.numpy())
    _, right = divergence_sides(past.numpy())
    products = np.einsum("nw,ntw->nt", left, right)
    np.testing.assert_allclose(distraction.attention_distance(attention, past), products.min(axis=1), atol=1e-12)
    contents, before = rand(N, 5, seed=2), rand(N, T, 5, seed=3)
    cosines = np.einsum("nw,ntw->nt", directions(contents.numpy()), directions(before.numpy()))
    np.testing.assert_allclose(distraction.similarity(contents, before), cosines.max(axis=1), atol=1e-12)
    terms = rand(4, N, seed=4)
    score = distraction.distracted_score(*terms, weights=(0.5, -0.2, -0.1))
    torch.testing.assert_close(score, terms[0] + 0.5 * terms[1] - 0.2 * terms[2] - 0.1 * terms[3])


def test_the_opponents_branch_is_equations_4_to_8() -> None:
    torch.manual_seed(0)
    shape = DecoderShape(num_layers=1, num_heads=2, head_width=4)
    branch = MaskMaximum(MaskMaximum.Config(layer=0, head=1), shape=shape, vocab_size=9, unk_id=1).double()
    context, gold = rand(5, 4), torch.tensor([0, 3, 8, 8, 2])
    z1 = contrastive.first_norm(context, (branch.first_norm.weight, branch.first_norm.bias))
    torch.testing.assert_close(z1, (context - context.mean(-1, True)) / (context.var(-1, False, True) + 1e-5).sqrt())
    expand, contract = (branch.expand.weight, branch.expand.bias), (branch.contract.weight, branch.contract.bias)
    z2 = contrastive.feed_forward(z1, expand, contract)
    torch.testing.assert_close(z2, (z1 @ expand[0].T + expand[1]).clamp_min(0) @ contract[0].T + contract[1])
    z3 = contrastive.last_norm(z1, z2, (branch.second_norm.weight, branch.second_norm.bias))
    log_opponent = contrastive.log_opponent(z3, branch.projection.weight)
    torch.testing.assert_close(log_opponent.exp().sum(-1), torch.ones(5, dtype=torch.float64))
    found = branch.gold_log_probs(context, GoldTokens(gold, torch.arange(5)))["opponent_log_probs"]
    torch.testing.assert_close(found, log_opponent[torch.arange(5), gold])


def test_the_final_context() -> None:
    context, query, weight = rand(2, 3), rand(2, 3, seed=1), rand(3, 6, seed=2)
    expected = torch.tanh(context @ weight[:, :3].T + query @ weight[:, 3:].T)
    torch.testing.assert_close(
        coarse_to_fine.final_context(context, query, lambda features: features @ weight.T), expected
    )
