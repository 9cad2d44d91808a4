"""Tables of systems: rows, columns, marks of significance, notes; as text, Markdown, CSV, LaTeX and JSON."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any

import numpy as np

from catchline.errors import refuse_unknown
from catchline.evaluation import measures
from catchline.evaluation.run import EvaluationResult, by_document
from catchline.metrics.scoring import ANOTHER_SCRIPT
from catchline.metrics.significance import (
    TestResult,
    approximate_randomization,
    bootstrap_interval,
    holm,
    paired_bootstrap,
    paired_t_test,
)
from catchline.models.card import CardScores

FIGURES = {"f": "F1", "recall": "recall"}
FAITHFUL_NOTE = (
    "Unfaithful: summaries with a name, number or date that the document lacks. Repeating: summaries that say a word "
    "or phrase again at once, a content word within three words, or four words in a row twice."
)
NEW_NOTE = "New: the share of all names, numbers, dates, and other content words that the document lacks."
BLANK_NOTE = "Unk: words that are marks of unknown words; empty: summaries without any word."
READING_NOTE = (
    "Chunks read: by the encoder, for all hypotheses of a search; chosen: for the summary itself; coarse entropy: "
    "nats, a mean over generated tokens."
)
COPYING_TITLE = "Copying"
COPYING_NOTE = (
    "Copied: words of the summary that the document holds (Grusky et al.'s coverage); density: theirs. "
    "Correct n-grams: those that document and reference both hold, of all n-grams of all summaries. "
    "Over-copied: words that the document holds and no reference, a mean count."
)

# --------------------------------------------------------------------------------------- significance

Scores = Mapping[str, Sequence[float]]  # kind -> one score a document
Difference = dict[str, float]
Test = Callable[[Sequence[float], Sequence[float]], TestResult]

TESTS: Mapping[str, tuple[Test, str]] = {
    "randomization": (approximate_randomization, "paired approximate randomization over documents"),
    "bootstrap": (paired_bootstrap, "paired bootstrap over documents"),
    "t": (paired_t_test, "paired t-test over documents"),
}
SURE = 0.05


def named_test(name: str) -> Test:
    """The paired test called ``name``.

    Raises:
        ConfigError: there is none.
    """
    refuse_unknown("significance test", name, TESTS)
    return TESTS[name][0]


def mark_of(p: float) -> str:
    """``**`` below 0.01, ``*`` below 0.05, else nothing."""
    return "**" if p < 0.01 else "*" if p < SURE else ""


def differences(
    baseline: Scores, systems: Mapping[str, Scores], test: str = "randomization"
) -> dict[str, dict[str, Difference]]:
    """By system and kind of ROUGE the ``difference`` to ``baseline``, its two-sided ``p``, and ``p_holm`` after
    Holm's correction over the systems; each kind is a family.

    Raises:
        ConfigError: no such test.
        DataError: the systems were not scored on the same documents.
    """
    run = named_test(test)
    found: dict[str, dict[str, Difference]] = {name: {} for name in systems}
    for kind in baseline:
        results = {name: run(scores[kind], baseline[kind]) for name, scores in systems.items() if kind in scores}
        corrected = holm({name: result.p for name, result in results.items()})
        for name, result in results.items():
            found[name][kind] = {"difference": result.difference, "p": result.p, "p_holm": corrected[name]}
    return found


# ------------------------------------------------------------------------------------ rows and columns


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
    seeds: int = 1
    rouge: Mapping[str, Figure] = field(default_factory=dict)
    measures: Mapping[str, float] = field(default_factory=dict)
    losses: Mapping[str, float] = field(default_factory=dict)
    published: Mapping[str, Any] = field(default_factory=dict)
    errors: Sequence[str] = ()
    flags: str = ""
    signature: str = ""
    bleu_signature: str = ""

    @classmethod
    def of(
        cls, results: Sequence[EvaluationResult], versus: Mapping[str, Difference] | None = None, **more: Any
    ) -> Row:
        """What the evaluations of a system found, one a seed; ``versus`` are its `differences` to the first system.

        The interval of several seeds is the bootstrap of the documents' means over seeds.
        """
        first, rouge = results[0], {}
        ends = [(score.low, score.high) for score in first.rouge.values()]
        if len(results) > 1:
            means = [by_document(results, kind) for kind in first.rouge]
            ends = list(zip(*bootstrap_interval(np.transpose(means)), strict=True))
        for kind, (low, high) in zip(first.rouge, ends, strict=True):
            each = [result.value(kind) for result in results]
            deviation = stdev(each) if len(each) > 1 else None
            rouge[kind] = Figure(fmean(each), float(low), float(high), deviation, **(versus or {}).get(kind, {}))
        values = means_by_name([result.measures for result in results])
        if "chunks_read" in values and all(result.seconds for result in results):
            values["seconds"] = fmean(result.seconds / result.records for result in results)
        said = {"flags": first.flags, "signature": first.signature, "bleu_signature": first.bleu_signature}
        about: dict[str, Any] = {"name": first.system, "label": first.system} | said | more
        return cls(**about, seeds=len(results), rouge=rouge, measures=values)


def means_by_name(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """By name the mean over those that have it."""
    names = dict.fromkeys(name for values in each for name in values)
    return {name: fmean(values[name] for values in each if name in values) for name in names}


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and its cells; ``published`` columns hold the paper's figures, others a ``measure``."""

    heading: str
    cell: Callable[[Row], str]
    measure: str = ""
    published: bool = False


