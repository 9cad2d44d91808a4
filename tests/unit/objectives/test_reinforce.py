"""REINFORCE by hand: what the baseline moves by, what is subtracted, what the draws are divided by."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.config.names import OBJECTIVES, build
from catchline.objectives.reinforce import Reinforce
from catchline.types import ModelOutput, TrainingBatch

MASK = torch.tensor([[True, True], [True, True], [True, False], [True, True]])
REWARDS = torch.tensor([[-1.0, -2.0], [-2.0, -4.0], [-3.0, 0.0], [-6.0, -6.0]])  # means -3 and -4
POLICY = torch.tensor([[-0.5, -1.0], [-1.5, -0.1], [-0.2, 0.0], [-0.3, -0.4]])


def reinforce(**options: Any) -> Reinforce:
    objective: Reinforce = build("objective", OBJECTIVES, {"type": "reinforce", **options})
    return objective


def passed(
    rows: slice = slice(None), *, draws: int | None = None, hard: bool = True
) -> tuple[ModelOutput, TrainingBatch]:
    details: dict[str, Tensor] = {"policy_log_prob": POLICY[rows].clone().requires_grad_()} if hard else {}
    if draws is not None:
        details["draws"] = torch.tensor(float(draws))
    mask, ids = MASK[rows], torch.zeros_like(MASK[rows], dtype=torch.int64)
    batch = TrainingBatch(ids, ids, mask, 5, target_input_ids=ids, target_ids=ids, target_mask=mask)
    return ModelOutput(REWARDS[rows], details=details), batch


def learnt(objective: Reinforce, *parts: slice, hard: bool = True) -> list[float]:
    """The baseline of the first two steps after an update of these micro-batches."""
    for rows in parts or (slice(None),):
        objective.see(*passed(rows, hard=hard))
    objective.seen()
    return [pytest.approx(value, abs=1e-6) for value in objective.baseline[:2].tolist()]


def advantages(objective: Reinforce, **options: Any) -> Tensor:
    """A_t / norm, from the gradient by the draws' log-probabilities."""
    output, batch = passed(**options)
    term = objective(output, batch)
    assert float(term.count) == 4
    (gradient,) = torch.autograd.grad(term.sum, output.details["policy_log_prob"])
    return -gradient


@pytest.mark.parametrize("parts", [[slice(0, 4)], [slice(0, 2), slice(2, 4)], [slice(n, n + 1) for n in range(4)]])
def test_the_baseline_moves_once_an_update(parts: list[slice]) -> None:
    objective = reinforce()
    assert learnt(objective, *parts) == [-0.3, -0.4]
    assert learnt(objective, *parts) == [-0.57, -0.76]
    assert int(objective.updates) == 2


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A baseline that is the last minibatch's mean."""
    monkeypatch.setattr("catchline.objectives.reinforce.BASELINE_RATE", 1.0)


def test_where_the_baseline_starts() -> None:
    """``zero``: a tenth of the way from 0; ``first_batch``: at the first minibatch's mean, then a tenth of the way."""
    tenth, whole = reinforce(), reinforce(baseline_init="first_batch")
    assert learnt(tenth) == [-0.3, -0.4]
    assert learnt(whole) == [-3.0, -4.0]
    assert learnt(tenth, slice(0, 2)) == [-0.42, -0.66]  # towards -1.5 and -3
    assert learnt(whole, slice(0, 2)) == [-2.85, -3.9]


@pytest.mark.usefixtures("at_once")
def test_ended_targets_count_as_zero_or_not_at_all() -> None:
    assert learnt(reinforce()) == [-3.0, -4.0]
    for parts in ([slice(0, 4)], [slice(0, 2), slice(2, 3), slice(3, 4)]):
        assert learnt(reinforce(baseline_mean="all"), *parts) == [-3.0, -3.0]
    cut = reinforce(baseline_mean="all")  # a micro-batch whose targets all end after one step
    for rows, width in ((slice(0, 2), 2), (slice(2, 3), 1), (slice(3, 4), 2)):
        output, batch = passed(rows)
        output.gold_log_probs, batch.target_mask = output.gold_log_probs[:, :width], batch.target_mask[:, :width]
        cut.see(output, batch)
    cut.seen()
    assert cut.baseline[:2].tolist() == [-3.0, -3.0]


