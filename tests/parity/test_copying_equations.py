"""The numbers the equations of correlational copying must give: transition matrices, their chain, its mass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from copying_reference import (
    DEFAULTS,
    LITERAL,
    CopyingReference,
    Document,
    Gate,
    centrality_of,
    density,
    guidance_loss,
    positional_of,
    positional_row,
    semantic_of,
)
from torch import Tensor

NOTHING = torch.zeros(1, 1)
PRINTED = {**DEFAULTS, **LITERAL, "self_transfer": "keep"}


def words(ids: list[int], real: int | None = None) -> Document:
    count = len(ids) if real is None else real
    return Document(ids, [i < count for i in range(len(ids))], NOTHING, NOTHING, NOTHING, NOTHING)


def distinct(size: int) -> Document:
    return words(list(range(size)))


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("sigma", "beyond", "clamp", "cutoff"),
    [
        (1.0, 0.000, 0.403, 0.403),
        (4.0, 0.036, 0.104, 0.107),
        (8.0, 0.880, 0.0065, 0.054),
        (16.0, 0.957, 0.0016, 0.037),
        (256.0, 0.969, 0.00098, 0.031),
    ],
)
def test_clipping_leaves_most_of_the_mass_beyond_it(sigma: float, beyond: float, clamp: float, cutoff: float) -> None:
    """The middle row of 1024 positions: what lies beyond distance 16, and at distance 1 on one side."""
    rows = {
        mode: positional_row(512, number(sigma), distinct(1024), {**DEFAULTS, "clip_mode": mode})
        for mode in ("clamp", "cutoff")
    }
    far = (torch.arange(1024) - 512).abs() > 16
    assert float(rows["clamp"][far].sum()) == pytest.approx(beyond, abs=5e-4)
    assert not rows["cutoff"][far].any()
    for mode, wanted in (("clamp", clamp), ("cutoff", cutoff)):
        digits = 5e-4 if wanted > 0.01 else 5e-5 if wanted > 0.001 else 5e-6
        assert float(rows[mode][513]) == pytest.approx(wanted, abs=digits)
        assert float(rows[mode].sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("sigma", "total"), [(8.0, 7.6), (16.0, 15.7), (64.0, 6.2), (256.0, 1.6)])
def test_the_printed_density_is_no_transition_matrix(sigma: float, total: float) -> None:
    row = positional_row(512, number(sigma), distinct(1024), PRINTED)
    assert float(row.sum()) == pytest.approx(total, abs=0.05)


@pytest.mark.parametrize(
    ("sigma", "peaks"), [(1.0, [0.40, 0.34, 0.22]), (4.0, [0.11, 0.07, 0.05]), (50.0, [0.005, 0.005, 0.005])]
)
def test_the_chain_forgets_quickly(sigma: float, peaks: list[float]) -> None:
    """The peak of a one-hot history after 1, 2 and 3 transfers over 200 positions."""
    positional = positional_of(torch.full((200,), sigma, dtype=torch.float64), distinct(200), DEFAULTS)
    history = torch.zeros(200, dtype=torch.float64)
    history[100] = 1
    for peak in peaks:
        history = history @ positional
        assert float(history.max()) == pytest.approx(peak, abs=0.0005 if peak < 0.01 else 0.005)


def test_a_narrow_gaussian_goes_to_the_two_neighbours() -> None:
    """Where the printed density is 0 / 0 the softmax is one half and one half, or all of it at an end."""
    sigma = number(0.01)
    assert float(density(1.0, sigma)) == 0
    positional = positional_of(sigma.expand(5), distinct(5), DEFAULTS)
    assert positional[2].tolist() == [0, 0.5, 0, 0.5, 0]
    assert positional[0].tolist() == [0, 1, 0, 0, 0]


@pytest.mark.parametrize("self_transfer", ["zero_renorm", "type", "keep"])
@pytest.mark.parametrize("clip_mode", ["clamp", "cutoff", "none"])
def test_rows_sum_to_one_where_there_is_a_target(clip_mode: str, self_transfer: str) -> None:
    options: dict[str, Any] = {**DEFAULTS, "clip_mode": clip_mode, "self_transfer": self_transfer, "clip_distance": 2}
    document = words([5, 6, 5, 7, 5, 8, 0, 0], real=6)
    attention = torch.softmax(random(8, 8), dim=-1) * torch.tensor(document.real)
    attention = attention / attention.sum(-1, keepdim=True)
    for matrix in (
        semantic_of(attention, document, options),
        positional_of(random(8).exp(), document, options),
    ):
        torch.testing.assert_close(matrix.sum(1)[:6], torch.ones(6).double(), atol=1e-12, rtol=0)
        assert not matrix[6:].any()
        assert not matrix[:, 6:].any()
        assert bool(matrix.diagonal()[:6].any()) == (self_transfer == "keep")
        assert bool(matrix[0, 2] > 0) == (self_transfer != "type")


def test_one_token_has_nowhere_to_go() -> None:
    document = words([5, 0], real=1)
    assert not positional_of(torch.ones(2).double(), document, DEFAULTS).any()
    assert not semantic_of(torch.tensor([[1.0, 0.0], [1.0, 0.0]]).double(), document, DEFAULTS).any()


def reference(**options: Any) -> tuple[CopyingReference, Document]:
    """A head on random states, 6 words of which two are equal, 5 steps."""
    width, size, steps = 4, 6, 5
    parameters = {
        name: 1.5 * random(*shape, seed=seed)
        for seed, (name, shape) in enumerate(
            {
                "embedding.weight": (9, width),
                "decoder.layers.0.cross_attention.in_proj.weight": (3 * width, width),
                "decoder.layers.0.cross_attention.in_proj.bias": (3 * width,),
                "encoder.layers.0.self_attention.in_proj.weight": (3 * width, width),
                "encoder.layers.0.self_attention.in_proj.bias": (3 * width,),
            }.items()
        )
    }
    wide = 2 * width if options.get("g_input") == "concat" else width
    gates = {
        name: Gate(random(wide if name == "g" else width, seed=9 + i), number(-0.5))
        for i, name in enumerate(("lambda", "u", "g", "sigma"))
    }
    states = [random(n, width, seed=20 + i) for i, n in enumerate((size, size, steps, steps))]
    made = CopyingReference("correlational", options, parameters, gates, num_heads=2, copy_layer=0, encoder_layer=0)
    return made, Document([4, 9, 4, 5, 10, 3], [True] * size, *states)


def test_the_default_gives_distributions() -> None:
    made, document = reference()
    for step in made.steps(document, 11):
        torch.testing.assert_close(step.final.sum(), number(1), atol=1e-12, rtol=0)
        torch.testing.assert_close(step.probs.sum(), number(1), atol=1e-12, rtol=0)
        assert float(step.probs[9]) > 0  # a word that only the source has


def test_a_first_step_without_history_has_too_little_mass() -> None:
    """Taken literally, the mass of step t is 1 - prod(1 - g)."""
    made, document = reference(first_step="literal")
    left = number(1)
    for step in made.steps(document, 11):
        left = left * (1 - step.g)
        torch.testing.assert_close(step.final.sum(), 1 - left, atol=1e-12, rtol=0)
        wanted = step.generate + (1 - step.generate) * (1 - left)
        torch.testing.assert_close(step.probs.sum(), wanted, atol=1e-12, rtol=0)


def test_as_printed_nothing_keeps_the_mass_at_one() -> None:
    made, document = reference(**LITERAL)
    masses = [float(step.final.sum()) for step in made.steps(document, 11)]
    assert all(abs(mass - 1) > 1e-3 for mass in masses)


@pytest.mark.parametrize(("size", "variation"), [(1024, 0.0005), (256, 0.002)])
def test_a_softmax_over_probabilities_is_nearly_uniform(size: int, variation: float) -> None:
    """What the release's softmax leaves of a chain that holds half of its mass in two places."""
    history = torch.full((size,), 0.5 / size, dtype=torch.float64)
    history[[3, 5]] += 0.25
    uniform = torch.full((size,), 1 / size, dtype=torch.float64)
    assert float(0.5 * (history - uniform).abs().sum()) == pytest.approx(0.5, abs=0.01)
    left = 0.5 * (torch.softmax(history, 0) - uniform).abs().sum()
    assert float(left) == pytest.approx(variation, rel=0.2)


