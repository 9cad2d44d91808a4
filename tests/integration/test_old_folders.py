"""Folders that an earlier revision wrote open, write the same words and train on: tests/old_folders."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import yaml

from catchline import Summarizer
from catchline.cli.main import main
from json_lines import read_lines

OLD = Path(__file__).parents[1] / "old_folders"
FAMILIES = ["pointer_generator", "coarse_to_fine", "coconet"]
EXPECTED = json.loads((OLD / "expected.json").read_text())


def run_of(family: str, tmp_path: Path) -> Path:
    """A copy of the run, killed after update 8 of 12, whose data are the ones beside it."""
    shutil.copytree(OLD / family / "run", tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoint-8"
    for path in (tmp_path / "run" / "recipe.yaml", checkpoint / "state.json"):
        path.write_text(path.read_text().replace("DATA", str(OLD / "data")))
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    state = (checkpoint / "state.json").read_bytes()
    manifest["files"]["state.json"] = {"bytes": len(state), "sha256": hashlib.sha256(state).hexdigest()}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    return tmp_path / "run"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_folder_writes_the_same_words(family: str) -> None:
    summarizer = Summarizer.from_pretrained(OLD / family / "model")
    for expected in EXPECTED[family]["summaries"]:
        summary = summarizer.summarize(expected["document"])
        assert summary.text == expected["text"]
        assert summary.score == pytest.approx(expected["score"], abs=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_folder_trains_on(family: str, tmp_path: Path) -> None:
    run = run_of(family, tmp_path)
    assert main(["resume", str(run)]) == 0
    entries = read_lines(run / "log.jsonl")
    last = [entry for entry in entries if entry["kind"] == "validation"][-1]
    assert last["update"] == 12
    assert last["val_loss_tf"] == pytest.approx(EXPECTED[family]["val_loss_tf"], rel=1e-3)
    assert yaml.safe_load((run / "model" / "recipe.yaml").read_text())["model"]["type"]