@pytest.mark.usefixtures("at_once")
def test_the_longest_micro_batch_says_how_many_entries_move() -> None:
    objective = reinforce()
    for width in (1, 3):
        mask, ids = torch.ones(2, width, dtype=torch.bool), torch.zeros(2, width, dtype=torch.int64)
        batch = TrainingBatch(ids, ids, mask, 5, target_input_ids=ids, target_ids=ids, target_mask=mask)
        objective.see(ModelOutput(torch.full((2, width), -float(width))), batch)
    objective.seen()
    assert objective.baseline[:4].tolist() == [-2.0, -3.0, -3.0, 0.0]


@pytest.mark.usefixtures("at_once")
def test_a_baseline_of_returns() -> None:
    """G_1 = r_1 + r_2 / 2: -2, -4, -3, -9."""
    objective = reinforce(baseline_of="return", discount=0.5, scale=2.0)
    assert learnt(objective) == [-4.5, -4.0]
    expected = 2.0 * torch.tensor([[2.5, 2.0], [0.5, 0.0], [1.5, 0.0], [-4.5, -2.0]])
    torch.testing.assert_close(advantages(objective), expected)


def test_soft_minibatches_move_the_baseline_unless_told_otherwise() -> None:
    assert learnt(reinforce(), hard=False) == [-0.3, -0.4]
    objective = reinforce(baseline_update="hard_only", baseline_init="first_batch")
    assert learnt(objective, hard=False) == [0.0, 0.0]
    assert learnt(objective) == [-3.0, -4.0], "a minibatch that was left out is not the first"


@pytest.mark.usefixtures("at_once")
def test_later_steps_share_the_last_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catchline.objectives.reinforce.MAX_STEPS", 1)
    objective = reinforce()
    objective.see(*passed())
    objective.seen()
    assert objective.baseline.tolist() == [pytest.approx(-24 / 7)]


@pytest.mark.usefixtures("at_once")
def test_what_is_subtracted() -> None:
    """``update_first``: the baseline with this minibatch in it; ``subtract_first``: the one before."""
    options = {"discount": 0.0, "scale": 1.0}
    for order, baseline in (("update_first", [-3.0, -4.0]), ("subtract_first", [0.0, 0.0])):
        objective = reinforce(baseline_order=order, **options)
        learnt(objective)
        torch.testing.assert_close(advantages(objective), (REWARDS - torch.tensor(baseline)) * MASK)
        with torch.no_grad():  # validation: there is no update, so there is one baseline
            term = objective(*passed())
        expected = -((REWARDS - torch.tensor([-3.0, -4.0])) * MASK * POLICY).sum()
        assert float(term.sum) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize(("norm", "divisor"), [("joint", 1), ("mean", 3), ("code", 9)])
def test_what_several_draws_are_divided_by(norm: str, divisor: int) -> None:
    options = {"discount": 0.0, "scale": 1.0}
    torch.testing.assert_close(advantages(reinforce(policy_norm=norm, **options), draws=3), REWARDS * MASK / divisor)
    torch.testing.assert_close(advantages(reinforce(policy_norm=norm, **options)), REWARDS * MASK)


@pytest.mark.usefixtures("at_once")
def test_figures_of_the_log() -> None:
    """The advantages of the seven draws are 2, 2; 1, 0; 0; -3, -2."""
    objective = reinforce(discount=0.0, scale=1.0)
    learnt(objective)
    figures = {name: float(value) for name, value in objective.figures(*passed()).items()}
    expected = {"baseline_1": -3.0, "advantage_mean": 0.0, "advantage_std": (22 / 7) ** 0.5}
    assert figures == pytest.approx(expected, abs=1e-6)
