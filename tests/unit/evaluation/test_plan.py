"""Which rows a comparison has, with which settings, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from catchline.config.loading import load_recipe
from catchline.errors import ConfigError
from catchline.evaluation.plan import Choice, plan_recipe, plan_systems

EXTRACTIVE = load_recipe("extractive")
HEADLINE = load_recipe("headline_writer")
CONTRASTIVE = load_recipe("contrastive")
DATA = {"data": {"train": "t.jsonl", "validation": "v.jsonl"}}


def test_a_size_says_how_long_the_summaries_are() -> None:
    for size, expected in (("headline", 1), ("small", 3)):
        plan = plan_recipe(EXTRACTIVE, Choice(size=size))
        methods = {entry.name: dict(entry.settings) for entry in plan.rows}
        assert methods["lexrank"]["sentences"] == expected
        assert (methods["lead-1"]["sentences"], methods["lead-3"]["sentences"]) == (1, 3)
        assert methods["first"]["sentences"] == 1
    assert plan.baseline == "lead-1"


def test_changes_reach_the_rows_that_have_the_option() -> None:
    plan = plan_recipe(EXTRACTIVE, Choice(["first-words", "kl"], overrides={"words": 7, "language": "de"}))
    first, second = (dict(entry.settings) for entry in plan.rows)
    assert (first["words"], first["language"], second["language"]) == (7, "de", "de")
    assert "words" not in second
    assert plan_recipe(EXTRACTIVE, Choice(overrides={"data": {"skip_bad": True}})).data.skip_bad
    for choice, said in (
        (Choice(["first-words"], overrides={"wrds": 7}), "Did you mean 'words'"),
        (Choice(["kl"], baseline="lead-1"), "Unknown baseline"),
    ):  # those of rows, sizes and methods are tried at the command line
        with pytest.raises(ConfigError, match=said):
            plan_recipe(EXTRACTIVE, choice)


def test_rows_of_models_have_a_run_a_seed() -> None:
    plan = plan_recipe(HEADLINE, Choice(["gru", "lstm"], "tiny", 3, {**DATA, "training": {"seed": 5}}))
    assert [entry.name for entry in plan.rows] == ["lstm", "gru"]  # the recipe's order
    assert [run.training.seed for run in plan.rows[0].runs] == [5, 6, 7]
    assert all(Path(str(run.data.train)).is_absolute() for run in plan.rows[0].runs)
    assert plan.rows[0].published["subset.bleu"] == 0.009
    assert plan.baseline == "lstm"


def test_a_change_below_what_a_row_leaves_out_is_for_the_other_rows() -> None:
    change = {"model": {"opponent": {"layer": 0, "head": 1}}}
    without, with_it = plan_recipe(CONTRASTIVE, Choice(["transformer", "contrastive"], "tiny", overrides=change)).rows
    assert without.runs[0].model["opponent"] is None
    assert (with_it.runs[0].model["opponent"]["layer"], with_it.runs[0].model["opponent"]["head"]) == (0, 1)
    no_row_has_it = Choice(["lstm", "gru"], "tiny", overrides={"model": {"attention": {"size": 8}}})
    with pytest.raises(ConfigError, match="An attention needs a 'type'; known: additive"):
        plan_recipe(HEADLINE, no_row_has_it)


def test_extractive_rows_stand_in_the_same_table() -> None:
    plan = plan_recipe(HEADLINE, Choice(size="tiny", overrides=DATA))
    assert plan.rows[0].name == "lsa-1"
    assert plan.rows[0].published == {"subset.bleu": 0.005, "full.bleu": 0.005}
    assert plan.baseline == "lstm"
    assert plan_recipe(HEADLINE, Choice(size="tiny", overrides=DATA, baseline="lead-1")).baseline == "lead-1"


def test_systems_that_exist(tmp_path: Path) -> None:
    plan = plan_systems(["lexrank", "lead:sentences=2"], Choice(baseline="lead:sentences=2"))
    methods = [{"type": "lexrank"}, {"type": "lead", "sentences": 2}]
    assert [dict(entry.settings) for entry in plan.rows] == methods
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "config.json").write_text("{}")
    for one, two in (("lead", "lead"), ("lead-3", "lead:sentences=3"), (f"{tmp_path}/run", f"{tmp_path}/run/./model/")):
        assert [row.name for row in plan_systems([one, two], Choice()).rows] == [one]
    with pytest.raises(ConfigError, match="Did you mean 'data'"):
        plan_systems(["lead"], Choice(overrides={"dta": {"skip_bad": True}}))
