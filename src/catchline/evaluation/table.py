"""Tables of systems: rows, columns, marks of significance, notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

import numpy as np

from catchline.errors import refuse_unknown
from catchline.evaluation import measures
from catchline.evaluation.plan import PlannedRow
from catchline.evaluation.run import KINDS, EvaluationResult, by_document
from catchline.metrics.scoring import Shown
from catchline.metrics.significance import (
    TestResult,
    approximate_randomization,
    bootstrap_interval,
    holm,
    paired_bootstrap,
    paired_t_test,
)
from catchline.summarizer.summarize import LANGUAGE_MODEL

PERPLEXITY = "val_ppl"
FIGURES = {"f": "F1", "recall": "recall"}
READ = {"val_loss_free": "the model reads its own words", "val_loss_tf": "the model reads the reference"}
NOTE = (
    "Unfaithful: summaries with a name, number or date that the document lacks; copied: words that it holds; "
    "repeating: summaries that say a word or phrase again at once, or a content word within three words."
)

# --------------------------------------------------------------------------------------- significance

Scores = Mapping[str, Sequence[float]]  # kind -> one score a document
Difference = dict[str, float]
Test = Callable[[Sequence[float], Sequence[float]], TestResult]

TESTS: dict[str, Test] = {"randomization": approximate_randomization, "bootstrap": paired_bootstrap, "t": paired_t_test}
SURE = 0.05


def named_test(name: str) -> Test:
    """The paired test called ``name``. Raises ConfigError: there is none."""
    refuse_unknown("significance test", name, TESTS)
    return TESTS[name]


def mark_of(p: float) -> str:
    """``**`` below 0.01, ``*`` below 0.05, else nothing."""
    return "**" if p < 0.01 else "*" if p < SURE else ""


def differences(
    baseline: Scores, systems: Mapping[str, Scores], test: str = "randomization"
) -> dict[str, dict[str, Difference]]:
    """By system and kind of ROUGE the ``difference`` to ``baseline``, its two-sided ``p``, and ``p_holm`` after Holm's
    correction over the systems; each kind is a family. Raises ConfigError: no such test; DataError: the systems were
    not scored on the same documents."""
    run = named_test(test)
    found: dict[str, dict[str, Difference]] = {name: {} for name in systems}
    for kind in baseline:
        results = {name: run(scores[kind], baseline[kind]) for name, scores in systems.items() if kind in scores}
        corrected = holm({name: result.p for name, result in results.items()})
        for name, result in results.items():
            found[name][kind] = {"difference": result.difference, "p": result.p, "p_holm": corrected[name]}
    return found


# ----------------------------------------------------------------------------------------------- rows


@dataclass(slots=True)
class Outcome:
    """What became of a row: scores and training results by seed (one for a system that is not trained here)."""

    row: PlannedRow
    scored: list[EvaluationResult] = field(default_factory=list)
    trained: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def losses(self) -> list[dict[str, float]]:
        """By seed the validation losses and perplexity of the exported model, and training losses."""
        figures = [{**facts, **facts["metrics"]} for facts in self.trained]
        return [{name: each[name] for name in each if "_loss" in name or name == PERPLEXITY} for each in figures]


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over documents and seeds, from 0 to 1; ``low`` and ``high`` its 95% interval over documents; ``sd`` the
    standard deviation over seeds, with two seeds or more; then what `differences` found."""

    f: float
    low: float
    high: float
    sd: float | None = None
    difference: float | None = None
    p: float | None = None
    p_holm: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """What a table says of one system; empty figures where it failed. ``published`` maps a measure, perhaps with the
    table it is of (``subset.bleu``), to the paper's figure; ``losses`` are of its training."""

    name: str
    label: str
    seeds: int = 0
    rouge: Mapping[str, Figure] = field(default_factory=dict)
    measures: Mapping[str, float] = field(default_factory=dict)
    losses: Mapping[str, float] = field(default_factory=dict)
    published: Mapping[str, Any] = field(default_factory=dict)
    errors: Sequence[str] = ()
    signatures: Sequence[str] = ()
    seconds: float = 0.0  # for one document; 0 where an interrupted call was continued

    @classmethod
    def of(cls, outcome: Outcome, versus: Mapping[str, Difference] | None = None) -> Row:
        """The means over seeds; ``versus`` are the `differences` to the baseline.

        The interval of several seeds is the bootstrap of the documents' means over seeds.
        """
        results, rouge = outcome.scored, {}
        kinds = results[0].rouge if results else {}
        ends = [(score.low, score.high) for score in kinds.values()]
        if len(results) > 1:
            means = [by_document(results, kind) for kind in kinds]
            ends = list(zip(*bootstrap_interval(np.transpose(means)), strict=True))
        for kind, (low, high) in zip(kinds, ends, strict=True):
            each = [result.value(kind) for result in results]
            deviation = stdev(each) if len(each) > 1 else None
            rouge[kind] = Figure(fmean(each), float(low), float(high), deviation, **(versus or {}).get(kind, {}))
        return cls(
            name=outcome.row.name,
            label=outcome.row.label,
            seeds=len(results),
            rouge=rouge,
            measures=_means_by_name([result.measures for result in results]),
            losses=_means_by_name(outcome.losses),
            published=outcome.row.published,
            errors=tuple(outcome.errors),
            signatures=results[0].signatures if results else (),
            seconds=fmean(result.seconds / result.records for result in results) if results else 0.0,
        )


