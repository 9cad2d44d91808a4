"""Runs that are killed end in the same bits, in every family and in both stages; two jobs never share a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from catchline.files import only_here, only_writer
from commands import refused, run
from json_lines import write_lines
from killing import FAMILIES, PAIRS, assert_same, finish, kill, settings, start, survive
from word_pairs import write_word_pairs

KILLS = 15  # of each family, in one process and in two: 180 together


def test_a_killed_run_ends_in_the_same_bits(tmp_path: Path) -> None:
    survive(tmp_path, "headline writer", world=1, kills=1, seed=1, further=False)


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("family", ["headline writer", *FAMILIES])
def test_every_family_survives(tmp_path: Path, family: str, world: int) -> None:
    survive(tmp_path, family, world=world, kills=KILLS, seed=world)


SLOWLY = 0.05


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2])
def test_killed_in_both_stages_it_ends_in_the_same_bits(tmp_path: Path, world: int) -> None:
    """With everything that draws random numbers, and checkpoints that do not fall on the ends."""
    for seed, place in enumerate((tmp_path / "pairs", tmp_path / "spans")):
        write_word_pairs(place, PAIRS, seed)
    stage = {"max_updates": 14, "phases": [], "optimizer": {"learning_rate": 0.01}, "average_last": 3}
    pretraining = {"enabled": True, "data": str(tmp_path / "spans"), "set": {"training": stage}}
    values = settings(tmp_path / "pairs") | {"pretraining": pretraining}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(values, whole, world))
    stages = killed / "pretraining"
    assert kill(values, killed, world, (stages / "checkpoint-4").is_dir, SLOWLY)
    assert not (stages / "finished.json").exists()
    assert kill(values, killed, world, (stages / "finished.json").exists, SLOWLY)
    assert not list(killed.glob("checkpoint-*"))
    assert kill(values, killed, world, (killed / "checkpoint-4").is_dir, SLOWLY)
    finish(start(values, killed, world))
    assert_same(whole, killed)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    pair = {"document": "One two three. Four five six. Seven eight.", "summary": "Four five."}
    return write_lines(tmp_path / "validation.jsonl", [pair] * 3)


@pytest.mark.parametrize(
    "command",
    [
        "compare lead lexrank --data {pairs} --out {out}",
        "evaluate lead-1 --data {pairs} --output {out}",
        "train headline_writer --size tiny --data {pairs} --out {out} --force",
    ],
)
def test_the_second_one_is_told(command: str, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = command.format(pairs=pairs, out=out).split()
    with only_here(out):
        refused(capsys, 1, f"catchline: {out} is in use by process ", *arguments)
        assert [path.name for path in out.iterdir()] == [".lock"]
    assert not out.exists()


def test_one_process_writes_a_file(pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = ["summarize", "lead-1", pairs, "--output", out / "a.jsonl"]
    with only_writer(out / "a.jsonl"):
        refused(capsys, 1, "a.jsonl is in use by process ", *arguments)
        assert [path.name for path in out.iterdir()] == [".a.jsonl.lock"]
    run(capsys, *arguments)
    assert not list(out.glob(".*"))
