"""Every command that goes on with what it finds in a folder or file works there alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from catchline.files import only_here, only_writer
from commands import refused, run
from json_lines import write_lines


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    pair = {"document": "One two three. Four five six. Seven eight.", "summary": "Four five."}
    return write_lines(tmp_path / "validation.jsonl", [pair] * 3)


@pytest.mark.parametrize(
    "command",
    [
        "compare lead lexrank --data {pairs} --out {out}",
        "compare headline_writer --size tiny --data {both} --out {out}",
        "data select-spans --k 2 --tokenizer words --input {pairs} --out {out}",
        "data select-spans --k 2 --tokenizer words --input {pairs} --out {out} --overwrite",
        "train headline_writer --size tiny --data {pairs} --out {out}",
        "train headline_writer --size tiny --data {pairs} --out {out} --force",
    ],
)
def test_the_second_one_is_told(command: str, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, both = tmp_path / "out", tmp_path / "both"
    both.mkdir()
    for split in ("train", "validation"):
        (both / f"{split}.jsonl").write_bytes(pairs.read_bytes())
    arguments = command.format(pairs=pairs, out=out, both=both).split()
    with only_here(out):
        refused(capsys, 1, f"catchline: {out} is in use by process ", *arguments)
        assert [path.name for path in out.iterdir()] == [".lock"]
    assert not out.exists()


@pytest.mark.parametrize(
    ("command", "held"),
    [
        ("summarize lead-1 {pairs} --output {out}/a.jsonl", "a.jsonl"),
        ("evaluate lead-1 --data {pairs} --output {out}", "lead-1.predictions.jsonl.partial"),
    ],
)
def test_one_process_writes_a_file(
    command: str, held: str, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = command.format(pairs=pairs, out=out).split()
    with only_writer(out / held):
        refused(capsys, 1, f"{held} is in use by process ", *arguments)
        assert [path.name for path in out.iterdir()] == [f".{held}.lock"]
    run(capsys, *arguments)
    assert not list(out.glob(".*"))
