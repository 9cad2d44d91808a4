"""The table of a comparison: our figures beside the published ones, with notes; as Markdown and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from catchline.evaluation import table as tables
from catchline.evaluation.plan import Plan, PlannedRow
from catchline.evaluation.run import EvaluationResult, by_document, options_of
from catchline.evaluation.table import Column, Row, measure_column
from catchline.metrics.scoring import Scoring

KINDS = ("1", "2", "L")  # of ROUGE
PERPLEXITY = "val_ppl"
MOSTLY = 0.5  # the share of empty summaries that a note is about


@dataclass(slots=True)
class Outcome:
    """What became of a row: scores and training results by seed (one for a system that is not trained here)."""

    row: PlannedRow
    scored: list[EvaluationResult] = field(default_factory=list)
    trained: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def losses(self) -> list[dict[str, float]]:
        """Validation losses and perplexity of the exported models, the training loss of the last pass, by seed."""
        found = []
        for facts in self.trained:
            losses = {name: v for name, v in facts["metrics"].items() if "loss" in name or name == PERPLEXITY}
            found.append(losses | {name: facts[name] for name in ("train_loss", "train_loss_nll") if name in facts})
        return found


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

    @property
    def loss(self) -> str:
        """The validation loss that is shown: the free-running one where every trained row has it."""
        trained = [row for row in self.rows if row.losses]
        names = ("val_loss_free", "val_loss_tf")
        return next((name for name in names if trained and all(name in row.losses for row in trained)), "")

    @property
    def bleu(self) -> tuple[str, int]:
        """The paper's BLEU, 0 to 1, where published figures are on that scale; else sacreBLEU, 0 to 100."""
        values = [float(value) for row in self.rows for key, value in row.published.items() if _last(key) == "bleu"]
        return ("bleu_paper", 3) if values and max(values) <= 1 else ("bleu", 2)

    def having(self, name: str) -> bool:
        """Has a row this measure or loss, other than 0?"""
        return any(row.measures.get(name) or row.losses.get(name) for row in self.rows)


def table_of(plan: Plan, outcomes: Sequence[Outcome], *, data: str, records: int, test: str) -> ComparisonTable:
    """Means over seeds, intervals, and tables.differences to the baseline with Holm's correction over the rows.

    With several seeds a document's score is its mean over them, so intervals and tests are over documents.
    """
    means = {
        outcome.row.name: {kind: by_document(outcome.scored, kind) for kind in outcome.scored[0].rouge}
        for outcome in outcomes
        if outcome.scored
    }
    versus: dict[str, dict[str, tables.Difference]] = {}
    if plan.baseline in means:
        others = {name: scores for name, scores in means.items() if name != plan.baseline}
        versus = tables.differences(means[plan.baseline], others, test)
    rows = []
    for outcome in outcomes:
        planned = outcome.row
        about: dict[str, Any] = {"name": planned.name, "label": planned.label, "published": planned.published}
        about |= {"errors": tuple(outcome.errors), "losses": tables.means_by_name(outcome.losses)}
        scored = outcome.scored
        rows.append(Row.of(scored, versus.get(planned.name), **about) if scored else Row(seeds=0, **about))
    return ComparisonTable(plan, data, records, test, tuple(rows))


def columns(table: ComparisonTable) -> list[Column]:
    """ROUGE, BLEU and, for trained rows, losses and perplexity; after each the paper's figures where there are any."""
    found: list[Column] = []
    left = list(dict.fromkeys(key for row in table.rows for key in row.published))

    def add(column: Column, *published: str, always: bool = True) -> None:
        mine = [key for key in left if _last(key) in published]
        if mine or always:
            found.extend([column, *[_published(key, column.heading) for key in mine]])
        left[:] = [key for key in left if key not in mine]

    for kind in KINDS:
        add(_rouge(kind), f"rouge{kind}", f"rouge{kind.lower()}", f"r{kind.lower()}")
    name, digits = table.bleu
    add(measure_column("BLEU", name, digits=digits), "bleu")
    add(_loss("train loss", "train_loss"), "train_loss", always=False)
    add(_loss("val loss", table.loss), "val_loss", always=bool(table.loss))
    add(measure_column("perplexity", PERPLEXITY, digits=2), "perplexity", always=table.having(PERPLEXITY))
    some = [column for column in (*tables.BLANK, *tables.READING) if table.having(column.measure)]
    return [*found, *map(_published, left), *tables.IN_COMPARISON, *some]


def _last(key: str) -> str:
    """The measure of a published figure, ``bleu`` of ``subset.bleu``."""
    return key.rpartition(".")[2]


def _rouge(kind: str) -> Column:
    """Says once of a row that it failed."""
    column = tables.rouge_column(kind)
    failed = "failed" if kind == KINDS[0] else ""
    return replace(column, cell=lambda row: column.cell(row) if row.rouge else failed)


def _loss(heading: str, name: str) -> Column:
    """The likelihood's part where the loss has several, so that rows can be compared."""
    part, whole = (measure_column(heading, key, digits=3) for key in (f"{name}_nll", name))
    return replace(whole, cell=lambda row: part.cell(row) or whole.cell(row))


