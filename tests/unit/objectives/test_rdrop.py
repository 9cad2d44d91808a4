"""R-drop: the divergence, its bound, and the two passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from catchline.config.names import OBJECTIVES, build
from catchline.config.schema import RunConfig
from catchline.errors import ConfigError
from catchline.objectives.likelihood import two_way_divergence
from catchline.types import UpdateContext
from samples import COVERAGE, random_batch, tiny_seq2seq


def run_of(dropout: float = 0.4, ratio: float = 1.0) -> RunConfig:
    training = {"max_updates": 1, "teacher_forcing": {"ratio": ratio}}
    return RunConfig(name="tiny", model={"type": "seq2seq", "dropout": dropout}, training=training)


def attached(model: Any, run: RunConfig | None = None, **options: Any) -> Any:
    objective = build("objective", OBJECTIVES, {"type": "r_drop", **options})
    objective.attach(model, None, run or run_of())
    return objective


def test_the_divergence_is_that_of_two_way_distributions_and_bounds_the_full_one_from_below() -> None:
    g = torch.Generator().manual_seed(1)
    first, second = (torch.randn(50, 7, generator=g).double().log_softmax(-1) for _ in range(2))
    found = two_way_divergence(first[:, 0], second[:, 0])
    coarse = [torch.stack([each[:, 0], each[:, 1:].logsumexp(-1)], dim=-1) for each in (first, second)]

    def symmetric(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return 0.5 * ((a.exp() - b.exp()) * (a - b)).sum(-1)

    torch.testing.assert_close(found, symmetric(*coarse))
    assert (found <= symmetric(first, second) + 1e-12).all()
    sure = torch.zeros(2, requires_grad=True)
    two_way_divergence(sure, torch.tensor([0.0, -3.0])).sum().backward()
    assert sure.grad is not None
    assert bool(sure.grad.isfinite().all())


def test_the_term_is_the_second_pass_and_the_divergence() -> None:
    model, batch = tiny_seq2seq(dropout=0.4, unk_loss="ignore", **COVERAGE), random_batch()
    objective = attached(model, alpha=2.5)
    torch.manual_seed(4)
    first, second = model(batch), model(batch)
    torch.manual_seed(4)
    term = objective(model(batch), batch)
    a, b, mask = first.gold_log_probs, second.gold_log_probs, first.token_mask
    assert not torch.allclose(a, b)
    values = 2.5 * two_way_divergence(a, b) - b
    torch.testing.assert_close(term.sum, (values * mask).sum())
    torch.testing.assert_close(term.count, mask.sum().double())
    assert float(objective.figures(first, batch)["r_drop_divergence"]) > 0
    term.sum.backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("seed", [None, 5])
def test_the_second_pass_has_noise_of_its_own_and_is_not_observed(seed: int | None) -> None:
    model, batch, seen = tiny_seq2seq(dropout=0.4, **COVERAGE), random_batch(), []
    objective = attached(model)
    objective._model = (lambda batch, context: seen.append(context) or model(batch, context=context),)
    objective(model(batch), batch, UpdateContext(noise_seed=seed, observe=True))
    assert (seen[0].noise_seed is None) == (seed is None)
    assert seen[0].noise_seed != 5
    assert not seen[0].observe


def test_training_makes_the_passes_more_alike() -> None:
    batch = random_batch()
    found = []
    for alpha in (1e-6, 10.0):
        model = tiny_seq2seq(dropout=0.4, **COVERAGE)
        objective, optimizer = attached(model, alpha=alpha), torch.optim.Adam(model.parameters(), lr=0.04)
        torch.manual_seed(1)
        for _ in range(12):
            optimizer.zero_grad()
            term = objective(model(batch), batch)
            (term.sum / term.count).backward()
            optimizer.step()
        with torch.no_grad():
            passes = [(model(batch).gold_log_probs, model(batch).gold_log_probs) for _ in range(8)]
        found.append(sum(float(two_way_divergence(a, b)[batch.target_mask].mean()) for a, b in passes))
    assert found[1] < 0.7 * found[0]


def test_validation_is_the_plain_likelihood() -> None:
    model, batch = tiny_seq2seq(dropout=0.4, **COVERAGE).eval(), random_batch()
    with torch.no_grad():
        output = model(batch)
        assert float(attached(model)(output, batch).sum) == pytest.approx(-float(output.gold_log_probs.sum()))


def test_what_cannot_act_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"set model\.dropout"):
        attached(tiny_seq2seq(), run_of(dropout=0.0))
    silent = run_of().model_copy(update={"model": {"type": "bart"}})  # then the layers are asked
    attached(torch.nn.Dropout(0.1), silent)
    with pytest.raises(ConfigError, match=r"set model\.dropout"):
        attached(torch.nn.Dropout(0.0), silent)
    with pytest.raises(ConfigError, match="teacher_forcing"):
        attached(tiny_seq2seq(dropout=0.4), run_of(ratio=0.5))
