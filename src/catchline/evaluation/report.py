"""What a comparison found: the paper's table with our figures beside the published ones, as Markdown, CSV, JSON, and
one self-contained page with the training curves and what the systems wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from catchline.evaluation import tables
from catchline.evaluation.comparison import KINDS, Outcome, by_document, paper_bleu, training_log
from catchline.evaluation.measures import REPEATING
from catchline.evaluation.plan import Plan
from catchline.evaluation.run import options_of
from catchline.evaluation.tables import Column, Difference, Figure, Row, Scores, measure_column
from catchline.explain.html import Curves, Prose, Samples, Section, Table, render_report
from catchline.metrics.scoring import Scoring
from catchline.metrics.significance import bootstrap_interval
from catchline.types import Record, Summary, references_of

PERPLEXITY = "val_ppl"
_NOT_IN_ROWS = ("name", "flags", "signature", "bleu_signature")  # of JSON, which has flags and signatures once
_SAID = (
    measure_column("repeating %", REPEATING),
    measure_column("repeated 2-grams %", "repetition"),
    measure_column("words", "words"),
)


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """The whole table, with what it was measured on and how."""

    plan: Plan
    data: str
    records: int
    test: str
    rows: tuple[Row, ...]

    @property
    def scoring(self) -> Scoring:
        return options_of(self.plan.evaluation).scoring

    @property
    def failed(self) -> list[Row]:
        """The rows with an error in at least one seed."""
        return [row for row in self.rows if row.errors]


def compare(plan: Plan, outcomes: Sequence[Outcome], *, data: str, records: int, test: str) -> ComparisonTable:
    """Means over seeds, intervals, and differences to the baseline with Holm's correction over the rows.

    With several seeds a document's score is its mean over them, so intervals and tests are over documents.
    """
    means = {
        outcome.row.name: {kind: by_document([s.result for s in outcome.scored], kind) for kind in KINDS}
        for outcome in outcomes
        if outcome.scored
    }
    versus: dict[str, dict[str, Difference]] = {}
    if plan.baseline in means:
        others = {name: scores for name, scores in means.items() if name != plan.baseline}
        versus = tables.differences(means[plan.baseline], others, test)
    rows = tuple(_row(o, means.get(o.row.name, {}), versus.get(o.row.name, {})) for o in outcomes)
    return ComparisonTable(plan, data, records, test, rows)


def _row(outcome: Outcome, means: Scores, versus: Mapping[str, Difference]) -> Row:
    """The interval is the bootstrap of the documents' means over seeds, as for a single system."""
    planned, scored = outcome.row, outcome.scored
    plain = Row(planned.name, planned.label, len(scored), published=planned.published, errors=tuple(outcome.errors))
    if not scored:
        return plain
    ends = zip(*bootstrap_interval(np.transpose([*means.values()])), strict=True)
    rouge = {}
    for kind, (low, high) in zip(means, ends, strict=True):
        each = [s.result.value(kind) for s in scored]
        deviation = stdev(each) if len(each) > 1 else None
        rouge[kind] = Figure(fmean(each), float(low), float(high), deviation, **versus.get(kind, {}))
    measures = _means([s.result.measures for s in scored])
    if "chunks_read" in measures and all(s.result.seconds for s in scored):
        measures["seconds"] = fmean(s.result.seconds / s.result.records for s in scored)
    return replace(
        plain,
        rouge=rouge,
        measures=measures,
        losses=_losses(outcome.trained),
        flags=scored[0].result.flags,
        signature=scored[0].result.signature,
        bleu_signature=scored[0].bleu_signature,
    )


