"""``catchline compare``: a paper's table with our figures beside the published ones."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from catchline.cli.io import aligned, check_folder, note, print_json, progress, records_of, say
from catchline.cli.main import EXIT_INTERRUPTED
from catchline.cli.options import AsJson, Device, MaxRecords, PromptOptions, ReadingOptions, RecipeKeys, Size, TrustCode
from catchline.config.base import merge
from catchline.config.loading import load_recipe, parse_overrides, recipe_names
from catchline.config.names import SHIPPED
from catchline.config.schema import RunConfig
from catchline.data.records import data_changes, split_of, splits_in
from catchline.errors import ConfigError, DataError, did_you_mean
from catchline.evaluation.plan import Choice, Plan, plan_recipe, plan_systems
from catchline.evaluation.report import as_dict, csv_text, latex, markdown
from catchline.evaluation.table import Table, cells, copy_table, named_test, notes, table_of
from catchline.files import only_here, write_json, write_text
from catchline.text.control import safe_print as print

Earlier = Annotated[list[Path] | None, Option(help="Reuse matching scores of this earlier comparison folder.")]


def command(
    what: Annotated[
        list[str], Argument(metavar="RECIPE|SYSTEM...", help="A recipe, or run folders, models and extractive methods.")
    ],
    data: Annotated[Path | None, Option(help="A folder with one file per split, or a file to score.")] = None,
    size: Size = None,
    rows: Annotated[
        list[str] | None, Option(help="Choose rows of the recipe: a,b,c or one --rows each (default: all).")
    ] = None,
    seeds: Annotated[int, Option(min=1, help="Train each row with this many seeds.")] = 1,
    out: Annotated[Path | None, Option(help="Write to this folder (default: below runs/).")] = None,
    earlier: Earlier = None,
    overrides: RecipeKeys = None,
    *,
    prompting: PromptOptions,
    reading: ReadingOptions,
    split: Annotated[str, Option(help="Score this split: validation or test.")] = "validation",
    max_records: MaxRecords = None,
    baseline: Annotated[str | None, Option(help="Test the other rows against this row.")] = None,
    test: Annotated[str, Option(help="Choose the paired test: randomization, bootstrap or t.")] = "randomization",
    device: Device = "cpu",
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Train and score the rows of a recipe, or score existing systems, and print one table.

    The folder gets compare.md, compare.csv, compare.tex and compare.json. Interrupted, the same command
    continues where it stopped. A row that fails is named in the table, and the exit code is 1.
    """
    from catchline.evaluation.compare import Comparison  # which needs sacrebleu

    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ConfigError("catchline compare runs in one process; train with several, then compare the run folders.")
    check_folder(out)
    named_test(test)
    changes = merge(reading.changes(), parse_overrides(overrides or []), revive=True)
    listed = [name.strip() for given in rows or [] for name in given.split(",") if name.strip()]
    plan = _plan(what, data, Choice(listed, size, seeds, changes, baseline, prompting.settings(what, data)))
    path = _data_path(data, plan, split, named=changes.get("data", {}).get(split) is not None)
    records = records_of(path, plan.data, max_records)
    if test != "randomization" and len(records) < 2:  # before hours of training
        raise DataError(f"--test {test} needs at least two documents, and there is one; --test randomization does not.")
    for place in earlier or []:
        if not (place / "state.json").is_file():
            raise ConfigError(f"--earlier: {place} is not the folder of a comparison (there is no state.json in it).")
    folder = out or _folder(plan, what, size, path)
    once = partial(_train, on_message=cache(note))  # what is the same of every run is said of the first
    how: dict[str, Any] = {"train": once, "watch": progress, "say": note, "earlier": earlier or [], "device": device}
    with only_here(folder):
        comparison = Comparison(plan, records, folder, **how)
        try:
            outcomes = comparison.run()
        except KeyboardInterrupt:
            say(f"Interrupted; finished rows are in {folder}. The same command continues from there.")
            raise Exit(EXIT_INTERRUPTED) from None
        about = {"title": plan.title, "note": plan.note, "test": test}
        table = table_of(outcomes, plan.baseline, data=path, records=len(records), **about)
        _write(table, folder)
    if as_json:
        print_json(as_dict(table))
    else:
        print(aligned(*cells(table)))
        header, lines = copy_table(table)
        if lines:
            print(f"\n{aligned(header, lines)}")
        print("\n".join(["", *notes(table), f"{folder}/compare.md, .csv, .tex, .json"]))
    if any(row.errors for row in table.rows):
        raise Exit(1)


