"""What `catchline train` says at the end about one's own data: a score, a verdict and the confidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from catchline.cli.inputs import records_of
from catchline.cli.output import aligned, progress
from catchline.config.schema import RunConfig
from catchline.errors import CatchlineError
from catchline.evaluation.run import EvaluationOptions, EvaluationResult, evaluate_system, open_system, options_of
from catchline.evaluation.table import MEASURES, Row, cells_of, for_card, rouge_column, verdict
from catchline.models.card import Card, write_card
from catchline.summarizer.extractive import Progress
from catchline.types import Record

SCORED = 200  # pairs of a split, at the end
SHOWN = ("copy_rate", "repeating", "unsupported_word", "words")


def closing_score(model_folder: str, run: RunConfig) -> str:
    """The table and the verdict on the pairs that were held out, and what became of the model's confidence; without
    such pairs what to do about it."""
    splits = [name for name in ("test", "validation") if getattr(run.data, name) is not None]
    if not splits:
        return (
            "Nothing was held out, so nobody knows how good it is, and it has no confidence: "
            "`catchline evaluate` scores it on other pairs, `catchline calibrate` finds out when it had better "
            "not answer."
        )
    try:
        reading = run.data.model_copy(update={"skip_bad": True})
        held = {name: records_of(getattr(run.data, name), reading, SCORED, some=True) for name in splits}
        split, records = next(iter(held.items()))
        folder = Path(model_folder)
        confidence = calibrated(folder, [record for part in held.values() for record in part])
        with progress("Scoring", total=2 * len(records)) as bar:
            results = scores(model_folder, records, options_of(run.evaluation), bar.advance)
        name = Path(getattr(run.data, split)).name
        write_card(folder, Card.of(folder).with_scores(for_card(results, name, split)))
    except CatchlineError as error:  # the training is done, whatever becomes of its score
        return f"It could not be scored: {error}"
    fine_tuned = run.training.initial_weights is not None
    text = verdict(results, fine_tuned=fine_tuned, no_repeat=run.search.no_repeat_ngram)
    columns = [rouge_column(kind, marks=False) for kind in results[0].rouge]
    columns += [column for column in MEASURES if column.measure in SHOWN]
    return "\n".join(["", aligned(*cells_of([Row.of([result]) for result in results], columns)), "", *text, confidence])


def scores(
    model: str, records: Sequence[Record], options: EvaluationOptions, progress: Progress | None = None
) -> list[EvaluationResult]:
    """Those of the first sentence and of the ``model``, in this order."""
    systems = {"lead-1": "lead-1", "the model": model}
    return [
        evaluate_system(open_system(place), records, name=name, options=options, progress=progress)
        for name, place in systems.items()
    ]


def calibrated(folder: Path, records: Sequence[Record]) -> str:
    """Fit the model's confidence to these records, where they are enough, and say what was measured."""
    from catchline.evaluation.confidence import ACCEPT, LEAST_RECORDS, fit_confidence

    remedy = "It has no confidence yet: `catchline calibrate` fits it to more held-out pairs."
    if len(records) < LEAST_RECORDS:
        return f"{len(records)} held-out pairs are fewer than the {LEAST_RECORDS} of a calibration. {remedy}"
    try:
        with progress("Calibrating", total=len(records)) as bar:
            calibration, (lines, sentences, given) = fit_confidence(folder, records, bar.advance)
    except CatchlineError as error:
        return f"{error} {remedy}"
    return (
        f"Of {len(records):,} held-out lines {lines:.0%} have ROUGE-1 of {ACCEPT:g} or more, no repetition and "
        f"no name, number or date that their text lacks; of first sentences {sentences:.0%}. So it gives "
        f"its line at a confidence of {calibration.threshold:.2f} or more ({given:.0%} of these texts)."
    )
