"""What works where only the base package is installed, and what is said where an extra is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from laconic.errors import EXTRAS, missing_package

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
WITHOUT = """
import contextlib, io, json, sys

PACKAGES, COMMANDS = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(PACKAGES))  # as if none was there
from laconic.cli.main import main
found = []
for command in COMMANDS:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command)
    found.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""
TEXT = "The river rose two metres in a night. The town of Ebern was cut off. Helpers filled sandbags."


def in_the_base_package(commands: list[list[str]]) -> list[tuple[int, str, str]]:
    """Exit code, standard output and standard error of each command, with nothing of any extra installed."""
    arguments = json.dumps([list(EXTRAS), commands])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, arguments], capture_output=True, text=True, check=True, timeout=120
    )
    return [tuple(each) for each in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("base")
    (folder / "text.txt").write_text(TEXT + "\n", encoding="utf-8")
    pairs = [{"id": str(k), "document": f"{TEXT} Part {k}.", "summary": "River cuts off town"} for k in range(4)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    return {"text": str(folder / "text.txt"), "pairs": str(folder / "pairs.jsonl")}


def test_extractive_work_without_any_extra(files: dict[str, str]) -> None:
    text, pairs = files["text"], files["pairs"]
    commands = [
        ["--help"],
        ["summarize", "lexrank-1", text],
        ["explain", "lead-1", text],
        ["evaluate", "lead-1", "lexrank-1", "--data", pairs, "--json"],
        ["rouge", text, text],
        ["data", "check", pairs],
        ["data", "stats", pairs],
        ["recipes"],
        *([name, "--help"] for name in ("train", "compare", "serve", "judge", "calibrate", "tune", "demo")),
    ]
    for command, (code, out, err) in zip(commands, in_the_base_package(commands), strict=True):
        assert code == 0, (command, err)
        assert out.strip(), command


def test_a_missing_extra_is_named(files: dict[str, str]) -> None:
    text, pairs = files["text"], files["pairs"]
    expected = {
        "train": [["train", "headline_writer", "--data", pairs], ["summarize", "concept_ilp", text], ["plot", text]],
        "serve": [["serve", "lexrank"]],
    }
    commands = [command for group in expected.values() for command in group]
    extras = [extra for extra, group in expected.items() for _ in group]
    for command, extra, (code, _, err) in zip(commands, extras, in_the_base_package(commands), strict=True):
        assert code == 2, (command, err)
        assert f"which is not installed: pip install 'laconic[{extra}]'." in err, command
        assert "Traceback" not in err


def test_every_extra_that_is_named_exists() -> None:
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])


def test_another_missing_module_is_no_extra() -> None:
    assert missing_package(ModuleNotFoundError("No module named 'laconic.nothing'", name="laconic.nothing")) is None
    assert missing_package(ValueError("torch")) is None


def test_no_library_of_ours_keeps_or_reports_anything(files: dict[str, str], tmp_path: Path) -> None:
    """onnxruntime would: a number for the user and events, in a database from which they are sent to Microsoft."""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    subprocess.run(
        [sys.executable, "-m", "laconic", "summarize", files["text"]],
        env={**environment, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert list(tmp_path.rglob("*")) == []