def _means_by_name(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """By name the mean over those that have it."""
    names = dict.fromkeys(name for values in each for name in values)
    return {name: fmean(values[name] for values in each if name in values) for name in names}


@dataclass(frozen=True, slots=True)
class Table:
    """Systems on one data set, tested against the row ``baseline``; ``note`` is on the published figures."""

    rows: tuple[Row, ...]
    data: str
    records: int
    baseline: str
    test: str = "randomization"
    shown: Shown = "f"
    title: str = ""
    note: str = ""
    loss_unit: str = ""

    @property
    def loss(self) -> str:
        """The validation loss that is shown: the free-running one where every trained row has it."""
        trained = [row for row in self.rows if row.losses]
        return next((name for name in READ if trained and all(name in row.losses for row in trained)), "")

    @property
    def bleu(self) -> tuple[str, int]:
        """The paper's BLEU, 0 to 1, where published figures are on that scale; else sacreBLEU, 0 to 100."""
        values = [float(value) for row in self.rows for key, value in row.published.items() if _last(key) == "bleu"]
        return ("bleu_paper", 3) if values and max(values) <= 1 else ("bleu", 2)

    def having(self, name: str) -> bool:
        """Has a row this measure or loss, other than 0?"""
        return any(row.measures.get(name) or row.losses.get(name) for row in self.rows)


def table_of(
    outcomes: Sequence[Outcome], baseline: str, *, data: str, records: int, test: str = "randomization", **about: str
) -> Table:
    """Means over seeds, intervals, and differences to the baseline with Holm's correction over the rows.

    With several seeds a document's score is its mean over them, so intervals and tests are over documents.
    """
    scored = [outcome for outcome in outcomes if outcome.scored]
    means = {o.row.name: {kind: by_document(o.scored, kind) for kind in o.scored[0].rouge} for o in scored}
    first = means.pop(baseline, None)
    versus = differences(first, means, test) if first else {}
    rows = tuple(Row.of(outcome, versus.get(outcome.row.name)) for outcome in outcomes)
    units = dict.fromkeys(run.loss_unit for outcome in outcomes for run in outcome.row.runs[:1])
    shown = scored[0].scored[0].shown if scored else "f"
    return Table(rows, data, records, baseline, test, shown, loss_unit=" or ".join(units) or "nats per word", **about)


def table_of_results(results: Sequence[EvaluationResult], data: str = "") -> Table:
    """Systems that exist, tested against the first."""
    outcomes = [Outcome(PlannedRow(result.system, result.system), [result]) for result in results]
    return table_of(outcomes, results[0].system, data=data, records=results[0].records)


# -------------------------------------------------------------------------------------------- columns


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and its cells, perhaps of a ``measure``."""

    heading: str
    cell: Callable[[Row], str]
    measure: str = ""


def rouge_column(kind: str) -> Column:
    """ROUGE times 100 with half the width of its interval, and marks of significance."""

    def cell(row: Row) -> str:
        figure = row.rouge.get(kind)
        if figure is None:
            return "failed" if row.errors else ""
        mark = "" if figure.p_holm is None else mark_of(figure.p_holm)
        return f"{100 * figure.f:.2f} ±{50 * (figure.high - figure.low):.2f}{mark:<2}"

    return Column(f"ROUGE-{kind}", cell)


def measure_column(heading: str, *keys: str, digits: int = 1) -> Column:
    """A figure beside ROUGE (in per cent where the heading says so) or a loss: the first of ``keys`` that a row has.
    The perplexity of a training that diverged has hundreds of digits."""
    factor = 100 if heading.endswith("%") else 1

    def cell(row: Row) -> str:
        figures = {**row.measures, **row.losses}
        value = next((factor * figures[key] for key in keys if key in figures), None)
        return "" if value is None else f"{value:.{digits}f}" if abs(value) < 1e7 else f"{value:.3g}"

    return Column(heading, cell, keys[-1])


_COPIED, _UNK = measure_column("copied %", "copy_rate"), measure_column("unk %", "unk_rate")
MEASURES = (
    measure_column("unfaithful %", measures.UNFAITHFUL),
    _COPIED,
    measure_column("repeating %", measures.REPEATING),
    measure_column("words", "words"),
)  # all others are in the files
RARE = (  # shown where one is not 0; the last four are of models that read in chunks
    _UNK,
    measure_column("empty %", "empty"),
    measure_column("chunks read", "chunks_read"),
    measure_column("chunks chosen", "chunks_chosen"),
    measure_column("words read %", "words_read"),
    measure_column("coarse entropy", "coarse_entropy", digits=2),
)
_SECONDS = Column("seconds", lambda row: f"{row.seconds:.2f}" if row.seconds else "")  # shown beside prompted models
COPYING = (
    _COPIED,
    measure_column("density", "density", digits=2),
    measure_column("novel 2-grams %", "novel_2"),
    *(measure_column(f"correct {n}-grams %", key, digits=2) for n, key in measures.CORRECT.items()),
    measure_column("over-copied words", measures.OVER_COPIED, digits=2),
    measure_column("without stop words", measures.OVER_COPIED_CONTENT, digits=2),
    measure_column("p_gen", "p_gen", digits=2),
)


def columns(table: Table) -> list[Column]:
    """ROUGE, BLEU, losses and perplexity, each followed by the paper's figures where there are any; then measures."""
    found: list[Column] = []
    left = list(dict.fromkeys(key for row in table.rows for key in row.published))

    def add(column: Column, *published: str, always: bool = True) -> None:
        mine = [key for key in left if _last(key) in published]
        if mine or always:
            found.extend([column, *[_published(key, column.heading) for key in mine]])
        left[:] = [key for key in left if key not in mine]

    for kind in dict.fromkeys(kind for row in table.rows for kind in row.rouge) or KINDS:
        add(rouge_column(kind), f"rouge{kind}", f"rouge{kind.lower()}", f"r{kind.lower()}")
    name, digits = table.bleu
    add(measure_column("BLEU", name, digits=digits), "bleu", always=table.having(name))
    for heading, loss in (("train loss", "train_loss"), ("val loss", table.loss)):  # the likelihood's part, if any
        column = measure_column(heading, f"{loss}_nll", loss, digits=3)
        add(column, heading.replace(" ", "_"), always=loss != "train_loss" and bool(loss))
    add(measure_column("perplexity", PERPLEXITY, digits=2), "perplexity", always=table.having(PERPLEXITY))
    some = [column for column in RARE if table.having(column.measure)]
    some += [_SECONDS] if any(row.name.startswith(LANGUAGE_MODEL) for row in table.rows) else []
    return [*found, *map(_published, left), *MEASURES, *some]


def _last(key: str) -> str:
    """The measure of a published figure, ``bleu`` of ``subset.bleu``."""
    return key.rpartition(".")[2]


def _published(key: str, own: str = "") -> Column:
    """``BLEU, paper (subset)`` after our own column of that heading; ``paper odd measure`` where we have none."""
    prefix = key.rpartition(".")[0]
    name = f"{own}, paper" if own else f"paper {_last(key).replace('_', ' ')}"
    heading = f"{name} ({prefix.replace('.', ', ')})" if prefix else name
    return Column(heading, lambda row: str(row.published.get(key, "")))


def cells_of(rows: Iterable[Row], columns: Sequence[Column]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table, as texts."""
    header = ["system", *[column.heading for column in columns]]
    return header, [[row.label, *[column.cell(row) for column in columns]] for row in rows]


def cells(table: Table) -> tuple[list[str], list[list[str]]]:
    """Header and rows, with a word on the baseline and on failed seeds."""
    rows = []
    for row in table.rows:
        remarks = ["baseline"] if row.name == table.baseline and len(table.rows) > 1 else []
        remarks += [f"{row.seeds} of {row.seeds + len(row.errors)} seeds"] if row.seeds and row.errors else []
        rows.append(replace(row, label=f"{row.label} ({', '.join(remarks)})") if remarks else row)
    return cells_of(rows, columns(table))


def copy_table(table: Table) -> tuple[list[str], list[list[str]]]:
    """The table of copying, without columns that no system has and systems without measures; empty without any."""
    measured = [row for row in table.rows if row.measures]
    shown = [column for column in COPYING if any(column.measure in row.measures for row in measured)]
    return cells_of(measured, shown) if shown else ([], [])


def notes(table: Table) -> list[str]:
    """What a reader must know of the figures, and the errors of failed rows."""
    most = max((row.seeds for row in table.rows), default=1)
    seeds = f" Means over {most} seeds; standard deviations over seeds are in compare.csv." if most > 1 else ""
    lines = [
        f"{table.data}: {table.records} records. ROUGE {FIGURES[table.shown]} x 100 ± half of the 95% bootstrap "
        f"interval over documents.{seeds}"
    ]
    if len(table.rows) > 1:
        how = f"paired test over documents ({table.test}), Holm's correction over the rows of a column"
        lines.append(f"** p < 0.01, * p < 0.05 against {table.baseline}: {how}.")
    if any(row.published for row in table.rows):
        lines += ["Columns named paper: published figures, on the paper's own data.", *filter(None, [table.note])]
    if table.bleu[0] == "bleu_paper":
        lines.append("BLEU is the headline paper's (sentences, start and end marks counted); sacreBLEU: compare.csv.")
    if table.loss:
        lines.append(f"Losses: {table.loss_unit}, of the likelihood alone; val loss: {READ[table.loss]}.")
    lines.append(NOTE)
    lines += [f"{row.label} failed: {error}" for row in table.rows for error in row.errors]
    return lines + signatures(table)


def signatures(table: Table) -> list[str]:
    """What the scorers counted, each once."""
    return list(dict.fromkeys(line for row in table.rows for line in row.signatures))
