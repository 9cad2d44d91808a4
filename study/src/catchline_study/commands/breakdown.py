"""``catchline breakdown``: scores by the length of documents (does a mechanism help where they are long?), and of an
extractive method by its size (which k of lead-k, which N of the first N words, is best)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Annotated, Any

from typer import Argument, Option

from catchline.cli.inputs import records_of
from catchline.cli.options import AsJson, Device, MaxRecords, ReadingOptions, Split, TrustCode
from catchline.cli.output import aligned, print_result, progress
from catchline.config.names import EXTRACTIVE, resolve
from catchline.config.schema import EvaluationConfig
from catchline.data.records import split_of
from catchline.errors import ConfigError
from catchline.evaluation import table as tables
from catchline.evaluation.run import EvaluationResult, open_system, options_of, predict, score
from catchline.metrics.scoring import suited
from catchline.metrics.words import words
from catchline.summarizer.extractive import check_name
from catchline.types import Record, references_of

_SWEEP = re.compile(r"(?P<method>[a-z_]+):(?P<first>\d{1,9})-(?P<last>\d{1,9})(?::(?P<step>\d{1,9}))?\Z")
_SIZES = ("characters", "words", "max_words", "sentences")  # a method counts the first of these that it has


@dataclass(frozen=True, slots=True)
class Bucket:
    """Documents of ``low`` to ``high`` words, by their positions among the records."""

    low: int
    high: int
    mean: float
    positions: tuple[int, ...]


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
        system = open_system(name, device=device)
        with progress(f"Evaluating {name}", total=len(records)) as bar:
            lines, _ = predict(system, records, options=options, progress=bar)
        how: dict[str, Any] = {"options": options, "unk_text": system.system.unk_text}
        results[name] = score(name, records, lines, **how)
        parts[name] = [
            score(name, [records[n] for n in bucket.positions], [lines[n] for n in bucket.positions], **how)
            for bucket in groups
        ]
    best = {spec: best_of([results[name] for name in found]) for spec, found in sweeps.items()}
    by_length = [
        {**asdict(bucket), "systems": [found[place].as_dict() for found in parts.values()]}
        for place, bucket in enumerate(groups)
    ]
    listed = list(results.values())
    tested = tables.result_rows(listed)
    content = {"data": path, "systems": tables.compared(listed, tested), "sweeps": best, "by_length": by_length}
    header, rows, notes = tables.result_table(listed, tested)
    told = [aligned(header, rows), ""]
    for spec, winners in best.items():
        told.append(f"{spec}: best by " + ", ".join(f"{kind} {name}" for kind, name in winners.items()))
    told += ["", _length_table(groups, parts), ""] if groups else []
    print_result(as_json, content, "\n".join([*told, f"{path}: {len(records)} records", *notes]))


def _length_table(groups: Sequence[Bucket], parts: Mapping[str, Sequence[EvaluationResult]]) -> str:
    kinds = list(next(iter(parts.values()))[0].rouge)
    shown = [column for column in tables.MEASURES if column.heading.startswith(("repeated", "words"))]
    shown = [*(tables.rouge_column(kind, marks=False) for kind in kinds), *shown]
    header = ["document words", "system", "documents", *(column.heading for column in shown)]
    rows = []
    for place, bucket in enumerate(groups):
        for name, results in parts.items():
            cells = [column.cell(tables.Row.of([results[place]])) for column in shown]
            first = f"{bucket.low:,} to {bucket.high:,} (mean {bucket.mean:,.1f})"
            rows.append([first, name, f"{len(bucket.positions):,}", *cells])
    return aligned(header, rows, left=2)


def buckets(records: Sequence[Record], spec: str) -> list[Bucket]:
    """Sort the records into buckets by their documents' length in words, punctuation left out.

    ``spec`` is the number of buckets of equal size (``4``; of equal lengths the earlier record comes first), or the
    lengths at which a new bucket begins (``200,400``; a single one ends in a comma). Empty buckets are left out.

    Raises:
        ConfigError: ``spec`` is neither.
    """
    lengths = [len(words(record.document)) for record in records]
    parts = [part.strip() for part in spec.split(",")]
    edges = [int(part) for part in parts if part.isdecimal() and len(part) < 10]
    if len(edges) != len([part for part in parts if part]) or not parts[0] or edges != sorted(set(edges)):
        raise ConfigError(f"--by-length '{spec}' is neither a number of buckets nor growing lengths such as 200,400.")
    groups: list[list[int]]
    if len(parts) == 1:
        count = edges[0]
        if not 1 <= count <= len(records):
            raise ConfigError(f"--by-length {count}: there are {len(records):,} documents; choose 1 to so many.")
        order = sorted(range(len(records)), key=lambda place: lengths[place])
        ends = [round(number * len(order) / count) for number in range(count + 1)]
        groups = [order[start:end] for start, end in pairwise(ends)]
    else:
        groups = [[] for _ in range(len(edges) + 1)]
        for place, length in enumerate(lengths):
            groups[bisect_right(edges, length)].append(place)
    found = []
    for group in filter(None, groups):
        own = [lengths[place] for place in group]
        found.append(Bucket(min(own), max(own), sum(own) / len(own), tuple(sorted(group))))
    return found


def sweep_names(spec: str) -> list[str]:
    """``lead:1-5`` -> ``lead-1`` to ``lead-5``; ``first_words:10-50:10`` -> ``first_words:words=10``, ``...=20``, ...

    Raises:
        ConfigError: not of this form, an unknown method, or no size in the range.
    """
    parts = _SWEEP.fullmatch(spec)
    if parts is None:
        raise ConfigError(f"--sweep '{spec}' is not of the form METHOD:FROM-TO, such as lead:1-5 (step: :10 behind).")
    fields = resolve("extractive method", EXTRACTIVE, parts["method"]).Config.model_fields
    setting = next(name for name in _SIZES if name in fields)
    first, last, step = int(parts["first"]), int(parts["last"]), int(parts["step"] or 1)
    sizes = range(first, last + 1, step) if step else range(0)
    if first < 1 or not sizes:
        raise ConfigError(f"--sweep '{spec}' holds no size; write the smaller number, at least 1, first.")
    dash = setting == "sentences"
    return [f"{parts['method']}-{size}" if dash else f"{parts['method']}:{setting}={size}" for size in sizes]


def best_of(results: Sequence[EvaluationResult]) -> dict[str, str]:
    """By kind of ROUGE, and for their mean, the system with the highest figure; of equals the first."""
    best = {kind: max(results, key=lambda result: result.value(kind)) for kind in results[0].rouge}
    best["mean"] = max(results, key=lambda result: sum(map(result.value, result.rouge)))
    return {kind: result.system for kind, result in best.items()}
