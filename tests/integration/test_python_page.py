"""The programs of docs/python.md and docs/comparing.md run as they stand there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from laconic import Summarizer
from laconic.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_a_model_trained_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Below the summarizer")[2]
    program = re.search(r"```python\n(.*?)```", section, re.S)
    assert program is not None
    monkeypatch.chdir(tmp_path)
    pairs = [{"id": str(n), "document": f"the cat number {n} sat on a mat", "summary": f"cat {n}"} for n in range(20)]
    Path("pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    exec(compile(program[1], str(PAGE), "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["16", "17", "18", "19"], "the last batch"
    assert Summarizer.from_pretrained("models/by-hand").summarize("the cat sat").tokens_read == 3


def test_a_measure_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section = PAGE.with_name("comparing.md").read_text(encoding="utf-8").partition("## A measure of your own")[2]
    program = re.search(r"```python\n(.*?)```", section, re.S)
    assert program is not None
    monkeypatch.chdir(tmp_path)
    pairs = [{"id": str(n), "document": f"Cat {n} sat. It slept.", "summary": f"cat {n} sat."} for n in range(9)]
    Path("validation.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    assert main(["compare", "lead-1", "lead-2", "--data", "validation.jsonl", "--out", "runs/table"]) == 0
    capsys.readouterr()
    exec(compile(program[1], str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("lead-2-")
    assert "'difference': -1.0" in printed
