"""The confidence of a newly trained model, fitted to held-out records; `catchline calibrate` fits it to ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from catchline.metrics.confidence import Calibration, prose_sentence
from catchline.metrics.copying import repeats
from catchline.metrics.faithfulness import check_support
from catchline.metrics.rouge import rouge
from catchline.metrics.scoring import Scoring, suited
from catchline.metrics.words import words
from catchline.summarizer import Summarizer
from catchline.summarizer.confidence import regression, with_domain
from catchline.summarizer.extractive import Progress
from catchline.types import Record, references_of

ACCEPT = 0.4  # ROUGE-1 F
RULE = f"ROUGE-1 of {ACCEPT:g} or more, no repetition, no name, number or date that the document lacks"


def fit_confidence(
    folder: Path, records: Sequence[Record], progress: Progress | None = None
) -> tuple[Calibration, list[float]]:
    """Fit the confidence of the model in ``folder`` to its summaries of ``records`` and store it there; also the shares
    of lines, and of first prose sentences, that `accepted` accepts, and of lines that reach the threshold."""
    summarizer = Summarizer.from_pretrained(str(folder))
    summarizer.system.calibration = Calibration.blank()
    made = summarizer.summarize(records, progress=progress)
    good, facts = accepted([summary.text for summary in made], records), [summary.facts for summary in made]
    calibration = regression(facts, good)
    confidence = np.array([calibration.confidence(one) for one in facts])
    instead = accepted([record.document[slice(*prose_sentence(record.document))] for record in records], records)
    calibration = replace(calibration, threshold=best_threshold(confidence, good, instead), accepted=RULE)
    calibration = with_domain(calibration, summarizer.system, [record.document for record in records])
    calibration.save(folder)
    return calibration, [float(np.mean(flags)) for flags in (good, instead, confidence >= calibration.threshold)]


def accepted(summaries: Sequence[str], records: Sequence[Record], accept: float = ACCEPT) -> list[bool]:
    """Which summaries pass for acceptable where no reader has rated them: ROUGE-1 F of ``accept`` against the nearest
    reference, no repetition, and no name, number or date that the document lacks."""
    references = [references_of(record) for record in records]
    counted = dict(suited(Scoring(), references).rouge) | {"multi": "max", "kinds": ("1",)}
    scores = rouge(summaries, references, **counted).per_document["1"]
    return [
        score.f >= accept and not repeats(words(text)) and not check_support(text, record.document).unsupported
        for score, text, record in zip(scores, summaries, records, strict=True)
    ]


def best_threshold(confidence: np.ndarray, good: Sequence[bool], instead: Sequence[bool]) -> float:
    """The threshold with which most answers are accepted: ``good`` lines from it on, sentences below it; 0 for none."""
    order = np.argsort(confidence)
    gain = np.cumsum(np.array(instead, dtype=int)[order] - np.array(good, dtype=int)[order])
    best = int(gain.argmax())
    return 0.0 if gain[best] <= 0 else float([*confidence[order], 1.0][best + 1])
