"""``laconic evaluate``: one table of trained models and extractive methods on one data set."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.cli.progress import progress, quiet
from laconic.cli.tables import aligned
from laconic.config.loading import parse_overrides
from laconic.config.names import EXTRACTIVE
from laconic.config.schema import SearchConfig
from laconic.config.section import validate
from laconic.data.readers import ReadOptions, SkipCounter, find_splits, read_with
from laconic.errors import DataError, ModelError, did_you_mean

if TYPE_CHECKING:
    from laconic.evaluation.systems import System


def command(
    systems: Annotated[
        list[str],
        typer.Argument(metavar="MODEL_OR_METHOD...", help="Model or run folders, hub ids, extractive methods."),
    ],
    data: Annotated[str, typer.Option(help="A file of records, or a folder with one file a split.")],
    split: Annotated[str, typer.Option(help="Which split of a folder.")] = "validation",
    output: Annotated[Path | None, typer.Option(help="Folder for predictions and scores.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Records decoded at once.")] = 32,
    max_records: Annotated[int | None, typer.Option(min=1, help="Score the first records only.")] = None,
    profile: Annotated[str, typer.Option(help="ROUGE profile: rouge155, google, plain, unicode.")] = "rouge155",
    search: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Decoding setting.")] = None,
    document_column: Annotated[str | None, typer.Option(help="Name of the document's column.")] = None,
    summary_column: Annotated[str | None, typer.Option(help="Name of the summary's column.")] = None,
    data_format: Annotated[str, typer.Option("--format", help="Format of the data; detected by default.")] = "auto",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip and count bad records.")] = False,
    device: Annotated[str, typer.Option(help="Device of the models, such as cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Summarize a data set with each system and print ROUGE, copying, repetition and length.

    Interrupted with --output, the same command goes on where it stopped. Marks compare with the first system.
    """
    overrides = parse_overrides(search or [])
    overrides = overrides.get("search", overrides)
    validate(SearchConfig, overrides, where="search")
    from laconic.evaluation.compare import compared, result_table
    from laconic.evaluation.run import EvaluationOptions, evaluate

    for name in systems:
        _refuse_unknown(name)
    path = split_of(data, split)
    reading = ReadOptions(data_format, document_column, summary_column, skip_bad)
    skipped = SkipCounter()
    records = list(islice(read_with(path, reading, on_skip=skipped, on_choice=_note), max_records))
    if skipped.total:
        _note(skipped.describe())
    if not records:
        raise DataError(f"{path} holds no records.")
    options = EvaluationOptions(rouge={"profile": profile}, batch_size=batch_size)
    results = []
    for name in systems:
        system = _open(name, device, overrides)
        out = output / f"{_file_name(name)}.predictions.jsonl" if output else None
        with progress(f"Evaluating {name}", total=len(records)) as bar:
            results.append(evaluate(system, records, options=options, out=out, progress=bar.advance))
    listed = compared(results)
    if output:
        scores = {"data": str(path), "systems": listed}
        (output / "scores.json").write_text(json.dumps(scores, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if as_json:
        print(json.dumps({"data": str(path), "systems": listed}, indent=2, ensure_ascii=False))
        return
    header, rows, notes = result_table(results)
    print(aligned(header, rows))
    print("\n".join(["", f"{path}: {len(records)} records", *notes]))


def split_of(data: str, split: str) -> str:
    """The file of ``split`` where ``data`` is a folder with one file a split; else ``data`` itself.

    Raises:
        DataError: the folder has splits, but not this one.
    """
    folder = Path(data)
    if not folder.is_dir() or next(folder.glob("*.story*"), None) is not None:
        return data
    splits = find_splits(folder)
    if split not in splits:
        raise DataError(f"{data} has no '{split}' split, only {', '.join(splits)}; choose one with --split.")
    return str(splits[split])


def _note(text: str) -> None:
    if not quiet():
        print(text, file=sys.stderr)


def _refuse_unknown(name: str) -> None:
    """A misspelt last name should not be found out after the first system has run for an hour."""
    from laconic.evaluation.systems import ExtractiveSystem, is_method

    if Path(name).exists() or "/" in name:
        return
    if not is_method(name):
        raise ModelError(
            f"'{name}' is neither a model folder nor an extractive method.{did_you_mean(name, EXTRACTIVE)} "
            f"Methods: {', '.join(sorted(EXTRACTIVE))}."
        )
    ExtractiveSystem(name)


def _open(name: str, device: str, search: Mapping[str, Any]) -> System:
    from laconic.evaluation.systems import ExtractiveSystem, is_method

    if is_method(name) and not Path(name).exists():
        return ExtractiveSystem(name)
    from laconic.evaluation.models import open_model

    return open_model(name, device=device, search=search)


def _file_name(system: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in system).strip("-.") or "system"
