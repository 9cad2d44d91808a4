"""An objective or an option that would never have anything to act on is refused before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import OBJECTIVES, check_run, parse
from catchline.config.schema import RunConfig
from catchline.errors import ConfigError
from catchline.training.run import train

COVERAGE = {"attention": {"type": "additive", "coverage": True}}
LATER = {"type": "additive", "coverage": True, "coverage_from_start": False}
OPPONENT = {"opponent": {"type": "max", "layer": 0, "head": 0}}
PLAIN = {"type": "vocabulary"}
CASES: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
    # objective, a model that lacks what it needs, what gives it (none: another model)
    ("coverage", {"type": "seq2seq", "attention": {"type": "distraction"}}, COVERAGE),
    ("coverage", {"type": "seq2seq", "attention": None, "head": PLAIN}, COVERAGE),
    ("coverage", {"type": "distraction"}, COVERAGE),
    ("coverage", {"type": "transformer"}, None),
    ("opponent", {"type": "transformer"}, OPPONENT),
    ("minus_softmax", {"type": "bart"}, OPPONENT),
    ("guidance", {"type": "transformer", "head": {"type": "pointer"}}, {"head": {"type": "guided"}}),
    (
        "reinforce",
        {"type": "coarse_to_fine", "attention": {"type": "standard"}},
        {"attention": {"type": "coarse_to_fine"}},
    ),
    ("reinforce", {"type": "seq2seq"}, None),
]


def run_of(objective: str, model: dict[str, Any], **training: Any) -> RunConfig:
    objectives = [{"type": "nll"}, {"type": objective}]
    return RunConfig(name="x", model=model, objectives=objectives, training={"max_updates": 9, **training})


@pytest.mark.parametrize(("objective", "model", "more"), CASES, ids=str)
def test_what_never_acts_is_refused(objective: str, model: dict[str, Any], more: dict[str, Any] | None) -> None:
    with pytest.raises(ConfigError, match=f"The objective '{objective}' needs .*: set model.*, or leave"):
        check_run(run_of(objective, model))
    if more is not None:
        check_run(run_of(objective, {k: v for k, v in model.items() if k not in more} | more))


def test_every_objective_that_needs_something_has_a_case() -> None:
    configs: dict[str, Any] = {name: parse("objective", OBJECTIVES, {"type": name})[1] for name in OBJECTIVES}
    assert {name for name, config in configs.items() if config.needs} == {objective for objective, _, _ in CASES}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_any_weight_from_zero_on_is_a_weight(name: str) -> None:
    for weight in (0, 0.001, 1, 7.5):
        assert parse("objective", OBJECTIVES, {"type": name, "weight": weight})[1].weight == weight


def test_coverage_that_a_phase_switches_on_acts() -> None:
    phases = [{"name": "a", "until": 3, "model": {"coverage": False}}, {"name": "b", "model": {"coverage": True}}]
    check_run(run_of("coverage", {"type": "seq2seq", "attention": LATER}, phases=phases))
    for left in ([], phases[:1]):
        with pytest.raises(ConfigError, match="coverage"):
            check_run(run_of("coverage", {"type": "seq2seq", "attention": LATER}, phases=left))


def test_another_attention_in_the_row_with_coverage(tmp_path: Path) -> None:
    """Coverage goes with the attention that had it, and the row's objective says so instead of being zero for ever."""
    recipe = load_recipe("headline_writer")
    changed = {"model.attention": {"type": "distraction"}}
    with pytest.raises(ConfigError, match="needs attention that keeps coverage"):
        train(resolve_run(recipe, "pointer-generator-coverage", "tiny", changed), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    check_run(resolve_run(recipe, "pointer-generator", "tiny", changed))
