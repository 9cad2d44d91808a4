"""The program of docs/python.md that trains by hand runs as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from laconic import Summarizer

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
