"""``catchline train``: one row of a recipe, on your pairs; and ``catchline resume``: continue a run, bit for bit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from catchline.cli.io import aligned, check_folder, note, print_result, progress, records_of, say
from catchline.cli.main import EXIT_INTERRUPTED
from catchline.cli.options import AsJson, ReadingOptions, RecipeKeys, Row, Size, TrustCode
from catchline.config.base import merge, validate
from catchline.config.loading import load_recipe, load_run, parse_overrides, resolve_run
from catchline.config.names import SHIPPED, check_run, outside_names, place_of, trusting
from catchline.config.schema import SPLITS, RunConfig, TrainingConfig
from catchline.data.records import data_changes
from catchline.errors import CatchlineError, ConfigError
from catchline.evaluation.report import for_card, verdict
from catchline.evaluation.run import evaluate_system, open_system
from catchline.evaluation.table import MEASURES, cells_of, rouge_column, table_of_results
from catchline.models.card import Card, write_card
from catchline.text.control import safe_print as print
from catchline.types import Record

if TYPE_CHECKING:
    from catchline.training.loop import TrainResult

SCRATCH = "scratch"
SCORED = 200  # pairs of a split, at the end


def command(
    recipe: Annotated[str, Argument(help="A recipe's name (see `catchline recipes`) or a YAML file.")],
    row: Row = None,
    size: Size = None,
    data: Annotated[
        Path | None, Option(help="A folder with train, validation and test files, or one file of pairs.")
    ] = None,
    out: Annotated[Path | None, Option(help="Write to this run folder (default: runs/RECIPE-ROW-SIZE).")] = None,
    start: Annotated[
        str | None, Option("--from", metavar="MODEL", help="Start from this model, such as oneline, or from scratch.")
    ] = None,
    *,
    reading: ReadingOptions,
    overrides: RecipeKeys = None,
    all_pairs: Annotated[bool, Option("--all-pairs", help="Train on all pairs of one file; hold none out.")] = False,
    force: Annotated[bool, Option("--force", help="Empty the run folder if it holds a run.")] = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Train a row of a recipe. The run folder then has the model, the log and the checkpoints.

    Without a validation file, a tenth of the pairs, at most 200, is held out for validation and for the score at
    the end. Near duplicates stay in one split, and RUN/data has the splits.

    Under `accelerate launch` or `torchrun` the run uses all their processes. Ctrl-C saves; `catchline resume` resumes.
    """
    check_folder(out)
    begin: dict[str, Any] = {}
    if start == SCRATCH:
        begin = {"training": {"initial_weights": None}}
    elif start is not None:
        from catchline.training.api import start_changes

        begin = start_changes(start, recipe, row, size)
    changes = merge(begin, parse_overrides(overrides or []), revive=True)
    given = merge(data_changes(data), reading.changes())
    run = resolve_run(load_recipe(recipe), row, size, merge(given, changes, revive=True))
    check_run(run)
    if run.data.train is None:
        raise ConfigError("Which pairs? Give --data DIR (with train and validation files), or --set data.train=FILE.")
    if run.pretraining.data is not None and not run.pretraining.enabled:
        say("pretraining.data is set, but this run has no pre-training stage: pretraining.enabled is false.")
    if start is None and run.training.initial_weights in SHIPPED:
        place_of(run.training.initial_weights)  # which it may lack
        say(f"Starting from {run.training.initial_weights}, the bundled model; --from {SCRATCH} starts afresh.")
    folder = out or Path("runs") / "-".join(part for part in (run.name, run.row, run.size) if part)
    if run.data.validation is None and data is not None and not all_pairs:
        from catchline.training.run import hold_out

        run = hold_out(run, folder, force=force, say=say, note=note)
    run_training(run, folder, force=force, as_json=as_json)


