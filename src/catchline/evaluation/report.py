"""What is made of a table of systems: Markdown, CSV, LaTeX and JSON; a model card's scores; a verdict in sentences."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from catchline.evaluation import measures
from catchline.evaluation.run import EvaluationResult
from catchline.evaluation.table import (
    SURE,
    Row,
    Table,
    cells,
    copy_table,
    differences,
    notes,
    signatures,
    table_of_results,
)
from catchline.metrics.scoring import ANOTHER_SCRIPT
from catchline.models.card import CardScores


def for_card(results: Sequence[EvaluationResult], data: str, split: str) -> CardScores:
    """The table as a model card has it; the model is the last of ``results``."""
    table, model = table_of_results(results, data), results[-1]
    header, rows = cells(table)
    return CardScores(
        data=data,
        split=split,
        records=model.records,
        rouge={kind: round(100 * model.value(kind), 2) for kind in model.rouge},
        signature=model.signature,
        header=header,
        rows=[[cell.strip() for cell in row] for row in rows],
        notes=notes(table),
    )


def verdict(results: Sequence[EvaluationResult], *, fine_tuned: bool, no_repeat: int = 0) -> list[str]:
    """Sentences on a trained model beside the first sentence of the text (``results``: that one first), each with what
    to try."""
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
        lines.append(f"{share:.0%} of its content words are not in the text; read some summaries first.")
    if share := model.measures.get("empty", 0.0):
        lines.append(f"{share:.0%} of its summaries are empty.")
    return [*lines, model.counting] if model.flags else lines


def markdown(table: Table, command: str = "") -> str:
    """The table as Markdown, with its notes and the command that made it."""
    lines = [f"# {table.title}", "", *_markdown_table(*cells(table))]
    lines += ["", *[_markdown_text(line) + "  " for line in notes(table)]]
    header, rows = copy_table(table)
    lines += ["", "## Copying", "", *_markdown_table(header, rows)] if rows else []
    lines += ["", "```", command, "```"] if command else []
    return "\n".join(lines) + "\n"


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(_markdown_text(text.strip()) for text in line) + " |" for line in (header, *rows)]
    return [lines[0], "|" + " --- |" + " ---: |" * (len(header) - 1), *lines[1:]]


def _markdown_text(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def latex(table: Table) -> str:
    """The table with booktabs' rules; notes and signatures are comments above it."""
    header, rows = cells(table)
    top, *body = map(_latex_line, (header, *rows))
    lines = [f"% {line}" for note in notes(table) for line in note.splitlines()]
    lines += ["\\begin{tabular}{l" + "r" * (len(header) - 1) + "}", "\\toprule", top, "\\midrule", *body]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", "–": "--"}
)
_SUPERSCRIPT = re.compile(r"(?<=\d)(\*{1,2})$")  # marks behind a figure


def _latex_line(texts: Sequence[str]) -> str:
    cells = [_SUPERSCRIPT.sub(r"$^{\1}$", text.strip().translate(_LATEX)) for text in texts]
    return " & ".join(cells) + r" \\"


def csv_text(table: Table) -> str:
    """One line a row, its numbers unrounded."""
    flat = list(map(_flat, table.rows))
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


def compared(table: Table, results: Sequence[EvaluationResult]) -> list[dict[str, Any]]:
    """JSON-ready scores; each system but the baseline also has its `differences` to that."""
    listed = []
    for result, row in zip(results, table.rows, strict=True):
        names = ("difference", "p", "p_holm") if row.name != table.baseline else ()
        tests = {name: {kind: getattr(figure, name) for kind, figure in row.rouge.items()} for name in names}
        listed.append(result.as_dict() | tests)
    return listed


def as_dict(table: Table) -> dict[str, Any]:
    """JSON-ready, rows unrounded."""
    rows = [{"row": row.name, **{k: v for k, v in asdict(row).items() if k != "name"}} for row in table.rows]
    about = ("title", "baseline", "data", "records", "test", "shown")
    return {name: getattr(table, name) for name in about} | {"signatures": signatures(table), "rows": rows}
