"""The command line: help without torch, first steps, options that messages name, one sentence for each error."""

from __future__ import annotations

import ast
import errno
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import catchline
from catchline.cli import main as cli
from catchline.cli.main import COMMANDS, FIRST_SCREEN, load_command, main
from catchline.config import names
from catchline.data.records import data_changes
from catchline.errors import EXTRAS, CheckpointError, ConfigError, DataError, DiskFullError, ModelError, TrainingError
from commands import refused, run
from tiny_models import save_tiny_model

HEAVY = {"torch", "transformers", "accelerate", "scipy", "numpy", "typer", "rich", "pydantic"}


def python(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, **options)


def test_help_imports_nothing_heavy_and_no_command_torch_for_its_own() -> None:
    done = python(
        "import sys, catchline\nfrom catchline.cli.main import main\n"
        "for arguments in (['--help'], ['--version'], [], ['help'], ['nonsense']):\n"
        "    main(arguments)\n"
        "heavy = {name.split('.')[0] for name in sys.modules}\n"
        "for name in ('evaluate', 'recipes', 'rouge', 'plot', 'data'):\n"
        "    main([name, '--help'])\n"
        "print('MODULES', *sorted(heavy), 'torch' in sys.modules)"
    )
    *modules, torch = done.stdout.split("MODULES", 1)[1].split()
    assert not HEAVY & set(modules)
    assert torch == "False"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, "--help")
    for name, (_, line) in cli.COMMANDS.items():
        assert name in shown
        assert line in shown
    assert all(len(line) <= 100 for line in shown.splitlines())
    assert f"\n  {cli.EXIT_BROKEN_PIPE}  " in shown
    assert "  5                  a missing or damaged checkpoint" in shown
    assert "CATCHLINE_TRACEBACK" in shown
    assert run(capsys, "--version") == f"catchline {cli.__version__}\n"


@pytest.mark.parametrize("given", [None, "active"])
def test_what_torch_is_told_unless_told_otherwise(given: str | None) -> None:
    """Threads wait without spinning, and few of oneDNN's prepared products stay in memory."""
    wanted = {"OMP_WAIT_POLICY": "passive", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128"}
    environment = {name: value for name, value in os.environ.items() if name not in wanted}
    if given:
        environment["OMP_WAIT_POLICY"] = wanted["OMP_WAIT_POLICY"] = given
    program = (
        f"import os; from catchline.cli.main import main; main(['--version']); print(*map(os.getenv, {[*wanted]}))"
    )
    found = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
    assert found.split()[-2:] == list(wanted.values())


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_describes_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Usage" in run(capsys, name, "--help")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sumarize", "x.txt"], "catchline: Unknown command 'sumarize'. Did you mean 'summarize'?"),
        (["recipes", "show", "--rwo", "x"], "--row"),
    ],
)
def test_a_wrong_word_leads_to_the_right_one(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(capsys, 2, said, *arguments)


# ------------------------------------------------------------------- what a command raises


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], int]:
    """Run a command that raises what it is told to."""
    module = importlib.import_module("catchline.cli.recipes")
    monkeypatch.setattr(names, "outside_run", set())

    def run(error: BaseException) -> int:
        def command() -> None:
            raise error

        monkeypatch.setattr(module, "command", command)
        return cli.main(["recipes"])

    return run


