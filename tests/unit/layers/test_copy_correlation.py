"""Equations 10-21 of Li et al. 2021 against loops over positions, and what the faster forms must agree with."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from laconic.kernels import correlation
from laconic.kernels.correlation import positional_band, rescaled_rows
from laconic.kernels.heads import mean_attention
from laconic.layers.copying.correlational import semantic_correlation
from laconic.layers.copying.guided import guided_weights, indegree, outdegree
from laconic.papers.coconet import (
    context_gate,
    log_width,
    mixed,
    normalised,
    positional_correlation,
    split_history,
    transfers,
)
from laconic.papers.pointer_generator import attention_weights

B, S, H, D = 3, 7, 2, 3
MASK = torch.tensor([[1] * 7, [0] * 3 + [1] * 4, [1] + [0] * 6]).bool()  # all, padding in front, one token
IDS = torch.tensor([[5, 6, 5, 7, 7, 5, 8], [0, 0, 0, 5, 6, 6, 5], [9, 0, 0, 0, 0, 0, 0]])
EXACT = {"atol": 1e-13, "rtol": 0}
TRANSFERS = ["zero_renorm", "zero", "keep", "type"]


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def attention_of(seed: int = 3) -> Tensor:
    """Rows of real tokens are distributions over real tokens, rows of padding zero."""
    return attention_weights(rand(B, S, S, seed=seed), MASK.unsqueeze(1)) * MASK.unsqueeze(2)


def may(b: int, j: int, i: int, self_transfer: str) -> bool:
    if not (MASK[b, j] and MASK[b, i]):
        return False
    if self_transfer == "type":
        return bool(IDS[b, j] != IDS[b, i])
    return self_transfer == "keep" or i != j


# ------------------------------------------------------------------------------------- gates and recurrence


def test_gates_are_linear_in_the_values() -> None:
    """w . sum_i a_i V_i, (10) and (15), from w . V_i."""
    weights, values, w = rand(B, 2, S).abs(), rand(B, S, D), rand(D)
    for b in range(B):
        for q in range(2):
            context = sum(weights[b, q, i] * values[b, i] for i in range(S))
            torch.testing.assert_close(context_gate(weights, values @ w)[b, q], w @ context, **EXACT)


@pytest.mark.parametrize("of_source", [False, True])
def test_one_step_of_the_chain(of_source: bool) -> None:
    """(11), (12) and (14) with rel built position by position."""
    s, p, history = attention_of(3), attention_of(4), attention_weights(rand(B, 2, S), MASK.unsqueeze(1))
    gate = torch.sigmoid(rand(B, 1, S) if of_source else rand(B, 2, 1))
    alpha, g = attention_weights(rand(B, 2, S, seed=8), MASK.unsqueeze(1)), torch.sigmoid(rand(B, 2))
    parts = split_history(history, gate)
    found = parts[:, :, 0] @ s + parts[:, :, 1] @ p
    final = mixed(alpha, found, g)
    for b in range(B):
        for q in range(2):
            for i in range(S):
                co = 0.0
                for j in range(S):
                    u = gate[b, 0, j] if of_source else gate[b, q, 0]
                    co += history[b, q, j] * (u * s[b, j, i] + (1 - u) * p[b, j, i])
                torch.testing.assert_close(found[b, q, i], torch.as_tensor(co), **EXACT)
                expected = g[b, q] * alpha[b, q, i] + (1 - g[b, q]) * co
                torch.testing.assert_close(final[b, q, i], expected, **EXACT)


def test_a_gate_of_one_leaves_exactly_alpha() -> None:
    alpha, co = torch.rand(B, 2, S), torch.rand(B, 2, S)
    assert torch.equal(mixed(alpha, co, torch.ones(B, 2)), alpha)
    assert torch.equal(mixed(alpha, co, torch.zeros(B, 2)), co)


def test_norms_of_the_correlational_part() -> None:
    co = rand(B, 2, S).abs() * MASK.unsqueeze(1)
    co[0, 0] = 0
    assert normalised(co, "none", MASK) is co
    l1, soft = normalised(co, "l1", MASK), normalised(co, "softmax", MASK)
    assert l1[0, 0].eq(0).all()
    for b in range(B):
        for i in range(S):
            torch.testing.assert_close(l1[b, 1, i], co[b, 1, i] / sum(co[b, 1]), **EXACT)
            total = sum(math.exp(co[b, 1, k]) for k in range(S) if MASK[b, k])
            expected = math.exp(co[b, 1, i]) / total if MASK[b, i] else 0.0
            assert float(soft[b, 1, i]) == pytest.approx(expected, abs=1e-13)


# ---------------------------------------------------------------------------------------------- semantic


@pytest.mark.parametrize("self_transfer", TRANSFERS)
def test_semantic_correlation(self_transfer: Any) -> None:
    """Zero the padding and where mass may not go, then rows to one; zero and keep are not rescaled."""
    attention = attention_of()
    found = semantic_correlation(attention, MASK, IDS, self_transfer)
    for b in range(B):
        for j in range(S):
            row = [float(attention[b, j, i]) if may(b, j, i, self_transfer) else 0.0 for i in range(S)]
            total = sum(row) if self_transfer in ("zero_renorm", "type") else 1.0
            expected = [value / total if total else 0.0 for value in row]
            torch.testing.assert_close(found[b, j], torch.tensor(expected, dtype=torch.float64), **EXACT)


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


def test_the_gradient_of_rescaled_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the floor and below it (a high floor, so that finite differences can see it), with an empty row."""
    monkeypatch.setattr(correlation, "FLOOR", 3.2)
    matrix = rand(B, S, S, seed=4).abs().requires_grad_()
    allowed = transfers(MASK, torch.arange(S).expand(B, S), "zero_renorm")
    totals = matrix.masked_fill(~allowed, 0.0).sum(-1)
    assert (totals > 3.2).any()
    assert ((totals < 3.2) & (totals > 0)).any()
    assert gradcheck(lambda m: rescaled_rows(m, allowed), [matrix], fast_mode=True)