def _losses(trained: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Validation losses and perplexity of the exported models, the training loss of the last pass; means over seeds."""
    each = [{n: v for n, v in result["metrics"].items() if "loss" in n or n == PERPLEXITY} for result in trained]
    for losses, result in zip(each, trained, strict=True):
        losses |= {name: result[name] for name in ("train_loss", "train_loss_nll") if name in result}
    return _means(each)


def _means(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """By name the mean over those that have it."""
    names = dict.fromkeys(name for one in each for name in one)
    return {name: fmean(one[name] for one in each if name in one) for name in names}


# ------------------------------------------------------------------------------------------ columns


def columns(table: ComparisonTable) -> list[Column]:
    """ROUGE, BLEU and, for trained rows, validation loss and perplexity; behind each the paper's figures where there
    are any. Figures of reading where a row reads in chunks."""
    found: list[Column] = []
    left = list(dict.fromkeys(key for row in table.rows for key in row.published))

    def add(column: Column, *published: str, always: bool = True) -> None:
        mine = [key for key in left if _measure(key) in published]
        if mine or always:
            found.extend([column, *[_published(key, column.heading) for key in mine]])
        left[:] = [key for key in left if key not in mine]

    for kind in KINDS:
        add(_rouge(kind), f"rouge{kind}", f"rouge{kind.lower()}", f"r{kind.lower()}")
    name, digits = _bleu_reading(table)
    add(measure_column("BLEU", name, digits=digits), "bleu")
    add(_loss("train loss", "train_loss"), "train_loss", always=False)
    loss = validation_loss(table)
    add(_loss("val loss", loss), "val_loss", always=bool(loss))
    measured = any(PERPLEXITY in row.losses for row in table.rows)
    add(measure_column("perplexity", PERPLEXITY, digits=2), "perplexity", always=measured)
    found += map(_published, left)
    reading = [column for column in tables.READING if any(column.measure in row.measures for row in table.rows)]
    return [*found, *tables.FAITHFUL, *_SAID, *_blank(table), *reading]


def _blank(table: ComparisonTable) -> list[Column]:
    """Unknown words and empty summaries, where a row has any."""
    return [column for column in tables.BLANK if any(row.measures.get(column.measure) for row in table.rows)]


def validation_loss(table: ComparisonTable) -> str:
    """Which validation loss the table shows: the free-running one where every trained row has it."""
    trained = [row for row in table.rows if row.losses]
    names = ("val_loss_free", "val_loss_tf")
    return next((name for name in names if trained and all(name in row.losses for row in trained)), "")


def _measure(key: str) -> str:
    return key.rsplit(".", 1)[-1]


def _bleu_reading(table: ComparisonTable) -> tuple[str, int]:
    """The paper's BLEU, 0 to 1, where published figures are on that scale; else sacreBLEU, 0 to 100."""
    values = [float(value) for row in table.rows for key, value in row.published.items() if _measure(key) == "bleu"]
    return ("bleu_paper", 3) if values and max(values) <= 1 else ("bleu", 2)


def _rouge(kind: str) -> Column:
    """Says once of a row that it failed."""
    column = tables.rouge_column(kind)
    failed = "failed" if kind == KINDS[0] else ""
    return replace(column, cell=lambda row: column.cell(row) if row.rouge else failed)


def _loss(heading: str, name: str) -> Column:
    """The likelihood's part where the loss has several, so that rows can be compared."""
    part, whole = (measure_column(heading, key, digits=3) for key in (f"{name}_nll", name))
    return replace(whole, cell=lambda row: part.cell(row) or whole.cell(row))


def _not_counted(table: ComparisonTable) -> str:
    """``, coverage loss not counted``: the parts that are in no column of losses."""
    prefix = f"{validation_loss(table)}_"
    parts = [row.losses for row in table.rows if f"{prefix}nll" in row.losses]
    names = dict.fromkeys(name.removeprefix(prefix) for losses in parts for name in losses if name.startswith(prefix))
    others = [name.replace("_", " ") for name in names if name != "nll"]
    return f", {' and '.join(others)} loss not counted" if others else ""


def _loss_unit(plan: Plan) -> str:
    return " or ".join(dict.fromkeys(run.loss_unit for row in plan.rows for run in row.runs[:1])) or "nats per word"


def _published(key: str, own: str = "") -> Column:
    """``BLEU, paper (subset)`` behind our own column of that heading; ``paper odd measure`` where we have none."""
    prefix = key.rpartition(".")[0]
    name = f"{own}, paper" if own else f"paper {_measure(key).replace('_', ' ')}"
    heading = f"{name} ({prefix.replace('.', ', ')})" if prefix else name
    return Column(heading, lambda row: str(row.published.get(key, "")), published=True)


def cells(table: ComparisonTable) -> tuple[list[str], list[list[str]]]:
    rows = []
    for row in table.rows:
        said = ["baseline"] if row.name == table.plan.baseline and len(table.rows) > 1 else []
        said += [f"{row.seeds} of {row.seeds + len(row.errors)} seeds"] if row.seeds and row.errors else []
        rows.append(replace(row, label=f"{row.label} ({', '.join(said)})") if said else row)
    return tables.cells_of(rows, columns(table))


def notes(table: ComparisonTable) -> list[str]:
    """What a reader must know of the figures, and the errors of failed rows."""
    most = max((row.seeds for row in table.rows), default=1)
    seeds = f" Means over {most} seeds; standard deviations over seeds are in compare.csv." if most > 1 else ""
    lines = [
        f"{table.data}: {table.records} records. ROUGE {tables.FIGURES[table.scoring.shown]} x 100 ± half of the "
        f"95% bootstrap interval over documents.{seeds}",
    ]
    if len(table.rows) > 1:
        lines.append(
            f"** p < 0.01, * p < 0.05 against {table.plan.baseline} "
            f"({tables.TESTS[table.test][1]}, Holm's correction over the rows of a column)."
        )
    if any(column.published for column in columns(table)):
        lines.append("Columns named paper: published figures, on the paper's own data.")
        lines += [table.plan.note] if table.plan.note else []
    if _bleu_reading(table)[0] == "bleu_paper":
        lines.append("BLEU is the headline paper's (sentences, start and end marks counted); sacreBLEU: compare.csv.")
    if loss := validation_loss(table):
        read = {"val_loss_free": "the model reads its own words", "val_loss_tf": "the model reads the reference"}[loss]
        unit = _loss_unit(table.plan) + _not_counted(table)
        if any(column.heading == "train loss" for column in columns(table)):
            lines.append(f"train loss: {unit}, over the last pass.")
        lines.append(f"val loss: {unit}, of the validation data at the best update; {read}.")
    if any(PERPLEXITY in row.losses for row in table.rows):
        lines.append("perplexity: exp of the validation data's mean -ln P(token), the model reads the reference.")
    if any("chunks_read" in row.measures for row in table.rows):
        lines.append(tables.READING_NOTE)
    lines.append(tables.FAITHFUL_NOTE)
    lines += [tables.BLANK_NOTE] if _blank(table) else []
    for row in table.failed:
        lines += [f"{row.label} failed: {error}" for error in row.errors]
    return lines + signatures(table)


def signatures(table: ComparisonTable) -> list[str]:
    """The signatures of the scorers, and before them the flags of the profile, where it has some."""
    usual, scored = table.scoring.flags, [row for row in table.rows if row.signature]
    rouge = dict.fromkeys(line for row in scored for line in (row.flags or usual, row.signature))
    bleu = dict.fromkeys(f"BLEU {row.bleu_signature}" for row in table.rows if row.bleu_signature)
    return [*filter(None, rouge), *bleu]


# ---------------------------------------------------------------------------------------- file forms


def markdown(table: ComparisonTable, command: str = "") -> str:
    """The table as Markdown, with its notes and the command that made it."""
    lines = [f"# {table.plan.title}", "", *_markdown_table(*cells(table))]
    lines += ["", *[_markdown_text(line) + "  " for line in notes(table)]]
    header, rows = tables.copy_table(table.rows)
    if rows:
        lines += ["", f"## {tables.COPYING_TITLE}", "", *_markdown_table(header, rows)]
        lines += ["", _markdown_text(tables.COPYING_NOTE)]
    if command:
        lines += ["", "```", command, "```"]
    return "\n".join(lines) + "\n"


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(_markdown_text(text.strip()) for text in line) + " |" for line in (header, *rows)]
    return [lines[0], "|" + " --- |" + " ---: |" * (len(header) - 1), *lines[1:]]


