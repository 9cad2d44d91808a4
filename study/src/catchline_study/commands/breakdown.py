"""``catchline breakdown``: scores by the length of documents, and of an extractive method by its size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from typer import Argument, Option

from catchline.cli.inputs import records_of
from catchline.cli.options import AsJson, Device, MaxRecords, ReadingOptions, Split, TrustCode
from catchline.cli.output import aligned, print_result, progress
from catchline.config.schema import EvaluationConfig
from catchline.data.places import split_of
from catchline.errors import ConfigError
from catchline.evaluation import table as tables
from catchline.evaluation.run import Contender, EvaluationResult, options_of, predict, score
from catchline.metrics.scoring import suited
from catchline.summarizer.extractive import check_name
from catchline.types import references_of
from catchline_study.breakdown import Bucket, as_dicts, best_lines, best_of, buckets, by_length, sweep_names


def command(
    data: Annotated[str, Option(help="A file of records, or a folder with one file a split.")],
    systems: Annotated[
        list[str] | None, Argument(metavar="MODEL_OR_METHOD...", help="Models, runs and extractive methods.")
    ] = None,
    *,
    sweep: Annotated[
        list[str] | None,
        Option(metavar="METHOD:FROM-TO", help="An extractive method at several sizes, such as lead:1-5."),
    ] = None,
    lengths: Annotated[
        str | None,
        Option("--by-length", metavar="N|A,B,...", help="N equal buckets of documents, or where they begin."),
    ] = None,
    split: Split = "validation",
    max_records: MaxRecords = None,
    profile: Annotated[str | None, Option(help="Way of scoring, as of evaluate.")] = None,
    reading: ReadingOptions,
    device: Device = "cpu",
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Score systems by the length of documents, and extractive methods by their size."""
    sweeps = {spec: sweep_names(spec) for spec in sweep or []}
    names = list(dict.fromkeys([*(systems or []), *(name for found in sweeps.values() for name in found)]))
    if not names:
        raise ConfigError("Name a model or an extractive method to score, or give --sweep lead:1-5.")
    for name in names:
        check_name(name)
    path = split_of(data, split)
    records = records_of(path, reading.options(), max_records, some=True)
    options = options_of(EvaluationConfig(profile=profile))
    # one way of scoring for all records, so that each length is scored alike
    options = replace(options, scoring=suited(options.scoring, map(references_of, records)))
    groups = buckets(records, lengths) if lengths else []
    results: dict[str, EvaluationResult] = {}
    parts: dict[str, list[EvaluationResult]] = {}
    for name in names:
        system = Contender(name, device=device)
        with progress(f"Evaluating {name}", total=len(records)) as bar:
            lines, _ = predict(system, records, options=options, progress=bar)
        results[name] = score(name, records, lines, options=options, unk_text=system.unk_text)
        parts[name] = by_length(name, records, lines, groups, options=options, unk_text=system.unk_text)
    best = {spec: best_of([results[name] for name in found]) for spec, found in sweeps.items()}
    content = {
        "data": path,
        "systems": tables.compared(list(results.values())),
        "sweeps": [{"sweep": spec, "best": winners} for spec, winners in best.items()],
        "by_length": as_dicts(groups, parts),
    }
    header, rows, notes = tables.result_table(list(results.values()))
    told = [aligned(header, rows), "", *best_lines(best, results)]
    if groups:
        told += ["", _length_table(groups, parts), ""]
    print_result(as_json, content, "\n".join([*told, f"{path}: {len(records)} records", *notes]))


def _length_table(groups: Sequence[Bucket], parts: Mapping[str, Sequence[EvaluationResult]]) -> str:
    shown = [column for column in tables.MEASURES if column.heading.startswith(("repeated", "words"))]
    kinds = list(next(iter(parts.values()))[0].rouge)
    header = ["document words", "system", "documents", *(f"ROUGE-{kind}" for kind in kinds)]
    rows = []
    for place, bucket in enumerate(groups):
        for name, results in parts.items():
            figures = [f"{100 * results[place].value(kind):.2f}" for kind in kinds]
            first = f"{bucket.name} (mean {bucket.mean:,.1f})"
            cells = [column.cell(tables.result_row(results[place])) for column in shown]
            rows.append([first, name, f"{len(bucket.places):,}", *figures, *cells])
    return aligned([*header, *(column.heading for column in shown)], rows, left=2)
