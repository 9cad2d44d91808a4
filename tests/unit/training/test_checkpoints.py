"""Checkpoint folders: whole or absent, verified, without pickle; a full disk; half-written and damaged folders."""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from catchline.errors import CheckpointError
from catchline.training import checkpoint as files
from catchline.training.checkpoint import (
    Snapshot,
    TrainState,
    generators,
    restore_generators,
    seed_everything,
)


def snapshot(value: float = 1.0) -> Snapshot:
    shared = torch.full((3, 2), value)
    return Snapshot(
        tensors={"model": {"a": shared, "b": shared, "c": shared.t()}, "optimizer": {"a.step": torch.tensor(value)}},
        values={"number": 0.1 + 0.2, "text": "ü"},
    )


def test_round_trip(tmp_path: Path) -> None:
    folder = files.write_checkpoint(tmp_path, 7, snapshot(2.5))
    assert folder.name == "checkpoint-7"
    back = files.read_checkpoint(folder)
    assert back.values == {"number": 0.1 + 0.2, "text": "ü"}
    assert back.tensors.keys() == {"model", "optimizer"}
    assert torch.equal(back.tensors["model"]["b"], torch.full((3, 2), 2.5))
    assert back.tensors["model"]["c"].shape == (2, 3)
    assert back.tensors["optimizer"]["a.step"].shape == ()
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["remove", "cut", "flip"])
def test_a_damaged_checkpoint_falls_back(tmp_path: Path, name: str, damage: str) -> None:
    files.write_checkpoint(tmp_path, 1, snapshot(1.0))
    path = files.write_checkpoint(tmp_path, 2, snapshot(2.0)) / name
    content = bytearray(path.read_bytes())
    if damage == "remove":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 0x10
        path.write_bytes(content)
    said: list[str] = []
    found = files.read_newest(tmp_path, said.append)
    assert found is not None
    assert found[0].name == "checkpoint-1"
    assert float(found[1].tensors["model"]["a"][0, 0]) == 1.0
    (line,) = said
    assert "checkpoint-2" in line
    assert "before it" in line


def test_all_damaged_is_an_error_and_none_is_none(tmp_path: Path) -> None:
    assert files.read_newest(tmp_path, print) is None
    (files.write_checkpoint(tmp_path, 1, snapshot()) / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match="None of the 1 checkpoints"):
        files.read_newest(tmp_path, lambda message: None)


def half_written(folder: Path) -> None:
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"half")


def names(folders: Iterable[Path]) -> list[str]:
    return [folder.name for folder in folders]


def test_half_written_folders_are_removed_and_one_that_was_being_replaced_comes_back(tmp_path: Path) -> None:
    files.write_checkpoint(tmp_path, 1, snapshot())
    half_written(tmp_path / ".checkpoint-2.partial")
    half_written(tmp_path / "checkpoint-3")
    (tmp_path / "checkpoint-1").rename(tmp_path / ".checkpoint-1.previous")  # killed between the two renames
    files.remove_drafts(tmp_path)
    assert names(tmp_path.iterdir()) == ["checkpoint-1"]
    files.read_checkpoint(tmp_path / "checkpoint-1")


def test_pruning_keeps_the_newest(tmp_path: Path) -> None:
    for update in (2, 8, 10):
        files.write_checkpoint(tmp_path, update, snapshot())
    files.prune(tmp_path, keep=2)
    assert names(files.checkpoint_folders(tmp_path)) == ["checkpoint-10", "checkpoint-8"]


@pytest.mark.parametrize("call", range(8))
def test_a_full_disk_leaves_the_last_good_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Whichever flush of the second checkpoint fails."""
    good = files.write_checkpoint(tmp_path, 1, snapshot(1.0))
    real, calls = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls > call:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_checkpoint(tmp_path, 2, snapshot(2.0))
    monkeypatch.undo()
    assert not list(tmp_path.glob(".*"))
    assert float(files.read_checkpoint(good).tensors["model"]["a"][0, 0]) == 1.0


def test_an_update_can_be_written_again(tmp_path: Path) -> None:
    files.write_checkpoint(tmp_path, 3, snapshot(1.0))
    folder = files.write_checkpoint(tmp_path, 3, snapshot(2.0))
    assert float(files.read_checkpoint(folder).tensors["model"]["a"][0, 0]) == 2.0
    assert names(tmp_path.iterdir()) == ["checkpoint-3"]


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.random_sample()), float(torch.rand(()))


def test_the_generator_survives_json() -> None:
    seed_everything(4, rank=1)
    draw()
    states = json.loads(json.dumps(generators()))
    expected = [torch.rand(()), torch.randn(3).tolist()]
    seed_everything(5)
    restore_generators(states)
    assert [torch.rand(()), torch.randn(3).tolist()] == expected


def test_ranks_and_seeds_differ_and_reading_the_state_draws_nothing() -> None:
    draws = []
    for seed, rank in [(1, 0), (1, 1), (2, 0), (2, 1), (1, 0)]:
        seed_everything(seed, rank)
        if len(draws) == 4:
            generators()
        draws.append(draw())
    assert len(set(draws)) == 4
    assert draws[0] == draws[4]


def test_state_refuses_other_fields() -> None:
    state = TrainState(update=3, window={"loss": 0.1})
    values: dict[str, Any] = json.loads(json.dumps(asdict(state)))
    assert TrainState.from_state_dict(values) == state
    with pytest.raises(CheckpointError, match="wings"):
        TrainState.from_state_dict(values | {"wings": 2})
