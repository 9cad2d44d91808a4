"""Several systems on one data set, as one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from laconic.errors import DataError
from laconic.evaluation.run import EvaluationResult

# (heading, key of EvaluationResult.measures, factor, digits)
MEASURES = (
    ("copied %", "copy_rate", 100, 1),
    ("novel 2-grams %", "novel_2", 100, 1),
    ("repeated %", "repetition", 100, 1),
    ("unk %", "unk_rate", 100, 1),
    ("words", "words", 1, 1),
    ("p_gen", "p_gen", 1, 2),
)


def compared(results: Sequence[EvaluationResult]) -> list[dict[str, Any]]:
    """JSON-ready scores; each system after the first also has its differences in F1 to the first.

    Raises:
        DataError: the systems were scored on different numbers of records.
    """
    first = results[0]
    listed = []
    for result in results:
        if result.records != first.records:
            raise DataError(
                f"{result.system} was scored on {result.records} records but {first.system} on {first.records}."
            )
        entry = result.as_dict()
        if result is not first:
            entry["difference"] = {k: result.rouge[k].f - first.rouge[k].f for k in result.rouge if k in first.rouge}
        listed.append(entry)
    return listed


def result_table(results: Sequence[EvaluationResult]) -> tuple[list[str], list[list[str]], list[str]]:
    """Header, rows and notes of the table: ROUGE F1 times 100 with half the width of its 95% interval.

    The column ``p_gen`` is there when a system that can copy is.
    """
    kinds = list(results[0].rouge)
    shown = [m for m in MEASURES if m[1] != "p_gen" or any("p_gen" in result.measures for result in results)]
    header = ["system", *[f"ROUGE-{kind}" for kind in kinds], *[heading for heading, *_ in shown]]
    rows = []
    for result in results:
        cells = [result.system]
        for kind in kinds:
            score = result.rouge[kind]
            cells.append(f"{100 * score.f:.2f} ±{50 * (score.high - score.low):.2f}")
        for _, key, factor, digits in shown:
            value = result.measures.get(key)
            cells.append("" if value is None else f"{factor * value:.{digits}f}")
        rows.append(cells)
    notes = [
        "ROUGE F1 x 100 ± half of the 95% bootstrap interval; copied: words of the summary that the document holds.",
        *dict.fromkeys(result.signature for result in results),
    ]
    return header, rows, notes
