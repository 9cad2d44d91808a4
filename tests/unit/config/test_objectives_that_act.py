"""An objective or an option that would never have anything to act on is refused before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import _IDLE, OBJECTIVES, check_run, parse, without_effect
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


@pytest.mark.parametrize(
    ("kind", "option", "value", "read"),
    [
        ("adam", "momentum", 0.9, False),
        ("sgd", "epsilon", 1e-6, False),
        ("adagrad", "betas", (0.5, 0.9), False),
        ("adamw", "rho", 0.9, False),
        ("adadelta", "initial_accumulator", 0.5, False),
        ("adadelta", "rho", 0.9, True),
        ("sgd", "momentum", 0.9, True),
        ("adamw", "betas", (0.5, 0.9), True),
        ("adam", "momentum", 0.0, True),
    ],
)
def test_an_option_that_the_optimizer_does_not_read_is_refused(kind: str, option: str, value: Any, read: bool) -> None:
    run = run_of("coverage", {"type": "seq2seq", **COVERAGE}, optimizer={"type": kind, option: value})
    if read:
        check_run(run)
        return
    with pytest.raises(
        ConfigError, match=rf"training\.optimizer\.{option} does nothing with {kind}, it is an option of"
    ):
        check_run(run)


# a setting, where that has no effect, and where it has one
IDLE = {
    "search.length_alpha=2": ("search.length_normalisation=average", "search.length_normalisation=gnmt"),
    "search.coverage_beta=2": ("search.coverage_penalty=none", "search.coverage_penalty=wu"),
    "search.diversity_strength=2": ("search.beam_size=2", "search.diverse_groups=2"),
    "search.choose=rerank": ("search.beam_size=1", "search.beam_size=2"),
    "search.min_length_share=0.1": ("search.min_length=0", "search.min_length=2"),
    "search.capitals=title": ("search.surface=raw", "search.surface=clean"),
    "search.no_repeat_word=true": ("text.tokenizer.type=bpe", "text.tokenizer.type=word"),
    "search.revisions=1": ("text.tokenizer.type=character", "text.tokenizer.type=word"),
    "text.pretrained_missing=zeros": ("text.pretrained_embeddings=null", "text.pretrained_embeddings=vectors.txt"),
    "training.schedule.warmup_start=0.1": ("training.schedule.warmup_updates=0", "training.schedule.warmup_updates=5"),
    "training.schedule.final_factor=0.1": ("training.schedule.type=constant", "training.schedule.type=linear"),
    "training.schedule.plateau_factor=0.1": ("training.schedule.type=linear", "training.schedule.type=sticky"),
    "training.teacher_forcing.scope=sequence": ("training.teacher_forcing.ratio=1", "training.teacher_forcing.ratio=0"),
    "training.teacher_forcing.feed=sample": ("training.teacher_forcing.ratio=1", "training.teacher_forcing.ratio=0"),
    "training.early_stopping.min_delta=1": (
        "training.early_stopping.patience=null",
        "training.early_stopping.patience=2",
    ),
    "model.encoder_hidden=8": ("model.bert.layers=1", "model.bert=null"),
    "model.bidirectional=false": ("model.bert.layers=1", "model.bert=null"),
    "model.attention.coverage_init=default": ("model.attention.size=8", "model.attention.coverage=true"),
    "model.attention.coverage_from_start=false": ("model.attention.size=8", "model.attention.coverage=true"),
    "model.attention.detach_coverage=true": ("model.attention.coverage=false", "model.attention.coverage=true"),
}


@pytest.mark.parametrize("setting", IDLE)
def test_a_setting_that_another_takes_the_effect_of_is_told(setting: str) -> None:
    recipe = load_recipe("headline_writer")
    off, on = (
        without_effect(resolve_run(recipe, "pointer-generator", "tiny", ["search.beam_size=2", setting, other]))
        for other in IDLE[setting]
    )
    key = setting.partition("=")[0]
    assert f"{key} does nothing while " in off
    assert key not in on
    assert {name.partition("=")[0] for name in IDLE} == {key for key, _, _ in _IDLE}
