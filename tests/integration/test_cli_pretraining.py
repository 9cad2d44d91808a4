"""``catchline train`` and ``catchline compare`` with rows that have a pre-training stage and rows that have none."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from catchline.cli.main import main
from catchline.training import loop
from word_pairs import write_word_pairs

RECIPE = """
extends: headline_writer
base:
  pretraining: {set: {training: {max_epochs: null, max_updates: 3}}}
rows:
  staged:
    label: LSTM after a stage
    set: {pretraining.enabled: true, model: {attention: null, head: {type: vocabulary}}, objectives: [{type: nll}]}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Pairs, spans and a recipe with one row that has a stage."""
    torch.set_num_threads(1)
    for seed, (folder, count) in enumerate({"pairs": 24, "spans": 32}.items()):
        write_word_pairs(tmp_path / folder, {"train": count, "validation": 6}, seed, lengths=(8, 8), summary=3)
    (tmp_path / "staged.yaml").write_text(RECIPE)
    return tmp_path


def compare(place: Path, *more: str) -> int:
    arguments = ["compare", str(place / "staged.yaml"), "--size", "tiny", "--data", str(place / "pairs")]
    return main([*arguments, "--rows", "lstm,staged", "--out", str(place / "out"), *more])


def spans_of(place: Path) -> list[str]:
    return ["--set", f"pretraining.data={place / 'spans'}"]


def results(place: Path) -> dict[str, dict[str, Any]]:
    return {row["row"]: row for row in json.loads((place / "out" / "compare.json").read_text())["rows"]}


def test_only_the_row_with_a_stage_is_pre_trained(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # without the data, the row says what to set, and the other row is there all the same
    assert compare(place) == 1
    rows = results(place)
    assert rows["lstm"]["rouge"]
    said = " ".join(capsys.readouterr().out.split())
    assert "Row 'staged' has a pre-training stage, and nothing says on which pairs: set pretraining.data" in said
    assert not (place / "out" / "runs" / "staged-seed-1").exists()
    state = json.loads((place / "out" / "state.json").read_text())

    # with it, the row that is trained stays as it is
    assert compare(place, *spans_of(place)) == 0
    assert "Stage 1 of 2: pre-training" in capsys.readouterr().err
    again = json.loads((place / "out" / "state.json").read_text())
    assert again["runs"]["lstm-seed-1"] == state["runs"]["lstm-seed-1"]
    assert "pretraining" not in again["runs"]["lstm-seed-1"]["settings"]
    folders = [path.parent.name for path in (place / "out" / "runs").glob("*/pretraining")]
    assert folders == ["staged-seed-1"]
    assert results(place)["staged"]["rouge"]["1"]["f"] is not None

    # what the stage was made of is part of what the row is
    assert compare(place, *spans_of(place), "--set", "pretraining.set.training.max_updates=4") == 2
    assert "pretraining.set.training.max_updates: 3 there, 4 now" in capsys.readouterr().err
    with open(place / "spans" / "train.jsonl", "a", encoding="utf-8") as file:
        file.write('{"document": "one more", "summary": "more"}\n')
    assert compare(place, *spans_of(place)) == 2
    assert "other data or files" in capsys.readouterr().err


def test_interrupted_in_the_stage_a_comparison_goes_on_there(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = loop.Trainer._update
    updates: list[tuple[str, int]] = []

    def update(trainer: Any, stop: Any) -> None:
        real(trainer, stop)
        updates.append((trainer.out.name, trainer.state.update))
        if updates[-1] == ("pretraining", 1):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(loop.Trainer, "_update", update)
    rows = ["--rows", "staged"]
    assert compare(place, *spans_of(place), *rows) == 130
    assert compare(place, *spans_of(place), *rows) == 0
    capsys.readouterr()
    of_stage = [number for name, number in updates if name == "pretraining"]
    assert of_stage == [1, 2, 3]
