"""What a search for decoding settings tries, keeps and applies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catchline.config.loading import load_run
from catchline.errors import ConfigError
from catchline.models.folder import load_model_folder, save_model_folder
from catchline_study.tuning import Grid, Range, apply, parse_grid, parse_range, ranked, refuse_fixed, tune
from tiny_models import save_tiny_model


def test_grids_and_ranges_are_read() -> None:
    assert parse_grid("search.beam_size=4,5,4") == Grid("beam_size", (4, 5))
    assert parse_grid("distraction.variant=paper,released") == Grid("distraction.variant", ("paper", "released"))
    blocking = {"type": "repetition_penalty", "penalty": 2}
    assert parse_grid("scorers=[],[{type: repetition_penalty, penalty: 2}],[]") == Grid("scorers", ([], [blocking]))
    signed = Range("distraction.context", 0.05, 10.0, log=True, both_signs=True)
    assert parse_range("search.distraction.context=0.05:10:log:both-signs") == signed
    assert parse_range("beam_size=2:6").integer
    assert not parse_range("model.lambda_decode=0.0:1").integer


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (parse_grid, "beam_size", "not of the form"),
        (parse_grid, "beam_size=", "not of the form"),
        (parse_grid, "scorers=1", "give lists of scorers between commas"),
        (parse_grid, "beam_size=1,[", "not valid YAML"),
        (parse_grid, "beam_size=[1]", "give single values"),
        (parse_range, "distraction.state=1", "two numbers low:high"),
        (parse_range, "distraction.state=nan:1", "low must be at most high"),
        (parse_range, "distraction.state=0:1:log", "above 0 with log"),
        (parse_range, "distraction.state=-1:1:both-signs", "at least 0 with both-signs"),
        (parse_range, "distraction.state=0:1:both-sign", "Did you mean 'both-signs'?"),
    ],
)
def test_mistakes_are_named(read: Any, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(text)


class Bowl:
    """Figures that are highest at a = 0.3 and b = 2."""

    def __init__(self) -> None:
        self.tried: list[dict[str, Any]] = []

    def __call__(self, settings: dict[str, Any]) -> dict[str, float]:
        self.tried.append(settings)
        if settings.get("b") == 9:
            raise ConfigError("nine does not fit")
        return {"mean": 1 - (settings.get("a", 1.0) - 0.3) ** 2 - 0.01 * abs(settings.get("b", 5) - 2)}


def test_grids_are_tried_in_full_and_kept(tmp_path: Path) -> None:
    grids, bowl, file = [Grid("b", (1, 2, 9)), Grid("a", (0.0, 0.5))], Bowl(), tmp_path / "trials.log"
    found = tune(bowl, grids, file=file)
    assert bowl.tried == [{}, *({"b": b, "a": a} for b in (1, 2, 9) for a in (0.0, 0.5))]
    assert ranked(found[0], "mean")[0].settings == {"b": 2, "a": 0.5}
    assert found[1] == ["nine does not fit"] * 2
    again = Bowl()
    assert tune(again, grids, file=file) == found
    assert again.tried == []
    tune(again, grids, file=file, about="other records")
    assert len(again.tried) == 7
    with pytest.raises(ConfigError, match="nine does not fit"):
        tune(Bowl(), [Grid("b", (9,))])
    with pytest.raises(ConfigError, match="searched twice"):
        tune(Bowl(), [Grid("b", (1,)), Range("b", 1, 2)])


def test_an_interrupted_search_continues_with_other_draws(tmp_path: Path) -> None:
    dims, bowl, file = [Range("a", 0.01, 1.0, log=True), Grid("b", (1, 2))], Bowl(), tmp_path / "trials.log"
    done: list[int] = []
    tune(bowl, dims, trials=4, file=file, progress=done.append)
    found, _ = tune(bowl, dims, trials=30, file=file)
    assert sum(done) == 5
    assert len(bowl.tried) == len(found) == 31
    draws = [settings["a"] for settings in bowl.tried[1:]]
    assert len(set(draws)) > 25
    assert all(0.01 <= draw <= 1 and float(f"{draw:.4g}") == draw for draw in draws)
    assert abs(ranked(found, "mean")[0].settings["a"] - 0.3) < 0.1
    signed = Bowl()
    tune(signed, [Range("a", 1, 4, both_signs=True, integer=True)], trials=12)
    assert {settings["a"] for settings in signed.tried[1:]} <= {-4, -3, -2, -1, 1, 2, 3, 4}
    assert len({settings["a"] > 0 for settings in signed.tried[1:]}) == 2


def test_the_best_becomes_the_models_default(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "tiny", ["it was late"], search={"beam_size": 3})
    loaded = load_model_folder(folder)
    copy = save_model_folder(tmp_path / "copy", model=loaded.model, tokenizer=loaded.tokenizer, run=loaded.run)
    search = apply(copy, {"beam_size": 4, "distraction.state": -0.25})
    assert load_model_folder(copy).search == load_run(copy / "recipe.yaml").search == search
    assert json.loads((copy / "generation_config.json").read_text())["distraction"]["state"] == -0.25
    assert load_run(copy / "recipe.yaml").model_copy(update={"search": loaded.run.search}) == loaded.run
    refuse_fixed(str(copy), "--apply")
    (copy / "export.json").touch()  # holds the digests of the other files
    for model, said in ((copy, "exported"), (tmp_path, "not made by catchline"), ("oneline", "part of the package")):
        with pytest.raises(ConfigError, match=said):
            refuse_fixed(str(model), "--apply")
