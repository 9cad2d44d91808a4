"""The programs of docs/python.md and docs/comparing.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from catchline import Summarizer
from commands import run
from json_lines import write_lines

DOCS = Path(__file__).parents[2] / "docs"


def printed_by(page: str, heading: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the first program below a heading prints."""
    section = (DOCS / page).read_text(encoding="utf-8").partition(f"## {heading}")[2]
    program = re.search(r"```python\n(.*?)```", section, re.S)
    assert program is not None
    capsys.readouterr()
    exec(compile(program[1], page, "exec"), {})
    return capsys.readouterr().out


def test_a_model_trained_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = [{"id": str(n), "document": f"the cat number {n} sat on a mat", "summary": f"cat {n}"} for n in range(20)]
    write_lines(Path("pairs.jsonl"), pairs)
    printed = printed_by("python.md", "Below the summarizer", capsys).splitlines()
    assert [line.split()[0] for line in printed] == ["16", "17", "18", "19"], "the last batch"
    assert Summarizer.from_pretrained("models/by-hand").summarize("the cat sat").tokens_read == 3


def test_a_measure_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = [{"id": str(n), "document": f"Cat {n} sat. It slept.", "summary": f"cat {n} sat."} for n in range(9)]
    write_lines(Path("validation.jsonl"), pairs)
    run(capsys, "compare", "lead-1", "lead-2", "--data", "validation.jsonl", "--out", "runs/table")
    printed = printed_by("comparing.md", "A measure of your own", capsys)
    assert printed.startswith("lead-2-")
    assert "'difference': -1.0" in printed
