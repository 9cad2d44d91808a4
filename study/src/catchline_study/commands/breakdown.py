"""``catchline breakdown``: scores by the length of documents. Does a mechanism help where they are long?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Annotated, Any

from typer import Argument, Option

from catchline.cli.io import aligned, print_result, progress, records_of
from catchline.cli.options import AsJson, Device, MaxRecords, ReadingOptions, Split, TrustCode
from catchline.config.schema import EvaluationConfig
from catchline.data.records import split_of
from catchline.errors import ConfigError
from catchline.evaluation import table as tables
from catchline.evaluation.measures import REPEATED
from catchline.evaluation.run import KINDS, open_system, predict, score
from catchline.metrics.scoring import scoring, suited
from catchline.metrics.words import words
from catchline.summarizer.extractive import check_name
from catchline.types import Record, references_of


@dataclass(frozen=True, slots=True)
class Bucket:
    """Documents of ``low`` to ``high`` words, by their positions among the records."""

    low: int
    high: int
    mean: float
    positions: tuple[int, ...]


def command(
    data: Annotated[str, Option(help="A file of records, or a folder with one file per split.")],
    systems: Annotated[list[str], Argument(metavar="MODEL_OR_METHOD...", help="Models, runs, extractive methods.")],
    *,
    lengths: Annotated[int, Option("--by-length", min=1, help="Divide the documents into this many equal groups.")] = 4,
    split: Split = "validation",
    max_records: MaxRecords = None,
    profile: Annotated[str | None, Option(help="Choose the scoring profile, as in evaluate.")] = None,
    reading: ReadingOptions,
    device: Device = "cpu",
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Score systems by the length of documents."""
    names = list(dict.fromkeys(systems))
    for name in names:
        check_name(name)
    path = split_of(data, split)
    records = records_of(path, reading.options(), max_records)
    # one way of scoring for all records, so that each length is scored alike
    way = suited(scoring(profile), map(references_of, records))
    config = EvaluationConfig(profile=profile or way.rouge.get("profile"))
    groups = buckets(records, lengths)
    found: list[dict[str, Any]] = [asdict(bucket) | {"systems": []} for bucket in groups]
    cells: list[list[list[str]]] = [[] for _ in groups]
    shown = [tables.rouge_column(kind) for kind in KINDS]
    shown += [tables.measure_column(f"repeated {n}-grams %", key) for n, key in REPEATED.items()]
    shown += [tables.MEASURES[-1]]
    for name in names:
        system = open_system(name, device=device)
        with progress(f"Evaluating {name}", total=len(records)) as bar:
            lines, _ = predict(system, records, progress=bar)
        for place, bucket in enumerate(groups):
            some, written = [records[n] for n in bucket.positions], [lines[n] for n in bucket.positions]
            result = score(name, some, written, config=config, unk_text=system.system.unk_text)
            found[place]["systems"].append(result.as_dict())
            first = f"{bucket.low:,} to {bucket.high:,} (mean {bucket.mean:,.1f})"
            figures = [column.cell(tables.table_of_results([result]).rows[0]) for column in shown]
            cells[place].append([first, name, f"{len(bucket.positions):,}", *figures])
    header = ["document words", "system", "documents", *(column.heading for column in shown)]
    table = aligned(header, [row for rows in cells for row in rows], left=2)
    told = f"{table}\n\n{path}: {len(records)} records\n{result.signature}"
    print_result(as_json, {"data": path, "by_length": found}, told)


def buckets(records: Sequence[Record], count: int) -> list[Bucket]:
    """Sort the records into ``count`` buckets of equal size by their documents' length in words, punctuation left out;
    of equal lengths the earlier record comes first.

    Raises:
        ConfigError: there are fewer records.
    """
    lengths = [len(words(record.document)) for record in records]
    if count > len(records):
        raise ConfigError(f"--by-length {count}: there are {len(records):,} documents; choose a number up to that.")
    order = sorted(range(len(records)), key=lambda place: lengths[place])
    ends = [round(number * len(order) / count) for number in range(count + 1)]
    groups = [order[start:end] for start, end in pairwise(ends)]
    found = []
    for group in groups:
        own = [lengths[place] for place in group]
        found.append(Bucket(min(own), max(own), sum(own) / len(own), tuple(sorted(group))))
    return found