FULL = "No space left on device"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConfigError("Unknown key 'a'."), 2, "Unknown key 'a'."),
        (DataError("x.jsonl:3: empty document."), 3, "x.jsonl:3: empty document."),
        (ModelError("No model in x."), 4, "No model in x."),
        (CheckpointError("checkpoint-3 is not complete."), 5, "checkpoint-3 is not complete."),
        (TrainingError("The loss is not finite."), 6, "The loss is not finite."),
        (OSError(errno.ENOSPC, FULL, "runs/model.safetensors"), DiskFullError.exit_code, "The disk is full"),
        (OSError(errno.ENOSPC, FULL, "a", None, "b"), DiskFullError.exit_code, "The disk is full while writing b."),
        (RuntimeError(f"Error: I/O error: {FULL} (os error 28)"), DiskFullError.exit_code, "The disk is full"),
        (
            PermissionError(errno.EACCES, "Permission denied", "secret.txt"),
            1,
            "Cannot use secret.txt: permission denied.",
        ),
        (KeyboardInterrupt(), 130, "Interrupted."),
    ],
)
def test_an_error_is_one_sentence(
    error: BaseException,
    code: int,
    said: str,
    failing: Callable[[BaseException], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert failing(error) == code
    captured = capsys.readouterr()
    assert captured.err.startswith(f"catchline: {said}")
    assert captured.err.count("\n") == 1
    assert not captured.out


@pytest.mark.parametrize("own", [None, "catchline.search.scorers:Renormalise"])
def test_a_bug_keeps_its_traceback_and_is_ours_unless_classes_of_ones_own_ran(
    own: str | None, failing: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    if own:
        names.resolve("scorer", names.SCORERS, own)  # by a name that no table has
    assert failing(AssertionError("rows differ")) == 1
    message = capsys.readouterr().err
    assert "Traceback" in message
    assert (f"a bug in {own}, which this command ran, or in Catchline" if own else "bug in Catchline") in message
    assert ("report" in message) == (own is None)


def test_a_traceback_can_be_asked_for(
    failing: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATCHLINE_TRACEBACK", "1")
    failing(DataError("x.jsonl:3: empty document."))
    assert "Traceback" in capsys.readouterr().err


def test_a_real_control_c_ends_without_a_traceback(tmp_path: Path) -> None:
    flag = tmp_path / "started"
    code = (
        "import sys, time, pathlib, catchline.cli.recipes as r\n"
        f"def command():\n    pathlib.Path({str(flag)!r}).touch()\n    time.sleep(60)\n"
        "r.command = command\n"
        "from catchline.cli.main import main\nsys.exit(main(['recipes']))"
    )
    # Started in the background of a shell, the tests ignore Ctrl-C, and so would what they start.
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not flag.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error == "catchline: Interrupted.\n"


@pytest.mark.parametrize("body", ["print('line', n)", "show_summaries([Summary(f'line {n}')])"])
def test_a_closed_pipe_is_quiet(body: str) -> None:
    code = (
        "import sys, catchline.cli.recipes as r\n"
        "from catchline.cli.io import show_summaries\nfrom catchline.types import Summary\n"
        f"def command():\n    for n in range(100000): {body}\n"
        "r.command = command\n"
        "from catchline.cli.main import main\nsys.exit(main(['recipes']))"
    )
    reader, writer = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    os.read(reader, 100)
    os.close(reader)
    _, error = process.communicate(timeout=60)
    assert error == ""
    assert process.returncode == cli.EXIT_BROKEN_PIPE


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [("stdin", ["summarize", "lead", "-"], 3), ("stdout", ["recipes"], 0), ("stderr", ["nonsense"], 2)],
)
def test_a_stream_that_is_closed(
    closed: str, arguments: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(RECIPE)
    return path


def test_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "headline_writer" in run(capsys, "recipes")
    listed = json.loads(run(capsys, "recipes", "--json"))
    assert {"headline_writer"} <= {entry["name"] for entry in listed}
    assert all(entry["rows"] and entry["sizes"] for entry in listed)
    assert "type: seq2seq" in run(capsys, "recipes", "show", "headline_writer", "--size", "tiny")


def test_a_recipe_is_shown_resolved(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--row", "fast", "--size", "tiny", "--set", "training.seed=7"]
    text = run(capsys, "recipes", "show", recipe, *arguments)
    assert "batch_size: 64" in text
    assert "max_epochs: 2" in text
    assert "seed: 7" in text
    misspelt = ["recipes", "show", recipe, "--set", "training.batchsize=8"]
    refused(capsys, 2, "Did you mean 'training.batch_size'?", *misspelt)


def test_recipes_check_finds_a_wrong_component(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "4 combinations" in run(capsys, "recipes", "check", recipe)
    recipe.write_text(RECIPE.replace("{type: seq2seq}", "{type: seq2seq, hiden_size: 3}"))
    assert cli.main(["recipes", "check", str(recipe)]) == 2
    (_, told) = capsys.readouterr().err.splitlines()  # one and the same in all rows
    assert ", row plain, size small and 3 others: Unknown key 'model.hiden_size'." in told
    recipe.write_text(RECIPE.replace("{training.batch_size: 64}", "{model.hiden_size: 3}"))
    assert cli.main(["recipes", "check", str(recipe)]) == 2
    assert ", row fast, size small and 1 other: Unknown key" in capsys.readouterr().err


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


SOURCE = Path(catchline.__file__).parent
KNOWN = {"--help", "--quiet", "--version", "--install-completion", "--show-completion"}
# of another program or distribution: `accelerate launch --num_processes 2`, `catchline data subset`
ELSEWHERE = re.compile(r"(?:accelerate launch|torchrun|pip install|data subset)[^`]*")


def options_of(command: object) -> Iterator[str]:
    for parameter in getattr(command, "params", ()):
        yield from (*parameter.opts, *parameter.secondary_opts)
    for below in getattr(command, "commands", {}).values():
        yield from options_of(below)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a file; an f-string is one text."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    inner = {id(part) for node in formatted for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(getattr(part, "value", "X")) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.lineno, node.value


def wrong_options(text: str, known: set[str]) -> list[str]:
    return [option for option in re.findall(r"(?<![\w-])--[a-z][\w-]+", ELSEWHERE.sub("", text)) if option not in known]


def test_options_in_messages_exist() -> None:
    known = KNOWN | {option for name in COMMANDS for option in options_of(load_command(name))}
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: {option}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line, text in texts(path)
        for option in wrong_options(text, known)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_check_finds_what_is_wrong() -> None:
    assert wrong_options("use --skip-badly", KNOWN | {"--skip-bad"}) == ["--skip-badly"]
    assert not wrong_options("use --skip-bad, or pip install --user x", KNOWN | {"--skip-bad"})


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(8):
            text = " ".join(f"Word{number} stands here {place}." for place in range(number + 1))
            pair = {"id": str(number), "document": text, "summary": f"word{number} ## 0", "references": ["x", "here"]}
            file.write(json.dumps(pair) + "\n")
    return path


def test_options_of_the_profile_can_be_changed(scored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(
        capsys, "evaluate", "lead-1", "--data", scored, "--profile", "gigaword", "--no-stem", "--restore-numbers"
    )
    assert "changed: stem=False" in text
    assert "stem:no" in text


def test_a_folder_of_parts_is_checked_and_scored(
    scored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    for number in range(2):
        (parts / f"train-0000{number}.jsonl").write_bytes(scored.read_bytes())
    assert json.loads(run(capsys, "data", "check", parts, "--json"))["splits"]["parts"]["records"] == 16
    assert "16" in run(capsys, "evaluate", "lead-1", "--data", parts)
    assert data_changes(parts)["data"]["train"] == str(parts)
    (parts / "train-00000.jsonl").rename(parts / "train-00003.jsonl")
    refused(capsys, 3, "number 2 is missing", "data", "check", parts)
