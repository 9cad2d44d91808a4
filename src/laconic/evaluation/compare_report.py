"""A comparison as one self-contained page: the table, the training curves and what the systems wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from laconic.evaluation.compare_run import Outcome
from laconic.evaluation.compare_table import Comparison, cells, copying, notes, signatures
from laconic.evaluation.copy_table import NOTE, TITLE
from laconic.explain.html import Curves, Prose, Samples, Section, Table, render_report
from laconic.types import Record, Summary, references_of

CURVES = (
    ("Validation loss", ("val_loss_free", "val_loss_tf")),
    ("Training loss", ("nll", "loss")),
)


def report(table: Comparison, outcomes: Sequence[Outcome], sampled: Sequence[Record], command: str = "") -> str:
    """The page. Curves are those of each row's first seed; documents sampled evenly over the data."""
    header, rows = cells(table)
    said = notes(table)
    quoted = signatures(table)
    sections: list[Section] = [
        Table("Scores", header, rows, note=" ".join(line for line in said if line not in quoted))
    ]
    header, rows = copying(table)
    if rows:
        sections.append(Table(TITLE, header, rows, note=NOTE))
    for title, names in CURVES:
        series = _series(outcomes, names)
        if series:
            sections.append(Curves(title, series, x_label="update", y_label="nats per word"))
    summaries, references = _samples(outcomes, sampled)
    if summaries:
        note = "Hover over a word and its sources light up, where the system says where its words came from."
        sections.append(Samples("What the systems wrote", summaries, references, note=note))
    sections.append(Prose("How this was made", [table.plan.title], code="\n".join(filter(None, [command, *quoted]))))
    return render_report(table.plan.title, sections, subtitle=f"{table.data}, {table.records:,} records")


def _series(outcomes: Sequence[Outcome], names: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    """By row, the first of ``names`` that its log has."""
    found: dict[str, list[tuple[float, float]]] = {}
    for outcome in outcomes:
        for result in outcome.trained[:1]:
            entries = _log(Path(result["folder"]) / "log.jsonl")
            for name in names:
                points = [(float(e["update"]), float(e[name])) for e in entries if name in e]
                if points:
                    found[outcome.entry.label] = points
                    break
    return found


def _log(path: Path) -> list[Mapping[str, Any]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def _samples(outcomes: Sequence[Outcome], sampled: Sequence[Record]) -> tuple[list[Summary], list[Sequence[str]]]:
    """The summaries document by document, in the order of the rows."""
    summaries: list[Summary] = []
    references: list[Sequence[str]] = []
    for place, record in enumerate(sampled):
        for outcome in outcomes:
            for scored in outcome.scored[:1]:
                summaries.append(scored.samples[place])
                references.append(list(references_of(record)))
    return summaries, references
