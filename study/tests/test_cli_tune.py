"""``catchline tune`` from the command line: what it prints, records, applies and goes on with; and its mistakes."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from catchline.cli.main import main
from catchline.config import shipped
from catchline.config.loading import parse_overrides
from catchline.metrics.confidence import Calibration
from catchline.models.folder import load_model_folder
from catchline.systems.neural import NeuralSystem
from catchline_study import tuning
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
SEARCH = ["--grid", "beam_size=1,3", "--random", "search.distraction.state=0.5:4:log:both-signs", "--trials", "2"]


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
    assert len([row for row in rows if row.strip() and (row.split()[0] in {"1", "3", "-"})]) == 1 + 2 * 2
    assert "Not applied" in out
    record = record_of(place)
    assert record["seed"] == 1
    assert record["draws"] == 2
    assert record["records"] == 4
    assert record["grid"] == {"beam_size": [1, 3]}
    assert record["random"]["distraction.state"]["both_signs"]
    assert len(record["model_identity"]) == 64
    assert "rouge155" in record["signature"]
    scores = [trial["rouge1"] for trial in record["trials"]]
    assert scores == sorted(scores, reverse=True)
    assert record["best"] == record["trials"][0]
    assert record["present"]["settings"] == {}
    assert record["best_search"]["beam_size"] == record["best"]["settings"].get("beam_size", 2)


def test_words_of_other_scripts_count_and_that_is_said(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pairs(place, ["лифт сломан"] * len(TEXTS))
    assert tune(place, "--grid", "beam_size=1") == 0
    assert "\nHow ROUGE counts: profile unicode, because most references are of" in capsys.readouterr().out


def test_progress_goes_to_stderr_and_json_to_stdout(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", str(place / "run" / "model"), "--data", str(place / "data" / "validation.jsonl")]
    assert main([*command, "--grid", "beam_size=1", "--json", "--max-records", "3", "--batch-size", "2"]) == 0
    captured = capsys.readouterr()
    assert "Trying 2 settings" in captured.err
    printed = json.loads(captured.out)
    assert printed == record_of(place)
    assert printed["records"] == 3
    assert printed["batches_encoded"] == 2


def test_more_trials_go_on_where_fewer_stopped(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = watch(monkeypatch, NeuralSystem, "summarize_batch")
    few = tuned(capsys, place, *SEARCH[:4], "--trials", "1")
    assert len(decoded) == 3
    many = tuned(capsys, place, *SEARCH[:4], "--trials", "3", "--metric", "rouge2")
    assert len(decoded) == 7
    assert len(many["trials"]) == 7
    for trial in few["trials"]:
        assert trial in many["trials"]
    assert "plain" in tuned(capsys, place, *SEARCH[:4], "--trials", "3", "--profile", "plain")["signature"]
    assert len(decoded) == 7, "another way of scoring needs no decoding"


def test_the_surface_is_that_of_the_run_unless_it_is_asked_for(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = place / "run" / "model" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("surface: null", "surface: raw"))
    decoded = watch(monkeypatch, NeuralSystem, "summarize_batch", lambda *_, options, **__: options.surface)
    for arguments, surfaces in (
        (["--grid", "beam_size=1"], {"raw"}),
        (["--grid", "surface=raw,clean"], {"clean"}),  # raw is the same as before
        (["--grid", "beam_size=3", "--set", "search.surface=cased"], {"cased"}),
    ):
        decoded.clear()
        assert tune(place, *arguments) == 0
        assert set(decoded) == surfaces


def test_the_best_is_applied_and_stays_the_best(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = tuned(capsys, place, "--grid", "max_length=1,2,4", "--apply", "--set", "length_normalisation=none")
    model = load_model_folder(place / "run")
    assert model.search.model_dump(mode="json") == first["best_search"]
    assert model.run.search == model.search
    assert model.search.length_normalisation == "none"
    assert f"writes up to {model.search.max_length} (" in (place / "run" / "model" / "README.md").read_text()
    again = tuned(capsys, place, "--grid", "max_length=1,2,4")
    assert again["model_identity"] == first["model_identity"], "decoding settings are not the model"
    assert again["present"]["rouge1"] == first["best"]["rouge1"]


def test_a_model_of_the_package_is_tuned_from_where_one_is(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written where the package is installed, nor into an exported model."""
    save_tiny_model(place / "oneline", TEXTS, max_source_tokens=12, search={"max_length": 6})
    monkeypatch.setattr(shipped, "ROOT", place)
    (place / "here").mkdir()
    monkeypatch.chdir(place / "here")
    assert main(["--quiet", "tune", "oneline", "--data", str(place / "data"), "--grid", "beam_size=1"]) == 0
    assert (place / "here" / "oneline.tune" / "tune.json").is_file()
    assert not list(place.glob("*.tune"))
    (place / "run" / "model" / "export.json").touch()
    refused(capsys, 2, "was exported", "tune", place / "run", "--data", "x", "--grid", "beam_size=1", "--apply")