def resume(
    run_folder: Annotated[Path, Argument(metavar="RUN", help="The run folder (with recipe.yaml).")],
    overrides: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="Set another end (training.max_updates=9) or data.train=FILE."),
    ] = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Resume an interrupted or killed run from its newest checkpoint.

    The result equals that of a run that was never interrupted. With --set training.max_updates (or max_epochs,
    max_minutes) a finished run is trained further. A run with an edited recipe or log is refused.
    """
    from catchline.training.run import finished, on_parts, recipe_of

    run = changed(on_parts(load_run(recipe_of(run_folder)), run_folder), overrides or [])
    run_training(run, run_folder, resume=True, score=finished(run, run_folder) is None, as_json=as_json)


def changed(run: RunConfig, overrides: list[str]) -> RunConfig:
    """The run with another end, or with its data at another place."""
    allowed = [*(f"training.{name}" for name in TrainingConfig.CHANGEABLE), *(f"data.{split}" for split in SPLITS)]
    for pair in overrides:
        if pair.partition("=")[0].strip() not in allowed:
            raise ConfigError(f"--set {pair}: a resumed run can only change {', '.join(allowed)}: start a new run.")
    return validate(RunConfig, merge(run.model_dump(mode="json"), parse_overrides(overrides), revive=True), where="")


def run_training(run: RunConfig, out: Path, *, as_json: bool, score: bool = True, **how: Any) -> None:
    """Train with a progress bar on stderr and say at the end where the model is and, with ``score``, how good; ``how``
    as in `catchline.training.run.train`.
    """
    from catchline.training.loop import TrainingInterrupted
    from catchline.training.run import train
    from catchline.training.step import close_processes

    first = os.environ.get("RANK", "0") == "0"  # known before torch is: the launchers set it
    try:
        with progress("Starting", silent=not first) as bar:
            result = train(run, out, progress=bar.update, on_message=say, **how)
    except TrainingInterrupted as stop:
        if first:
            say(str(stop))
        raise Exit(EXIT_INTERRUPTED) from None
    finally:
        close_processes()
    if first:
        if not as_json:
            print(_closing_words(result, run))
        with trusting(outside_names(run.model_dump())):  # the code that was just run in training
            closing = closing_score(result.model_folder, run) if score else ""
        print_result(as_json, asdict(result) | {"score": closing.strip()}, closing, indent=None)


def _closing_words(result: TrainResult, run: RunConfig) -> str:
    scores = ", ".join(f"{name} {value:.4g}" for name, value in result.metrics.items())
    best = f" (best: update {result.best_update:,})" if result.best_update is not None else ""
    reasons = {
        "max_updates": "all updates done",
        "max_epochs": "all epochs done",
        "max_minutes": "the time was up",
        "early_stopping": f"no better for {run.training.early_stopping} validations",
    }
    trained = f"Trained {result.updates:,} updates in {result.elapsed_seconds / 60:.1f} minutes"
    validated = f"Validation{best}: {scores}\n" if scores else ""
    words = f"{trained}; {reasons.get(result.stopped, result.stopped)}.\n{validated}Model: {result.model_folder}"
    if run.model["type"] in ("coarse_to_fine", "plain"):  # which no graph can say
        return words
    command = f"catchline export {quote(result.model_folder)} --out DIR --int8"
    return f"{words}\nOn a CPU, it starts and runs faster as an ONNX model: {command}"


def closing_score(model_folder: str, run: RunConfig) -> str:
    """The table and the verdict on the pairs that were held out, and what became of the model's confidence; without
    such pairs what to do about it."""
    splits = [name for name in ("test", "validation") if getattr(run.data, name) is not None]
    if not splits:
        return (
            "No pairs were held out, so the model has no score and no confidence: "
            "`catchline evaluate` scores it on other pairs, `catchline calibrate` learns when it should "
            "not answer."
        )
    try:
        reading = run.data.model_copy(update={"skip_bad": True})
        held = {name: records_of(getattr(run.data, name), reading, SCORED) for name in splits}
        split, records = next(iter(held.items()))
        folder = Path(model_folder)
        confidence = calibrated(folder, [record for part in held.values() for record in part])
        systems = {"lead-1": "lead-1", "the model": model_folder}
        with progress("Scoring", total=2 * len(records)) as bar:
            results = [
                evaluate_system(open_system(system), records, name=label, config=run.evaluation, progress=bar.advance)
                for label, system in systems.items()
            ]
        name = Path(getattr(run.data, split)).name
        write_card(folder, Card.of(folder).with_scores(for_card(results, name, split)))
    except CatchlineError as error:  # the training is done, whatever becomes of its score
        return f"It could not be scored: {error}"
    fine_tuned = run.training.initial_weights is not None
    text = verdict(results, fine_tuned=fine_tuned, no_repeat=run.search.no_repeat_ngram)
    columns = [*(rouge_column(kind) for kind in results[0].rouge), *MEASURES]
    table = aligned(*cells_of(table_of_results(results).rows, columns))
    return "\n".join(["", table, "", *text, confidence])


def calibrated(folder: Path, records: Sequence[Record]) -> str:
    """Fit the model's confidence to these records, where they are enough, and say what was measured."""
    from catchline.evaluation.measures import ACCEPT, fit_confidence
    from catchline.summarizer.confidence import LEAST_RECORDS

    remedy = "It has no confidence yet: `catchline calibrate` fits it to ratings of its lines."
    if len(records) < LEAST_RECORDS:
        return f"{len(records)} held-out pairs are fewer than the {LEAST_RECORDS} that a calibration needs. {remedy}"
    try:
        with progress("Calibrating", total=len(records)) as bar:
            calibration, (lines, sentences, given) = fit_confidence(folder, records, bar.advance)
    except CatchlineError as error:
        return f"{error} {remedy}"
    return (
        f"Of {len(records):,} held-out lines {lines:.0%} have ROUGE-1 of {ACCEPT:g} or more, no repetition and "
        f"no name, number or date that their text lacks; of first sentences {sentences:.0%}. So it gives "
        f"its line at a confidence of {calibration.threshold:.2f} or more ({given:.0%} of these texts). Only a "
        "reader can judge them: read some, and rate them for `catchline calibrate`."
    )
