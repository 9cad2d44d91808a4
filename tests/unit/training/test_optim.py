"""Optimizers, schedules and averaged weights against their formulas."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from catchline.config.schema import OptimizerConfig, ScheduleConfig, TrainingConfig
from catchline.errors import ConfigError
from catchline.training.optim import (
    WeightAverage,
    build_optimizer,
    parameter_names,
    schedule_factor,
    set_learning_rate,
    total_updates,
)


def step(config: OptimizerConfig, start: float, gradients: list[float]) -> float:
    parameter = nn.Parameter(torch.tensor([start]))
    optimizer = build_optimizer(config, [parameter])
    for gradient in gradients:
        parameter.grad = torch.tensor([gradient])
        optimizer.step()
    return float(parameter.detach())


def test_adagrad_starts_from_its_accumulator() -> None:
    config = OptimizerConfig(type="adagrad", learning_rate=0.15, epsilon=1e-10)
    value, total = 1.0, 0.1
    for gradient in (0.5, -0.2):
        total += gradient**2
        value -= 0.15 * gradient / math.sqrt(total)
    assert step(config, 1.0, [0.5, -0.2]) == pytest.approx(value, rel=1e-6)


def test_adam() -> None:
    value, m, v = 1.0, 0.0, 0.0
    for count, gradient in enumerate((0.5, -0.2), start=1):
        m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient**2
        value -= 0.01 * (m / (1 - 0.9**count)) / (math.sqrt(v / (1 - 0.99**count)) + 1e-8)
    config = OptimizerConfig(type="adam", learning_rate=0.01, betas=(0.9, 0.99))
    assert step(config, 1.0, [0.5, -0.2]) == pytest.approx(value, rel=1e-6)


def test_adamw_decays_apart_from_the_gradient_and_sgd_has_no_memory() -> None:
    config = OptimizerConfig(type="adamw", learning_rate=0.1, weight_decay=0.5)
    # a first Adam step is the sign of the gradient times the learning rate
    assert step(config, 2.0, [3.0]) == pytest.approx(2.0 * (1 - 0.1 * 0.5) - 0.1, rel=1e-5)
    config = OptimizerConfig(type="sgd", learning_rate=0.1)
    assert step(config, 1.0, [1.0, 1.0]) == pytest.approx(1.0 - 0.1 - 0.1, rel=1e-6)


def test_adadelta() -> None:
    """Zeiler's rule with learning rate 1, rho 0.95 (not torch's 0.9), epsilon 1e-6."""
    value, squares, updates = 1.0, 0.0, 0.0
    gradients = [0.5, -0.2, 0.3, 0.1]
    for gradient in gradients:
        squares = 0.95 * squares + 0.05 * gradient**2
        update = math.sqrt(updates + 1e-6) / math.sqrt(squares + 1e-6) * gradient
        updates = 0.95 * updates + 0.05 * update**2
        value -= update
    config = OptimizerConfig(type="adadelta", learning_rate=1.0, epsilon=1e-6)
    assert 1 - step(config, 1.0, gradients) == pytest.approx(1 - value, rel=1e-3)


QUARTER = (1 + math.cos(math.pi / 4)) / 2
SCHEDULES = [  # settings, updates in all, the factor after so many
    ({"type": "linear", "warmup_updates": 4}, 14, {0: 0.25, 3: 1.0, 8: 0.5, 13: 0.0, 50: 0.0}),
    ({"type": "linear", "warmup_updates": 4}, 12, {4: 7 / 8, 7: 0.5, 11: 0.0, 12: 0.0}),
    ({"type": "linear", "warmup_updates": 4}, 4, {3: 1.0, 4: 0.0}),
    ({"type": "cosine"}, 10, {4: 0.5}),
    ({"type": "cosine", "warmup_updates": 4}, 12, {5: QUARTER, 7: 0.5, 11: 0.0}),
    ({"type": "inverse_sqrt", "warmup_updates": 100}, None, {49: 0.5, 399: 0.5}),
    ({"type": "inverse_sqrt", "warmup_updates": 4}, None, {4: (4 / 5) ** 0.5, 15: 0.5}),
    ({"type": "inverse_sqrt"}, None, {3: 0.5}),
]


@pytest.mark.parametrize(("settings", "total", "expected"), SCHEDULES, ids=str)
def test_schedules(settings: dict[str, Any], total: int | None, expected: dict[int, float]) -> None:
    found = {update: schedule_factor(ScheduleConfig(**settings), update, total) for update in expected}
    assert found == pytest.approx(expected)


def test_schedules_that_stay_or_watch_validation_and_one_that_needs_an_end() -> None:
    assert schedule_factor(ScheduleConfig(), 12345, None) == 1.0
    assert schedule_factor(ScheduleConfig(type="plateau"), 12345, None, 0.25) == 0.25
    assert schedule_factor(ScheduleConfig(type="plateau", warmup_updates=4), 3, None, 0.25) == 1.0  # not yet
    assert schedule_factor(ScheduleConfig(type="sticky", warmup_updates=4), 4, None, 0.125) == 0.125
    with pytest.raises(ConfigError, match=r"max_updates or training\.max_epochs"):
        schedule_factor(ScheduleConfig(type="linear"), 0, None)


def test_the_warm_up_rises_to_one_and_no_further() -> None:
    for start, expected in ((0.0, [0.25, 0.5, 0.75, 1.0]), (0.2, [0.4, 0.6, 0.8, 1.0]), (1.0, [1.0] * 4)):
        for kind in ("constant", "linear", "cosine", "inverse_sqrt", "plateau"):
            config = ScheduleConfig(type=kind, warmup_updates=4, warmup_start=start)
            found = [schedule_factor(config, update, 12) for update in range(4)]
            assert found == pytest.approx(expected)
            assert schedule_factor(config, 4, 12) <= 1.0


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "adadelta", "adam"])
def test_weight_decay_is_added_to_the_gradient(kind: str) -> None:
    """All but AdamW: a gradient of 0.3 with decay 0.1 at 2.0 is a gradient of 0.5; and so on from there."""
    plain = OptimizerConfig(type=kind, learning_rate=0.1 if kind != "adadelta" else 10.0, epsilon=1e-6)
    decayed = plain.model_copy(update={"weight_decay": 0.1})
    first = step(plain, 2.0, [0.5])
    assert step(decayed, 2.0, [0.3, -1.0]) == pytest.approx(step(plain, 2.0, [0.5, -1.0 + 0.1 * first]), rel=1e-6)
    assert abs(step(decayed, 2.0, [0.3, -1.0]) - step(plain, 2.0, [0.3, -1.0])) > 1e-4


def test_groups_by_the_first_pattern_that_matches() -> None:
    model = nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.Linear(1, 1)})
    rates = ({"match": "a.weight", "factor": 0.5}, {"match": "*.weight", "factor": 0.1})
    optimizer = build_optimizer(OptimizerConfig(type="sgd", learning_rate=1.0, rates=rates), model)
    assert [(g["names"], g["factor"]) for g in optimizer.param_groups] == [
        (["a.weight"], 0.5),
        (["b.weight"], 0.1),
        (["a.bias", "b.bias"], 1.0),
    ]
    assert parameter_names(optimizer) == ["a.weight", "b.weight", "a.bias", "b.bias"]
    set_learning_rate(optimizer, 0.2)
    assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([0.1, 0.02, 0.2])
    with pytest.raises(ConfigError, match=r"'c\.\*' matches no parameter; there are: a\.weight"):
        build_optimizer(OptimizerConfig(rates=({"match": "c.*", "factor": 2.0},)), model)
    twice = ({"match": "a.*", "factor": 0.5}, {"match": "a.w*", "factor": 0.1})
    with pytest.raises(ConfigError, match=r"there are: none that the patterns before 'a\.w\*' do not match too"):
        build_optimizer(OptimizerConfig(rates=twice), model)


def test_total_updates() -> None:
    assert total_updates(TrainingConfig(max_updates=50, max_epochs=3), lambda passes: 20 * passes) == 50
    assert total_updates(TrainingConfig(max_updates=90, max_epochs=3), lambda passes: 20 * passes) == 60
    assert total_updates(TrainingConfig(max_minutes=1), lambda passes: 20 * passes) is None


def test_the_average_is_a_plain_mean_first_then_exponential() -> None:
    model = nn.Linear(1, 1, bias=False)
    average = WeightAverage(model, horizon=3)
    expected = 0.0
    for update, value in enumerate((2.0, 4.0, 9.0, 1.0, -5.0), start=1):
        with torch.no_grad():
            model.weight.fill_(value)
        average.update()
        expected += (value - expected) / min(update, 3)
        if update <= 3:
            assert expected == pytest.approx(sum((2.0, 4.0, 9.0)[:update]) / update)
        assert float(average.mean["weight"]) == pytest.approx(expected, rel=1e-6)


def test_the_models_own_weights_come_back() -> None:
    model = nn.Linear(2, 2)
    average = WeightAverage(model, horizon=2)
    with torch.no_grad():
        model.weight.add_(1.0)
    with average.applied():  # nothing averaged yet: the model as it is
        assert not torch.equal(model.weight, average.mean["weight"])
    average.update()
    with torch.no_grad():
        model.weight.add_(1.0)
    own = model.weight.detach().clone()

    def fail() -> None:
        with average.applied():
            assert torch.equal(model.weight, average.mean["weight"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert torch.equal(model.weight, own)
