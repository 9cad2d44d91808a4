"""What tests of runs share: silence, the gradients of an update, and what of a run's newest checkpoint must not depend
on interruptions."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import killing
from catchline.config.schema import RunConfig
from catchline.training.checkpoint import checkpoint_folders
from catchline.training.data import pairs_of
from catchline.training.loop import TrainingInterrupted
from catchline.training.run import train

MakeRun = Callable[..., RunConfig]  # the fixture `make_run`


def quiet(message: str) -> None:
    """An ``on_message`` that says nothing."""


def collate(trainer: Any, *groups: range) -> list[Any]:
    """Micro-batches of these training records."""
    data = trainer.parts.train_set
    return [pairs_of(trainer.parts.collator, [data[index] for index in group]) for group in groups]


def gradients(trainer: Any, *groups: range, update: int = 0) -> tuple[dict[str, torch.Tensor], Any]:
    """By parameter, where there are any, and the update's figures."""
    trainer.model.zero_grad(set_to_none=True)
    figures = trainer.step(collate(trainer, *groups), update, [0.0], trainer.out)
    return {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}, figures


def stop_at(run: RunConfig, out: Path, update: int, number: int = signal.SIGINT) -> str:
    """Train until the signal, which arrives while ``update`` is being logged; what the interruption says."""

    def stop(entry: dict[str, Any]) -> None:
        if entry["update"] == update:
            signal.raise_signal(number)

    with pytest.raises(TrainingInterrupted) as caught:
        train(run, out, on_log=stop, on_message=quiet)
    return str(caught.value)


def bits(out: Path) -> dict[str, Any]:
    """The newest checkpoint, the exported model and the log, byte for byte."""
    places = (f"{checkpoint_folders(out)[0].name}/", "model/", "log.jsonl")
    return {name: value for name, value in killing.bits(out).items() if name.startswith(places)}


def weights(out: Path) -> dict[str, Any]:
    """Of those the tensors of the checkpoint."""
    return {name: value for name, value in bits(out).items() if name.startswith("check") and name.endswith("tensors")}
