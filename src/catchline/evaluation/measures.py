"""What is measured of summaries beside ROUGE: faithfulness, copying, repetition, and length; the confidence of a newly
trained model, fitted to held-out records (`catchline calibrate` fits it to ratings).

The measures of one summary are in `catchline.metrics`, with their definition of a word; here they become figures of a
data set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from catchline.metrics.confidence import Calibration, prose_sentence
from catchline.metrics.faithfulness import CLAIMS, Kind, SourceFacts, check_support
from catchline.metrics.rouge import rouge
from catchline.metrics.scoring import Scoring, suited
from catchline.metrics.words import (
    correct_counts,
    coverage_and_density,
    is_stop_word,
    novel_rate,
    over_copied,
    repeated_ngram_rate,
    repeats,
    shared_runs,
    words,
)
from catchline.summarizer import Summarizer
from catchline.summarizer.confidence import regression, with_domain
from catchline.summarizer.extractive import Progress
from catchline.types import Record, references_of

REVISION = 5  # raised when a figure is added or could change: scores that are kept are then made anew
REPEATED = {1: "repetition_1", 2: "repetition", 3: "repetition_3", 4: "repetition_4"}  # n -> name of the figure
REPEATING, UNFAITHFUL, UNSUPPORTED_WORDS = "repeating", "unfaithful", "unsupported_word"
CORRECT = {n: f"correct_{n}" for n in (1, 2, 3, 4)}
OVER_COPIED, OVER_COPIED_CONTENT = "over_copied", "over_copied_content"
KINDS: tuple[Kind, ...] = (*CLAIMS, "word")
_BETWEEN = "\n"  # between two references: no word, so no n-gram with it is in a document


def measure(
    documents: Sequence[str], summaries: Sequence[str], references: Sequence[Sequence[str]], unk_text: str | None = None
) -> dict[str, float]:
    """Means over documents; a document whose summary is too short for a figure does not count in it.

    ``copy_rate``: share of the summary's words that the document holds, which is Grusky et al.'s coverage; ``density``:
    theirs. ``novel_2``: share of its distinct bigrams that the document lacks. ``repetition``: share of its bigrams
    that occurred in it before (``repetition_1``, ``_3`` and ``_4``: of its words, 3- and 4-grams); ``repeating``: share
    of summaries that a reader would say repeat themselves. ``unk_rate``: unknown-word marks per blank-separated word.
    ``words``: its length. ``empty``: share of summaries without any word.

    What they state that their documents lack (`catchline.metrics.faithfulness`): ``unsupported_name``, ``_number``,
    ``_date`` and ``_word``: the share of all such pieces, missing where there is none; ``unfaithful``: share of
    summaries with a name, number or date that the document lacks.

    Correct and unnecessary copying (Li et al. 2021, figure 4): ``correct_n``: of all n-grams of the
    summaries the share that the document and a reference hold, occurrences added up over the summaries;
    ``over_copied``: words of a summary that the document holds and no reference; ``over_copied_content``: the same
    without English stop words.
    """
    rows, hits, sizes = [], Counter[str](), Counter[str]()
    for document, summary, group in zip(documents, summaries, references, strict=True):
        figures, counts = _figures(document, summary, group, unk_text)
        rows.append(figures)
        hits.update({name: some for name, (some, _) in counts.items()})
        sizes.update({name: every for name, (_, every) in counts.items()})
    found = {name: _mean(row[name] for row in rows if row[name] is not None) for name in (rows[0] if rows else ())}
    return found | dict.fromkeys(CORRECT.values(), 0.0) | {name: hits[name] / n for name, n in sizes.items() if n}


def _figures(
    document: str, summary: str, group: Sequence[str], unk_text: str | None
) -> tuple[dict[str, Any], dict[str, tuple[int, int]]]:
    """Of one summary what means are taken of, None where there is none; and of shares of all pieces how many pieces
    count, and how many there are."""
    marks = summary.split().count(unk_text) if unk_text else 0
    plain = summary.replace(unk_text, " ") if unk_text else summary
    facts, models, mine = SourceFacts(document), [words(model) for model in group], words(plain)
    known = models[0] if len(models) == 1 else [word for model in models for word in (*model, _BETWEEN)]
    in_source, in_known = shared_runs(mine, facts.words), shared_runs(mine, known)
    over = over_copied(mine, in_source, in_known)
    claims = check_support(plain, facts).claims
    checked, missing = [claim.kind for claim in claims], [claim.kind for claim in claims if claim.source is None]
    coverage, density = coverage_and_density(in_source) or (None, None)
    figures = {
        **{"copy_rate": coverage, "density": density, "novel_2": novel_rate(mine, in_source, 2)},
        **{name: repeated_ngram_rate(mine, n) for n, name in REPEATED.items()},
        REPEATING: repeats(mine) if mine else None,
        "unk_rate": marks / len(summary.split()) if marks else 0.0,
        "words": len(mine),
        "empty": not mine,
        UNFAITHFUL: any(kind != "word" for kind in missing),
        OVER_COPIED: len(over),
        OVER_COPIED_CONTENT: len(over) - sum(map(is_stop_word, over)),
    }
    counts = {f"unsupported_{kind}": (missing.count(kind), checked.count(kind)) for kind in KINDS}
    correct = correct_counts(in_source, in_known, len(CORRECT))
    return figures, counts | dict(zip(CORRECT.values(), correct, strict=True))


def reading_measures(readings: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """How models that read in chunks read (see `catchline.types.Summary`); nothing where none of them did.

    Means over documents of ``chunks_read`` (by the encoder, for all hypotheses), ``chunks_chosen`` (for the summary)
    and ``words_read`` (a share of the document's words); of ``coarse_entropy`` (nats) the mean over generated tokens.
    """
    readings = [reading for reading in readings if reading]
    if not readings:
        return {}
    found = {
        "chunks_read": _mean(r["chunks_read"] for r in readings),
        "words_read": _mean(r["words_read"] / max(1.0, r["words"]) for r in readings),
    }
    if choosing := [r["chunks_chosen"] for r in readings if "chunks_chosen" in r]:
        found["chunks_chosen"] = _mean(choosing)
    if steps := sum(r.get("steps", 0) for r in readings):
        found["coarse_entropy"] = sum(r["coarse_entropy"] * r["steps"] for r in readings if "steps" in r) / steps
    return found


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0


# -------------------------------------------------------------------------------------------------------- confidence

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
