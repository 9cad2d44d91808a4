"""Names of components, keys that were misspelt, objectives that act, and code that folders name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from catchline.config import names
from catchline.config.base import ConfigBase, place_of_key, validate
from catchline.config.loading import first_difference, load_recipe, resolve_run
from catchline.config.names import MODELS, OBJECTIVES, check_run, outside_names, parse, refuse_code, trusting
from catchline.config.schema import RunConfig, SearchConfig
from catchline.errors import ConfigError


class Outside:
    class Config(ConfigBase):
        size: int = 3

    def __init__(self, config: Config, *, width: int = 0) -> None:
        self.config, self.width = config, width


TABLE = {"outside": f"{__name__}:Outside", "lost": "catchline.nowhere:Lost", "gone": "catchline.types:Gone"}


def test_a_name_is_resolved_and_built() -> None:
    spec = {"type": "outside", "size": 5}
    built = names.build("thing", TABLE, spec, width=7)
    assert spec == {"type": "outside", "size": 5}, "left alone"
    assert isinstance(built, Outside)
    assert (built.config.size, built.width) == (5, 7)
    # a class outside of the tables needs no entry
    assert names.parse("thing", {}, {"type": f"{__name__}:Outside"}) == (Outside, Outside.Config(size=3))


def test_a_module_of_the_working_directory_needs_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_my_own.py").write_text(f"from {__name__} import Outside as Mine\n")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.chdir(tmp_path)
    cls, _ = names.parse("thing", {}, {"type": "of_my_own:Mine"})
    assert cls is Outside


def test_modules_from_outside_are_found_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "not_read.py").write_text("raise SystemExit")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.chdir(tmp_path)
    spec = {"model": {"type": "not_read:Model", "head": {"type": "not_read:Head"}}, "search": [{"type": "no.such:X"}]}
    assert names.sources_of(spec) == [tmp_path / "not_read.py"]
    assert names.sources_of([{"type": "seq2seq"}, {"type": "sys:X"}, {"type": ":X"}, {"type": ".names:X"}, None]) == []


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"type": "outsid"}, "Unknown thing 'outsid'. Did you mean 'outside'?"),
        ({"size": 1}, "A thing needs a 'type'"),
        ({"type": "outside", "sise": 1}, "Unknown key 'thing.sise'. Did you mean 'size'?"),
        ({"type": "outside", "size": "big"}, "'thing.size'"),
        ({"type": "lost"}, "could not be loaded"),
        ({"type": "gone"}, "could not be loaded"),
    ],
)
def test_mistakes(spec: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        names.parse("thing", TABLE, spec)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("learning_rate", "training.optimizer.learning_rate"),
        ("training.learning_rate", "training.optimizer.learning_rate"),
        ("training.learning-rat", "training.optimizer.learning_rate"),
        ("training.max_epoch", "training.max_epochs"),
        ("batch_size", "training.batch_size"),
        ("search.beam", "search.beam_size"),
        ("hidden_size", "model.hidden_size"),
        ("coverage", "model.attention.coverage"),
        ("max_vocabulary", "text.tokenizer.max_vocabulary"),
    ],
)
def test_what_was_meant(key: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_run(resolve_run(load_recipe("headline_writer"), "pointer-generator-coverage", "tiny", [f"{key}=1"]))
    assert f"Did you mean '{meant}'?" in str(caught.value)


def test_a_section_alone_is_named_without_its_section() -> None:
    with pytest.raises(ConfigError, match=r"'search.beam'. Did you mean 'beam_size'"):
        validate(SearchConfig, {"beam": 3}, where="search")
    assert place_of_key("zzz", RunConfig, []) == "", "no hint"


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


def test_coverage_that_a_phase_switches_on_acts() -> None:
    phases = [{"name": "a", "until": 3, "model": {"coverage": False}}, {"name": "b", "model": {"coverage": True}}]
    check_run(run_of("coverage", {"type": "seq2seq", "attention": LATER}, phases=phases))
    for left in ([], phases[:1]):
        with pytest.raises(ConfigError, match="coverage"):
            check_run(run_of("coverage", {"type": "seq2seq", "attention": LATER}, phases=left))


NAMED = {
    "model": {"type": "seq2seq", "attention": {"type": "mine:Attention"}},
    "search": {"scorers": [{"type": "mine:Scorer"}, {"type": "renormalise"}]},
    "pretraining": {"set": {"model.head.type": "mine:Head", "data.train": "hub:owner/name"}},
}


def test_only_what_is_trusted_passes() -> None:
    assert outside_names(NAMED) == {"mine:Attention", "mine:Scorer", "mine:Head"}
    with pytest.raises(ConfigError, match=r"there names .*'mine:Attention'.*--trust-code"):
        refuse_code(NAMED, Path("there"))
    with trusting({"mine:Attention", "mine:Head"}):
        with pytest.raises(ConfigError, match="'mine:Scorer'"):
            refuse_code(NAMED, "there")
        with trusting({"mine:Scorer"}):
            refuse_code(NAMED, "there")
        with trusting(True), trusting(False):
            refuse_code(NAMED, "there")
    with pytest.raises(ConfigError, match="trust_code=True"):
        refuse_code(NAMED, "there")


def test_what_is_no_component_is_not_built() -> None:
    for name in ("os:system", "catchline.config.base:validate", ":Model", "no.such.module:Model", ".names:Table"):
        with pytest.raises(ConfigError, match="The model"):
            parse("model", MODELS, {"type": name})


def test_the_first_difference_of_settings() -> None:
    assert first_difference({"a": {"b": 1}}, {"a": {"b": 1}}) is None
    assert first_difference({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}) == "a.c: null there, 2 now"
    assert first_difference({"a": 1, "b": 3}, {"a": 1}) == "b: 3 there, null now"
