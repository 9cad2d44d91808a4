"""What the commands of the study say of a mistake: one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import refused
from json_lines import write_lines

SPANS = "data select-spans pairs.jsonl --k 5 --out out"
MISTAKES = [
    ("data select-spans --k 5 --out out", 2, "Nothing to read"),
    (f"{SPANS} --weights 1,1", 2, "one each for R-1"),
    ("data select-spans none.txt --tokenizer words --k 5 --out out", 3, "holds no file to read"),
    (f"{SPANS} --tokenizer words --input-length 8 --output-length 4", 3, "the longest"),
    ("data subset pairs.jsonl out.jsonl", 2, "Say which part"),
    ("data subset pairs.jsonl out.jsonl --sample 9", 3, "there are 2"),
    ("data prepare duc2004 none out.jsonl --references none", 3, "holds no folders"),
    ("align", 2, "Give a model"),
    ("align lexrank --data pairs.jsonl", 2, "extractive method"),
    ("align oneline --text x --pair-id y", 2, "not both"),
    ("tune lead-1 --data pairs.jsonl --grid beam_size=2", 2, "has no search to tune"),
    ("tune oneline --data pairs.jsonl", 2, "Say what to search"),
    ("tune oneline --data pairs.jsonl --grid beam_sise=2", 2, "Did you mean 'beam_size'?"),
    ("plot none --out c.png", 3, "has no log.jsonl with a line"),
    ("reproduce distraction", 2, "folder with arxiv in it"),
]


def test_a_mistake_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "pairs.jsonl", [{"document": "It was very late.", "summary": "late"}] * 2)
    for line, code, said in MISTAKES:
        refused(capsys, code, said, *line.split())
