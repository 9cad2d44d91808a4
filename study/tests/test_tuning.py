"""What a search for decoding settings tries, keeps and applies; ``catchline tune`` and its mistakes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from catchline.config.loading import load_run
from catchline.errors import ConfigError
from catchline.metrics.confidence import Calibration
from catchline.models.folder import load_model_folder, save_model_folder
from catchline_study.tuning import Grid, Range, apply, parse_grid, parse_range, ranked, refuse_fixed, tune
from commands import run
from json_lines import write_lines
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


TEXTS = [
    "the quick fox jumps over the lazy dog",
    "a small cat sat on the mat",
    "it was late",
    "the old bird and the dog",
]
SEARCH = ["--grid", "beam_size=1,3", "--random", "search.distraction.state=0.5:4:log:both-signs", "--trials", "4"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    search = {"beam_size": 2, "max_length": 6}
    return save_tiny_model(tmp_path_factory.mktemp("tiny"), TEXTS, max_source_tokens=12, search=search)


@pytest.fixture
def place(model: Path, tmp_path: Path) -> Path:
    """A run's folder with a model in it, and data beside it."""
    shutil.copytree(model, tmp_path / "run" / "model")
    (tmp_path / "data").mkdir()
    pairs = [{"document": text, "summary": " ".join(text.split()[:2])} for text in TEXTS]
    write_lines(tmp_path / "data" / "validation.jsonl", pairs)
    return tmp_path


def record_of(place: Path) -> dict[str, Any]:
    return json.loads((place / "run" / "tune" / "tune.json").read_text())


def test_table_and_record(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "tune", place / "run", "--data", place / "data", *SEARCH, "--metric", "rouge1")
    rows = out.splitlines()
    assert rows[0].split()[:3] == ["beam_size", "distraction.state", "ROUGE-1"]
    assert len([row for row in rows if row.strip() and (row.split()[0] in {"1", "3", "-"})]) == 1 + 4
    assert "Not applied" in out
    record = record_of(place)
    assert (record["seed"], record["records"], len(record["model_identity"])) == (1, 4, 64)
    assert [one["key"] for one in record["searched"]] == ["beam_size", "distraction.state"]
    assert record["searched"][1]["both_signs"]
    assert "rouge155" in record["signature"]
    scores = [trial["rouge1"] for trial in record["trials"]]
    assert scores == sorted(scores, reverse=True)
    assert record["best"] == record["trials"][0]
    assert record["present"]["settings"] == {}


def test_the_best_is_applied_and_stays_the_best(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Calibration.blank().save(place / "run" / "model")
    asked = ["--grid", "max_length=1,2,4", "--apply", "--set", "length_normalisation=none"]
    said = run(capsys, "tune", place / "run", "--data", place / "data", *asked)
    assert "run `catchline calibrate` on it again" in said
    first = record_of(place)
    model = load_model_folder(place / "run")
    assert model.run.search == model.search
    assert model.search.length_normalisation == "none"
    assert model.search.max_length == first["best"]["settings"]["max_length"]
    run(capsys, "tune", place / "run", "--data", place / "data", "--grid", "max_length=1,2,4")
    assert record_of(place)["present"]["rouge1"] == first["best"]["rouge1"]
