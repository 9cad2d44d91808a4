"""``catchline data``: check and describe data sets, show the columns, build corpora out of what is installed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from catchline.cli.data_write import TOKENS, Separator, app
from catchline.cli.options import AsJson, ColumnOptions, MaxRecords, MinHumanScore, Row, Size, TrustCode
from catchline.cli.output import aligned, print_result, progress
from catchline.config.loading import load_recipe, resolve_run
from catchline.data.checks import CheckOptions, DataReport, SplitReport, check, histogram
from catchline.data.columns import NoColumnError, column_table
from catchline.data.places import splits_in
from catchline.data.readers import ReadOptions, read_with
from catchline.data.subset import counter_of, counter_of_run
from catchline.errors import ConfigError, DataError
from catchline.study.corpora.debian import build_debian
from catchline.study.corpora.docstrings import build_corpus, learnt_packages
from catchline.text.control import safe_print as print

Files = Annotated[
    list[str], Argument(metavar="FILE...|DIR", help="Data files, or a folder with train, validation and test files.")
]
OutFolder = Annotated[Path, Argument(metavar="OUT", help="The folder to write.")]
MaxSource = Annotated[int | None, Option(min=1, help="Words of a document that a model would read (400).")]
MaxTarget = Annotated[int | None, Option(min=1, help="Words of a summary that a model would learn (100).")]


@app.command("check")
def check_command(
    files: Files,
    *,
    columns: ColumnOptions,
    recipe: Annotated[
        str | None, Option(help="Count with the limits and tokens of this recipe; --row and --size choose.")
    ] = None,
    row: Row = None,
    size: Size = None,
    max_source: MaxSource = None,
    max_target: MaxTarget = None,
    max_records: MaxRecords = None,
    as_json: AsJson = False,
) -> None:
    """Look for what spoils a training: bad records, duplicates, leakage between splits, suspicious pairs.

    The exit code is 3 when there are records that a training would refuse.
    """
    if recipe is None and (row or size):
        raise ConfigError("--row and --size choose of a recipe; name it with --recipe.")
    if recipe is not None and (max_source or max_target):
        raise ConfigError("--max-source and --max-target are the recipe's with --recipe; leave them out.")
    limits = _limits_of(recipe, row, size) if recipe else CheckOptions(max_source or 400, max_target or 100)
    options = replace(limits, max_records=max_records)
    report = _read(files, options, columns.options())
    print_result(as_json, report.as_dict(), _check_text(report))
    if report.refused:
        raise Exit(DataError.exit_code)


def _limits_of(name: str, row: str | None, size: str | None) -> CheckOptions:
    """What a recipe reads and cuts, in the tokens of its tokenizer as far as these are known before a training."""
    run = resolve_run(load_recipe(name), row, size)
    return CheckOptions(
        run.text.max_source_tokens,
        run.text.max_target_tokens,
        run.data.min_supported,
        count=counter_of_run(run),
        limits_in_tokens=True,
    )


@app.command("stats")
def stats_command(
    files: Files,
    *,
    columns: ColumnOptions,
    max_source: MaxSource = None,
    max_target: MaxTarget = None,
    max_records: MaxRecords = None,
    tokens: Annotated[str | None, Option(help="Also count so: " + TOKENS)] = None,
    sentence_separator: Separator = None,
    min_human_score: MinHumanScore = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Lengths, compression, and how much of the summaries stands in the documents."""
    if sentence_separator and tokens is None:
        raise ConfigError("--sentence-separator changes what --tokens counts; give --tokens, for example blanks.")
    count = counter_of(tokens, sentence_separator) if tokens is not None else None
    options = CheckOptions(max_source or 400, max_target or 100, duplicates=False, max_records=max_records, count=count)
    report = _read(files, options, columns.options(min_human_score=min_human_score))
    print_result(as_json, report.as_dict(), "\n".join([_stats_table(report), *map(_histograms, report.splits)]))


