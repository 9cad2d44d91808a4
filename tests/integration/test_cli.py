"""The command line's edges: what a newcomer types first, help without torch, one sentence for each error, exit codes,
closed pipes; and the options that messages name."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catchline.cli import main as cli
from catchline.config import names
from catchline.errors import (
    EXTRAS,
    CheckpointError,
    ConfigError,
    DataError,
    DiskFullError,
    ModelError,
    TrainingError,
    installing,
)
from commands import Capture, Patch, run

HEAVY = {"torch", "transformers", "accelerate", "scipy", "numpy", "typer", "rich", "pydantic"}


def test_help_imports_nothing_heavy_and_no_command_torch_for_its_own() -> None:
    code = (
        "import sys, catchline\nfrom catchline.cli.main import main\n"
        "for arguments in (['--help'], ['--version'], [], ['help'], ['nonsense']):\n"
        "    main(arguments)\n"
        "heavy = {name.split('.')[0] for name in sys.modules}\n"
        "for name in ('evaluate', 'recipes', 'rouge', 'plot', 'data'):\n"
        "    main([name, '--help'])\n"
        "print('MODULES', *sorted(heavy), 'torch' in sys.modules)"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    *modules, torch = printed.split("MODULES", 1)[1].split()
    assert not HEAVY & set(modules)
    assert torch == "False"


def test_help_names_every_command(capsys: Capture) -> None:
    shown = run(capsys, "--help")
    for name, (_, line) in cli.COMMANDS.items():
        assert name in shown
        assert line in shown
        assert "Usage" in run(capsys, name, "--help")
    assert all(len(line) <= 100 for line in shown.splitlines())
    assert f"\n  {cli.EXIT_BROKEN_PIPE}  " in shown
    assert "  5                  a missing or damaged checkpoint" in shown
    assert "CATCHLINE_TRACEBACK" in shown
    assert run(capsys, "--version") == f"catchline {cli.__version__}\n"


def test_nothing_leads_to_the_first_result(capsys: Capture) -> None:
    assert "catchline summarize article.txt" in run(capsys)
    for line in (line for line in cli.FIRST_SCREEN.splitlines() if line.startswith("  catchline")):
        name, *arguments = shlex.split(line.split("   ")[0].strip())[1:]
        command = cli.load_command(name)
        if not hasattr(command, "commands"):
            with command.make_context(f"catchline {name}", arguments):
                pass


def test_doctor(capsys: Capture, monkeypatch: Patch) -> None:
    values = json.loads(run(capsys, "doctor", "--json"))
    assert values["torch"] != "not installed"
    assert set(values["missing"]) <= set(EXTRAS.values())
    monkeypatch.setattr("catchline.cli.doctor.find_spec", lambda name: None)
    assert f"trafilatura, lxml_html_clean, pypdfium2; {installing('documents')}" in run(capsys, "doctor")


Failing = Callable[[BaseException], int]


@pytest.fixture
def failing(monkeypatch: Patch) -> Failing:
    """Run a command that raises what it is told to."""
    monkeypatch.setattr(names, "outside_run", set())

    def run(error: BaseException) -> int:
        def command() -> None:
            raise error

        monkeypatch.setattr("catchline.cli.recipes.command", command)
        return cli.main(["recipes"])

    return run


FULL = "No space left on device"
ERRORS = {ConfigError: 2, DataError: 3, ModelError: 4, CheckpointError: 5, TrainingError: 6}


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        *((error("It is so."), code, "It is so.") for error, code in ERRORS.items()),
        (OSError(errno.ENOSPC, FULL, "a", None, "b"), DiskFullError.exit_code, "The disk is full while writing b."),
        (RuntimeError(f"Error: I/O error: {FULL} (os error 28)"), DiskFullError.exit_code, "The disk is full"),
        (PermissionError(errno.EACCES, "Not so", "secret.txt"), 1, "Cannot use secret.txt: not so."),
        (KeyboardInterrupt(), 130, "Interrupted."),
    ],
)
def test_an_error_is_one_sentence(
    error: BaseException, code: int, said: str, failing: Failing, capsys: Capture
) -> None:
    assert failing(error) == code
    captured = capsys.readouterr()
    assert captured.err.startswith(f"catchline: {said}")
    assert (captured.err.count("\n"), captured.out) == (1, "")


@pytest.mark.parametrize("own", [None, "catchline.search.scorers:Renormalise"])
def test_a_bug_keeps_its_traceback_and_is_ours_unless_classes_of_ones_own_ran(
    own: str | None, failing: Failing, capsys: Capture, monkeypatch: Patch
) -> None:
    if own:
        names.resolve("scorer", names.SCORERS, own)  # by a name that no table has
    assert failing(AssertionError("rows differ")) == 1
    message = capsys.readouterr().err
    assert "Traceback" in message
    assert (f"a bug in {own}, which this command ran, or in Catchline" if own else "bug in Catchline") in message
    assert ("report" in message) == (own is None)
    monkeypatch.setenv("CATCHLINE_TRACEBACK", "1")
    failing(DataError("x.jsonl:3: empty document."))
    assert "Traceback" in capsys.readouterr().err


def started(body: str, **options: Any) -> subprocess.Popen[str]:
    """A process whose command ``catchline recipes`` runs ``body``."""
    code = (
        "import sys, time, catchline.cli.recipes as recipes\n"
        "from catchline.cli.io import show_summaries\nfrom catchline.types import Summary\n"
        f"def command():\n    {body}\n"
        "recipes.command = command\n"
        "from catchline.cli.main import main\nsys.exit(main(['recipes']))"
    )
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, **options)


def test_a_real_control_c_ends_without_a_traceback() -> None:
    # Started in the background of a shell, the tests ignore Ctrl-C, and so would what they start.
    process = started(
        "print(flush=True); time.sleep(60)",
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "catchline: Interrupted.\n"
    assert process.returncode == 130


@pytest.mark.parametrize("body", ["print('line', n)", "show_summaries([Summary(f'line {n}')])"])
def test_a_closed_pipe_is_quiet(body: str) -> None:
    reader, writer = os.pipe()
    process = started(f"for n in range(100000): {body}", stdout=writer)
    os.close(writer)
    os.read(reader, 100)
    os.close(reader)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == cli.EXIT_BROKEN_PIPE


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [("stdin", ["summarize", "lead", "-"], 3), ("stdout", ["recipes"], 0), ("stderr", ["nonsense"], 2)],
)
def test_a_stream_that_is_closed(
    closed: str, arguments: list[str], code: int, monkeypatch: Patch, capsys: Capture
) -> None:
    """As by a shell's ``>&-``: Python then has None in its place."""
    monkeypatch.setattr(sys, closed, None)
    assert cli.main(arguments) == code
    shown = capsys.readouterr()
    assert "bug in Catchline" not in shown.err
    assert not shown.out


