"""Optimizers, schedules and averages against their formulas; phases."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from runs import collate
from torch import nn

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.schema import OptimizerConfig, PhaseConfig, ScheduleConfig, TrainingConfig
from catchline.errors import ConfigError
from catchline.training.log import RunLog, read_log
from catchline.training.loop import stop_signals
from catchline.training.optim import (
    Phases,
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


GRADIENTS = [0.5, -0.2, 0.3, 0.1]


def adagrad() -> float:
    """From its accumulator."""
    value, total = 1.0, 0.1
    for gradient in GRADIENTS:
        total += gradient**2
        value -= 0.15 * gradient / math.sqrt(total)
    return value


def adam() -> float:
    value, m, v = 1.0, 0.0, 0.0
    for count, gradient in enumerate(GRADIENTS, start=1):
        m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient**2
        value -= 0.01 * (m / (1 - 0.9**count)) / (math.sqrt(v / (1 - 0.99**count)) + 1e-8)
    return value


def adadelta() -> float:
    """Zeiler's rule with learning rate 1, rho 0.95 (not torch's 0.9), epsilon 1e-6."""
    value, squares, updates = 1.0, 0.0, 0.0
    for gradient in GRADIENTS:
        squares = 0.95 * squares + 0.05 * gradient**2
        update = math.sqrt(updates + 1e-6) / math.sqrt(squares + 1e-6) * gradient
        updates = 0.95 * updates + 0.05 * update**2
        value -= update
    return value


@pytest.mark.parametrize(
    ("settings", "gradients", "value"),
    [
        ({"type": "adagrad", "learning_rate": 0.15, "epsilon": 1e-10}, GRADIENTS, adagrad()),
        ({"type": "adam", "learning_rate": 0.01, "betas": (0.9, 0.99)}, GRADIENTS, adam()),
        ({"type": "adadelta", "learning_rate": 1.0, "epsilon": 1e-6}, GRADIENTS, adadelta()),
        # AdamW decays apart from the gradient; a first step is the sign of the gradient times the learning rate
        ({"type": "adamw", "learning_rate": 0.1, "weight_decay": 0.5}, [3.0], 1.0 * (1 - 0.1 * 0.5) - 0.1),
        ({"type": "sgd", "learning_rate": 0.1}, [1.0, 1.0], 1.0 - 0.1 - 0.1),  # no memory
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_optimizers_follow_their_formulas(settings: dict[str, Any], gradients: list[float], value: float) -> None:
    assert 1 - step(OptimizerConfig(**settings), 1.0, gradients) == pytest.approx(1 - value, rel=1e-3)


SCHEDULES = [  # settings, updates in all, the factor after so many
    ({"type": "linear", "warmup_updates": 4}, 14, {0: 0.25, 3: 1.0, 8: 0.5, 13: 0.0, 50: 0.0}),
    ({"type": "linear", "warmup_updates": 4}, 12, {4: 7 / 8, 7: 0.5, 11: 0.0, 12: 0.0}),
    ({"type": "linear", "warmup_updates": 4}, 4, {3: 1.0, 4: 0.0}),
    ({"type": "inverse_sqrt", "warmup_updates": 100}, None, {49: 0.5, 399: 0.5}),
    ({"type": "inverse_sqrt", "warmup_updates": 4}, None, {4: (4 / 5) ** 0.5, 15: 0.5}),
    ({"type": "inverse_sqrt"}, None, {3: 0.5}),
    ({}, None, {12345: 1.0}),
    ({"type": "plateau", "warmup_updates": 4}, None, {3: 1.0, 4: 0.25, 12345: 0.25}),
    ({"type": "sticky", "warmup_updates": 4}, None, {3: 1.0, 4: 0.25}),
    *(
        (
            {"type": kind, "warmup_updates": 4, "warmup_start": start},
            12,
            {n: start + (1 - start) * (n + 1) / 4 for n in range(4)},
        )
        for kind in ("constant", "linear", "inverse_sqrt", "plateau")
        for start in (0.0, 0.2, 1.0)
    ),
]


@pytest.mark.parametrize(("settings", "total", "expected"), SCHEDULES, ids=str)
def test_schedules(settings: dict[str, Any], total: int | None, expected: dict[int, float]) -> None:
    found = {update: schedule_factor(ScheduleConfig(**settings), update, total, 0.25) for update in expected}
    assert found == pytest.approx(expected)


def test_a_schedule_that_needs_an_end() -> None:
    with pytest.raises(ConfigError, match=r"max_updates or training\.max_epochs"):
        schedule_factor(ScheduleConfig(type="linear"), 0, None)


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
    rates = (("a.weight", 0.5), ("*.weight", 0.1))
    optimizer = build_optimizer(OptimizerConfig(type="sgd", learning_rate=1.0, rates=rates), model)
    assert [(g["names"], g["factor"]) for g in optimizer.param_groups] == [
        (["a.weight"], 0.5),
        (["b.weight"], 0.1),
        (["a.bias", "b.bias"], 1.0),
    ]
    assert parameter_names(optimizer) == ["a.weight", "b.weight", "a.bias", "b.bias"]
    set_learning_rate(optimizer, 0.2)
    assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([0.1, 0.02, 0.2])
    for given, said in (
        (("c.*",), r"'c\.\*' matches no parameter; others: a\.weight"),
        (("a.*", "a.w*"), r"'a\.w\*' matches"),
    ):
        with pytest.raises(ConfigError, match=said):
            build_optimizer(OptimizerConfig(rates=tuple((one, 2.0) for one in given)), model)


@pytest.mark.parametrize(
    ("ends", "updates"),
    [({"max_updates": 50}, 50), ({"max_updates": 90}, 60), ({"max_epochs": None, "max_minutes": 1}, None)],
)
def test_total_updates(ends: dict[str, Any], updates: int | None) -> None:
    assert total_updates(TrainingConfig(**{"max_epochs": 3} | ends), 20) == updates


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
    average, own = WeightAverage(model, horizon=2), nn.Parameter(torch.ones(2, 2))

    def applied() -> bool:
        """Is the average the model's for a while?"""
        model.weight.data.copy_(own)
        with average.applied():
            same = torch.equal(model.weight, average.mean["weight"])
        assert torch.equal(model.weight, own)
        return same

    assert not applied(), "nothing averaged yet: the model as it is"
    average.update()
    own.data.add_(1.0)
    assert applied()