def rouge_column(kind: str, *, marks: bool = True) -> Column:
    """ROUGE times 100 with half the width of its interval, and marks of significance."""

    def cell(row: Row) -> str:
        figure = row.rouge.get(kind)
        if figure is None:
            return ""
        mark = f"{'' if figure.p_holm is None else mark_of(figure.p_holm):<2}" if marks else ""
        return f"{100 * figure.f:.2f} ±{50 * (figure.high - figure.low):.2f}{mark}"

    return Column(f"ROUGE-{kind}", cell)


def measure_column(heading: str, *keys: str, digits: int = 1) -> Column:
    """A figure beside ROUGE (in per cent where the heading says so), a loss, or several between slashes, a dash where
    one of these was not measured."""
    factor = 100 if heading.endswith("%") else 1

    def cell(row: Row) -> str:
        figures = {**row.measures, **row.losses}
        if keys[0] not in figures and (len(keys) == 1 or not figures):
            return ""
        return "/".join(_number(factor * figures[key], digits) if key in figures else "–" for key in keys)

    return Column(heading, cell, keys[0])


def _number(value: float, digits: int) -> str:
    """With ``digits`` after the point; the perplexity of a training that diverged has hundreds before it."""
    return f"{value:.{digits}f}" if abs(value) < 1e7 else f"{value:.3g}"


_COPIED, _UNK = measure_column("copied %", "copy_rate"), measure_column("unk %", "unk_rate")
_REPEATING, _WORDS = measure_column("repeating %", measures.REPEATING), measure_column("words", "words")
FAITHFUL = (
    measure_column("unfaithful %", measures.UNFAITHFUL),
    measure_column("new names/numbers/dates %", *(measures.UNSUPPORTED[kind] for kind in ("name", "number", "date"))),
    measure_column("new words %", measures.UNSUPPORTED_WORDS),
)
MEASURES = (FAITHFUL[0], _COPIED, _REPEATING, _UNK, _WORDS)  # all others are in the files
BLANK = (_UNK, measure_column("empty %", "empty"))  # shown where one is not 0
READING = (  # of models that read in chunks
    measure_column("chunks read", "chunks_read"),
    measure_column("chunks chosen", "chunks_chosen"),
    measure_column("words read %", "words_read"),
    measure_column("coarse entropy", "coarse_entropy", digits=2),
    measure_column("s/document", "seconds", digits=3),
)
COPYING = (
    _COPIED,
    measure_column("density", "density", digits=2),
    measure_column("novel 2-grams %", "novel_2"),
    *(measure_column(f"correct {n}-grams %", key, digits=2) for n, key in measures.CORRECT.items()),
    measure_column("over-copied words", measures.OVER_COPIED, digits=2),
    measure_column("without stop words", measures.OVER_COPIED_CONTENT, digits=2),
    measure_column("p_gen", "p_gen", digits=2),
)
IN_COMPARISON = (*FAITHFUL, _REPEATING, measure_column("repeated 2-grams %", "repetition"), _WORDS)