@app.command("docstrings")
def docstrings_command(
    out: OutFolder,
    root: Annotated[list[Path] | None, Option(help="A folder of packages; those of this Python if not given.")] = None,
    standard_library: Annotated[bool, Option(help="Read the standard library too.")] = True,
    archives: Annotated[
        Path | None,
        Option(help="Instead: a folder of wheels or sdists, of which those of permissive licences are read."),
    ] = None,
    validation: Annotated[
        int | None, Option(min=1, help="Hold out so many pairs for validation, not a tenth each and for a test.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build a corpus of (body, summary line) pairs out of the docstrings of installed packages.

    The packages are read, not imported, and no network is used. Whole packages go to one split; installed ones that the
    model in the box learnt from are not held out. stats.json tells what was read; for archives also each package's
    version and licence, and the packages left out for theirs.
    """
    if root and archives is not None:
        raise ConfigError("--root reads installed packages and --archives wheels or sdists; give one of them.")
    for folder in root or []:
        if not folder.is_dir():
            raise DataError(f"{folder} is not a folder of Python packages.")
    with progress("Collecting docstrings") as bar:
        stats = build_corpus(
            out,
            roots=root,
            standard_library=standard_library,
            archives=archives,
            validation=validation,
            in_training=learnt_packages() if archives is None else (),
            progress=bar.update,
        )
    rows = []
    for name, split in stats.splits.items():
        packages = list(split["packages"])
        shown = ", ".join(packages[:4]) + (f" and {len(packages) - 4} more" if len(packages) > 4 else "")
        mean = [f"{split[side]['mean']:.0f}" for side in ("document_words", "summary_words")]
        rows.append([name, shown, f"{split['pairs']:,}", *mean])
    told = [aligned(["split", "packages", "pairs", "words a body", "words a summary"], rows, left=2), ""]
    read = stats.read
    told.append(f"{read['docstrings']:,} docstrings in {read['files']:,} files read; left out: {stats.reasons}.")
    if stats.refused:
        told.append(f"Not read, for no permissive licence is stated: {', '.join(sorted(stats.refused))}.")
    if unreadable := read["unreadable_files"]:
        told.append(f"{unreadable:,} files could not be parsed and were passed over.")
    print_result(as_json, stats.as_dict(), "\n".join(told))


@app.command("debian")
def debian_command(
    out: OutFolder,
    lists: Annotated[Path, Option(help="The folder in which apt keeps its index.")] = Path("/var/lib/apt/lists"),
    validation: Annotated[int | None, Option(min=1, help="Hold out so many pairs for validation.")] = None,
    seed: Annotated[int, Option(help="Which source packages are held out.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Build a corpus of (description, synopsis) pairs out of apt's index, on any Debian or Ubuntu.

    One entry a family of packages that say the same; a source package's entries go to one split.
    """
    stats = build_debian(out, lists=lists, validation=validation, seed=seed)
    lines = [f"{out / name}.jsonl: {pairs:,} pairs" for name, pairs in stats.splits.items()]
    read = "{packages:,} packages of {source_packages:,} source packages read".format_map(stats.read)
    lines.append(f"{read}; left out: {stats.reasons}.")
    print_result(as_json, stats.as_dict(), "\n".join(lines))


@app.command("columns")
def columns_command(
    file: Annotated[str | None, Argument(help="A file whose columns to show.")] = None,
    *,
    columns: ColumnOptions,
) -> None:
    """The table by which columns are recognised, or what it chooses in a file."""
    if file is None:
        print(aligned(["side", "order", "names"], [[*row[:2], ", ".join(row[2])] for row in column_table()], left=3))
        return
    messages: list[str] = []
    try:
        next(read_with(file, columns.options(skip_bad=True), on_choice=messages.append), None)
    except NoColumnError:  # documents alone can be summarized
        options = columns.options(need_summary=False, skip_bad=True)
        next(read_with(file, options, on_choice=messages.append), None)
    print("\n".join(messages))


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
    unit = "tokens" if options.limits_in_tokens else "words"

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
    for n in "123":
        rows.append([f"new {n}-grams in the summaries", *(_percent(s["novel_ngrams"][n]) for s in splits.values())])
    return aligned(["", *splits], rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}".removesuffix(".0")


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def _over(value: dict[str, float]) -> str:
    return f"{int(value['count']):,} ({_percent(value['share'])})"


def _histograms(split: SplitReport) -> str:
    return "\n".join(
        "\n  ".join([f"\n{split.name}: words a {side}", *histogram(values)])
        for side in ("document", "summary")
        if (values := split.lengths[f"{side}_words"])
    )


def _check_text(report: DataReport) -> str:
    problems = "\n".join(_problems(report)) or "Nothing suspicious was found."
    parts = [split.choice or split.path for split in report.splits]
    parts += [f"\n{_stats_table(report)}", *map(_histograms, report.splits), f"\n{problems}"]
    if report.refused:
        them = "them" if report.refused > 1 else "it"
        parts.append(
            f"\n{report.refused:,} record{'s' if report.refused > 1 else ''} would be refused by a training; "
            f"repair {them}, or leave {them} out with `catchline train --skip-bad`."
        )
    return "\n".join(parts)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count != 1 else f"1 {re.sub('^(document|pair)s', lambda found: found[1], what)}"


def _problems(report: DataReport) -> list[str]:
    told: list[tuple[str, Sequence[object]]] = []  # a sentence, and examples
    for split in report.splits:
        if split.skipped.total:
            sentence = split.skipped.describe().replace("skipped", "cannot be used")
            told.append((f"{split.name}: {sentence}", split.skipped.examples[:3]))
        found = {
            "documents that stood there before": split.exact_duplicates,
            "documents nearly the same as an earlier one": split.near_duplicates,
            **{f"pairs: {reason}": findings for reason, findings in sorted(split.suspicious.items())},
        }
        told += [
            (f"{split.name}: {_counted(one.count, what)}", one.examples) for what, one in found.items() if one.count
        ]
    for pair, kinds in report.leakage.items():
        for kind, findings in kinds.items():
            word = "the same" if kind == "exact" else "nearly the same"
            are = "document is" if findings.count == 1 else "documents are"
            told.append((f"{pair}: {findings.count:,} {are} {word} (leakage)", findings.examples))
    return [line for sentence, examples in told for line in (sentence, *(f"    {example}" for example in examples))]