COVERAGE_LATER = {
    "model.attention": {"coverage_from_start": False},
    "training.phases": [{"name": "plain", "until": 3}, {"name": "coverage", "model": {"coverage": True}}],
}


def test_what_is_not_named_is_kept() -> None:
    given = [
        {"name": "a", "until": 2, "max_source_tokens": 4},
        {"name": "b", "until_epoch": 1, "max_target_tokens": 3, "model": {"coverage": True}},
        {"name": "c", "max_source_tokens": 10, "reset_optimizer": True},
    ]
    phases = Phases([PhaseConfig(**values) for values in given], 5)
    assert [phases[phases.at(update)].name for update in range(7)] == ["a", "a", "b", "b", "b", "c", "c"]
    kept = [(phase.max_source_tokens, phase.max_target_tokens, phase.model) for phase in (phases[n] for n in range(3))]
    assert kept == [(4, None, {}), (4, 3, {"coverage": True}), (10, 3, {"coverage": True})]
    assert [phases[number].reset_optimizer for number in range(3)] == [False, False, True]
    assert (Phases((), 5).at(100), Phases((), 5)[0].name) == (0, "")


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ([{"until": 3}, {"until": 3}], "until"),
        ([{}, {"until": 5}], "until"),
        ([{"until": 4}, {"until": 2}], "until"),
        ([{"max_source_tokens": 50}], "a phase can read less"),
        ([{"until": 3}, {"model": {"coverige": True}}], "no option 'coverige'"),
    ],
)
def test_what_a_phase_cannot_do_is_refused_before_the_first(
    make_trainer: Any, phases: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_trainer(**{"training.phases": [{"name": str(number), **phase} for number, phase in enumerate(phases)]})


def advance(trainer: Any, updates: int) -> None:
    """Make some updates of the loop by hand."""
    trainer.log = RunLog(trainer.out, trainer.state, trainer.accelerator, trainer.callbacks)
    trainer._started_at = trainer._saved_at = 0.0
    trainer.model.train()
    with stop_signals() as stop:
        for _ in range(updates):
            trainer._enter_phase()
            trainer._update(stop)
    trainer.log.close()


def optimizer_tensors(trainer: Any) -> dict[tuple[int, str], torch.Tensor]:
    state = trainer.optimizer.state_dict()["state"]
    return {(index, key): value.clone() for index, entry in state.items() for key, value in entry.items()}


def test_coverage_switch_on_keeps_function_and_optimizer(make_trainer: Any) -> None:
    trainer = make_trainer(**COVERAGE_LATER)
    assert trainer.model.switches()["coverage"] is False, "trying the phases leaves no trace"
    (batch,) = collate(trainer, range(6))
    advance(trainer, 3)
    trainer.model.eval()
    assert trainer.model(batch).coverage_losses is None
    weights = {name: p.clone() for name, p in trainer.model.named_parameters()}
    before, log_probs = optimizer_tensors(trainer), trainer.model(batch).gold_log_probs
    trainer._enter_phase()
    assert (trainer.phase.name, trainer.model.switches()["coverage"]) == ("coverage", True)
    torch.testing.assert_close(dict(trainer.model.named_parameters()), weights, rtol=0, atol=0)
    torch.testing.assert_close(optimizer_tensors(trainer), before, rtol=0, atol=0)
    output = trainer.model(batch)
    assert output.coverage_losses is not None
    # w_c starts at zero, so the function is the same before the first update with coverage
    torch.testing.assert_close(output.gold_log_probs, log_probs)
    trainer.model.train()
    advance(trainer, 2)
    trained = [index for index, (name, _) in enumerate(trainer.model.named_parameters()) if "coverage" in name]
    assert trained
    assert all((index, "exp_avg") in optimizer_tensors(trainer) for index in trained)


def test_size_cnndm_begins_adagrad_anew_with_coverage(make_trainer: Any) -> None:
    """As See et al.'s conversion, which restores everything but Adagrad's sums."""
    training = resolve_run(load_recipe("headline_writer"), "pointer-generator-coverage", "cnndm").training
    first, second = (phase.model_dump() for phase in training.phases)
    changes = {"training.phases": [first | {"until": 3}, second], "training.optimizer": training.optimizer.model_dump()}
    trainer = make_trainer(**COVERAGE_LATER | changes)

    def sums() -> list[torch.Tensor]:
        return [value for (_, key), value in optimizer_tensors(trainer).items() if key == "sum"]

    advance(trainer, 3)
    assert any(bool(value.ne(0.1).any()) for value in sums())
    trainer._enter_phase()
    assert trainer.phase.model == {"coverage": True}
    assert all(bool(value.eq(0.1).all()) for value in sums())


def test_limits_cut_the_texts_of_the_same_batches(make_trainer: Any) -> None:
    short = {"name": "short", "until": 2, "max_source_tokens": 4, "max_target_tokens": 2}
    trainer = make_trainer(**{"training.phases": [short, {"name": "long", "max_source_tokens": 10}]})
    seen: list[Any] = []
    take = trainer.stream.take
    trainer.stream.take = lambda epoch, position: seen.append(take(epoch, position)[0]) or [seen[-1]]
    advance(trainer, 3)
    assert [batch.source_ids.shape[1] <= 4 for batch in seen] == [True, True, False]
    assert all(batch.target_ids.shape[1] <= 2 for batch in seen)
    whole = make_trainer().stream
    assert [batch.indices for batch in seen] == [whole.take(0, position)[0].indices for position in range(3)]


def test_when_the_loss_changes_best_starts_again_and_a_sticky_rate_does_not_fall(make_trainer: Any) -> None:
    changes = {"training.validation.every_updates": 1, "training.schedule": {"type": "sticky"}}
    trainer = make_trainer(**COVERAGE_LATER, **changes, **{"training.early_stopping": 50})
    result = trainer.fit()
    lines = [entry for entry in read_log(trainer.out / "log.jsonl") if entry["kind"] == "validation"]
    # update 3 is validated with the plain loss, update 4 is the first of the coverage phase: best in its own right
    assert lines[3]["val_loss_tf"] > lines[2]["val_loss_tf"]
    assert lines[3]["best"]
    assert result.best_update is not None
    assert result.best_update > 3
    assert {entry["phase"] for entry in lines} == {"plain", "coverage"}
    assert all(later["val_loss_tf"] < one["val_loss_tf"] for one, later in pairwise(lines[3:]))
    assert trainer.state.plateau_factor == 1.0
