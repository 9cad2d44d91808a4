"""What a newcomer types first: nothing, --help, the tab key, doctor, push."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from catchline.cli.completion import words
from catchline.cli.main import COMMANDS, FIRST_SCREEN, load_command, main
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


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("catchline summ", {"summarize"}),
        ("catchline train headl", {"headline_writer"}),
        ("catchline train --all", {"--all-pairs"}),
        ("catchline data che", {"check"}),
        ("catchline data check --rec", {"--recipe"}),
    ],
)
def test_the_tab_key(line: str, expected: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    typed = line.split()
    press = f"COMP_WORDS=({shlex.join(typed)}); COMP_CWORD={len(typed) - 1}; _catchline"
    script = capsys.readouterr().out + press + "; printf '%s\\n' \"${COMPREPLY[@]}\"\n"
    found = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) == expected


def test_every_shell_knows_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("zsh", "fish"):
        script = run(capsys, "completion", shell)
        assert all(name in script for name in COMMANDS)
    assert set(COMMANDS) <= set(words())
    assert main(["completion", "tcsh"]) == 2


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    found = json.loads(run(capsys, "doctor", "--json"))
    assert found["torch"] != "not installed"
    assert set(found["missing"]) <= set(EXTRAS.values())
    assert found["allocator"].startswith("the system's")
    monkeypatch.setenv("LD_PRELOAD", "/lib/libtcmalloc_minimal.so.4")
    assert json.loads(run(capsys, "doctor", "--json"))["allocator"] == "/lib/libtcmalloc_minimal.so.4"
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
