"""``catchline tune``: search for decoding settings on validation data, and record what was tried and found."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from catchline.cli.card import card_follows
from catchline.cli.inputs import records_of
from catchline.cli.options import (
    AsJson,
    BatchSize,
    Device,
    MaxRecords,
    ReadingOptions,
    Split,
    TrustCode,
    search_settings,
)
from catchline.cli.output import aligned, print_result, progress, say
from catchline.config.schema import EvaluationConfig
from catchline.config.shipped import SHIPPED
from catchline.data.places import split_of
from catchline.errors import ConfigError, refuse_unknown
from catchline.evaluation.plan import flatten
from catchline.evaluation.predictions import fingerprint
from catchline.evaluation.run import options_of
from catchline.evaluation.systems import model_folder, weights_identity
from catchline.files import write_json
from catchline.metrics import confidence
from catchline.systems.extractive import is_method

if TYPE_CHECKING:
    from catchline_study.tuning import Trial, TuningResult

SHOWN = 20  # rows of the table, the present settings besides


def command(
    model: Annotated[str, Argument(metavar="MODEL", help="Model or run folder, or hub id.")],
    data: Annotated[str, Option(help="A file of records, or a folder with one file a split.")],
    *,
    grid: Annotated[list[str] | None, Option(metavar="KEY=A,B,C", help="Try each value of a search key.")] = None,
    random: Annotated[
        list[str] | None, Option(metavar="KEY=LOW:HIGH[:log][:both-signs]", help="Draw values of a search key.")
    ] = None,
    trials: Annotated[int, Option(min=1, help="Random draws (of each combination of the grids).")] = 20,
    metric: Annotated[str, Option(help="rouge1, rouge2, rougeL, or mean: of the three.")] = "mean",
    seed: Annotated[int, Option(help="Of the random draws.")] = 1,
    split: Split = "validation",
    max_records: MaxRecords = None,
    batch_size: BatchSize = 16,
    profile: Annotated[
        str | None, Option(help="Way of scoring, as of evaluate; by default the model's own, or rouge155.")
    ] = None,
    search: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help="Fixed in all trials.")] = None,
    output: Annotated[Path | None, Option(help="Folder for tune.json and the trials.")] = None,
    apply: Annotated[bool, Option("--apply", help="Make the best settings the model's defaults.")] = False,
    reading: ReadingOptions,
    device: Device = "cpu",
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Decode validation data with many settings of search and say which score best.

    Each batch is encoded once for all settings. Interrupted, or asked for more trials, the same command goes on where
    it stopped. The first trial is the model as it is.
    """
    from catchline.systems.neural import NeuralSystem
    from catchline_study import tuning

    refuse_unknown("metric", metric, tuning.METRICS)
    grids, ranges = list(map(tuning.parse_grid, grid or [])), list(map(tuning.parse_range, random or []))
    settings = tuning.plan(grids, ranges, trials, seed)
    fixed = search_settings(search)
    if twice := [key for key in settings[-1] if key in flatten(fixed)]:
        raise ConfigError(f"search.{twice[0]} is searched, and --set fixes it; leave one out.")
    if apply:
        tuning.refuse_fixed(model, "--apply")
    path = split_of(data, split)
    records = records_of(path, reading.options(), max_records, some=True)
    if is_method(model):
        raise ConfigError(f"{model} is an extractive method: it has no search to tune.")
    system = NeuralSystem.from_pretrained(model, device)
    system.set_defaults(fixed)
    own = system.loaded.run.evaluation if system.loaded.run else EvaluationConfig()
    scoring = own.model_copy(update={"batch_size": batch_size} | ({"profile": profile, "rouge": {}} if profile else {}))
    planned = tuning.trials_of(system, settings, None if "surface" in fixed else own.surface, say)
    identity = weights_identity(model)
    folder = output or default_folder(model)
    digest = fingerprint(json.dumps([identity, batch_size, own.surface]), records)
    with (
        tuning.TrialLog(folder, digest) as log,
        progress(f"Trying {len(planned)} settings", total=len(planned) * len(records)) as bar,
    ):
        options = options_of(scoring)
        result = tuning.tune(system, records, planned, metric=metric, options=options, log=log, progress=bar)
    best = result.best.search
    new = bool(fixed) or result.best is not result.present
    applied = apply and new
    if applied:
        with card_follows(model_folder(model)):
            tuning.apply(model_folder(model), best)
    asked = {"model": model, "model_identity": identity, "data": path, "records": len(records), "seed": seed}
    drawn = {part.key: {name: value for name, value in asdict(part).items() if name != "key"} for part in ranges}
    searched = {"draws": trials if ranges else 0, "grid": dict(grids), "random": drawn, "fixed": fixed}
    content = asked | searched | result.as_dict() | {"best_search": best.model_dump(mode="json"), "applied": applied}
    write_json(folder / "tune.json", content, indent=2)
    print_result(as_json, content, _report(result, content, folder, new))


def default_folder(model: str) -> Path:
    """Where the record goes: beside the model's files, never among them, because they are its identity; of a model of
    the package or the hub into the working directory."""
    folder = model_folder(model)
    if model in SHIPPED or not folder.is_dir():
        return Path(f"{model.replace('/', '-')}.tune")
    return folder.parent / "tune" if folder.name == "model" else folder.with_name(f"{folder.name}.tune")


def _report(result: TuningResult, content: dict[str, Any], folder: Path, new: bool) -> str:
    keys = list(dict.fromkeys(key for trial in result.trials for key in trial.settings))
    names = ("rouge1", "rouge2", "rougeL", "mean", "words", "repetition")
    header = [*keys, "ROUGE-1", "ROUGE-2", "ROUGE-L", "mean", "words", "repeated"]
    ranked = result.ranked()
    listed = ranked[:SHOWN] + ([] if result.present in ranked[:SHOWN] else [result.present])

    def row(trial: Trial) -> list[str]:
        cells = [_cell(trial.settings[key]) if key in trial.settings else "-" for key in keys]
        return cells + [f"{trial.scores[n] if n == 'words' else 100 * trial.scores[n]:.2f}" for n in names]

    scored = f"{content['data']}: {content['records']} records, {len(result.trials)} settings; {content['signature']}"
    lines = [aligned(header, [row(trial) for trial in listed], left=0), "", scored]
    lines += result.notes
    gain = 100 * (result.best.scores[result.metric] - result.present.scores[result.metric])
    if result.best is result.present:
        lines.append(f"Nothing is better than the present settings (the row of dashes) by {result.metric}.")
    else:
        settings = flatten(content["fixed"]) | result.best.settings
        wanted = " ".join(f"--set {quote(f'{key}={_cell(value)}')}" for key, value in settings.items())
        lines.append(f"Best by {result.metric}, {gain:+.2f} against the present settings: {wanted}")
        lines.append("Chosen on these records, it looks better on them than it is: score it on others.")
    if content["applied"]:
        lines.append("The model's defaults now.")
        if (model_folder(content["model"]) / confidence.FILE).is_file():
            lines.append("Its confidence is that of the settings before: run `catchline calibrate` on it again.")
    elif new:
        lines.append("Not applied; --apply makes them the defaults.")
    lines.append(f"Everything tried is in {folder / 'tune.json'}.")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
