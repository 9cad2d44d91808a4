"""Checkpoint folders: whole or absent, verified, without pickle; a full disk; half-written and damaged folders."""

from __future__ import annotations

import errno
import os
import random
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from catchline.errors import CheckpointError
from catchline.training import checkpoint as files
from catchline.training.checkpoint import Snapshot, TrainState, generators, seed_everything


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


def test_half_written_folders_are_removed_and_one_that_was_being_replaced_comes_back(tmp_path: Path) -> None:
    files.write_checkpoint(tmp_path, 1, snapshot())
    for name in (".checkpoint-2.partial", "checkpoint-3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"half")
    (tmp_path / "checkpoint-1").rename(tmp_path / ".checkpoint-1.previous")  # killed between the two renames
    files.remove_drafts(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "checkpoint-1"]
    files.read_checkpoint(tmp_path / "checkpoint-1")


def test_pruning_keeps_the_newest(tmp_path: Path) -> None:
    ten, eight = [files.write_checkpoint(tmp_path, update, snapshot()) for update in (10, 8, 2)][:2]
    files.prune(tmp_path, keep=2)
    assert files.checkpoint_folders(tmp_path) == [ten, eight]


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


def test_ranks_and_seeds_differ_and_reading_the_state_draws_nothing() -> None:
    draws = []
    for seed, rank in [(1, 0), (1, 1), (2, 0), (2, 1), (1, 0)]:
        seed_everything(seed, rank)
        if len(draws) == 4:
            generators()
        draws.append((random.random(), float(np.random.random_sample()), float(torch.rand(()))))
    assert len(set(draws)) == 4
    assert draws[0] == draws[4]


def test_state_refuses_other_fields() -> None:
    with pytest.raises(CheckpointError, match="wings"):
        TrainState.from_state_dict(asdict(TrainState(update=3)) | {"wings": 2})
