"""What a newcomer types first: nothing, --help, the tab key, doctor, push."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from catchline.cli.main import FIRST_SCREEN, load_command, main
from catchline.errors import EXTRAS
from commands import refused, run
from tiny_models import save_tiny_model


def test_nothing_leads_to_the_first_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert "catchline summarize article.txt" in run(capsys)
    lines = [line for line in FIRST_SCREEN.splitlines() if line.startswith("  catchline")]
    for line in lines:
        name, *arguments = shlex.split(line.split("   ")[0].strip())[1:]
        command = load_command(name)
        if not hasattr(command, "commands"):
            with command.make_context(f"catchline {name}", arguments):
                pass


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("catchline summ", "summarize"), ("catchline train --all", "--all-pairs"), ("catchline data che", "check")],
)
def test_the_tab_key_completes(typed: str, expected: str) -> None:
    asked = {"_CATCHLINE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    command = [sys.executable, "-m", "catchline"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True)
    assert done.stdout.split() == [expected], done.stderr


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(run(capsys, "doctor", "--json"))
    assert found["torch"] != "not installed"
    assert set(found["missing"]) <= set(EXTRAS.values())
    monkeypatch.setattr("catchline.cli.doctor.find_spec", lambda name: None)
    shown = run(capsys, "doctor")
    assert "trafilatura, lxml_html_clean, pypdfium2; pip install 'catchline[documents]'" in shown


def test_push_needs_a_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catchline.models.folder.get_token", lambda: None)
    model = str(save_tiny_model(tmp_path / "model"))
    refused(capsys, 4, "there is no token for the Hugging Face hub", "push", model, "owner/name")
    assert main(["push", model, "name"]) == 2
    assert main(["push", "lexrank", "owner/name"]) == 2
