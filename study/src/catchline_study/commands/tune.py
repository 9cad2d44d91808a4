"""``catchline tune``: search for decoding settings on validation data, and record what was tried and found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from statistics import fmean
from typing import Annotated, Any

from typer import Argument, Option

from catchline.cli.io import aligned, print_result, progress, records_of
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
from catchline.config.base import merge
from catchline.config.loading import read_run
from catchline.config.names import SHIPPED
from catchline.config.schema import EvaluationConfig
from catchline.data.records import split_of
from catchline.errors import ConfigError, refuse_unknown
from catchline.evaluation.plan import flatten
from catchline.evaluation.run import KINDS, fingerprint, identity, model_folder, open_system, refuse_unscorable, score
from catchline.files import write_json
from catchline.models.card import card_follows
from catchline.summarizer import Summarizer
from catchline.summarizer.extractive import is_method
from catchline.types import Record
from catchline_study import tuning

SHOWN = 20  # rows of the table, the present settings besides


def command(
    model: Annotated[str, Argument(metavar="MODEL", help="Model or run folder, or hub id.")],
    data: Annotated[str, Option(help="A file of records, or a folder with one file per split.")],
    *,
    grid: Annotated[list[str] | None, Option(metavar="KEY=A,B,C", help="Try each value of a search key.")] = None,
    random: Annotated[
        list[str] | None, Option(metavar="KEY=LOW:HIGH[:log][:both-signs]", help="Draw values from a range.")
    ] = None,
    trials: Annotated[int, Option(min=1, help="Try this many settings with --random.")] = 20,
    metric: Annotated[str, Option(help="Maximise rouge1, rouge2, rougeL, or their mean.")] = "mean",
    seed: Annotated[int, Option(help="Set the sampler's seed.")] = 1,
    split: Split = "validation",
    max_records: MaxRecords = None,
    batch_size: BatchSize = 16,
    profile: Annotated[
        str | None, Option(help="Choose the scoring profile, as in evaluate (default: the model's, or rouge155).")
    ] = None,
    search: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help="Fix in all trials.")] = None,
    output: Annotated[Path | None, Option(help="Write tune.json and the trials to this folder.")] = None,
    apply: Annotated[bool, Option("--apply", help="Make the best settings the model's defaults.")] = False,
    reading: ReadingOptions,
    device: Device = "cpu",
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Decode validation data with many search settings and report which score best.

    Interrupted, or asked for more trials, the same command continues. The first trial has the model's own settings.
    """
    refuse_unknown("metric", metric, tuning.METRICS)
    dims: list[tuning.Grid | tuning.Range] = [
        *map(tuning.parse_grid, grid or []),
        *map(tuning.parse_range, random or []),
    ]
    fixed = search_settings(search)
    if twice := [dim.key for dim in dims if dim.key in flatten(fixed)]:
        raise ConfigError(f"search.{twice[0]} is searched, and --set fixes it; leave one out.")
    if is_method(model):
        raise ConfigError(f"{model} is an extractive method: it has no search to tune.")
    if apply:
        tuning.refuse_fixed(model, "--apply")
    path = split_of(data, split)
    records = records_of(path, reading.options(), max_records)
    refuse_unscorable(records, "tune on")
    recipe = model_folder(model) / tuning.RECIPE
    own = read_run(recipe).evaluation if recipe.is_file() else EvaluationConfig()
    config = own.model_copy(update={"profile": profile, "rouge": {}} if profile else {})
    system = open_system(model, fixed, device)
    made_by = identity(system, model)
    scored: dict[str, str] = {}
    measure = _measure(system, records, config, batch_size, scored)
    folder = output or default_folder(model)
    folder.mkdir(parents=True, exist_ok=True)
    about = fingerprint(json.dumps([made_by, config.model_dump()]), records)
    how: dict[str, Any] = {"metric": metric, "trials": trials, "seed": seed, "about": about}
    with progress("Trying settings") as bar:
        tried, refused = tuning.tune(measure, dims, file=folder / "trials.log", progress=bar.advance, **how)
    ranked = tuning.ranked(tried, metric)
    best, new = ranked[0], bool(fixed or ranked[0].settings)
    if apply and new:
        with card_follows(model_folder(model)):
            tuning.apply(model_folder(model), merge(fixed, best.settings))
    content: dict[str, Any] = {
        "model": model,
        "model_identity": fingerprint(made_by, []),
        "data": path,
        "records": len(records),
        "seed": seed,
        "searched": [asdict(dim) for dim in dims],
        "fixed": fixed,
        **scored,
        "metric": metric,
        "best": best.as_dict(),
        "present": tried[0].as_dict(),
        "trials": [trial.as_dict() for trial in ranked],
        "applied": apply and new,
    }
    write_json(folder / "tune.json", content, indent=2)
    print_result(as_json, content, _report(ranked, refused, content, folder, new))


