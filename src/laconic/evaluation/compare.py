"""Several systems on one data set, as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from laconic.errors import DataError
from laconic.evaluation.compare_significance import Difference, differences
from laconic.evaluation.measures import REPEATED, REPEATING, UNFAITHFUL, UNSUPPORTED, UNSUPPORTED_WORDS
from laconic.evaluation.run import EvaluationResult

# (heading, key or keys of EvaluationResult.measures, factor, digits)
Measure = tuple[str, str | tuple[str, ...], int, int]
FAITHFUL: tuple[Measure, ...] = (
    ("unfaithful %", UNFAITHFUL, 100, 1),
    ("new names/numbers/dates %", tuple(UNSUPPORTED[kind] for kind in ("name", "number", "date")), 100, 1),
    ("new words %", UNSUPPORTED_WORDS, 100, 1),
)
MEASURES: tuple[Measure, ...] = (
    *FAITHFUL,
    ("copied %", "copy_rate", 100, 1),
    ("density", "density", 1, 1),
    ("novel 2-grams %", "novel_2", 100, 1),
    ("repeating %", REPEATING, 100, 1),
    ("repeated 1/2/3/4-grams %", tuple(REPEATED.values()), 100, 1),
    ("unk %", "unk_rate", 100, 1),
    ("words", "words", 1, 1),
    ("p_gen", "p_gen", 1, 2),
)
# of models that read in chunks
READING: tuple[Measure, ...] = (
    ("chunks read", "chunks_read", 1, 1),
    ("chunks chosen", "chunks_chosen", 1, 1),
    ("words read %", "words_read", 100, 1),
    ("coarse entropy", "coarse_entropy", 1, 2),
    ("s/document", "seconds", 1, 3),
)

FIGURES = {"f": "F1", "recall": "recall"}
FAITHFUL_NOTE = (
    "Unfaithful: summaries with a name, number or date that the document lacks; new: the share of all names, numbers, "
    "dates, and other content words that it lacks. Repeating: summaries that say a word or phrase again at once, a "
    "content word within three words, or four words in a row twice."
)
READING_NOTE = (
    "Chunks read: by the encoder, for all hypotheses of a search; chosen: for the summary itself; coarse entropy: "
    "nats, a mean over generated tokens."
)
_MARKS = (
    " ** p < 0.01, * p < 0.05 against {} (paired approximate randomization over documents, Holm's correction over the "
    "systems)."
)


def compared(results: Sequence[EvaluationResult]) -> list[dict[str, Any]]:
    """JSON-ready scores; each system after the first also has its differences to the first.

    ``p`` is two-sided, of paired approximate randomization over documents; ``p_holm`` after Holm's correction over
    the systems, for each kind of ROUGE by itself.

    Raises:
        DataError: the systems were scored on different numbers of records.
    """
    first = results[0]
    for result in results:
        if result.records != first.records:
            raise DataError(
                f"{result.system} was scored on {result.records} records but {first.system} on {first.records}."
            )
    found = _differences(results)
    listed = []
    for place, result in enumerate(results):
        entry = result.as_dict()
        if place:
            for name in ("difference", "p", "p_holm"):
                entry[name] = {kind: getattr(versus, name) for kind, versus in found[place].items()}
        listed.append(entry)
    return listed


def result_table(results: Sequence[EvaluationResult]) -> tuple[list[str], list[list[str]], list[str]]:
    """Header, rows and notes of the table: ROUGE times 100 with half the width of its 95% interval.

    Stars mark differences to the first system, see `compared`. The column ``p_gen`` is there when a system that can
    copy is, those of `READING` when one that reads in chunks is.
    """
    kinds = list(results[0].rouge)
    shown = [m for m in MEASURES if m[1] != "p_gen" or any("p_gen" in result.measures for result in results)]
    if any("chunks_read" in result.measures for result in results):
        shown += READING
    header = ["system", *[f"ROUGE-{kind}" for kind in kinds], *[heading for heading, *_ in shown]]
    found = _differences(results)
    width = 2 if len(results) > 1 else 0
    rows = []
    for place, result in enumerate(results):
        cells = [result.system]
        for kind in kinds:
            score = result.rouge[kind]
            mark = found[place][kind].mark if kind in found[place] else ""
            cells.append(f"{100 * result.value(kind):.2f} ±{50 * (score.high - score.low):.2f}{mark.ljust(width)}")
        rows.append(cells + measure_cells(result, shown))
    marks = _MARKS.format(results[0].system) if len(results) > 1 else ""
    notes = [
        f"ROUGE {FIGURES[results[0].shown]} x 100 ± half of the 95% bootstrap interval; copied: words of the summary "
        "that the document holds; repeated: n-grams that occurred in the summary before." + marks,
        FAITHFUL_NOTE,
        *([READING_NOTE] if any("chunks_read" in result.measures for result in results) else []),
        *how_scored(results),
    ]
    return header, rows, notes


def measure_cells(result: EvaluationResult, shown: Sequence[Measure]) -> list[str]:
    """The figures beside ROUGE."""
    figures = {**result.measures, **({"seconds": result.seconds / result.records} if result.seconds else {})}
    return [measure_cell(figures, measure) for measure in shown]


def measure_cell(figures: Mapping[str, float], measure: Measure) -> str:
    """One cell, of several figures where the measure has several keys; a dash where one of these was not measured."""
    _, keys, factor, digits = measure
    if isinstance(keys, str):
        return "" if keys not in figures else f"{factor * figures[keys]:.{digits}f}"
    return "/".join(f"{factor * figures[key]:.{digits}f}" if key in figures else "–" for key in keys)


def how_scored(results: Sequence[EvaluationResult]) -> list[str]:
    """The flags and signatures of the scores, each once."""
    return list(dict.fromkeys(line for result in results for line in (result.flags, result.signature) if line))


@lru_cache(maxsize=1)
def _tested(scores: tuple[tuple[tuple[str, tuple[float, ...]], ...], ...]) -> tuple[dict[str, Difference], ...]:
    first, *others = (dict(system) for system in scores)
    if not others:
        return ({},)
    found = differences(first, {str(place): system for place, system in enumerate(others)})
    return ({}, *found.values())


def _differences(results: Sequence[EvaluationResult]) -> tuple[dict[str, Difference], ...]:
    """By place and kind, each system's difference to the first; tested once for `compared` and `result_table`."""
    return _tested(tuple(tuple(result.per_document.items()) for result in results))
