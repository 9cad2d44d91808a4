"""From the command line: scoring profiles, and folders of parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catchline.data.records import data_changes
from commands import refused, run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(8):
            text = " ".join(f"Word{number} stands here {place}." for place in range(number + 1))
            pair = {"id": str(number), "document": text, "summary": f"word{number} ## 0", "references": ["x", "here"]}
            file.write(json.dumps(pair) + "\n")
    return path


def test_options_of_the_profile_can_be_changed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "evaluate", "lead-1", "--data", data, "--profile", "gigaword", "--no-stem", "--restore-numbers")
    assert "changed: stem=False" in text
    assert "stem:no" in text


def test_a_folder_of_parts_is_checked_and_scored(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    for number in range(2):
        (parts / f"train-0000{number}.jsonl").write_bytes(data.read_bytes())
    assert json.loads(run(capsys, "data", "check", parts, "--json"))["splits"]["parts"]["records"] == 16
    assert "16" in run(capsys, "evaluate", "lead-1", "--data", parts)
    assert data_changes(parts)["data"]["train"] == str(parts)
    (parts / "train-00000.jsonl").rename(parts / "train-00003.jsonl")
    refused(capsys, 3, "number 2 is missing", "data", "check", parts)
