"""The table of copying: how much of a summary stands in the document, how much of that was right, how much too much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from laconic.evaluation.measures import CORRECT, OVER_COPIED, OVER_COPIED_CONTENT

TITLE = "Copying"

# (heading, key of the measures, factor, digits)
COLUMNS = (
    ("copied %", "copy_rate", 100, 1),
    ("density", "density", 1, 2),
    ("novel 2-grams %", "novel_2", 100, 1),
    *((f"correct {n}-grams %", key, 100, 2) for n, key in CORRECT.items()),
    ("over-copied words", OVER_COPIED, 1, 2),
    ("without stop words", OVER_COPIED_CONTENT, 1, 2),
    ("p_gen", "p_gen", 1, 2),
)
NOTE = (
    "Copied: words of the summary that the document holds (Grusky et al.'s coverage); density: theirs. "
    "Correct n-grams: those that document and reference both hold, of all n-grams of all summaries. "
    "Over-copied: words that the document holds and no reference, a mean count."
)


def copy_table(systems: Iterable[tuple[str, Mapping[str, float]]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows for (name, measures) pairs; columns that no system has are left out, and so are the rows of
    systems without measures. Without any row there is no table: both are empty."""
    listed = [(name, measures) for name, measures in systems if measures]
    shown = [column for column in COLUMNS if any(column[1] in measures for _, measures in listed)]
    if not listed or not shown:
        return [], []
    rows = [[name, *_cells(measures, shown)] for name, measures in listed]
    return ["system", *[heading for heading, *_ in shown]], rows


def _cells(measures: Mapping[str, float], shown: Sequence[tuple[str, str, int, int]]) -> list[str]:
    return [f"{factor * measures[key]:.{digits}f}" if key in measures else "" for _, key, factor, digits in shown]
