"""What works where only the base package is installed, and what is said where an extra is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from catchline.errors import EXTRAS, missing_package
from json_lines import write_lines

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
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
            assert f"which is not installed: pip install 'catchline[{LACKING[command]}]'." in err, command
            assert "Traceback" not in err


def test_every_extra_that_is_named_exists() -> None:
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])


def test_another_missing_module_is_no_extra() -> None:
    assert missing_package(ModuleNotFoundError("No module named 'catchline.nothing'", name="catchline.nothing")) is None
    assert missing_package(ValueError("torch")) is None


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
