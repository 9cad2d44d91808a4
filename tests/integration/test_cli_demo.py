"""The demo from end to end, on a corpus of a few made-up docstrings and the smallest model."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from laconic.cli import demo
from laconic.cli.main import main

THINGS = ["file", "list", "socket", "table", "index", "graph", "matrix", "token", "cache", "stream"]
VERBS = ["Read", "Sort", "Close", "Print", "Merge", "Split", "Count", "Copy"]


def pairs(number: int, seed: int) -> list[dict[str, str]]:
    draw = random.Random(seed)
    made = []
    for position in range(number):
        verb, thing = draw.choice(VERBS), draw.choice(THINGS)
        body = f"This will {verb.lower()} the {thing} and return nothing. The {thing} is kept. Errors are raised."
        made.append({"id": f"{seed}.{position}", "document": body, "summary": f"{verb} the {thing}."})
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    corpus = tmp_path / "demo" / "corpus"
    corpus.mkdir(parents=True)
    for seed, (split, number) in enumerate({"train": 64, "validation": 16, "test": 24}.items()):
        lines = [json.dumps(pair) + "\n" for pair in pairs(number, seed)]
        (corpus / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    return tmp_path / "demo"


def test_demo_and_its_repetition(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--out", str(folder), "--size", "tiny", "--minutes", "1", "--max-test", "12"]
    assert main(["demo", *arguments, "Sort the cache. It is </script> big."]) == 0
    first = capsys.readouterr()
    assert "lead-1" in first.out
    assert demo.NAME in first.out
    assert "The trained model" in first.out
    assert "Your text" in first.out
    assert "12 docstrings of packages it never saw" in first.out
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Held-out packages" in page
    assert "</script> big" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    scores = {path.name: path.read_bytes() for path in (folder / "scores").iterdir()}
    assert len(scores) == len(demo.BASELINES) + 1

    assert main(["demo", *arguments]) == 0
    second = capsys.readouterr()
    assert "Going on with" in second.err
    assert "A text of our own" in second.out
    assert {path.name: path.read_bytes() for path in (folder / "scores").iterdir()} == scores


def test_an_empty_text_is_refused_before_anything_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path / "demo"), "   "]) == 2
    assert "empty" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


def test_the_baselines_are_extractive_methods() -> None:
    from laconic.evaluation.systems import is_method

    assert all(is_method(name) for name in demo.BASELINES)
    assert demo.BASELINES[0] == "lead-1"