def cells_of(rows: Iterable[Row], columns: Sequence[Column]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table, as texts."""
    header = ["system", *[column.heading for column in columns]]
    return header, [[row.label, *[column.cell(row) for column in columns]] for row in rows]


def copy_table(rows: Iterable[Row]) -> tuple[list[str], list[list[str]]]:
    """The table of copying, without columns that no system has and systems without measures; empty without any."""
    measured = [row for row in rows if row.measures]
    shown = [column for column in COPYING if any(column.measure in row.measures for row in measured)]
    return cells_of(measured, shown) if shown else ([], [])


# ------------------------------------------------------------------------------- the table of evaluate


def result_rows(results: Sequence[EvaluationResult]) -> list[Row]:
    """What the evaluations found, each but the first with its `differences` to the first.

    Raises:
        DataError: the systems were scored on different numbers of records.
    """
    first, *others = (result.per_document for result in results)
    versus = differences(first, {str(place): system for place, system in enumerate(others)})
    return [Row.of([result], found) for result, found in zip(results, [{}, *versus.values()], strict=True)]


def compared(results: Sequence[EvaluationResult], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """JSON-ready scores; each system after the first also has its `differences` to the first."""
    listed = []
    for place, (result, row) in enumerate(zip(results, rows, strict=True)):
        names = ("difference", "p", "p_holm") if place else ()
        found = {name: {kind: getattr(figure, name) for kind, figure in row.rouge.items()} for name in names}
        listed.append(result.as_dict() | found)
    return listed


def result_table(
    results: Sequence[EvaluationResult], of: Sequence[Row]
) -> tuple[list[str], list[list[str]], list[str]]:
    """Header, rows and notes; stars mark differences to the first system."""
    there = {name for result in results for name in result.measures}
    several = len(results) > 1
    columns = [rouge_column(kind, marks=several) for kind in results[0].rouge]
    columns += MEASURES
    columns += READING if "chunks_read" in there else ()
    marks = (
        f" ** p < 0.01, * p < 0.05 against {results[0].system} (paired approximate randomization over documents, "
        "Holm's correction over the systems)."
    )
    notes = [
        f"ROUGE {FIGURES[results[0].shown]} x 100 ± half of the 95% bootstrap interval; copied: words of the summary "
        "that the document holds." + marks * several,
        FAITHFUL_NOTE,
        *([READING_NOTE] if "chunks_read" in there else []),
        *dict.fromkeys(line for result in results for line in (result.flags, result.signature) if line),
    ]
    return *cells_of(of, columns), notes


def for_card(results: Sequence[EvaluationResult], data: str, split: str = "") -> CardScores:
    """The table as a model card has it; the model is the last of ``results``."""
    header, rows, notes = result_table(results, result_rows(results))
    model = results[-1]
    return CardScores(
        data=data,
        split=split,
        records=model.records,
        rouge={kind: round(100 * model.value(kind), 2) for kind in model.rouge},
        signature=model.signature,
        header=header,
        rows=[[cell.strip() for cell in row] for row in rows],
        notes=notes,
    )


def verdict(results: Sequence[EvaluationResult], *, fine_tuned: bool, no_repeat: int = 0) -> list[str]:
    """Sentences on a trained model beside the first sentence of the text (``results``: that one first), each with what
    to try. ``no_repeat`` is ``search.no_repeat_ngram``."""
    lead, model = results
    kind = "L" if "L" in model.rouge else next(iter(model.rouge))
    ours, theirs = (round(100 * one.value(kind), 2) for one in (model, lead))  # as they are shown
    p = differences({kind: lead.per_document[kind]}, {"": model.per_document})[""][kind]["p"]
    figures = f"ROUGE-{kind} {ours:.2f} against {theirs:.2f} on {model.records:,} pairs it was not trained on"
    start = "more pairs or a longer training (training.max_epochs, training.max_minutes)"
    if not fine_tuned and model.flags != ANOTHER_SCRIPT:  # the bundled model is English
        start += ", or `catchline train oneline`, which starts from a trained model"
    if p >= SURE:
        lines = [f"No clear difference from taking the first sentence: {figures} (p = {p:.2f}); try {start}."]
    elif ours < theirs:
        lines = [f"Worse than taking the first sentence: {figures}; try {start}."]
    else:
        lines = [f"Better than taking the first sentence by {ours - theirs:.2f}: {figures}."]
    if (share := model.measures.get(measures.REPEATING, 0.0)) > 0.1:
        block = "" if no_repeat in (1, 2) else ", or --set search.no_repeat_ngram=2, so that no two words come again"
        lines.append(f"{share:.0%} of its summaries repeat themselves: train longer{block}.")
    if (share := model.measures.get(measures.UNSUPPORTED_WORDS, 0.0)) > 0.3:
        lines.append(f"{share:.0%} of its content words do not stand in the text; read before you trust it.")
    if share := model.measures.get("empty", 0.0):
        lines.append(f"{share:.0%} of its summaries are empty.")
    return [*lines, model.counting] if model.flags else lines


# --------------------------------------------------------------------------------------------- files


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(markdown_text(text.strip()) for text in line) + " |" for line in (header, *rows)]
    return [lines[0], "|" + " --- |" + " ---: |" * (len(header) - 1), *lines[1:]]


def markdown_text(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def latex(header: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str]) -> str:
    """A table with booktabs' rules; notes and signatures are comments above it. A page is as wide as seven figures:
    further ones are tables of their own, beside the first column again."""
    lines, rows = [f"% {line}" for note in notes for line in note.splitlines()], list(rows)
    for first in range(1, len(header), 7):
        shown = slice(first, first + 7)
        top, *body = (_latex_line([line[0], *line[shown]]) for line in (header, *rows))
        lines += ["\\begin{tabular}{l" + "r" * len(header[shown]) + "}", "\\toprule", top, "\\midrule", *body]
        lines += ["\\bottomrule", "\\end{tabular}", ""]
    return "\n".join(lines)


_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", "–": "--"}
)
_SUPERSCRIPT = re.compile(r"(?<=\d)(\*{1,2})$")  # marks behind a figure


def _latex_line(texts: Sequence[str]) -> str:
    cells = [_SUPERSCRIPT.sub(r"$^{\1}$", text.strip().translate(_LATEX)) for text in texts]
    return " & ".join(cells) + r" \\"


def csv_text(rows: Iterable[Row]) -> str:
    """One line a row, its numbers unrounded."""
    flat = list(map(_flat, rows))
    names = list(dict.fromkeys(name for row in flat for name in row if name != "error"))
    out = io.StringIO()
    writer = csv.DictWriter(out, [*names, "error"], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def _flat(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {"row": row.name, "label": row.label, "seeds": row.seeds}
    for kind, figure in row.rouge.items():
        found |= {f"rouge{kind}_{name}": value for name, value in asdict(figure).items()}
    found |= {**row.measures, **row.losses, **{f"published_{key}": value for key, value in row.published.items()}}
    return found | {"error": "; ".join(row.errors)}
