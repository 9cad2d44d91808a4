"""``catchline tune`` from the command line: what it prints, records, applies and goes on with; and its mistakes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from catchline.cli.main import main
from catchline.metrics.confidence import Calibration
from catchline.models.folder import load_model_folder
from catchline.summarizer import Summarizer
from commands import refused, run
from json_lines import write_lines
from tiny_models import save_tiny_model
from watching import watch

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
    write_pairs(tmp_path, [" ".join(text.split()[:2]) for text in TEXTS])
    return tmp_path


def write_pairs(place: Path, summaries: list[str]) -> None:
    pairs = [{"document": text, "summary": summary} for text, summary in zip(TEXTS, summaries, strict=True)]
    write_lines(place / "data" / "validation.jsonl", pairs)


def record_of(place: Path) -> dict[str, Any]:
    return json.loads((place / "run" / "tune" / "tune.json").read_text())


def tuned(capsys: pytest.CaptureFixture[str], place: Path, *arguments: str) -> dict[str, Any]:
    """What ``--json`` prints."""
    return json.loads(run(capsys, "tune", place / "run", "--data", place / "data", *arguments, "--json"))


def tune(place: Path, *arguments: str) -> int:
    return main(["--quiet", "tune", str(place / "run"), "--data", str(place / "data"), *arguments])


def test_table_and_record(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(place, *SEARCH, "--metric", "rouge1") == 0
    out = capsys.readouterr().out
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


def test_trials_are_what_the_settings_alone_would_give(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tuned(capsys, place, *SEARCH)
    for trial in record["trials"]:
        changes = [word for key, value in trial["settings"].items() for word in ("--set", f"{key}={value}")]
        asked = ["evaluate", place / "run", "--data", place / "data", *changes, "--json"]
        (found,) = json.loads(run(capsys, *asked))["systems"]
        assert [trial[f"rouge{kind}"] for kind in "12L"] == pytest.approx(
            [found["rouge"][kind]["f"] for kind in "12L"], abs=1e-6
        )
        assert trial["words"] == pytest.approx(found["measures"]["words"])


def test_more_trials_continue_where_fewer_stopped(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = watch(monkeypatch, Summarizer, "summarize")
    few = tuned(capsys, place, *SEARCH[:4], "--trials", "1")
    assert len(decoded) == 2
    many = tuned(capsys, place, *SEARCH[:4], "--trials", "3")
    assert len(decoded) == 4
    assert all(trial in many["trials"] for trial in few["trials"])
    assert "plain" in tuned(capsys, place, *SEARCH[:4], "--trials", "1", "--profile", "plain")["signature"]
    assert len(decoded) == 6, "figures of another way of scoring are others"


def test_the_best_is_applied_and_stays_the_best(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Calibration.blank().save(place / "run" / "model")
    asked = ["--grid", "max_length=1,2,4", "--apply", "--set", "length_normalisation=none"]
    assert tune(place, *asked) == 0
    first = record_of(place)
    assert "run `catchline calibrate` on it again" in capsys.readouterr().out
    model = load_model_folder(place / "run")
    assert model.run.search == model.search
    assert model.search.length_normalisation == "none"
    assert model.search.max_length == first["best"]["settings"]["max_length"]
    again = tuned(capsys, place, "--grid", "max_length=1,2,4")
    assert again["present"]["rouge1"] == first["best"]["rouge1"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "Say what to search"),
        (["--grid", "beam_sise=2"], 2, "Did you mean 'beam_size'?"),
        (["--grid", "beam_size=many"], 2, "'beam_size'"),
        (["--random", "distraction.state=a:b"], 2, "two numbers low:high"),
        (["--grid", "model.lamda=1"], 2, "no switch 'lamda'"),
        (["--grid", "beam_size=2", "--metric", "rouge3"], 2, "Unknown metric 'rouge3'"),
        (["--grid", "beam_size=2", "--split", "test"], 3, "has no 'test' split"),
        (["--grid", "beam_size=2", "--set", "beam=2"], 2, "Unknown key 'beam'"),
        (["--grid", "beam_size=2", "--set", "beam_size=2"], 2, "is searched, and --set fixes it; leave one out."),
        (["--grid", "distraction.context=-1", "--set", "distraction.variant=code"], 2, "'distraction.variant'"),
    ],
)
def test_mistakes(arguments: list[str], code: int, said: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, code, said, "tune", place / "run", "--data", place / "data", *arguments)


def test_what_cannot_be_tuned(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = ["--data", place / "data", "--grid", "beam_size=2"]
    refused(capsys, 2, "has no search to tune", "tune", "lead-1", *good)
    refused(capsys, 2, "is part of the package and stays as it is", "tune", "oneline", *good, "--apply")
    for text, said in (("", "has no record"), ('{"document": "a b"}\n', "no column is known to hold the summary")):
        (place / "data" / "validation.jsonl").write_text(text)
        refused(capsys, 3, said, "tune", place / "run", *good)
