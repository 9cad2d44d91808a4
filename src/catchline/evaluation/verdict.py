"""Whether a trained model is worth using: its scores on held-out pairs beside the first sentence of the text."""

from __future__ import annotations

from collections.abc import Sequence

from catchline.evaluation.measures import REPEATING, UNSUPPORTED_WORDS
from catchline.evaluation.run import EvaluationOptions, EvaluationResult, evaluate
from catchline.evaluation.systems import Contender
from catchline.evaluation.tables import MEASURES, cells_of, compared, result_row, rouge_column
from catchline.metrics.scoring import ANOTHER_SCRIPT
from catchline.summarizer.extractive import Progress
from catchline.types import Record

LEAD = "lead-1"
KIND = "L"
MANY = {REPEATING: 0.1, UNSUPPORTED_WORDS: 0.3}  # shares from which a word is said about them
SURE = 0.05
_SHOWN = ("copy_rate", REPEATING, UNSUPPORTED_WORDS, "words")


def scores(
    model: str, records: Sequence[Record], options: EvaluationOptions, progress: Progress | None = None
) -> list[EvaluationResult]:
    """Those of the first sentence and of the ``model``, in this order."""
    systems = [Contender(LEAD), Contender(model, name="the model")]
    return [evaluate(system, records, options=options, progress=progress) for system in systems]


def table(results: Sequence[EvaluationResult]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: ROUGE, and the shares of copied, repeated and unsupported words."""
    columns = [rouge_column(kind, marks=False) for kind in results[0].rouge]
    columns += [column for column in MEASURES if column.measure in _SHOWN]
    return cells_of(map(result_row, results), columns)


def verdict(results: Sequence[EvaluationResult], *, fine_tuned: bool, no_repeat: int = 0) -> list[str]:
    """Plain sentences on what `scores` found, each with what to try. ``no_repeat`` is ``search.no_repeat_ngram``."""
    lead, model = results
    kind = KIND if KIND in model.rouge else next(iter(model.rouge))
    ours, theirs = (round(100 * one.value(kind), 2) for one in (model, lead))  # as they are shown
    p = compared(results)[1]["p"][kind]
    figures = f"ROUGE-{kind} {ours:.2f} against {theirs:.2f} on {model.records:,} pairs it was not trained on"
    more = "more pairs or a longer training (training.max_epochs, training.max_minutes)"
    from_nothing = f"{more}, or `catchline train oneline`, which starts from a trained model"
    start = more if fine_tuned or model.flags == ANOTHER_SCRIPT else from_nothing  # the trained model is English
    if p >= SURE:
        lines = [f"No clear difference from taking the first sentence: {figures} (p = {p:.2f}); try {start}."]
    elif ours < theirs:
        lines = [f"Worse than taking the first sentence: {figures}; try {start}."]
    else:
        lines = [f"Better than taking the first sentence by {ours - theirs:.2f}: {figures}."]
    if (share := model.measures.get(REPEATING, 0.0)) > MANY[REPEATING]:
        block = "" if no_repeat in (1, 2) else ", or --set search.no_repeat_ngram=2, so that no two words come again"
        lines.append(f"{share:.0%} of its summaries repeat themselves: train longer{block}.")
    if (share := model.measures.get(UNSUPPORTED_WORDS, 0.0)) > MANY[UNSUPPORTED_WORDS]:
        lines.append(f"{share:.0%} of its content words do not stand in the text; read before you trust it.")
    if share := model.measures.get("empty", 0.0):
        lines.append(f"{share:.0%} of its summaries are empty.")
    return [*lines, model.counting] if model.flags else lines