def _measure(
    system: Summarizer, records: list[Record], config: EvaluationConfig, batch_size: int, scored: dict[str, str]
) -> Callable[[tuning.Settings], tuning.Scores]:
    """What decodes ``records`` with some settings and scores them; how ROUGE counts goes into ``scored``."""

    def measure(settings: tuning.Settings) -> tuning.Scores:
        made = system.summarize(records, batch_size=batch_size, always_write=True, **merge({}, settings))
        found = score("", records, [{"summary": one.text} for one in made], config=config)
        scored.update(signature=found.signature, counting=found.counting)
        scores = {f"rouge{kind}": found.value(kind) for kind in KINDS} | {"mean": fmean(map(found.value, KINDS))}
        return scores | {name: float(found.measures[name]) for name in ("words", "repetition")}

    return measure


def default_folder(model: str) -> Path:
    """Where the record goes: beside the model's files, never among them, because they are its identity; of a model of
    the package or the hub into the working directory."""
    folder = model_folder(model)
    if model in SHIPPED or not folder.is_dir():
        return Path(f"{model.replace('/', '-')}.tune")
    return folder.parent / "tune" if folder.name == "model" else folder.with_name(f"{folder.name}.tune")


def _report(ranked: list[tuning.Trial], refused: list[str], content: dict[str, Any], folder: Path, new: bool) -> str:
    present, metric = next(trial for trial in ranked if not trial.settings), content["metric"]
    keys = list(dict.fromkeys(key for trial in ranked for key in trial.settings))
    names = ("rouge1", "rouge2", "rougeL", "mean", "words", "repetition")
    rows = []
    for trial in ranked[:SHOWN] + ([] if present in ranked[:SHOWN] else [present]):
        cells = [_cell(trial.settings[key]) if key in trial.settings else "-" for key in keys]
        rows.append(cells + [f"{trial.scores[n] if n == 'words' else 100 * trial.scores[n]:.2f}" for n in names])
    header = [*keys, "ROUGE-1", "ROUGE-2", "ROUGE-L", "mean", "words", "repeated"]
    lines = [aligned(header, rows, left=0), ""]
    said = f"{content['data']}: {content['records']} records, {len(ranked)} settings"
    lines += filter(None, [said, content.get("signature"), content.get("counting")])
    lines += [f"{len(refused)} settings do not fit together: {refused[0]}"] if refused else []
    if ranked[0] is present:
        lines.append(f"Nothing is better than the present settings (the row of dashes) by {metric}.")
    else:
        gain = 100 * (ranked[0].scores[metric] - present.scores[metric])
        settings = flatten(content["fixed"]) | ranked[0].settings
        wanted = " ".join(f"--set {quote(f'{key}={_cell(value)}')}" for key, value in settings.items())
        lines.append(f"Best by {metric}, {gain:+.2f} against the present settings: {wanted}")
    if content["applied"]:
        lines.append("The model's defaults now; if it has a confidence, run `catchline calibrate` on it again.")
    elif new:
        lines.append("Not applied; --apply makes them the defaults.")
    lines.append(f"Everything tried is in {folder / 'tune.json'}.")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
