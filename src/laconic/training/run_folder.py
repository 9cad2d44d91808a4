"""The run folder as a whole: made, refused where it holds another run, and cleared."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from laconic.config.loading import dump_run
from laconic.config.schema import RunConfig
from laconic.errors import CheckpointError, ConfigError
from laconic.training import checkpoint as files
from laconic.training.logging import LOG, TIMING
from laconic.training.setup import TOKENIZER_FOLDER

RECIPE = "recipe.yaml"
MODEL_FOLDER = "model"
FINISHED = "finished.json"  # in the folder of a pre-training stage: there is nothing left to do in it


def open_folder(run: RunConfig, out: Path, *, resume: bool, force: bool) -> None:
    """Make the run folder and store the recipe; never write over another run.

    Raises:
        CheckpointError: ``resume`` where there is no run.
        ConfigError: there is one, and neither ``resume`` nor ``force`` was asked for.
    """
    recipe = out / RECIPE
    if resume:
        if not recipe.is_file():
            raise CheckpointError(f"{out} is not a run folder: it has no {RECIPE}.")
        files.remove_drafts(out)
    elif recipe.exists() or files.checkpoint_folders(out):
        # what has not begun failed on its data or settings
        if (_began(out) or _began(out / files.STAGE_FOLDER)) and not force:
            raise ConfigError(
                f"{out} already holds a run. Go on with `laconic resume {out}`, choose another --out, or use --force."
            )
        clear_run(out)
    out.mkdir(parents=True, exist_ok=True)
    draft = recipe.with_suffix(".tmp")
    draft.write_text(dump_run(run), encoding="utf-8")
    os.replace(draft, recipe)


def clear_run(out: Path) -> None:
    """Remove what a run wrote into its folder, its pre-training stage included, and nothing else."""
    files.remove_drafts(out)
    for folder in (*files.checkpoint_folders(out), out / TOKENIZER_FOLDER, out / MODEL_FOLDER):
        shutil.rmtree(folder, ignore_errors=True)
    for name in (RECIPE, LOG, TIMING, FINISHED, "predictions.jsonl"):
        (out / name).unlink(missing_ok=True)
    stage = out / files.STAGE_FOLDER
    if (stage / RECIPE).is_file():
        clear_run(stage)
        if not any(stage.iterdir()):
            stage.rmdir()


def _began(out: Path) -> bool:
    return (out / LOG).exists() or bool(files.checkpoint_folders(out))
