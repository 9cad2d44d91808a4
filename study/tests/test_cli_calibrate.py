"""``catchline calibrate`` on a tiny pointer-generator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catchline import Summarizer
from catchline.metrics.confidence import Calibration
from catchline_study import calibration
from commands import refused, run
from json_lines import write_lines
from tiny_models import DOCUMENTS, save_tiny_model


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(calibration, "LEAST_RECORDS", 40)
    records = [{"id": f"r{n}", "document": DOCUMENTS[n % 5], "summary": "it was late"} for n in range(45)]
    write_lines(tmp_path / "pairs.jsonl", records)
    return save_tiny_model(tmp_path / "model", max_source_tokens=12)


def test_calibrate_believes_readers_where_they_have_rated(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, sheet = place.parent / "pairs.jsonl", place.parent / "ratings.jsonl"
    made = Summarizer.from_pretrained(place).summarize(DOCUMENTS[:5])
    lines = [{"id": f"r{n}", "summary": made[n % 5].text.upper(), "rating": 1 + (n % 3 > 0)} for n in range(45)]
    write_lines(sheet, lines)
    arguments = ["calibrate", str(place), "--data", str(data), "--ratings", str(sheet), "--json"]
    values = json.loads(run(capsys, *arguments))
    assert (values["accepted"], values["threshold"]) == (pytest.approx(2 / 3), 0.5)
    found = Calibration.load(place)
    assert found is not None
    assert (found.records, found.accepted) == (45, "rated 2 or more by readers")
    assert json.loads(run(capsys, *arguments, "--threshold", "0.25"))["threshold"] == 0.25
    write_lines(sheet, lines[:20])
    refused(capsys, 3, "40 records or more of which readers rated the line that the model writes; here", *arguments)
    refused(capsys, 3, "no file nowhere.jsonl; `catchline judge analyse", *arguments[:5], "nowhere.jsonl")
    assert "Below a confidence of 0.25" in (place / "README.md").read_text()
    assert Summarizer.from_pretrained(place).summarize(DOCUMENTS[0], always_write=True).confidence is not None
    how = ["--data", data, "--ratings", sheet]
    refused(capsys, 2, "`catchline export oneline --out DIR` makes a copy", "calibrate", "oneline", *how)
    refused(capsys, 2, "has no confidence to calibrate", "calibrate", "lexrank", *how)
