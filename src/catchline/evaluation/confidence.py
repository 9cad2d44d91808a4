"""The confidence of a newly trained model, fitted to held-out records; `catchline calibrate` fits it to ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from catchline.config.shipped import DEFAULT, ROOT
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
from catchline.summarizer.extractive import Progress
from catchline.text.base import Tokenizer
from catchline.types import Record, references_of

ACCEPT = 0.4  # ROUGE-1 F
LEAST_RECORDS, FOLDS = 100, 5
RIDGE = 1.0  # of the standardised weights: keeps them finite where a fact separates the records
OUTSIDE = 1.0  # per cent of the documents that are out of domain
PRIOR, UNKNOWN = 2000, 0.2  # words of English, and the share of them that a vocabulary lacks


@dataclass(frozen=True, slots=True)
class Fitted:
    """What was measured: the shares of the held-out lines, and of the first prose sentences, that `accepted` accepts,
    and of the lines that reach the threshold."""

    calibration: Calibration
    lines: float
    sentences: float
    given: float


def fit_confidence(folder: Path, records: Sequence[Record], progress: Progress | None = None) -> Fitted:
    """Fit the confidence of the model in ``folder`` to its summaries of ``records`` and store it there."""
    summarizer = Summarizer.from_pretrained(str(folder))
    system: Any = summarizer.system
    system.calibration = Calibration.blank()
    made = summarizer.summarize(records, progress=progress)
    good = accepted([summary.text for summary in made], records, ACCEPT)
    sentences = [record.document[slice(*prose_sentence(record.document))] for record in records]
    instead, facts = accepted(sentences, records, ACCEPT), [summary.facts for summary in made]
    calibration = regression(facts, good)
    confidence = np.array([calibration.confidence(one) for one in facts])
    threshold = best_threshold(confidence, good, instead)
    rule = f"ROUGE-1 of {ACCEPT:g} or more, no repetition, no name, number or date that the document lacks"
    calibration = replace(calibration, threshold=threshold, accepted=rule)
    calibration = with_domain(calibration, system, [record.document for record in records])
    calibration.save(folder)
    return Fitted(calibration, *(float(np.mean(flags)) for flags in (good, instead, confidence >= threshold)))


def accepted(summaries: Sequence[str], records: Sequence[Record], accept: float) -> list[bool]:
    """Which summaries pass for acceptable where no reader has rated them: ROUGE-1 F of ``accept`` against the nearest
    reference, no repetition, and no name, number or date that the document lacks."""
    counted, found = suited(Scoring(), map(references_of, records)).rouge, []
    for text, record in zip(summaries, records, strict=True):
        models = list(references_of(record))
        scores = rouge([text] * len(models), models, kinds=("1",), **counted).per_document["1"]
        faultless = not repeats(words(text)) and not check_support(text, record.document).unsupported
        found.append(max(score.f for score in scores) >= accept and faultless)
    return found


def regression(found: Sequence[Facts], good: Sequence[bool]) -> Calibration:
    """Ridge logistic regression (Newton's method, Platt's targets) of whether summaries are accepted on their facts."""
    facts = np.array([[one[name] for name in FACTS] for one in found])
    target = np.where(good, (sum(good) + 1) / (sum(good) + 2), 1 / (len(good) - sum(good) + 2))
    mean, deviation = facts.mean(0), facts.std(0)
    deviation[deviation < 1e-12] = 1.0
    design = np.column_stack([(facts - mean) / deviation, np.ones(len(facts))])
    ridge, weight = np.diag([RIDGE] * len(FACTS) + [0.0]), np.zeros(len(FACTS) + 1)
    for _ in range(50):
        probability = sigmoid(design @ weight)
        gradient = design.T @ (target - probability) - ridge @ weight
        curvature = (design * (probability * (1 - probability))[:, None]).T @ design + ridge
        weight += np.linalg.solve(curvature + 1e-9 * np.eye(len(weight)), gradient).clip(-1, 1)
    vectors = [tuple(vector.tolist()) for vector in (mean, deviation, weight[:-1])]
    return Calibration(vectors[0], vectors[1], vectors[2], float(weight[-1]), threshold=0.5, records=len(facts))


def best_threshold(confidence: np.ndarray, good: Sequence[bool], instead: Sequence[bool]) -> float:
    """The threshold with which most answers are accepted: ``good`` lines from it on, sentences below it; 0 for none."""
    order = np.argsort(confidence)
    gain = np.cumsum(np.array(instead, dtype=int)[order] - np.array(good, dtype=int)[order])
    best = int(gain.argmax())
    if gain[best] <= 0:
        return 0.0
    return float(confidence[order[best + 1]]) if best + 1 < len(order) else 1.0


# --------------------------------------------------------------------------------------------------------------- domain


def with_domain(calibration: Calibration, system: Any, documents: Sequence[str]) -> Calibration:
    """``calibration`` with what recognises texts of another kind than ``documents``.

    Their unigrams have a Dirichlet prior of ``PRIOR`` words of English (Zhai and Lafferty, 2001); the bound comes from
    those that the documents of the other ``FOLDS`` - 1 parts give.
    """
    english = english_shares(system.tokenizer)
    encoded = encode_documents([Record(document) for document in documents], system.tokenizer, system.text)[1]
    counts = [np.bincount(word_ids(source), minlength=len(english))[: len(english)] for source in encoded]
    total, order = np.sum(counts, axis=0), np.random.default_rng(1).permutation(len(counts))
    means = []
    for part in (order[fold::FOLDS] for fold in range(FOLDS)):
        ratios = _log_ratios(english, total - np.sum([counts[place] for place in part], axis=0))
        means += [mean_ratio(word_ids(encoded[place]), ratios) for place in part]
    most = float(np.percentile(means, 100 - OUTSIDE))
    return replace(calibration, word_ratios=packed(_log_ratios(english, total)), most_ratio=most)


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


def _log_ratios(english: np.ndarray, counts: np.ndarray) -> np.ndarray:
    own = (counts + PRIOR * english) / (counts.sum() + PRIOR)
    return np.log(english + 1e-7) - np.log(own + 1e-7)
