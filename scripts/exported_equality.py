"""Do exported models write what torch writes? A table, one line a model and corpus.

Each model is exported and reads the same records as torch, in batches, with explanations. Then the graphs read them
again, alone and in batches of seven in the file's order, in which short documents are padded to long ones. Summaries
that differ are ties where their scores differ by less than 1e-4; they are shown below the table.

    python scripts/exported_equality.py MODEL [MODEL ...] --data validation.jsonl [more.jsonl] [--records 500]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from catchline.data.records import read_records
from catchline.export.apart import Agreement, compare, export_apart
from catchline.summarizer import Summarizer
from catchline.summarizer.onnx_backend import ExportedSystem
from catchline.types import Record, Summary

MIXED = 7


def in_order(summarizer: Summarizer, records: Sequence[Record], size: int) -> list[Summary]:
    """The summaries, ``size`` at a time as they come, not by length."""
    system, options = summarizer.system, summarizer.system.options({})
    batches = [records[start : start + size] for start in range(0, len(records), size)]
    return [one for batch in batches for one in system.summarize_batch(batch, explain=False, options=options)]


def same(first: Sequence[Summary], second: Sequence[Summary]) -> tuple[int, float]:
    """How many are equal, and by how much the scores of those differ at most."""
    equal = [(one, other) for one, other in zip(first, second, strict=True) if one.text == other.text]
    return len(equal), max((abs(one.score - other.score) for one, other in equal), default=0.0)


def row(name: str, data: str, found: Agreement, graphs: Summarizer, records: Sequence[Record]) -> str:
    """One line of the table."""
    alone, mixed = in_order(graphs, records, 1), in_order(graphs, records, MIXED)
    equal, worst = same(alone, mixed)
    cells = [name, data, f"{found.equal} of {found.records}", str(found.ties), f"{found.worst_score:.0e}"]
    cells += [f"{found.worst_source:.0e}", f"{equal} of {len(records)}", f"{worst:.0e}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data", nargs="+", required=True, type=Path)
    parser.add_argument("--records", type=int, default=500)
    arguments = parser.parse_args()
    print("| model | records of | equal | ties | scores apart | explanations apart | alone = mixed | scores apart |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    shown: list[tuple[Summary, Summary]] = []
    for model in arguments.models:
        with tempfile.TemporaryDirectory() as home:
            export_apart(model, Path(home, "out"))
            graphs = Summarizer(ExportedSystem.from_pretrained(Path(home, "out")))
            for path in arguments.data:
                records = list(islice(read_records(path), arguments.records))
                found = compare(model, Path(home, "out"), records)
                print(row(Path(model).name, path.stem, found, graphs, records), flush=True)
                shown += found.different
    for ours, theirs in shown:
        print(f"torch {ours.score:.6f} {ours.text}\ngraph {theirs.score:.6f} {theirs.text}")


if __name__ == "__main__":
    main()