def _plan(what: list[str], data: Path | None, choice: Choice) -> Plan:
    systems = SHIPPED if len(what) > 1 else ()  # alone such a name is its recipe's
    recipes = set(recipe_names()).difference(systems)
    is_recipe = [name in recipes or Path(name).suffix in {".yaml", ".yml"} for name in what]
    if not any(is_recipe):
        for option, given in (("--size", choice.size), ("--rows", choice.rows), ("--seeds", choice.seeds > 1)):
            if given:
                known, meant = ", ".join(recipe_names()), did_you_mean(what[0], recipe_names())
                raise ConfigError(f"{option} belongs to a recipe, but '{what[0]}' is not one; recipes: {known}.{meant}")
        return plan_systems(what, choice)
    if len(what) > 1:
        raise ConfigError(f"Compare one recipe, or existing systems; given: {', '.join(what)}.")
    recipe = load_recipe(what[0])
    if not recipe.extractive:
        changes = merge(data_changes(data), choice.overrides, revive=True)
        if not changes.get("data", {}).get("train", recipe.base.get("data", {}).get("train")):
            raise ConfigError("Which pairs? Give --data DIR with train and validation files, or --set data.train=FILE.")
        choice = replace(choice, overrides=changes)
    return plan_recipe(recipe, choice)


def _data_path(data: Path | None, plan: Plan, split: str, *, named: bool) -> str:
    """The file to score on: one that ``--set`` has ``named``, else of ``--data``, else the one that the recipe or the
    first run names."""
    configured, trains = getattr(plan.data, split, None), any(row.runs for row in plan.rows)
    whole = data is not None and not splits_in(data)  # one data set, which rows that are trained are trained on
    if whole and trains and not configured:
        raise ConfigError(
            f"{data} would train and score: give --data DIR with train and {split} files (`catchline data "
            f"subset {data} DIR/{split}.jsonl --sample 500 --rest DIR/train.jsonl` makes them), or --set "
            f"data.{split}=FILE."
        )
    if data is not None and not named and not (whole and trains):
        return split_of(str(data), split)
    if configured:
        return str(configured)
    raise DataError(f"Which records? Give --data DIR (with a {split} file), or --set data.{split}=FILE.")


def _folder(plan: Plan, what: list[str], size: str | None, path: str) -> Path:
    """``runs/compare-RECIPE-SIZE-DATA``."""
    size = size or ("" if plan.name == "systems" else load_recipe(what[0]).default_size)
    parts = ["compare", plan.name, size, Path(path).parent.name or Path(path).stem]
    return Path("runs") / "-".join(filter(None, parts))


def _train(run: RunConfig, folder: Path, *, resume: bool, title: str, on_message: Callable[[str], None] = note) -> Any:
    """Train a row under a bar with its title; of what the training calls its stages only pre-training is shown."""
    from catchline.training.run import train

    def show(completed: float | None = None, *, description: str | None = None, **shown: Any) -> None:
        if description is not None:
            shown["description"] = title + " (pre-training)" * description.startswith("Pre-training")
        bar.update(completed, **shown)

    with progress(title) as bar:
        return train(run, folder, resume=resume, progress=show, on_message=on_message)


def _write(table: Table, folder: Path) -> None:
    typed = sys.argv[1:] if Path(sys.argv[0]).stem in {"catchline", "__main__"} else ["compare"]  # as far as is known
    said = f"catchline {shlex.join(typed)}"
    files = {"compare.md": markdown(table, said), "compare.csv": csv_text(table), "compare.tex": latex(table)}
    for name, text in files.items():
        write_text(folder / name, text)
    write_json(folder / "compare.json", as_dict(table), indent=2)