def test_options_of_scorers_are_searched_and_said_as_a_shell_takes_them(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pairs(place, [text.split()[0] for text in TEXTS])
    lists = [[], [{"type": "forbid_tokens", "unk": False}], [{"type": "ngram_blocking", "size": 1}]]
    grid = ",".join(map(json.dumps, lists))
    assert tune(place, "--grid", "scorers=" + grid, "--set", "forbid_unk=false", "--set", "max_length=9") == 0
    said = capsys.readouterr().out
    record = record_of(place)
    assert record["grid"] == {"scorers": lists}
    assert {len(trial["settings"].get("scorers", "")) for trial in record["trials"]} == {0, 1}
    wanted = next(line for line in said.splitlines() if line.startswith("Best by"))
    words = shlex.split(wanted.partition("settings: ")[2])
    assert words[-1].startswith("scorers=")
    best = record["best"]["settings"]["scorers"]
    assert parse_overrides(words[1::2])["scorers"] == best


def test_nothing_better_is_not_applied(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tuning, "apply", lambda *_: pytest.fail("written without need"))
    for more in ((), ("--apply",)):
        assert tune(place, "--grid", "beam_size=2", *more) == 0
        said = capsys.readouterr().out
        assert "Nothing is better than the present settings" in said
        assert "default" not in said, "there is nothing to apply"
        assert not record_of(place)["applied"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "Say what to search"),
        (["--grid", "beam_sise=2"], 2, "Did you mean 'beam_size'?"),
        (["--grid", "beam_size=many"], 2, "'beam_size'"),
        (["--random", "distraction.state=a:b"], 2, "two numbers low:high"),
        (["--random", "distraction.state=2:1"], 2, "must not be above"),
        (["--grid", "model.lamda=1"], 2, "no switch 'lamda'"),
        (["--grid", "beam_size=2", "--metric", "rouge3"], 2, "Unknown metric 'rouge3'"),
        (["--grid", "beam_size=2", "--split", "test"], 3, "has no 'test' split"),
        (["--grid", "beam_size=2", "--set", "beam=2"], 2, "Unknown key 'beam'"),
        (["--grid", "distraction.context=-1", "--set", "distraction.variant=code"], 2, "'distraction.variant'"),
    ],
)
def test_mistakes(arguments: list[str], code: int, said: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, code, said, "tune", place / "run", "--data", place / "data", *arguments)


def test_no_data(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, said in (("", "has no record"), ('{"document": "a b"}\n', "no column is known to hold the summary")):
        (place / "data" / "validation.jsonl").write_text(text)
        refused(capsys, 3, said, "tune", place / "run", "--data", place / "data", "--grid", "beam_size=2")


def test_what_set_fixes_is_part_of_the_best_settings(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning.TuningResult, "best", property(lambda self: self.trials[-1]))
    fixed = ["--set", "search.beam_size=1", "--set", "distraction.variant=paper", "--set", "min_length_share=null"]
    assert tune(place, *fixed, "--grid", "max_length=4,5") == 0
    shown = "--set distraction.variant=paper --set min_length_share=null --set beam_size=1 --set max_length=5\n"
    assert shown in capsys.readouterr().out
    for twice in (["--grid", "beam_size=2,3"], ["--random", "search.beam_size=2:3"]):
        said = "search.beam_size is searched, and --set fixes it; leave one out."
        refused(capsys, 2, said, "tune", place / "run", "--data", place / "data", *fixed, *twice)


def test_a_calibration_is_of_the_settings_before(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--set", "beam_size=1", "--grid", "max_length=5,6", "--apply"]
    assert tune(place, *asked) == 0
    assert "catchline calibrate" not in capsys.readouterr().out
    Calibration.blank().save(place / "run" / "model")
    assert tune(place, *asked) == 0
    assert "run `catchline calibrate` on it again." in capsys.readouterr().out
