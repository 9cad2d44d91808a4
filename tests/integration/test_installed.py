"""What an installation has: the base package alone, each extra, the wheel, the bundled model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from catchline import Summarizer, __version__
from catchline.cli.main import main
from catchline.config import names
from catchline.config.loading import load_run, with_absolute_paths
from catchline.config.schema import RunConfig, TrainingConfig
from catchline.errors import EXTRAS, ModelError
from catchline.models.card import model_card
from catchline.models.folder import load_model_folder
from catchline.server.catalogue import open_models
from commands import Capture, Patch, refused, run
from json_lines import write_lines
from serving import running

ROOT = Path(__file__).parents[2]
WITHOUT = """
import contextlib, io, json, sys

PACKAGES, COMMANDS = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(PACKAGES))  # as if none was there
from catchline.cli.main import main
found = []
for command in COMMANDS:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command)
    found.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""
TEXT = "The river rose two metres in a night. The town of Ebern was cut off. Helpers filled sandbags."


WORKING = """
--help
summarize text
summarize lexrank-1 text
explain lead-1 text
evaluate lead-1 lexrank-1 --data pairs.jsonl --json
rouge text text
data check pairs.jsonl
data columns pairs.jsonl
recipes
train --help
compare --help
serve --help
"""
# and the extra that each of these names
LACKING = {
    "train headline_writer --data pairs.jsonl": "train",
    "summarize concept_ilp text": "train",
    "serve lexrank": "serve",
    "summarize lead pairs.jsonl --ray --output lines.jsonl": "ray",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    (folder / "text").write_text(TEXT + "\n", encoding="utf-8")
    pairs = [{"id": str(k), "document": f"{TEXT} Part {k}.", "summary": "River cuts off town"} for k in range(4)]
    write_lines(folder / "pairs.jsonl", pairs)
    return folder


def test_what_works_without_any_extra_and_which_one_is_named_where_not(place: Path) -> None:
    commands = [*WORKING.strip().splitlines(), *LACKING]
    arguments = json.dumps([list(EXTRAS), [command.split() for command in commands]])
    done = subprocess.run([sys.executable, "-c", WITHOUT, arguments], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for command, (code, out, err) in zip(commands, json.loads(done.stdout), strict=True):
        if command not in LACKING:
            assert code == 0, (command, err)
            assert out.strip(), command
        else:
            assert code == 2, (command, err)
            assert f"pip install 'catchline[{LACKING[command]}]'" in err, command
            assert "Traceback" not in err


def test_every_extra_that_is_named_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])


