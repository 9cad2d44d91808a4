"""What a comparison consists of: the rows of a recipe, or systems that exist already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from catchline.config.base import merge, validate
from catchline.config.loading import read_run, recipe_names, resolve_method, resolve_run, with_absolute_paths
from catchline.config.names import EXTRACTIVE, check_run, parse, place_of, resolve
from catchline.config.schema import DataConfig, EvaluationConfig, Recipe, RunConfig, SearchConfig
from catchline.errors import ConfigError, refuse_unknown, unknown_choice
from catchline.summarizer.extractive import check_name, meaning, method_spec
from catchline.summarizer.summarize import LANGUAGE_MODEL

SECTIONS = {"data": DataConfig, "evaluation": EvaluationConfig}


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """One row of the table: ``runs`` to train (one a seed), or a system that exists at ``place`` with ``settings`` (the
    spec of a method, or what decodes otherwise than the model's own).

    ``published`` maps a measure, perhaps with the table it is of (``subset.bleu``), to the paper's figure.
    """

    name: str
    label: str
    published: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    runs: tuple[RunConfig, ...] = ()
    place: str = ""

    @classmethod
    def method(cls, name: str, label: str, published: Mapping[str, Any], spec: Mapping[str, Any]) -> PlannedRow:
        """An extractive method. Raises ConfigError: it has no such option, or not this value."""
        parse("extractive method", EXTRACTIVE, spec)
        return cls(name, label, flatten(published), spec, place=name)


PlannedRows = tuple[list[PlannedRow], DataConfig, EvaluationConfig]


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows in the order of the table, how to read the data and how to score."""

    name: str
    title: str
    rows: tuple[PlannedRow, ...]
    baseline: str
    data: DataConfig
    evaluation: EvaluationConfig
    note: str = ""  # on the published figures


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a recipe is compared: ``rows`` (all if empty), ``size``, the number of ``seeds``, ``--set`` changes."""

    rows: Sequence[str] = ()
    size: str | None = None
    seeds: int = 1
    overrides: Mapping[str, Any] = field(default_factory=dict)
    baseline: str | None = None
    prompted: Mapping[str, Any] = field(default_factory=dict)  # settings of systems that are language models


def plan_recipe(recipe: Recipe, choice: Choice) -> Plan:
    """The rows of ``recipe`` that were chosen, its extractive rows first. Raises ConfigError: an unknown row, size, key
    or baseline, or settings that do not fit."""
    known = [*(() if recipe.extractive else recipe.extractive_rows), *recipe.rows]
    for row in choice.rows:
        refuse_unknown(f"{recipe.name} row", row, known)
    chosen = [row for row in known if row in choice.rows or not choice.rows]
    plan_rows = _method_rows if recipe.extractive else _model_rows
    rows, data, evaluation = plan_rows(recipe, chosen, choice)
    baseline = _baseline(rows, choice.baseline)
    return Plan(recipe.name, recipe.title, tuple(rows), baseline, data, evaluation, recipe.published_note)


def plan_systems(places: Sequence[str], choice: Choice) -> Plan:
    """Run and model folders, ids of the hub and extractive methods, as they are.

    The data and the scoring are those of the first run among them, changed by ``choice.overrides``. Raises ConfigError:
    an unknown key or baseline; ModelError: something is neither a model nor a method.
    """
    overrides = dict(choice.overrides)
    search = overrides.pop("search", {})
    validate(SearchConfig, search, where="search")
    for key in overrides:
        if key not in SECTIONS:
            raise ConfigError(unknown_choice("key", key, [*SECTIONS, "search"]))
    runs, named = [], dict[str, PlannedRow]()  # each system once, by the name that it has first
    for place in places:
        method = method_spec(place) if check_name(place, recipe_names()) else None
        settings = choice.prompted if place.startswith(LANGUAGE_MODEL) else method or search
        recipe = place_of(place) / "recipe.yaml"
        run = read_run(recipe) if not method and recipe.is_file() else None
        runs += [run] if run else []
        label = f"{place} ({run.description})" if run and run.description else place
        published = flatten(run.published) if run else {}
        named.setdefault(meaning(place), PlannedRow(place, label, published, settings, place=place))
    rows = tuple(named.values())
    base = {name: getattr(runs[0], name).model_dump() if runs else {} for name in SECTIONS}
    sections = _sections(merge(base, overrides, revive=True))
    return Plan("systems", "Comparison", rows, _baseline(rows, choice.baseline), *sections)


def flatten(published: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"subset": {"bleu": 0.01}}`` as ``{"subset.bleu": 0.01}``."""
    flat: dict[str, Any] = {}
    for key, value in published.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _model_rows(recipe: Recipe, chosen: Sequence[str], choice: Choice) -> PlannedRows:
    rows: list[PlannedRow] = []
    resolved = partial(resolve_run, recipe, size=choice.size)
    # a change below a part that some of several rows leave out is meant for the others
    runs_of = {row: resolved(row, overrides=choice.overrides, revive=False) for row in chosen if row in recipe.rows}
    if all(run == resolved(row) for row, run in runs_of.items()):
        runs_of = {row: resolved(row, overrides=choice.overrides) for row in runs_of}
    for row in chosen:
        if row not in recipe.rows:
            rows.append(PlannedRow.method(row, row, recipe.extractive_rows[row], method_spec(row)))
            continue
        check_run(run := runs_of[row])
        runs = []
        for seed in range(run.training.seed, run.training.seed + choice.seeds):
            training = run.training.model_copy(update={"seed": seed})
            runs.append(with_absolute_paths(run.model_copy(update={"training": training})))
        rows.append(PlannedRow(row, recipe.rows[row].label, flatten(run.published), runs=tuple(runs)))
    first = next(iter(runs_of.values()), None) or resolved(None, overrides=choice.overrides)
    return rows, first.data, first.evaluation


def _method_rows(recipe: Recipe, chosen: Sequence[str], choice: Choice) -> PlannedRows:
    """``--set key=value`` changes the option in every chosen row that has it."""
    options = {key: value for key, value in choice.overrides.items() if key not in SECTIONS}
    known: set[str] = set()
    rows = []
    for row in chosen:
        spec = resolve_method(recipe, row, choice.size)
        fields = resolve("extractive method", EXTRACTIVE, spec["type"]).Config.model_fields
        known |= set(fields)
        spec = merge(spec, {key: value for key, value in options.items() if key in fields})
        rows.append(PlannedRow.method(row, recipe.rows[row].label, recipe.rows[row].published, spec))
    for key in set(options) - known:
        raise ConfigError(unknown_choice("option of these methods", key, known))
    return rows, *_sections(choice.overrides)


def _sections(values: Mapping[str, Any]) -> tuple[DataConfig, EvaluationConfig]:
    data = validate(DataConfig, values.get("data", {}), where="data")
    return data, validate(EvaluationConfig, values.get("evaluation", {}), where="evaluation")


def _baseline(rows: Sequence[PlannedRow], wanted: str | None) -> str:
    """The row the others are compared with: the one named, else the first model, else the first row."""
    if wanted is None:
        return next((row.name for row in rows if "type" not in row.settings), rows[0].name)
    refuse_unknown("baseline", wanted, [row.name for row in rows])
    return wanted


def settings_of(run: RunConfig) -> dict[str, Any]:
    """What decides the trained model: a run without its decoding, scoring and describing parts, and without what is
    said of a pre-training stage that it does not have."""
    left_out: dict[str, Any] = dict.fromkeys(("search", "evaluation", "description", "published"), True)
    if not run.pretraining.enabled:
        left_out["pretraining"] = True
    return run.model_dump(mode="json", exclude=left_out)
