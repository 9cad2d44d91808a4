"""``catchline data``: check data sets, show the columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from catchline.cli.io import aligned, print_result, progress
from catchline.cli.options import AsJson, ColumnOptions, Commands, MaxRecords, Row, Size
from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import SHIPPED, TOKENIZERS, build, place_of
from catchline.config.schema import RunConfig
from catchline.data.checks import CheckOptions, DataReport, check
from catchline.data.columns import NAMES, NoColumnError
from catchline.data.dataset import record_gaps
from catchline.data.records import ReadOptions, read_with, splits_in
from catchline.errors import ConfigError, DataError, not_installed
from catchline.text.control import safe_print as print
from catchline.text.tokenizer import CharacterTokenizer, Tokenizer, WordTokenizer
from catchline.types import Record

Files = Annotated[
    list[str], Argument(metavar="FILE...|DIR", help="Data files, or a folder with train, validation and test files.")
]

app = Commands("Check data sets, and with catchline-study also build them.", no_args_is_help=True)


@app.command("check")
def check_command(
    files: Files,
    *,
    columns: ColumnOptions,
    recipe: Annotated[
        str | None, Option(help="Count with the limits and tokens of this recipe, --row and --size.")
    ] = None,
    row: Row = None,
    size: Size = None,
    max_records: MaxRecords = None,
    as_json: AsJson = False,
) -> None:
    """Find problems of training data: bad records, duplicates, leakage between splits, suspicious pairs.

    The exit code is 3 if a training would refuse some records.
    """
    if recipe is None and (row or size):
        raise ConfigError("--row and --size need a recipe; name it with --recipe.")
    options = replace(_limits_of(recipe, row, size) if recipe else CheckOptions(), max_records=max_records)
    report = _read(files, options, columns.options())
    print_result(as_json, report.as_dict(), _check_text(report))
    if report.refused:
        raise Exit(DataError.exit_code)


def _limits_of(name: str, row: str | None, size: str | None) -> CheckOptions:
    """What a recipe reads and cuts, in the tokens of its tokenizer as far as these are known before a training."""
    run = resolve_run(load_recipe(name), row, size)
    text = run.text
    return CheckOptions(text.max_source_tokens, text.max_target_tokens, run.data.min_supported, count=_counter_of(run))


def _counter_of(run: RunConfig) -> Callable[[Record], tuple[int, int]] | None:
    """What counts the tokens of both sides of a record, where these are known before a training."""
    spec, separator = run.text.tokenizer, run.text.sentence_separator
    if run.training.initial_weights in SHIPPED:
        tokenizer = Tokenizer.load(place_of(run.training.initial_weights))
    elif spec.get("type") in (WordTokenizer.name, CharacterTokenizer.name):
        tokenizer = build("tokenizer", TOKENIZERS, spec)
        tokenizer.use_separator(separator)
        tokenizer.train(["x"] * spec.get("min_frequency", 2))  # what is a token does not depend on the vocabulary
    else:
        return None

    def count(record: Record) -> tuple[int, int]:
        gaps = None if separator is None else record_gaps(record, separator)
        document, summary = tokenizer.encode_stream([record.document, record.summary], max_tokens=1, gaps=gaps)
        return document.total, summary.total

    return count


@app.command("columns")
def columns_command(
    file: Annotated[str | None, Argument(help="The file to describe.")] = None, *, columns: ColumnOptions
) -> None:
    """Print the table of known column names, or the choice for a file."""
    if file is None:
        tiers = [(side, *tier) for side in NAMES for tier in zip(("first", "then", "last"), NAMES[side], strict=True)]
        print(aligned(["side", "order", "names"], [[*row, names.replace(" ", ", ")] for *row, names in tiers], left=3))
        return
    messages: list[str] = []
    try:
        next(read_with(file, columns.options(skip_bad=True), on_choice=messages.append), None)
    except NoColumnError:  # documents alone can be summarized
        options = columns.options(need_summary=False, skip_bad=True)
        next(read_with(file, options, on_choice=messages.append), None)
    print("\n".join(messages) or f"{file}: document: 'document', summary: 'summary'")


def _read(files: list[str], options: CheckOptions, reading: ReadOptions) -> DataReport:
    named = splits_in(files[0]) if len(files) == 1 else {}
    if not named:
        for file in files:
            name = Path(file).name.split(".")[0]
            named[name if name not in named else file] = file
    with progress("Reading records") as bar:
        return check(named, options, reading, progress=bar)


def _stats_table(report: DataReport) -> str:
    options = report.options
    splits = {split.name: split.as_dict(options) for split in report.splits}
    unit = "tokens" if options.count else "words"

    def row(name: str, cell: Callable[[dict[str, Any]], str]) -> list[str]:
        return [name, *map(cell, splits.values())]

    def hardly_supported(split: dict[str, Any]) -> str:
        count = split["hardly_supported"]
        return _over({"count": count, "share": count / max(1, split["records"])})

    rows = [row("records", lambda split: f"{split['records']:,}")]
    for key in ("document_words", "summary_words", "document_tokens", "summary_tokens"):
        if any(key in split for split in splits.values()):
            rows += [
                [f"{key.replace('_', ' ')}, {figure}", *(_number(s.get(key, {}).get(figure)) for s in splits.values())]
                for figure in ("mean", "median", "p90", "max")
            ]
    rows += [
        row("document words a summary word", lambda split: _number(split["compression"])),
        row(f"documents over {options.max_source} {unit}", lambda split: _over(split["documents_over_limit"])),
        row(f"summaries over {options.max_target} {unit}", lambda split: _over(split["summaries_over_limit"])),
        *([row("left out of training: hardly supported", hardly_supported)] if options.min_supported else []),
        row("summary words in the document", lambda split: _percent(split["summary_words_in_document"])),
        row("distinct document words in the summary", lambda split: _percent(split["document_words_in_summary"])),
    ]
    return aligned(["", *splits], rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}".removesuffix(".0")


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def _over(value: dict[str, float]) -> str:
    return f"{int(value['count']):,} ({_percent(value['share'])})"


def _check_text(report: DataReport) -> str:
    problems = "\n".join(_problems(report)) or "Nothing suspicious was found."
    parts = [split.choice or split.path for split in report.splits]
    parts += [f"\n{_stats_table(report)}", f"\n{problems}"]
    if not report.near:
        parts.append(f"\nNear duplicates were not searched for. {not_installed('rensa')}")
    if report.refused:
        parts.append(
            f"\n{report.refused:,} record{'s' if report.refused > 1 else ''} would be refused by a training; repair "
            "them, or leave them out with `catchline train --skip-bad`."
        )
    return "\n".join(parts)


def _problems(report: DataReport) -> list[str]:
    told: list[tuple[str, Sequence[str]]] = []  # a sentence, and examples
    for split in report.splits:
        if split.skipped.total:
            sentence = split.skipped.describe().replace("skipped", "cannot be used")
            told.append((f"{split.name}: {sentence}", split.skipped.examples[:3]))
        for what, findings in split.problems().items():
            told.append((f"{split.name}: {what}: {findings.count:,}", findings.examples))
    for pair, kinds in report.leakage.items():
        for kind, findings in kinds.items():
            word = "the same" if kind == "exact" else "nearly the same"
            are = "document is" if findings.count == 1 else "documents are"
            told.append((f"{pair}: {findings.count:,} {are} {word} (leakage)", findings.examples))
    return [line for sentence, examples in told for line in (sentence, *(f"    {example}" for example in examples))]
