"""A run from its settings to its model: its folder, its processes, its pre-training stage and the training proper.

A pre-training stage (the same model on other pairs, before the training proper) is its own run in the sub-folder
``pretraining``: recipe, log, checkpoints, model. Both stages read with one tokenizer, which is made first and lies in
both folders. The training proper starts from the stage's exported model.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from shlex import quote
from typing import Any

from accelerate import Accelerator
from pydantic import TypeAdapter, ValidationError

from catchline.config.base import merge, validate
from catchline.config.loading import dump_run, first_difference, with_absolute_paths
from catchline.config.names import check_run, outside_names, trusting
from catchline.config.schema import SPLITS, DataConfig, RunConfig
from catchline.data.checks import hold_out as split_pairs
from catchline.data.records import ReadOptions, SkipCounter, read_with, splits_in, write_records
from catchline.errors import CheckpointError, ConfigError, DataError
from catchline.files import digest_of, only_here, remove_leftovers, replacing_folder, write_json, write_text
from catchline.text.base import read_json
from catchline.training import checkpoint as files
from catchline.training.checkpoint import STAGE_FOLDER
from catchline.training.data import Corpus
from catchline.training.log import LOG, Callbacks, ShowProgress, ignore
from catchline.training.loop import MODEL_FOLDER, Trainer, TrainingInterrupted, TrainResult
from catchline.training.prepare import TOKENIZER_FOLDER, plan, prepare, provide_tokenizer
from catchline.training.step import join_processes, launched, on_the_first

RECIPE = "recipe.yaml"
PARTS = ".held_out.json"  # in the sub-folder data: the digest of each part that was held out for a run
FINISHED = "finished.json"  # the result of a run, and the ends that it had
KEPT_TEXT = ("tokenizer", "sentence_separator", "vocabulary_from")  # what both stages must agree on
_WRITTEN = "# Written by catchline train.\n"


def train(
    run: RunConfig,
    out: str | Path,
    *,
    resume: bool = False,
    force: bool = False,
    progress: ShowProgress | None = None,
    on_log: Callable[[dict[str, Any]], None] | None = None,
    on_message: Callable[[str], None] | None = None,
) -> TrainResult:
    """Train what ``run`` describes into the run folder ``out``; with ``resume`` continue from its newest checkpoint.

    A run with a pre-training stage does that first, in the sub-folder ``pretraining``, or continues it. A finished run
    is answered with its result.

    Args:
        force: remove what an earlier run wrote into ``out``.
        progress: called as ``progress(completed, total=..., description=..., note=...)``, with what has changed.
        on_log: called with each entry of ``log.jsonl``, on the first process.
        on_message: called with each sentence for a person, on the first process (default: printed to stderr).

    Raises:
        ConfigError: the settings do not fit together, or ``out`` holds a run (and neither option was given) or others'.
        DataError: the data is not usable.
        TrainingError: loss or gradients are not finite.
        CheckpointError: no checkpoint can be read, or it is of another run.
        FolderInUseError: another process works in ``out``.
        TrainingInterrupted: Ctrl-C or SIGTERM; a checkpoint has been written.
    """
    out, run = Path(out), with_absolute_paths(run)
    check_run(run)
    stage = stage_of(run) if run.pretraining.enabled else None
    given: dict[str, Any] = {"show": progress, "on_log": on_log, "on_message": on_message}
    callbacks = Callbacks(**{name: value for name, value in given.items() if value is not None})
    accelerator = join_processes(run.training.trackers, out)
    callbacks = callbacks if accelerator.is_main_process else Callbacks(ignore, ignore, ignore)
    with ExitStack() as stack:
        folder = run_folder(run, out, resume=resume, force=force)
        on_the_first(accelerator, lambda: stack.enter_context(folder))
        stack.enter_context(trusting(outside_names(run.model_dump())))
        if result := finished(run, out):
            return result
        # whatever it started from is in the checkpoints
        start = None if files.checkpoint_folders(out) else run.training.initial_weights
        try:
            if stage is not None and not files.checkpoint_folders(out):
                start = _pretrain(run, stage, out, accelerator, callbacks)
            return _train_stage(run, out, start, accelerator, callbacks)
        except TrainingInterrupted as stop:
            raise TrainingInterrupted(f"{stop} Continue with: catchline resume {quote(str(out))}") from None


def _train_stage(
    run: RunConfig, out: Path, start: str | None, accelerator: Accelerator, callbacks: Callbacks
) -> TrainResult:
    if run.training.trackers:
        accelerator.init_trackers("catchline")
    files.seed_everything(run.training.seed)
    parts = prepare(run, out, accelerator, callbacks.show, start=start)
    for line in plan(run, parts, accelerator):
        callbacks.on_message(line)
    result = Trainer(run, out, parts, accelerator, callbacks).fit()
    if accelerator.is_main_process:
        write_json(out / FINISHED, {"ends": _ends(run), "result": asdict(result)})
    return result


def finished(run: RunConfig, out: Path) -> TrainResult | None:
    """The result of the run in ``out``, if it has ended as ``run`` says and its model is there."""
    noted, model = read_json(out / FINISHED, optional=True), out / MODEL_FOLDER
    if noted.get("ends") != _ends(run) or not (model / "config.json").is_file():
        return None
    try:
        result = {**noted["result"], "folder": str(out), "model_folder": str(model)}
        return TypeAdapter(TrainResult).validate_python(result)
    except (KeyError, TypeError, ValidationError):  # damaged: the run ends once more
        return None


def _ends(run: RunConfig) -> dict[str, Any]:
    return {name: getattr(run.training, name) for name in run.training.CHANGEABLE}


# ------------------------------------------------------------------------------ the stage before the training


def stage_of(run: RunConfig) -> RunConfig:
    """The pre-training stage of ``run`` as its own run."""
    stage = run.pretraining
    if stage.data is None:
        raise ConfigError(
            f"Row '{run.row}' has a pre-training stage, but no pairs: set pretraining.data to a "
            "folder of pairs (`catchline data select-spans` makes one), or pretraining.enabled to false."
        )
    values = run.model_dump(mode="json")
    values |= {"data": DataConfig().model_dump(mode="json"), "pretraining": {}, "published": {}}
    values["description"] = f"The pre-training stage of: {run.description or run.row or run.name}"
    values = merge(values, stage.set, revive=True)
    places = splits_in(stage.data) or {"train": stage.data}  # no folder of splits: no validation
    if "train" not in places:
        raise DataError(f"pretraining.data: {stage.data} has no training file (only {', '.join(places)}).")
    values["data"] |= {"train": places["train"], "validation": places.get("validation"), "test": None}
    changed = validate(RunConfig, values, where="")
    for key in KEPT_TEXT:
        if getattr(changed.text, key) != getattr(run.text, key):
            raise ConfigError(f"pretraining.set changes text.{key}; both stages share one tokenizer: remove it.")
    return changed


def _pretrain(run: RunConfig, stage: RunConfig, out: Path, accelerator: Accelerator, callbacks: Callbacks) -> str:
    """Do the stage before the training, or what is left of it; the folder of its model."""
    place = out / STAGE_FOLDER
    done = finished(stage, place) is not None
    accelerator.wait_for_everyone()
    if not done:
        with ExitStack() as stack:
            folder = run_folder(stage, place, resume=_is_of_a_run(place), force=False)
            on_the_first(accelerator, lambda: stack.enter_context(folder))
            callbacks.on_message(f"Stage 1 of 2: pre-training on {run.pretraining.data}, in {place}")
            if accelerator.is_main_process:  # a mistake in the data of the training proper is found now
                corpus = Corpus(run.data, "train", run.text.max_source_tokens)
                provide_tokenizer(out, run, corpus, callbacks.show, stage.training.initial_weights)
                with replacing_folder(place / TOKENIZER_FOLDER) as draft:
                    shutil.copytree(out / TOKENIZER_FOLDER, draft, dirs_exist_ok=True)
            accelerator.wait_for_everyone()
            start = None if files.checkpoint_folders(place) else stage.training.initial_weights
            of_stage = replace(callbacks, on_log=lambda entry: callbacks.on_log({"stage": STAGE_FOLDER, **entry}))
            _train_stage(stage, place, start, join_processes(stage.training.trackers, place), of_stage)
    callbacks.on_message("Stage 2 of 2: training, from the weights of the first stage")
    return str(place / MODEL_FOLDER)


# ------------------------------------------------------------------------------------------ the run folder


@contextmanager
def run_folder(run: RunConfig, out: Path, *, resume: bool, force: bool) -> Iterator[None]:
    """Lock the run folder; make it, with the recipe in it, or check that ``run`` can continue there exactly."""
    if resume:
        recipe_of(out)
    with only_here(out):
        if resume:
            _refuse_changes(run, out)
            _remove_leftovers(out)
        else:
            refuse_used(out, force=force)
            _remove_parts(run, out)
        begun = any(_saved(folder) or (folder / FINISHED).is_file() for folder in (out, out / STAGE_FOLDER))
        if not (resume and begun):
            clear_run(out)
        write_text(out / RECIPE, _WRITTEN + dump_run(run))
        yield


def recipe_of(out: Path) -> Path:
    """The recipe of a run folder, and of nothing else (CheckpointError): a model folder has one too."""
    if not (out / RECIPE).is_file() or (out / "config.json").is_file():
        runs = ", ".join(sorted(str(path.parent) for path in out.glob(f"*/{RECIPE}")))
        instead = f"In it are runs: {runs}." if runs else "Start one with `catchline train`, from a model with --from."
        raise CheckpointError(f"{out} is not a run folder. {instead}")
    return out / RECIPE


def refuse_used(out: Path, *, force: bool) -> None:
    """Check a folder before a run begins there: ConfigError where it holds a run, unless by ``force`` or without an
    update, or what a run would replace and none wrote."""
    folders = (out, out / STAGE_FOLDER)
    if not _is_of_a_run(out):
        written = [out / name for name in (RECIPE, LOG, MODEL_FOLDER, TOKENIZER_FOLDER)]
        if lost := [path for path in (*written, *files.checkpoint_folders(out)) if path.exists()]:
            raise ConfigError(f"{out} is not a run folder, and its {lost[0].name} would be lost: name another (--out).")
    elif not force and any((at / LOG).exists() or (at / MODEL_FOLDER).exists() or _saved(at) for at in folders):
        raise ConfigError(
            f"{out} already has a run: resume it (`catchline resume {quote(str(out))}`), choose another folder "
            "(--out), or replace it with --force."
        )


def clear_run(out: Path) -> None:
    """Remove what a run wrote into its folder, its pre-training stage included, and nothing else."""
    if not _is_of_a_run(out):
        return
    clear_run(out / STAGE_FOLDER)
    with suppress(OSError):  # there is none, or there are files of somebody else in it
        (out / STAGE_FOLDER).rmdir()
    _remove_leftovers(out)
    for folder in (*files.checkpoint_folders(out), out / TOKENIZER_FOLDER, out / MODEL_FOLDER):
        shutil.rmtree(folder, ignore_errors=True)
    for name in (LOG, FINISHED, "predictions.jsonl", RECIPE):  # the last tells whose the others are
        (out / name).unlink(missing_ok=True)


def held_out_parts(out: Path) -> list[Path]:
    """The files in ``out``/data that were held out for a run and are as it wrote them; all others are the user's."""
    noted = read_json(out / "data" / PARTS, optional=True)
    parts = [out / "data" / f"{split}.jsonl" for split in SPLITS]
    existing = [part for part in parts if part.name in noted and part.is_file() and not part.is_symlink()]
    return [part for part in existing if digest_of(part) == noted[part.name]]


