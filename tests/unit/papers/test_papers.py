"""Equations of the papers that modules run in another form: the two are equal."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from catchline.papers import coarse_to_fine, coconet, contrastive, distraction, pointer_generator
from catchline.papers.pointer_generator import log_sum_exp
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


SCORES = torch.tensor([[1.0, -2.0, 3.0, 9.0], [0.5, 7.0, 7.0, 7.0], [2.0, 2.0, 2.0, 2.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True, False], [True, False, False, False], [False, False, False, False]])
SOFTMAXES = [
    pointer_generator.attention_weights,
    distraction.attention_weights,
    coarse_to_fine.attention_weights,
    contrastive.softmax_over,
    coconet.softmax_over,
]
Softmax = Callable[[Tensor, Tensor], Tensor]


@pytest.mark.parametrize("softmax", SOFTMAXES)
def test_softmax_equals_the_softmax_of_the_real_tokens(softmax: Softmax) -> None:
    weights = softmax(SCORES, MASK)
    torch.testing.assert_close(weights[0, :3], torch.softmax(SCORES[0, :3], -1), atol=1e-15, rtol=0)
    assert weights[0, 3] == 0
    assert weights[1].tolist() == [1, 0, 0, 0]
    assert weights[2].tolist() == [0, 0, 0, 0], "a row without real tokens is zero, not NaN"
    assert gradcheck(lambda x: softmax(x, MASK), SCORES.clone().requires_grad_())


def test_logsumexp_gradients() -> None:
    """Also of a row without real positions, where a plain logsumexp over -inf sends NaN back."""
    scores = SCORES.clone().requires_grad_()
    log_sum_exp(scores, MASK).sum().backward()
    torch.testing.assert_close(scores.grad[0, :3], torch.softmax(SCORES[0, :3], -1), atol=1e-15, rtol=0)
    assert scores.grad[0, 3] == 0
    assert scores.grad[1].tolist() == [1, 0, 0, 0]
    assert scores.grad[2].tolist() == [0, 0, 0, 0]
    naive = SCORES.clone().requires_grad_()
    torch.logsumexp(naive + torch.where(MASK, 0.0, -math.inf), -1).exp().sum().backward()
    assert naive.grad[2].isnan().any(), "the trap that this function avoids is no longer one"
    assert gradcheck(lambda x: log_sum_exp(x, MASK)[:2], SCORES.clone().requires_grad_())


# The numbers that a function carries; the others are said in the file's docstring. One paper numbers none.
TABLE = {
    "pointer_generator": """
        attention_scores 1 7, attention_weights 2, context 3, generation_gate 4, final_distribution 5,
        next_coverage 6, coverage_loss 8""",
    "distraction": """
        gru 1, gru_state 2, gru_candidate 3, gru_gates 4 5, readout 8, content_distraction 11, context 12,
        attention_scores 13, attention_weights 14, attention_distance 15, similarity 16 17, distracted_score 18""",
    "contrastive": """
        conventional_weights 1 2, opponent_weights 3, first_norm 4, feed_forward 5, last_norm 6, log_opponent 7,
        log_softmin 8, joint_score 9""",
    "coconet": """
        mean_attention 7 9 17 18, context_gate 10 15, transferred 11, split_history 12, mixed 14, rescaled_rows 19,
        positional_correlation 20, log_width 21""",
}
NUMBERS = {
    paper: {int(number): name for name, *numbers in map(str.split, table.split(",")) for number in numbers}
    for paper, table in TABLE.items()
}
IN_THE_DOCSTRING = {"distraction": (6, 7, 9, 10), "coconet": (1, 4, 5, 22)}


@pytest.mark.parametrize("paper", NUMBERS)
def test_the_numbers_of_the_equations_are_the_papers(paper: str) -> None:
    module = importlib.import_module(f"catchline.papers.{paper}")
    for number, name in NUMBERS[paper].items():
        said = getattr(module, name).__doc__ or ""
        ranges = re.findall(r"\((\d+)\)-\((\d+)\)", said)
        assert f"({number})" in said or any(int(a) <= number <= int(b) for a, b in ranges)
    for number in IN_THE_DOCSTRING.get(paper, ()):
        assert f"({number})" in (module.__doc__ or "")
