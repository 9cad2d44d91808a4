"""Phases: a pure function of the update; switching loses neither function nor optimizer state."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.schema import RunConfig
from catchline.errors import ConfigError
from catchline.training.data import pairs_of
from catchline.training.log import RunLog, read_log
from catchline.training.loop import StopRequest
from catchline.training.optim import Phases, limits_of

COVERAGE_LATER = {
    "model.attention": {"coverage_from_start": False},
    "training.phases": [
        {"name": "plain", "until": 3, "objective_weights": {"coverage": 0.0}},
        {"name": "coverage", "model": {"coverage": True}, "objective_weights": {"coverage": 1.0}},
    ],
}


def phases_of(run: RunConfig) -> Phases:
    return Phases(run.training, run.text, lambda limits: 10)


def test_what_is_not_named_is_kept(make_run: Any) -> None:
    given = [
        {"name": "a", "until": 2, "max_source_tokens": 4, "freeze": ["embedding*"], "learning_rate": 0.5},
        {"name": "b", "until": 5, "max_target_tokens": 3, "objective_weights": {"coverage": 0.5}},
        {"name": "c", "max_source_tokens": 10, "reset_optimizer": True},
    ]
    phases = phases_of(make_run(**{"training.phases": given}))
    assert [phases[phases.at(update)].name for update in range(7)] == ["a", "a", "b", "b", "b", "c", "c"]
    a, b, c = (phases[index] for index in range(3))
    assert list(map(limits_of, (a, b, c))) == [(4, 5), (4, 3), (10, 3)]
    assert (a.freeze, b.freeze) == (("embedding*",), ())
    assert (a.learning_rate, c.learning_rate) == (0.5, 0.5)
    assert (a.objective_weights, c.objective_weights) == ({}, {"coverage": 0.5})
    assert (b.reset_optimizer, c.reset_optimizer) == (False, True)
    none = phases_of(make_run())
    assert (none.at(100), none[0].name, limits_of(none[0])) == (0, "", (10, 5))


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ([{"until": 3}, {"until": 3}], "until"),
        ([{}, {"until": 5}], "until"),
        ([{"until": 4}, {"until": 2}], "until"),
        ([{"max_source_tokens": 50}], r"text.max_source_tokens = 10"),
        ([{"until": 3}, {"model": {"coverige": True}}], "no switch 'coverige'"),
        ([{"until": 3}, {"objective_weights": {"coverige": 1.0}}], "Did you mean 'coverage'"),
        ([{"until": 3}, {"freeze": ["no_such.*"]}], "'no_such"),
        ([{"until": 3}, {"freeze": ["*"]}], "match every parameter"),
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
    with StopRequest() as stop:
        for _ in range(updates):
            trainer._enter_phase()
            trainer._update(stop)
    trainer.log.close()


def optimizer_tensors(trainer: Any) -> dict[tuple[int, str], torch.Tensor]:
    state = trainer.optimizer.state_dict()["state"]
    return {(index, key): value.clone() for index, entry in state.items() for key, value in entry.items()}


def test_coverage_switch_on_keeps_function_and_optimizer(make_trainer: Any) -> None:
    trainer = make_trainer(**COVERAGE_LATER)
    data = trainer.parts.train_set
    batch = pairs_of(trainer.parts.collator, [data[index] for index in range(6)])
    advance(trainer, 3)
    trainer.model.eval()
    assert trainer.model(batch).coverage_losses is None
    weights = {name: p.clone() for name, p in trainer.model.named_parameters()}
    before, log_probs = optimizer_tensors(trainer), trainer.model(batch).gold_log_probs
    trainer._enter_phase()
    assert trainer.phase.name == "coverage"
    assert trainer.model.switches()["coverage"] is True
    assert all(torch.equal(p, weights[name]) for name, p in trainer.model.named_parameters())
    after = optimizer_tensors(trainer)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    output = trainer.model(batch)
    assert output.coverage_losses is not None
    # w_c starts at zero, so the function is the same before the first update with coverage
    torch.testing.assert_close(output.gold_log_probs, log_probs)
    trainer.model.train()
    advance(trainer, 2)
    trained = [index for index, (name, _) in enumerate(trainer.model.named_parameters()) if "coverage" in name]
    assert trained
    assert all((index, "exp_avg") in optimizer_tensors(trainer) for index in trained)


def test_trying_the_phases_on_leaves_no_trace(make_trainer: Any) -> None:
    phases = [{"name": "a", "until": 3}, {"name": "b", "model": {"coverage": False}, "freeze": ["encoder.*"]}]
    trainer = make_trainer(**{"training.phases": phases})
    assert trainer.model.switches()["coverage"] is True
    assert all(p.requires_grad for p in trainer.model.parameters())


def test_reset_optimizer(make_trainer: Any) -> None:
    phases = [{"name": "a", "until": 3}, {"name": "b", "reset_optimizer": True, "learning_rate": 1e-5}]
    trainer = make_trainer(**{"training.phases": phases})
    advance(trainer, 3)
    assert optimizer_tensors(trainer)
    trainer._enter_phase()
    assert not optimizer_tensors(trainer)
    advance(trainer, 1)
    assert trainer.optimizer.param_groups[0]["lr"] == 1e-5
    assert {float(v) for (_, key), v in optimizer_tensors(trainer).items() if key == "step"} == {1.0}


def test_size_cnndm_begins_adagrad_anew_with_coverage(make_trainer: Any) -> None:
    """As See et al.'s conversion, which restores everything but Adagrad's sums."""
    run = resolve_run(load_recipe("headline_writer"), "pointer-generator-coverage", "cnndm")
    phases = [phase.model_dump() for phase in run.training.phases]
    optimizer = run.training.optimizer.model_dump()
    trainer = make_trainer(
        **COVERAGE_LATER | {"training.phases": [phases[0] | {"until": 3}, phases[1]], "training.optimizer": optimizer}
    )
    advance(trainer, 3)
    weights = {name: p.clone() for name, p in trainer.model.named_parameters()}
    sums = {key: value for key, value in optimizer_tensors(trainer).items() if key[1] == "sum"}
    assert any(bool(value.ne(0.1).any()) for value in sums.values())
    trainer._enter_phase()
    assert trainer.phase.model == {"coverage": True}
    assert all(bool(v.eq(0.1).all()) for key, v in optimizer_tensors(trainer).items() if key[1] == "sum")
    assert all(torch.equal(p, weights[name]) for name, p in trainer.model.named_parameters())


def test_freezing_and_thawing(make_trainer: Any) -> None:
    phases = [{"name": "head", "until": 2, "freeze": ["encoder.*", "embedding.weight"]}, {"name": "all"}]
    trainer = make_trainer(**{"training.phases": phases, "training.optimizer.weight_decay": 0.1})
    start = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}

    def moved() -> set[str]:
        return {name for name, p in trainer.model.named_parameters() if not torch.equal(p.detach(), start[name])}

    advance(trainer, 2)
    assert moved()
    assert not any(name.startswith(("encoder.", "embedding.")) for name in moved())
    advance(trainer, 1)
    assert any(name.startswith("encoder.") for name in moved())


def test_a_tracker_that_is_not_installed(make_trainer: Any) -> None:
    with pytest.raises(ConfigError, match="aim is not installed"):
        make_trainer(**{"training.trackers": ["aim"]})


def test_parameters_frozen_by_the_model_stay_frozen(make_trainer: Any) -> None:
    phases = [{"name": "a", "freeze": ["bridge*"]}]
    trainer = make_trainer(**{"model.freeze_embeddings": True, "training.phases": phases})
    trainer._enter_phase()
    assert not trainer.model.embedding.weight.requires_grad


def test_limits_start_a_new_pass_with_other_batches(make_trainer: Any) -> None:
    short = {"name": "short", "until": 2, "max_source_tokens": 4, "max_target_tokens": 2}
    phases = [short, {"name": "long", "max_source_tokens": 10}]
    trainer = make_trainer(**{"training.phases": phases})
    seen: list[Any] = []
    take = trainer.stream.take
    trainer.stream.take = lambda epoch, position: seen.append(((epoch, position), take(epoch, position))) or seen[-1][1]
    advance(trainer, 3)
    places, batches = [place for place, _ in seen], [group[0] for _, group in seen]
    assert places == [(0, 0), (0, 1), (1, 0)]
    assert [batch.source_ids.shape[1] <= 4 for batch in batches] == [True, True, False]
    assert all(batch.target_ids.shape[1] <= 2 for batch in batches)


def test_passes_are_counted_under_the_limits_of_their_phase(make_trainer: Any) -> None:
    """Of short texts a batch of so many tokens holds more; the rate falls to the end of the last pass."""
    phases = [
        {"name": "short", "until_epoch": 2, "max_source_tokens": 3},
        {"name": "cut", "until": 9, "max_source_tokens": 3},
        {"name": "long", "max_source_tokens": 10},
    ]
    ends = {"max_updates": None, "max_epochs": 5, "schedule": {"type": "linear"}}
    trainer = make_trainer(training={"batch_tokens": 60, "log_every": 1, "phases": phases} | ends)
    trainer.fit()
    lines = [entry for entry in read_log(trainer.out / "log.jsonl") if entry["kind"] == "train"]
    epochs = {name: [line["epoch"] for line in lines if line["phase"] == name] for name in ("short", "cut", "long")}
    assert epochs["short"][-1] == 2.0
    assert epochs["long"][0] > 3.0  # the pass that was cut short counts
    assert epochs["long"][-1] == 5.0
    assert len(epochs["long"]) > len(epochs["short"])
    assert trainer.total == len(lines)
    assert lines[-1]["lr"] < 0.1 * lines[0]["lr"]


def test_when_the_loss_changes_best_starts_again_and_a_sticky_rate_does_not_fall(make_trainer: Any) -> None:
    changes = {"training.validation.every_updates": 1, "training.schedule": {"type": "sticky"}}
    trainer = make_trainer(**COVERAGE_LATER, **changes, **{"training.early_stopping.patience": 50})
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