def on_parts(run: RunConfig, out: Path) -> RunConfig:
    """The run on the parts that were held out for it, or written for it, if there are any."""
    read = {field.name for field in fields(ReadOptions)}  # how the parts are not read
    plain = {name: field.default for name, field in DataConfig.model_fields.items() if name in read}
    parts = {part.stem: str(part) for part in held_out_parts(out)}
    return run.model_copy(update={"data": run.data.model_copy(update=plain | parts)}) if parts else run


def hold_out(
    run: RunConfig,
    out: Path,
    *,
    force: bool,
    say: Callable[[str], object],
    note: Callable[[str], object],
    rows: Mapping[str, Any] | None = None,
    all_pairs: bool = False,
) -> RunConfig:
    """The run on those of its training pairs that are not held out; all parts lie in ``out``/data from then on, also
    ``rows``, the pairs in memory by split. None is held out if there are validation pairs or with ``all_pairs``."""
    if launched() > 1:
        raise ConfigError("Several processes need a folder with train and validation files, or --all-pairs.")
    given: dict[str, Any] = {split: path for split in SPLITS if (path := getattr(run.data, split))} | {**(rows or {})}
    if "train" not in given or not given.keys() <= set(SPLITS):
        raise ConfigError(f"Pairs by part are {', '.join(SPLITS)} (given: {', '.join(map(str, given)) or 'none'}).")
    place, name = out / "data", "data" if rows else str(run.data.train)
    with only_here(out):
        refuse_used(out, force=force)
        earlier = held_out_parts(out)
        others = [part for split in SPLITS if (part := place / f"{split}.jsonl").exists() and part not in earlier]
        if others or (not rows and Path(name).resolve().is_relative_to(place.resolve())):
            raise ConfigError(f"{place} has pairs that no run wrote, or that are read now: give another --out.")
        skipped, reading = SkipCounter(), ReadOptions.of(run.data)
        splits = {
            split: list(read_with(pairs, reading, on_skip=skipped, on_choice=note)) for split, pairs in given.items()
        }
        if skipped.total:
            note(skipped.describe())
        if "validation" not in given and not all_pairs:
            total, seed = len(splits["train"]), run.training.seed
            held, doubles = split_pairs(splits["train"], seed, test="test" not in given)
            splits |= held
            parts = ", ".join(f"{len(records):,} for {part}" for part, records in held.items())
            if "validation" not in held:
                parts = f"none of {total:,} pairs is held out"
            same = f"; {doubles:,} (near) duplicates stay with their originals" if doubles else ""
            say(f"{name} has no validation file: {parts} (seed {seed}{same}), in {place}")
        if not rows and "validation" not in splits:
            return run
        for part in earlier:
            part.unlink()
        noted: dict[str, str] = {}
        for split, records in splits.items():
            write_records(part := place / f"{split}.jsonl", records)
            noted[part.name] = digest_of(part)
            write_json(place / PARTS, noted)
    return on_parts(run, out)