# ----------------------------------------------------------------------------------- recipes

RECIPE = """
name: toy
title: A toy
base: {model: {type: seq2seq}, training: {max_epochs: 1}}
rows:
  plain: {label: Plain}
  fast: {label: Fast, set: {training.batch_size: 64}}
sizes: {small: {description: small}, tiny: {set: {training.max_epochs: 2}}}
default_row: plain
"""


def test_a_recipe_is_shown_resolved_and_checked(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(RECIPE)
    text = run(capsys, "recipes", "show", path, "--row", "fast", "--size", "tiny", "--set", "training.seed=7")
    assert all(line in text for line in ("type: seq2seq", "batch_size: 64", "max_epochs: 2", "seed: 7"))
    assert "4 combinations" in run(capsys, "recipes", "check", path)
    for right, wrong, said in (
        ("{type: seq2seq}", "{type: seq2seq, hiden_size: 3}", "row plain, size small and 3 more: Unknown key"),
        ("{training.batch_size: 64}", "{model.hiden_size: 3}", "row fast, size small and 1 more: Unknown key"),
    ):
        path.write_text(RECIPE.replace(right, wrong))
        assert cli.main(["recipes", "check", str(path)]) == 2
        assert f", {said} 'model.hiden_size'." in capsys.readouterr().err.splitlines()[-1]