def test_no_library_of_ours_keeps_or_reports_anything(place: Path, tmp_path: Path) -> None:
    """onnxruntime would: a number for the user and events, in a database from which they are sent to Microsoft."""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    subprocess.run(
        [sys.executable, "-m", "catchline", "summarize", str(place / "text")],
        env={**environment, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert list(tmp_path.rglob("*")) == []


def clean_run(folder: Path, *command: str | Path, text: str = "") -> str:
    """The command's output, from a folder and with an environment that do not lead to the sources."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    options: dict[str, Any] = {"cwd": folder, "env": clean, "input": text, "capture_output": True, "text": True}
    done = subprocess.run(list(map(str, command)), timeout=600, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_installed_wheel_summarizes(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="building a wheel without a network needs: pip install hatchling")
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    clean_run(tmp_path, *build, tmp_path, source)
    (wheel,) = tmp_path.glob("catchline-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {"catchline/oneline/model.safetensors", "catchline/server/static/index.html", "catchline/py.typed"} <= held
    assert not [name for name in held if name.startswith("tests") or "__pycache__" in name]

    venv.create(tmp_path / "bare", with_pip=True)
    python = tmp_path / "bare" / "bin" / "python"
    clean_run(tmp_path, python, "-m", "pip", "--quiet", "install", "--no-deps", "--no-index", wheel)
    site = clean_run(tmp_path, python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    # Dependencies are those of this environment, behind the wheel; Catchline itself is not taken from there.
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert clean_run(tmp_path, python, "-c", "import catchline; print(catchline.__file__)").startswith(site)
    catchline = tmp_path / "bare" / "bin" / "catchline"
    assert __version__ in clean_run(tmp_path, catchline, "--version")
    text = "Tidepool is a small monitor for home weather stations. It reads temperature and wind from sensors."
    assert clean_run(tmp_path, catchline, "summarize", "-", text=text).strip()
    assert "wind" in clean_run(tmp_path, catchline, "summarize", "lead", "--sentences", "2", "-", text=text)
    (tmp_path / "text.txt").write_text(text, "utf-8")
    clean_run(tmp_path, catchline, "explain", "text.txt", "--html", "why.html")
    assert "Tidepool" in (tmp_path / "why.html").read_text("utf-8")
    assert "100.0" in clean_run(tmp_path, catchline, "rouge", "text.txt", "text.txt")
    with running(tmp_path / "server", python=str(python), PYTHONPATH="") as server, server.client() as client:
        assert "Catchline" in client.get("/").text
        assert client.post("/v1/summarize", json={"document": text}).json()["summaries"][0]["summary"]


def test_commands_need_no_model(place: Path, capsys: Capture) -> None:
    unnamed = run(capsys, "summarize", place / "text")
    assert run(capsys, "summarize", "oneline", place / "text") == unnamed != ""
    explained = json.loads(run(capsys, "explain", place / "text", "--json"))
    assert explained["words"]
    assert [explained["model"], Summarizer().summarize(TEXT).model, Summarizer().name] == ["oneline"] * 3


def test_it_is_served_and_evaluated_by_its_name(place: Path, capsys: Capture) -> None:
    assert list(open_models(["oneline", "lexrank"], "cpu")) == ["oneline", "lexrank"]
    data = place / "pairs.jsonl"
    scores = json.loads(run(capsys, "evaluate", "oneline", "lead-1", "--data", data, "--json"))["systems"]
    assert [row["system"] for row in scores] == ["oneline", "lead-1"]
    run(capsys, "data", "check", data, "--recipe", "oneline", "--json")
    refused(capsys, ModelError.exit_code, "Did you mean 'oneline'?", "evaluate", "onelin", "--data", data)


def test_its_name_is_no_path(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "oneline").mkdir()
    monkeypatch.chdir(tmp_path)
    assert Summarizer.from_pretrained("oneline").name == "oneline"
    run = RunConfig(
        name="x", model={"type": "seq2seq"}, training=TrainingConfig(max_updates=1, initial_weights="oneline")
    )
    assert with_absolute_paths(run).training.initial_weights == "oneline"


def test_without_it_nothing_answers(place: Path, tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setattr(names, "ROOT", tmp_path)
    training = ["train", "oneline", "--data", place / "pairs.jsonl", "--out", tmp_path / "run"]
    for command in (["summarize", place / "text"], ["summarize", "oneline", place / "text"], training):
        said = "oneline is not in this installation: install Catchline again"
        refused(capsys, ModelError.exit_code, said, *command)


def test_training_starts_from_it_with_its_tokenizer(place: Path, tmp_path: Path, capsys: Capture) -> None:
    """Also where the recipe describes another one."""
    mine, short = tmp_path / "mine.yaml", "training.max_updates=1"
    mine.write_text("extends: oneline\nname: mine\nbase: {text: {tokenizer: {max_vocabulary: 77}}}\n", encoding="utf-8")
    words = list(load_model_folder("oneline").tokenizer.vocabulary)
    command = ["train", str(mine), "--data", str(place / "pairs.jsonl"), "--set", short, "--out"]
    for start, taken in (("oneline", True), ("scratch", False)):
        out = tmp_path / start
        assert main([*command, str(out), "--from", start]) == 0
        assert ("taken as initial weights" in capsys.readouterr().err) == taken
        assert (list(load_model_folder(out).tokenizer.vocabulary) == words) == taken
        assert (load_run(out / "recipe.yaml").training.initial_weights == "oneline") == taken


def test_the_card_of_the_bundled_model_is_that_of_its_files() -> None:
    folder = names.ROOT / "oneline"  # the real one
    assert model_card(folder) == (folder / "README.md").read_text(encoding="utf-8")
