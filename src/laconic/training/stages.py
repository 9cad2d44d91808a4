"""The pre-training stage of a run: the same model on other pairs, before the training proper.

The stage is a run of its own in the sub-folder ``pretraining``: recipe, log, checkpoints, model. Both stages read with
one tokenizer, which is made first and lies in both folders. The training proper starts from the stage's exported model.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from laconic.config.loading import merge
from laconic.config.schema import DataConfig, RunConfig
from laconic.config.section import validate
from laconic.data.readers import find_splits, is_one_data_set
from laconic.errors import ConfigError, DataError
from laconic.files import write_json
from laconic.training.checkpoint import STAGE_FOLDER
from laconic.training.logging import Outlets, Reporter
from laconic.training.run_folder import FINISHED, MODEL_FOLDER
from laconic.training.setup import TOKENIZER_FOLDER, provide_tokenizer, read_split, training_records, vocabulary_texts
from laconic.training.state import TrainResult

KEPT_TEXT = ("tokenizer", "sentence_separator", "vocabulary_from")  # what both stages must agree on


def stage_of(run: RunConfig) -> RunConfig:
    """The pre-training stage of ``run`` as a run of its own.

    Raises:
        ConfigError: ``pretraining.data`` is not set, or ``pretraining.set`` does not fit.
        DataError: there is no training file in ``pretraining.data``.
    """
    stage = run.pretraining
    if stage.data is None:
        name = f"Row '{run.row}'" if run.row else "This run"
        raise ConfigError(
            f"{name} has a pre-training stage, and nothing says on which pairs: set pretraining.data to a folder with "
            "train and validation files (`laconic data select-spans` makes one), or pretraining.enabled to false."
        )
    values = run.model_dump(mode="json")
    values |= {"data": DataConfig().model_dump(mode="json"), "pretraining": {}, "published": {}}
    values["description"] = f"The pre-training stage of: {run.description or run.row or run.name}"
    values = merge(values, stage.set, revive=True)
    values["data"] |= _splits(stage.data)
    found = validate(RunConfig, values, where="")
    for key in KEPT_TEXT:
        if getattr(found.text, key) != getattr(run.text, key):
            raise ConfigError(f"pretraining.set changes text.{key}; both stages read with one tokenizer: remove it.")
    return found


def share_tokenizer(run: RunConfig, stage: RunConfig, out: Path, accelerator: Accelerator, reporter: Reporter) -> None:
    """Make the tokenizer of both stages, unless it is there, and put it into both folders.

    The data of the training proper is read here whatever the tokenizer, so that a mistake in it is found now and not
    when the stage is over.
    """
    if accelerator.is_main_process and not (out / TOKENIZER_FOLDER).is_dir():
        reporter.update(description="Reading")
        records = training_records(run, [])
        read_split(run, "validation", 1, [])

        def texts() -> Iterator[str]:
            yield from vocabulary_texts(records, run.text)
            if run.pretraining.in_vocabulary:
                yield from vocabulary_texts(training_records(stage, []), run.text)

        provide_tokenizer(run, out, reporter, texts, records, stage.training.initial_weights)
    if accelerator.is_main_process and not (out / STAGE_FOLDER / TOKENIZER_FOLDER).is_dir():
        draft = out / STAGE_FOLDER / f".draft-{TOKENIZER_FOLDER}"
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(out / TOKENIZER_FOLDER, draft)
        os.rename(draft, out / STAGE_FOLDER / TOKENIZER_FOLDER)
    accelerator.wait_for_everyone()


def finished(out: Path) -> bool:
    """Is the stage of the run in ``out`` over, and its model there?"""
    stage = out / STAGE_FOLDER
    return (stage / FINISHED).is_file() and (stage / MODEL_FOLDER / "config.json").is_file()


def mark_finished(out: Path, result: TrainResult) -> None:
    """Note that the stage of the run in ``out`` is over, with how it ended."""
    write_json(out / STAGE_FOLDER / FINISHED, asdict(result))


def stage_outlets(outlets: Outlets) -> Outlets:
    """The same outlets, in which everything says that it is of the pre-training stage."""

    def on_log(entry: dict[str, Any]) -> None:
        outlets.on_log({"stage": STAGE_FOLDER, **entry})

    return replace(outlets, reporter=_StageReporter(outlets.reporter), on_log=on_log)


class _StageReporter:
    """Puts "Pre-training" in front of what is shown."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def update(self, completed: float | None = None, *, description: str | None = None, **shown: Any) -> None:
        if description is not None:
            description = "Pre-training" if description == "Training" else f"Pre-training: {description}"
        self._reporter.update(completed, description=description, **shown)


def _splits(place: str) -> dict[str, str | None]:
    """The files of the stage: those of a folder of splits, else ``place`` itself, without validation."""
    path = Path(place)
    if place.startswith("hub:") or not path.is_dir() or is_one_data_set(path):
        return {"train": place, "validation": None, "test": None}
    found = find_splits(path)
    if "train" not in found:
        raise DataError(f"pretraining.data: {place} has no training file (only {', '.join(found)}).")
    return {split: str(found[split]) if split in found else None for split in ("train", "validation")} | {"test": None}
