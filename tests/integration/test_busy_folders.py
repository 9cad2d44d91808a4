"""Every command that goes on with what it finds in a folder or file works there alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from laconic.cli.main import main
from laconic.files import only_here, only_writer


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "validation.jsonl"
    pair = {"document": "One two three. Four five six. Seven eight.", "summary": "Four five."}
    path.write_text((json.dumps(pair) + "\n") * 3)
    return path


@pytest.mark.parametrize(
    "command",
    [
        ["compare", "lead", "lexrank", "--data", "{pairs}", "--out", "{out}"],
        ["compare", "headline_writer", "--size", "tiny", "--data", "{both}", "--out", "{out}"],
        ["data", "select-spans", "--k", "2", "--tokenizer", "words", "--input", "{pairs}", "--out", "{out}"],
        [
            "data",
            "select-spans",
            "--k",
            "2",
            "--tokenizer",
            "words",
            "--input",
            "{pairs}",
            "--out",
            "{out}",
            "--overwrite",
        ],
        ["train", "headline_writer", "--size", "tiny", "--data", "{pairs}", "--out", "{out}"],
        ["train", "headline_writer", "--size", "tiny", "--data", "{pairs}", "--out", "{out}", "--force"],
    ],
)
def test_the_second_one_is_told(
    command: list[str], pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, both = tmp_path / "out", tmp_path / "both"
    both.mkdir()
    for split in ("train", "validation"):
        (both / f"{split}.jsonl").write_bytes(pairs.read_bytes())
    with only_here(out):
        assert main(["--quiet", *(part.format(pairs=pairs, out=out, both=both) for part in command)]) == 1
        assert [path.name for path in out.iterdir()] == [".lock"]
    said = capsys.readouterr().err
    assert said.startswith(f"laconic: {out} is in use by process ")
    assert said.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("command", "held"),
    [
        (["summarize", "lead-1", "{pairs}", "--output", "{out}/a.jsonl"], "a.jsonl"),
        (["evaluate", "lead-1", "--data", "{pairs}", "--output", "{out}"], "lead-1.predictions.jsonl.partial"),
    ],
)
def test_one_process_writes_a_file(
    command: list[str], held: str, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["--quiet", *(part.format(pairs=pairs, out=out) for part in command)]
    with only_writer(out / held):
        assert main(arguments) == 1
        assert [path.name for path in out.iterdir()] == [f".{held}.lock"]
    assert f"{held} is in use by process " in capsys.readouterr().err
    assert main(arguments) == 0
    assert not list(out.glob(".*"))