def _remove_parts(run: RunConfig, out: Path) -> None:
    """Remove what was held out for an earlier run and this one does not read: it may learn from those very pairs."""
    read = [Path(place).resolve() for place in (run.data.train, run.data.validation, run.data.test) if place]
    for part in held_out_parts(out):
        if not any(part.resolve().is_relative_to(place) for place in read):
            part.unlink()


def _remove_leftovers(out: Path) -> None:
    files.remove_drafts(out)
    for name in (MODEL_FOLDER, TOKENIZER_FOLDER):
        remove_leftovers(out / name)


def _is_of_a_run(out: Path) -> bool:
    """Did a run write the recipe in the folder?"""
    recipe = out / RECIPE
    return _saved(out) or (recipe.is_file() and recipe.read_bytes().startswith(_WRITTEN.encode()))


def _saved(out: Path) -> bool:
    return any((folder / files.MANIFEST).is_file() for folder in files.checkpoint_folders(out))


def _refuse_changes(run: RunConfig, out: Path) -> None:
    """The newest checkpoint knows the settings of its run and how long its log was."""
    if (known := files.newest_values(out)) is None:
        if (out / FINISHED).is_file() and finished(run, out) is None:
            raise CheckpointError(f"{out} has a model and no checkpoint to continue from: train another run --from it.")
        return
    before = _fixed(validate(RunConfig, known["identity"]["recipe"], where=""))
    if difference := first_difference(before, _fixed(run)):
        raise CheckpointError(
            f"{out / RECIPE} differs from the run's recipe ({difference}): restore it, or train another run --from it."
        )
    log, wanted = out / LOG, int(known["train_state"]["log_bytes"])
    if (size := log.stat().st_size if log.is_file() else 0) < wanted:
        raise CheckpointError(f"{log} has {size:,} of the {wanted:,} bytes of the last checkpoint: restore the file.")


def _fixed(run: RunConfig) -> dict[str, Any]:
    """What an exact continuation cannot change. Data counts by its content, wherever it lies."""
    return run.model_dump(mode="json", exclude={"training": {*run.training.CHANGEABLE}, "data": {*SPLITS}})
