"""Five hundred command lines: an exit code of the table, a sentence on stderr, no traceback, no hang."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hostile import UNSHRUNK, in_time, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.cli.main import COMMANDS, load_command, main

CODES = {0, 1, 2, 3, 4, 5, 6, 7, 130}
FILES = {
    "pairs.jsonl": '{"document": "one two three. four five six.", "summary": "one two."}\n' * 3,
    "text.txt": "One sentence here. Another one there.\n",
    "broken.jsonl": '{"document": "one"\n',
    "bytes.txt": "\udcff\udcfe",
    "mine.yaml": "extends: headline_writer\n",
    "run/recipe.yaml": "name: x\n",
    "model/config.json": "{}",
}
# nothing outside the folder of the test may be written
INSIDE = texts.filter(lambda text: not any(part in text for part in ("/", "..", "~", "\0")))
WORDS = [*FILES, "model", "run", ".", "lead", "lexrank", "headline_writer", "extractive", "validation", "absent"]


def commands() -> list[tuple[list[str], Any]]:
    """Every command and sub-command with its options; what trains or serves for minutes is stopped by `standing`."""
    found: list[tuple[list[str], Any]] = []
    for name in COMMANDS:
        command = load_command(name)
        below = getattr(command, "commands", None)
        found += [([name, sub], part) for sub, part in below.items()] if below else [([name], command)]
    return found


KNOWN = commands()


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A command with words of its kind and options of its own, each with some value."""
    names, command = draw(st.sampled_from(KNOWN))
    arguments = list(names)
    word = st.one_of(st.sampled_from(WORDS), st.sampled_from(WORDS), INSIDE)
    arguments += draw(st.lists(word, max_size=3))
    options = [option for option in command.params if option.opts and option.opts[0].startswith("-")]
    for option in draw(st.lists(st.sampled_from(options), max_size=4)) if options else []:
        arguments.append(draw(st.sampled_from([*option.opts, *option.secondary_opts])))
        if not getattr(option, "is_flag", False):
            arguments.append(draw(word))
    if draw(st.booleans()):
        arguments.insert(draw(st.integers(0, len(arguments))), draw(INSIDE))
    return arguments


@pytest.fixture
def standing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with some files; a service that would start answers nothing, a training stops at once."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import catchline.training.run
    from catchline.errors import TrainingError

    def stopped(*arguments: Any, **options: Any) -> None:
        raise TrainingError("Nothing is trained here.")

    monkeypatch.setattr(catchline.training.run, "train", stopped)
    uvicorn = pytest.importorskip("uvicorn")
    monkeypatch.setattr(uvicorn.Server, "run", lambda *arguments, **options: None)
    return tmp_path


@pytest.mark.slow
def test_five_hundred_command_lines(standing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes: dict[int, int] = {}

    @settings(max_examples=500, **UNSHRUNK)
    @given(arguments=lines())
    def one(arguments: list[str]) -> None:
        os.chdir(standing)
        stdout, stderr = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"One sentence. Another.\n"), "utf-8"))
        with in_time(), contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            code = main(arguments)
        said = stderr.getvalue()
        assert code in CODES, (code, said)
        assert "Traceback" not in said, said
        assert "This is a bug" not in said, said
        stdout.flush()  # a command that lacks its sub-command prints its help
        assert code == 0 or said.strip() or stdout.buffer.getvalue(), "it failed without a word"
        codes[code] = codes.get(code, 0) + 1

    one()
    print(codes)
    assert codes.get(0, 0) > 3, codes
    assert codes.get(2, 0) > 50, codes