def _markdown_text(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def as_dict(table: ComparisonTable) -> dict[str, Any]:
    return {
        "name": table.plan.name,
        "title": table.plan.title,
        "data": table.data,
        "records": table.records,
        "baseline": table.plan.baseline,
        "test": table.test,
        "shown": table.scoring.shown,
        "signatures": signatures(table),
        "rows": [
            {"row": row.name} | {key: value for key, value in asdict(row).items() if key not in _NOT_IN_ROWS}
            for row in table.rows
        ],
    }


# ------------------------------------------------------------------------------------------ the page


def page(table: ComparisonTable, outcomes: Sequence[Outcome], sampled: Sequence[Record], command: str = "") -> str:
    """The page. Curves are those of each row's first seed; documents sampled evenly over the data."""
    quoted = signatures(table)
    note = " ".join(line for line in notes(table) if line not in quoted)
    sections: list[Section] = [Table("Scores", *cells(table), note=note)]
    header, rows = tables.copy_table(table.rows)
    if rows:
        sections.append(Table(tables.COPYING_TITLE, header, rows, note=tables.COPYING_NOTE))
    for title, names in _curves(table).items():
        if series := _series(outcomes, names):
            unit = _loss_unit(table.plan)
            note = f"{title}, {unit}{_not_counted(table)}."
            sections.append(Curves(title, series, x_label="update", y_label=unit, note=note))
    samples = [
        (_with_bleu(scored.samples[place], record, table), list(references_of(record)))
        for place, record in enumerate(sampled)
        for outcome in outcomes
        for scored in outcome.scored[:1]
        if place < len(scored.samples)  # some scores are kept without texts
    ]
    if samples:
        note = "Hover over a word and its sources light up, where the system says where its words came from."
        summaries, references = zip(*samples, strict=True)
        sections.append(Samples("What the systems wrote", summaries, references, note=note))
    sections.append(Prose("How this was made", [table.plan.title], code="\n".join(filter(None, [command, *quoted]))))
    return render_report(table.plan.title, sections, subtitle=f"{table.data}, {table.records:,} records")


def _with_bleu(summary: Summary, record: Record, table: ComparisonTable) -> Summary:
    """Its own BLEU behind the system's name where the table has the headline paper's, as in that paper's Figure 6."""
    if _bleu_reading(table)[0] != "bleu_paper":
        return summary
    score = paper_bleu([summary.text], [list(references_of(record))], [summary.finished])
    return replace(summary, model=f"{summary.model}, BLEU {score:.3f}")


def _curves(table: ComparisonTable) -> dict[str, tuple[str, ...]]:
    """By title the keys of the logs of which the first that is there is drawn: what the columns of losses show."""
    loss = validation_loss(table) or "val_loss_tf"
    return {"Validation loss": (f"{loss}_nll", loss), "Training loss": ("nll", "loss")}


def _series(outcomes: Sequence[Outcome], names: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    """By row, the first of ``names`` that its log has."""
    found: dict[str, list[tuple[float, float]]] = {}
    for outcome in outcomes:
        for result in outcome.trained[:1]:
            entries = training_log(Path(result["folder"]))
            curves = ([(float(e["update"]), float(e[name])) for e in entries if name in e] for name in names)
            if points := next(filter(None, curves), None):
                found[outcome.row.label] = points
    return found