def test_centralities() -> None:
    """Both sum to one over the source; by hand on two words."""
    real = [True, True, True, False]
    attention = torch.softmax(random(4, 4), -1) * torch.tensor(real)
    attention = attention / attention.sum(-1, keepdim=True)
    for kind in ("outdegree", "indegree-1", "indegree-2", "indegree-3"):
        c = centrality_of(attention, real, kind)
        assert float(c.sum()) == pytest.approx(1, abs=1e-5)
        assert float(c[3]) == 0
    two = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(centrality_of(two, [True, True], "outdegree"), torch.tensor([0.375, 0.625]).double())
    first = torch.tensor([(1 / 3 + 0.6) / 2, (2 / 3 + 0.4) / 2]).double()
    torch.testing.assert_close(centrality_of(two, [True, True], "indegree-1"), first, atol=1e-5, rtol=0)
    passed = torch.tensor([[1 / 3, 0.6], [2 / 3, 0.4]]).double() @ first
    second = 0.85 * passed + 0.15 * first
    torch.testing.assert_close(centrality_of(two, [True, True], "indegree-2"), second, atol=1e-5, rtol=0)


def test_the_guidance_loss_is_a_divergence() -> None:
    c = torch.tensor([0.2, 0.3, 0.5, 0.0], dtype=torch.float64)
    real = [True, True, True, False]
    around = [c + torch.tensor([0.1, -0.1, 0.0, 0.0]).double(), c - torch.tensor([0.1, -0.1, 0.0, 0.0]).double()]
    assert float(guidance_loss(around, c, real)) == pytest.approx(0, abs=1e-12)
    one = torch.tensor([1.0, 1e-300, 1e-300, 0.0], dtype=torch.float64)
    assert float(guidance_loss([one], c, real)) == pytest.approx(-float(number(0.2).log()))
