"""The confidence of a newly trained model, fitted to held-out records; `catchline calibrate` fits it to ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from catchline.config.names import DEFAULT, ROOT
from catchline.data.dataset import encode_documents
from catchline.metrics.confidence import (
    FACTS,
    Calibration,
    Facts,
    mean_ratio,
    packed,
    prose_sentence,
    sigmoid,
    unpacked,
    word_ids,
)
from catchline.metrics.copying import repeats
from catchline.metrics.faithfulness import check_support
from catchline.metrics.rouge import rouge
from catchline.metrics.scoring import Scoring, suited
from catchline.metrics.words import words
from catchline.summarizer import Summarizer
from catchline.summarizer.system import Progress
from catchline.text.base import Tokenizer
from catchline.types import Record, references_of

ACCEPT = 0.4  # ROUGE-1 F
RULE = f"ROUGE-1 of {ACCEPT:g} or more, no repetition, no name, number or date that the document lacks"
LEAST_RECORDS = 100
PRIOR, UNKNOWN = 2000, 0.2  # words of English, and the share of them that a vocabulary lacks


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


def regression(found: Sequence[Facts], good: Sequence[bool]) -> Calibration:
    """Ridge logistic regression (Newton's method, Platt's targets) of whether summaries are accepted on their facts."""
    facts = np.array([[one[name] for name in FACTS] for one in found])
    target = np.where(good, (sum(good) + 1) / (sum(good) + 2), 1 / (len(good) - sum(good) + 2))
    mean, deviation = facts.mean(0), facts.std(0)
    deviation[deviation < 1e-12] = 1.0
    design = np.column_stack([(facts - mean) / deviation, np.ones(len(facts))])
    ridge, weight = np.diag([1.0] * len(FACTS) + [1e-9]), np.zeros(len(FACTS) + 1)  # finite where a fact separates
    for _ in range(50):
        probability = sigmoid(design @ weight)
        curvature = (design * (probability * (1 - probability))[:, None]).T @ design + ridge
        weight += np.linalg.solve(curvature, design.T @ (target - probability) - ridge @ weight).clip(-1, 1)
    mean_, deviation_, weight_ = (tuple(vector.tolist()) for vector in (mean, deviation, weight[:-1]))
    return Calibration(mean_, deviation_, weight_, float(weight[-1]), threshold=0.5, records=len(facts))


def best_threshold(confidence: np.ndarray, good: Sequence[bool], instead: Sequence[bool]) -> float:
    """The threshold with which most answers are accepted: ``good`` lines from it on, sentences below it; 0 for none."""
    order = np.argsort(confidence)
    gain = np.cumsum(np.array(instead, dtype=int)[order] - np.array(good, dtype=int)[order])
    best = int(gain.argmax())
    return 0.0 if gain[best] <= 0 else float([*confidence[order], 1.0][best + 1])


def with_domain(calibration: Calibration, system: Any, documents: Sequence[str]) -> Calibration:
    """``calibration`` with what recognises texts of another kind than ``documents``.

    Their unigrams have a Dirichlet prior of ``PRIOR`` words of English (Zhai and Lafferty, 2001); the bound is that of
    99% of the documents, each without its own words.
    """
    english = english_shares(system.tokenizer)
    encoded = encode_documents([Record(document) for document in documents], system.tokenizer, system.text)[1]
    ids = [[id_ for id_ in word_ids(source) if id_ < len(english)] for source in encoded]

    def ratios(counts: np.ndarray) -> np.ndarray:
        return np.log(english + 1e-7) - np.log((counts + PRIOR * english) / (counts.sum() + PRIOR) + 1e-7)

    total = np.bincount(np.concatenate(ids).astype(int), minlength=len(english))
    means = [mean_ratio(own, ratios(total - np.bincount(own, minlength=len(english)))) for own in ids]
    return replace(calibration, word_ratios=packed(ratios(total)), most_ratio=float(np.percentile(means, 99)))


def english_shares(tokenizer: Tokenizer) -> np.ndarray:
    """The shares (V,) of a vocabulary's ids in English of no particular kind, by the bundled model's words."""
    bundled, theirs = Calibration.load(ROOT / DEFAULT), Tokenizer.load(ROOT / DEFAULT)
    logs = unpacked(bundled.english) if bundled else np.zeros(0)
    first, shares = len(theirs.special_ids), np.zeros(tokenizer.vocab_size)
    names = [theirs.token(id_) for id_ in range(first, len(logs))]
    for text, log in zip(tokenizer.encode_stream(iter(names)), logs[first:], strict=True):
        shares[list(text.ids)] += np.exp(log)
    shares[tokenizer.unk_id] = 0.0
    shares *= (1 - UNKNOWN) / max(shares.sum(), 1e-12)
    shares[tokenizer.unk_id] = UNKNOWN
    return shares
