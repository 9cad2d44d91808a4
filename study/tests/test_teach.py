"""Lines of a prompted model as pairs to train on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catchline import read_records
from catchline.cli import main as cli
from catchline.errors import ModelError
from catchline.summarizer.llm import LanguageModelSystem
from commands import refused, run

TEACHER = "openai:tiny@http://localhost/v1"
TEXTS = ["Ferry 7 stays in the harbour.", "", "The mail of Monday is late.", "nothing at all", "invent a name"]


def test_lines_become_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def answer(self: Any, prompt: Any, record: Any, options: Any) -> str:
        asked.append(record.document)
        if len(asked) == 3:
            raise ModelError("The server is gone.")
        return {"nothing": "", "invent": "Ellinghaus"}.get(record.document.split()[0], record.document)

    monkeypatch.setattr(LanguageModelSystem, "_answer", answer)
    monkeypatch.setattr(LanguageModelSystem, "batch", 1)
    monkeypatch.setattr("catchline.summarizer.llm._AT_ONCE", 1)
    monkeypatch.setattr("catchline.summarizer.summarize.WINDOW_BATCHES", 2)
    monkeypatch.setattr(cli, "_place_in_study", lambda name: "catchline_study.commands.teach:command")
    texts, pairs, prompt = tmp_path / "texts.jsonl", tmp_path / "pairs.jsonl", tmp_path / "prompt.txt"
    texts.write_text("".join(json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(TEXTS)))
    prompt.write_text("Be short.")
    command = ["teach", TEACHER, texts, "--words", "2-4", "--prompt", prompt, "--output", pairs]
    refused(capsys, 2, "is an input", *command[:-1], texts)
    refused(capsys, 4, "server is gone", *command, "--skip-bad")
    assert not pairs.exists()
    run(capsys, *command, "--skip-bad")
    assert len(asked) == 5, "the first line was kept"
    kept = [(record.id, record.document, record.summary) for record in read_records(pairs)]
    assert kept == [("0", TEXTS[0], "Ferry 7 stays in"), ("2", TEXTS[2], "The mail of Monday")]
    refused(capsys, 3, "exists", *command)
