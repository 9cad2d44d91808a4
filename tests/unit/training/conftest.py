"""A tiny corpus and runs on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import MakeRun

from catchline.config.loading import merge
from catchline.config.schema import RunConfig
from catchline.training.log import Callbacks
from catchline.training.loop import Trainer
from catchline.training.prepare import prepare
from catchline.training.step import join_processes
from word_pairs import write_word_pairs

MakeTrainer = Callable[..., Trainer]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 40 training and 10 validation pairs of different lengths."""
    return write_word_pairs(tmp_path_factory.mktemp("pairs"), {"train": 40, "validation": 10}, 5, summary=(1, 4))


@pytest.fixture(scope="session")
def make_run(pairs: Path) -> MakeRun:
    """``make_run(**{"training.batch_size": 4, ...})``: a small run with changes."""

    def make(**changes: Any) -> RunConfig:
        base = {
            "name": "tiny",
            "data": {"train": str(pairs / "train.jsonl"), "validation": str(pairs / "validation.jsonl")},
            "text": {
                "max_source_tokens": 10,
                "max_target_tokens": 5,
                "tokenizer": {"type": "word", "min_frequency": 1},
            },
            "model": {
                "type": "seq2seq",
                "embedding_size": 6,
                "encoder_hidden": 6,
                "hidden_size": 6,
                "attention": {"type": "additive", "coverage": True},
            },
            "objectives": [{"type": "nll"}, {"type": "coverage"}],
            "training": {"batch_size": 8, "max_updates": 6, "log_every": 2, "seed": 3},
        }
        return RunConfig(**merge(base, changes, revive=True))

    return make


@pytest.fixture
def make_trainer(make_run: MakeRun, tmp_path: Path) -> MakeTrainer:
    """A trainer in ``tmp_path / "run"`` that has not made any update."""

    def make(run: RunConfig | None = None, **changes: Any) -> Trainer:
        run = run or make_run(**changes)
        out = tmp_path / "run"
        out.mkdir(exist_ok=True)
        accelerator = join_processes(run.training.trackers, out)
        torch.manual_seed(run.training.seed)
        parts = prepare(run, out, accelerator, Callbacks().show)
        return Trainer(run, out, parts, accelerator, Callbacks(on_message=lambda message: None))

    return make