@pytest.mark.parametrize("group", [1, 2])
def test_mean_attention(group: int) -> None:
    """(16)-(19) head by head, and its gradient, which makes the heads once more."""
    queries, keys = rand(B, S, H, D, seed=1), rand(B, S, H, D, seed=2)
    found = mean_attention(queries, keys, MASK, group=group)
    for b in range(B):
        for j in range(S):
            expected = torch.zeros(S).double()
            for h in range(H):
                products = [float(queries[b, j, h] @ keys[b, i, h]) / D**0.5 for i in range(S)]
                total = sum(math.exp(products[i]) for i in range(S) if MASK[b, i])
                expected += torch.tensor(
                    [math.exp(products[i]) / total / H if MASK[b, i] else 0.0 for i in range(S)], dtype=torch.float64
                )
            torch.testing.assert_close(found[b, j], expected, **EXACT)
    leaves = [queries.requires_grad_(), keys.requires_grad_()]
    assert gradcheck(lambda q, k: mean_attention(q, k, MASK, group=group), leaves, fast_mode=True)


# -------------------------------------------------------------------------------------------- positional


def test_width() -> None:
    gate, lengths = rand(B, S), MASK.sum(-1)
    found = log_width(gate, lengths).exp()
    for b in range(B):
        for j in range(S):
            expected = float(lengths[b]) / 2 / (1 + math.exp(-gate[b, j]))
            assert float(found[b, j]) == pytest.approx(expected, rel=1e-13)