def _published(key: str, own: str = "") -> Column:
    """``BLEU, paper (subset)`` after our own column of that heading; ``paper odd measure`` where we have none."""
    prefix = key.rpartition(".")[0]
    name = f"{own}, paper" if own else f"paper {_last(key).replace('_', ' ')}"
    heading = f"{name} ({prefix.replace('.', ', ')})" if prefix else name
    return Column(heading, lambda row: str(row.published.get(key, "")), published=True)


def cells(table: ComparisonTable) -> tuple[list[str], list[list[str]]]:
    """Header and rows, as texts."""
    rows = []
    for row in table.rows:
        said = ["baseline"] if row.name == table.plan.baseline and len(table.rows) > 1 else []
        said += [f"{row.seeds} of {row.seeds + len(row.errors)} seeds"] if row.seeds and row.errors else []
        rows.append(replace(row, label=f"{row.label} ({', '.join(said)})") if said else row)
    return tables.cells_of(rows, columns(table))


def notes(table: ComparisonTable) -> list[str]:
    """What a reader must know of the figures, and the errors of failed rows."""
    most, shown = max((row.seeds for row in table.rows), default=1), columns(table)
    seeds = f" Means over {most} seeds; standard deviations over seeds are in compare.csv." if most > 1 else ""
    lines = [
        f"{table.data}: {table.records} records. ROUGE {tables.FIGURES[table.scoring.shown]} x 100 ± half of the "
        f"95% bootstrap interval over documents.{seeds}",
    ]
    if len(table.rows) > 1:
        against = f"{table.plan.baseline} ({tables.TESTS[table.test][1]}, Holm's correction over the rows of a column)"
        lines.append(f"** p < 0.01, * p < 0.05 against {against}.")
    if any(column.published for column in shown):
        lines.append("Columns named paper: published figures, on the paper's own data.")
        lines += [table.plan.note] if table.plan.note else []
    if table.bleu[0] == "bleu_paper":
        lines.append("BLEU is the headline paper's (sentences, start and end marks counted); sacreBLEU: compare.csv.")
    if table.loss:
        read = {"val_loss_free": "the model reads its own words", "val_loss_tf": "the model reads the reference"}
        units = dict.fromkeys(run.loss_unit for row in table.plan.rows for run in row.runs[:1])
        unit = (" or ".join(units) or "nats per word") + _not_counted(table)
        if any(column.heading == "train loss" for column in shown):
            lines.append(f"train loss: {unit}, over the last pass.")
        lines.append(f"val loss: {unit}, of the validation data at the best update; {read[table.loss]}.")
    if table.having(PERPLEXITY):
        lines.append("perplexity: exp of the validation data's mean -ln P(token), the model reads the reference.")
    lines += [tables.READING_NOTE] if table.having("chunks_read") else []
    blank = any(table.having(column.measure) for column in tables.BLANK)
    lines += [tables.FAITHFUL_NOTE, tables.NEW_NOTE, *([tables.BLANK_NOTE] if blank else [])]
    for row in table.rows:
        if (empty := row.measures.get("empty", 0.0)) > MOSTLY:
            lines.append(f"{row.label}: {empty:.0%} of its summaries are empty; train longer, or take a larger size.")
    lines += [f"{row.label} failed: {error}" for row in table.failed for error in row.errors]
    return lines + signatures(table)


def _not_counted(table: ComparisonTable) -> str:
    """``, coverage loss not counted``: the parts that are in no column of losses."""
    prefix = f"{table.loss}_"
    parts = [row.losses for row in table.rows if f"{prefix}nll" in row.losses]
    names = dict.fromkeys(name.removeprefix(prefix) for losses in parts for name in losses if name.startswith(prefix))
    others = [name.replace("_", " ") for name in names if name != "nll"]
    return f", {' and '.join(others)} loss not counted" if others else ""


def signatures(table: ComparisonTable) -> list[str]:
    """The signatures of the scorers, and before them the flags of the profile, where it has some."""
    usual, scored = table.scoring.flags, [row for row in table.rows if row.signature]
    rouge = dict.fromkeys(line for row in scored for line in (row.flags or usual, row.signature))
    bleu = dict.fromkeys(f"BLEU {row.bleu_signature}" for row in table.rows if row.bleu_signature)
    return [*filter(None, rouge), *bleu]


def markdown(table: ComparisonTable, command: str = "") -> str:
    """The table as Markdown, with its notes and the command that made it."""
    lines = [f"# {table.plan.title}", "", *tables.markdown_table(*cells(table))]
    lines += ["", *[tables.markdown_text(line) + "  " for line in notes(table)]]
    header, rows = tables.copy_table(table.rows)
    if rows:
        lines += ["", f"## {tables.COPYING_TITLE}", "", *tables.markdown_table(header, rows)]
        lines += ["", tables.markdown_text(tables.COPYING_NOTE)]
    lines += ["", "```", command, "```"] if command else []
    return "\n".join(lines) + "\n"


def as_dict(table: ComparisonTable) -> dict[str, Any]:
    """JSON-ready, rows unrounded."""
    once = ("name", "flags", "signature", "bleu_signature")
    rows = [{"row": row.name, **{k: v for k, v in asdict(row).items() if k not in once}} for row in table.rows]
    plan = {"name": table.plan.name, "title": table.plan.title, "baseline": table.plan.baseline}
    on = {"data": table.data, "records": table.records, "test": table.test, "shown": table.scoring.shown}
    return plan | on | {"signatures": signatures(table), "rows": rows}
