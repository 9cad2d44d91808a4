"""The run folder as a whole: held by one job at a time, refused where it holds another run, and cleared."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from laconic.config.loading import dump_run, first_difference
from laconic.config.schema import RunConfig
from laconic.config.section import validate
from laconic.errors import CheckpointError, ConfigError
from laconic.files import only_here, remove_leftovers, write_text
from laconic.training import checkpoint as files
from laconic.training.logging import LOG, TIMING
from laconic.training.setup import TOKENIZER_FOLDER

RECIPE = "recipe.yaml"
MODEL_FOLDER = "model"
FINISHED = "finished.json"  # in the folder of a pre-training stage: there is nothing left to do in it
_DIGEST = "# sha256 of what follows, when the run wrote it: "


@contextmanager
def run_folder(run: RunConfig, out: Path, *, resume: bool, force: bool, accept: bool) -> Iterator[None]:
    """Hold the run folder; make it, with the recipe in it, or check that ``run`` can go on there exactly.

    Another run is never written over, and a run does not go on as another one unless ``accept`` says that it may.

    Raises:
        CheckpointError: ``resume`` where there is no run, or where recipe or log are not those of the checkpoints.
        ConfigError: there is one, and neither ``resume`` nor ``force`` was asked for.
        FolderInUseError: another process works in it.
    """
    if resume and not (out / RECIPE).is_file():
        raise CheckpointError(f"{out} is not a run folder: it has no {RECIPE}.")
    with only_here(out):
        if resume:
            if not accept:
                _refuse_changes(run, out)
            _remove_leftovers(out)
        elif (out / RECIPE).exists() or files.checkpoint_folders(out):
            # what has not begun failed on its data or settings
            if (_began(out) or _began(out / files.STAGE_FOLDER)) and not force:
                raise ConfigError(
                    f"{out} already holds a run. Go on with `laconic resume {out}`, choose another --out, "
                    "or use --force."
                )
            clear_run(out)
        text = dump_run(run)
        write_text(out / RECIPE, f"{_DIGEST}{_sha256(text)}\n{text}")
        yield


def clear_run(out: Path) -> None:
    """Remove what a run wrote into its folder, its pre-training stage included, and nothing else."""
    _remove_leftovers(out)
    for folder in (*files.checkpoint_folders(out), out / TOKENIZER_FOLDER, out / MODEL_FOLDER):
        shutil.rmtree(folder, ignore_errors=True)
    for name in (RECIPE, LOG, TIMING, FINISHED, "predictions.jsonl"):
        (out / name).unlink(missing_ok=True)
    stage = out / files.STAGE_FOLDER
    if (stage / RECIPE).is_file():
        clear_run(stage)
        if not any(stage.iterdir()):
            stage.rmdir()


def _remove_leftovers(out: Path) -> None:
    files.remove_drafts(out)
    remove_leftovers(out / MODEL_FOLDER)


def _began(out: Path) -> bool:
    return (out / LOG).exists() or bool(files.checkpoint_folders(out))


# ------------------------------------------------------------------------------------- the same run?


def _refuse_changes(run: RunConfig, out: Path) -> None:
    """The newest checkpoint knows the settings of its run and how long its log was."""
    accepting = f"`laconic resume {out} --accept-changes` goes on as it is, which is no exact continuation."
    known = files.newest_values(out)
    if known is None:
        if not _as_written(out / RECIPE):
            raise CheckpointError(
                f"{out / RECIPE} was changed or cut short, and there is no checkpoint yet that could say in what: put "
                f"back what it was, or start anew with `laconic train`. {accepting}"
            )
        return
    if "recipe" in known["identity"]:  # a checkpoint of an older version does not say
        before = _fixed(validate(RunConfig, known["identity"]["recipe"], where=""))
        found = first_difference(before, _fixed(run))
        if found:
            raise CheckpointError(
                f"{out / RECIPE} is not what the run was made with so far ({found}): put that back. {accepting}"
            )
    log, wanted = out / LOG, int(known["train_state"]["log_bytes"])
    there = log.stat().st_size if log.is_file() else 0
    if there < wanted:
        what = f"has {there:,} of the {wanted:,} bytes" if there else f"is gone or empty; it had {wanted:,} bytes"
        raise CheckpointError(f"{log} {what} that it had at the last checkpoint: put the file back. {accepting}")


def _fixed(run: RunConfig) -> dict[str, Any]:
    """What an exact continuation cannot change. Data counts by its content, wherever it lies."""
    values = run.model_dump(mode="json")
    for name in run.training.CHANGEABLE:
        del values["training"][name]
    for split in ("train", "validation", "test"):
        del values["data"][split]
    return values


def _as_written(recipe: Path) -> bool:
    """Does the file say what the run wrote into it? Files of older versions do not tell."""
    first, _, rest = recipe.read_text(encoding="utf-8").partition("\n")
    return not first.startswith(_DIGEST) or first.removeprefix(_DIGEST).strip() == _sha256(rest)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