def expected_positional(widths: Tensor, self_transfer: str, clip: str, limit: int, density: bool) -> Tensor:
    found = torch.zeros(B, S, S).double()
    for b in range(B):
        for j in range(S):
            sigma, row, own = float(widths[b, j].exp()), [0.0] * S, 0.0
            for i in range(S):
                distance = abs(j - i)
                if not (MASK[b, i] and MASK[b, j]) or (clip == "cutoff" and distance > limit):
                    continue
                distance = min(distance, limit) if clip == "clamp" else distance
                value = math.exp(-(distance**2) / (2 * sigma**2)) / (math.sqrt(2 * math.pi) * sigma)
                if may(b, j, i, self_transfer):
                    row[i] = value
                else:
                    own += value if i == j else 0.0
            total = 1.0 if density else sum(row) + (own if self_transfer == "zero" else 0.0)
            found[b, j] = torch.tensor([value / total if total else 0.0 for value in row], dtype=torch.float64)
    return found


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("clip", ["clamp", "cutoff", "none"])
@pytest.mark.parametrize("self_transfer", TRANSFERS)
def test_positional_correlation(self_transfer: Any, clip: Any, density: bool) -> None:
    """(20), as printed or with rows that sum to one."""
    widths = rand(B, S)
    options = {"self_transfer": self_transfer, "clip": clip, "clip_distance": 2, "density": density}
    expected = expected_positional(widths, self_transfer, clip, 2, density)
    torch.testing.assert_close(positional_correlation(widths, MASK, IDS, **options), expected, **EXACT)
    if clip == "none" or self_transfer == "type":
        return
    history = attention_weights(rand(B, 2, S), MASK.unsqueeze(1))
    band = positional_band(widths, MASK, **options)
    torch.testing.assert_close(band.transferred(history), history @ expected, **EXACT)


@pytest.mark.parametrize("clip", ["clamp", "cutoff"])
def test_band_and_matrix_have_one_gradient(clip: Any) -> None:
    gate, history = rand(2, 40), torch.softmax(rand(2, 3, 40), -1)
    mask = torch.arange(40).expand(2, -1) < torch.tensor([[40], [23]])
    history, seen = history * mask.unsqueeze(1), []
    for banded in (False, True):
        leaf = gate.clone().requires_grad_()
        widths = log_width(leaf, mask.sum(-1))
        if banded:
            result = positional_band(widths, mask, clip=clip).transferred(history)
        else:
            result = history @ positional_correlation(widths, mask, torch.arange(40).expand(2, -1), clip=clip)
        (result * rand(2, 3, 40, seed=5)).sum().backward()
        seen.append((result.detach(), leaf.grad))
    torch.testing.assert_close(seen[1], seen[0], **EXACT)


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
    eye = torch.eye(size, dtype=dtype)[None]
    torch.testing.assert_close(positional_band(widths, mask).transferred(eye), matrix, atol=1e-6, rtol=0)
    if argument < 0:
        torch.testing.assert_close(matrix[0, 4, [3, 5]], torch.tensor([0.5, 0.5], dtype=dtype))
    matrix[0, 4].square().sum().backward()
    assert gate.grad.isfinite().all()


# ---------------------------------------------------------------------------------------------- centrality


def test_centrality() -> None:
    """How much a token is looked at, and the walk over the columns; both sum to one over the source."""
    attention, lengths = attention_of(), MASK.sum(-1)
    out, found = outdegree(attention, MASK), {order: indegree(attention, MASK, order) for order in (1, 2, 3)}
    for b in range(B):
        n = int(lengths[b])
        matrix = [[float(attention[b, j, i]) for i in range(S)] for j in range(S)]
        columns = [sum(row[i] for row in matrix) for i in range(S)]
        walk = [[matrix[j][i] / (columns[i] + 1e-6) for i in range(S)] for j in range(S)]
        c = [sum(row) / n for row in walk]
        torch.testing.assert_close(out[b], torch.tensor(columns, dtype=torch.float64) / n, **EXACT)
        for order in (1, 2, 3):
            torch.testing.assert_close(found[order][b], torch.tensor(c, dtype=torch.float64), **EXACT)
            c = [0.85 * sum(walk[j][i] * c[i] for i in range(S)) + 0.15 * c[j] for j in range(S)]
    for centrality in (out, *found.values()):
        torch.testing.assert_close(centrality.sum(-1), torch.ones(B).double(), atol=1e-5, rtol=0)
        assert centrality[~MASK].eq(0).all()


def test_guided_weights() -> None:
    alpha, c = attention_weights(rand(B, 2, S), MASK.unsqueeze(1)), outdegree(attention_of(), MASK)
    torch.testing.assert_close(guided_weights(alpha, c, torch.tensor(0.0), MASK), alpha, **EXACT)
    found = guided_weights(alpha, c, torch.tensor(0.7), MASK)
    for b in range(B):
        raw = alpha[b, 0] * torch.exp(0.7 * MASK[b].sum() * c[b])
        torch.testing.assert_close(found[b, 0], raw / raw.sum(), **EXACT)
