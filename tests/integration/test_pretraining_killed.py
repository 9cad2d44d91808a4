"""Kill -9 in the pre-training stage, between the stages and in the training: the run ends in the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from killing import PAIRS, assert_same, finish, kill, start
from word_pairs import write_word_pairs

STAGE_UPDATES, UPDATES = 12, 14
SLOWLY = 0.05


def settings(data: Path) -> dict[str, Any]:
    """With everything that draws random numbers, and checkpoints that do not fall on the ends."""
    stage = {"max_updates": STAGE_UPDATES, "optimizer": {"learning_rate": 0.01}, "average_last": 3}
    return {
        "name": "stages",
        "data": {split: str(data / "pairs" / f"{split}.jsonl") for split in ("train", "validation")},
        "text": {"max_source_tokens": 10, "max_target_tokens": 4, "tokenizer": {"type": "word", "min_frequency": 1}},
        "model": {"type": "seq2seq", "embedding_size": 8, "encoder_hidden": 8, "hidden_size": 8, "dropout": 0.2},
        "pretraining": {"enabled": True, "data": str(data / "spans"), "set": {"training": stage}},
        "training": {
            "batch_size": 4,
            "max_updates": UPDATES,
            "teacher_forcing": {"ratio": 0.6, "scope": "example_step"},
            "log_every": 3,
            "validation": {"every_updates": 4},
            "checkpoint": {"every_updates": 5},
        },
    }


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2])
def test_killed_in_both_stages_it_ends_in_the_same_bits(tmp_path: Path, world: int) -> None:
    for seed, place in enumerate((tmp_path / "pairs", tmp_path / "spans")):
        write_word_pairs(place, PAIRS, seed)
    values = settings(tmp_path)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(values, whole, world))
    stage = killed / "pretraining"
    assert kill(values, killed, world, (stage / "checkpoint-5").is_dir, SLOWLY)
    assert not (stage / "finished.json").exists()
    assert kill(values, killed, world, (stage / "finished.json").exists, SLOWLY)
    assert not list(killed.glob("checkpoint-*"))
    assert kill(values, killed, world, (killed / "checkpoint-5").is_dir, SLOWLY)
    finish(start(values, killed, world))
    assert_same(whole, killed)
