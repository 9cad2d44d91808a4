"""The confidence of a newly trained model, fitted to held-out records; `catchline calibrate` fits it to ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from catchline.config.loading import load_run
from catchline.config.shipped import ROOT, SHIPPED
from catchline.data.dataset import encode_documents
from catchline.errors import DataError
from catchline.metrics.confidence import FEATURES, Calibration, Facts, Ranges, mean_ratio, packed, sigmoid, word_ids
from catchline.metrics.faithfulness import check_support
from catchline.metrics.rouge import rouge
from catchline.metrics.scoring import Scoring, suited
from catchline.metrics.words import english_words, smart_stop_words, words
from catchline.summarizer import Summarizer
from catchline.summarizer.extractive import Progress
from catchline.text.base import Tokenizer
from catchline.types import Record, references_of

ACCEPT, THRESHOLD = 0.4, 0.2
BY_READERS = "by readers"  # how `Calibration.accepted` ends where they rated
LEAST_RECORDS = 100
FOLDS = 5
RIDGE = 1.0  # of the standardised weights: keeps them finite where a fact separates the records
KEPT = 50.0  # the ridge of by how much readers' weights are stretched or shrunk
TAIL = 0.5  # per cent of the documents that lie outside each range
OTHER_DOMAIN = 1.0  # per cent of them whose words are said to be of another kind of text
PRIOR = 2000  # words
MOST_RATIO = 4.0


def fit_confidence(folder: Path, records: Sequence[Record], progress: Progress | None = None) -> float:
    """Fit the confidence of the model in ``folder`` to its summaries of ``records`` and store it there; returns the
    share that is acceptable by `accepted`. A model trained from the shipped one keeps what readers taught that one.

    Raises:
        DataError: all summaries are acceptable, or none.
    """
    summarizer, known = Summarizer.from_pretrained(str(folder)), taught(folder)
    system: Any = summarizer.system
    choosing = known.choosing if known else ()
    system.calibration = replace(Calibration.blank(), choosing=choosing)
    made = summarizer.summarize(records, progress=progress)
    facts, good = [one.facts for one in made], accepted([one.text for one in made], records, ACCEPT)
    calibration = fitted(facts, good, THRESHOLD, rule_of(records, ACCEPT, known), known)
    replace(with_documents(calibration, facts, system, records), choosing=choosing).save(folder)
    return sum(good) / len(good)


def taught(folder: Path) -> Calibration | None:
    """What readers taught the shipped model from which the one of ``folder`` was trained, if there is one."""
    recipe = folder / "recipe.yaml"
    start = load_run(recipe).training.initial_weights if recipe.is_file() else None
    found = Calibration.load(ROOT / start) if start in SHIPPED else None
    return found if found and found.accepted.endswith(BY_READERS) else None


def rule_of(records: Sequence[Record], accept: float, known: Calibration | None) -> str:
    """The rule of `accepted`, in words."""
    how = suited(Scoring(), map(references_of, records)).flags
    return (
        f"ROUGE-1{f' ({how})' * bool(how)} of {accept:g} or more, no content word twice, no number or name that the "
        f"document lacks{f', with the weights of what was {known.accepted}' if known else ''}"
    )


def fitted(
    found: Sequence[Facts], good: Sequence[bool], threshold: float, rule: str, known: Calibration | None
) -> Calibration:
    """The regression of whether summaries are accepted on their facts, or ``known`` adjusted."""
    facts, accepted = np.array([[one[name] for name in FEATURES] for one in found]), np.array(good, dtype=np.float64)
    if accepted.min() == accepted.max():
        kind = "Every" if accepted.min() else "No"
        raise DataError(f"{kind} summary of these records is acceptable, so there is nothing to tell apart.")
    *vectors, bias = adjusted(known, facts, accepted) if known else regression(facts, accepted)
    mean, deviation, weight = (tuple(vector.tolist()) for vector in vectors)
    return Calibration(mean, deviation, weight, bias, threshold, ranges_of(found), rule, len(facts))


def with_documents(
    calibration: Calibration, found: Sequence[Facts], system: Any, records: Sequence[Record]
) -> Calibration:
    """``calibration`` with what it needs to recognise documents unlike ``records``, whose summaries' facts are
    ``found``."""
    _, sources = encode_documents(records, system.tokenizer, system.text)
    ratios, most = word_ratios(system.tokenizer, [word_ids(source) for source in sources])
    ranges = replace(ranges_of(found), most_ratio=most)
    return replace(calibration, ranges=ranges, word_ratios=packed(ratios))


def word_ratios(tokenizer: Tokenizer, documents: Sequence[Sequence[int]]) -> tuple[np.ndarray, float]:
    """For each id ln p(English) / p(these documents), between -4 and 4, and the mean that few documents exceed.

    p of the documents is estimated from their ids with a Dirichlet prior of ``PRIOR`` words of English (Zhai and
    Lafferty, 2001), for the second figure from the documents of the other ``FOLDS`` - 1 parts.
    """
    size, reserved = tokenizer.vocab_size, len(tokenizer.special_ids)
    english, shares = np.zeros(size), english_words()
    for share, text in zip(shares.values(), tokenizer.encode_stream(iter(shares)), strict=True):
        english[list(text.ids)] += share
    english[:reserved] = 0.0
    english /= max(english.sum(), 1e-12)
    counts = [np.bincount(ids, minlength=size) for ids in documents]
    total = np.sum(counts, axis=0)
    means = []
    for part in parts(len(documents)):
        others = _log_ratios(english, total - np.sum([counts[place] for place in part], axis=0), reserved)
        means += [mean_ratio(documents[place], others, reserved) for place in part]
    return _log_ratios(english, total, reserved), float(np.percentile(means, 100 - OTHER_DOMAIN))


def parts(count: int) -> list[np.ndarray]:
    """The places of ``count`` records in ``FOLDS`` parts, drawn."""
    order = np.random.default_rng(1).permutation(count)
    return [order[fold::FOLDS] for fold in range(FOLDS)]


def _log_ratios(english: np.ndarray, counts: np.ndarray, reserved: int) -> np.ndarray:
    own = (counts + PRIOR * english) / (counts[reserved:].sum() + PRIOR)
    return np.clip(np.log(english + 1e-7) - np.log(own + 1e-7), -MOST_RATIO, MOST_RATIO)


def accepted(summaries: Sequence[str], records: Sequence[Record], accept: float) -> list[bool]:
    """Which summaries a reader would accept, by the rule above."""
    stop, counted = smart_stop_words(), suited(Scoring(), map(references_of, records)).rouge
    found = []
    for text, record in zip(summaries, records, strict=True):
        models = list(references_of(record))
        scores = rouge([text] * len(models), models, kinds=("1",), **counted).per_document["1"]
        score = max(score.f for score in scores)
        content = [word for word in words(text) if word not in stop]
        whole = len(set(content)) == len(content) > 0
        found.append(score >= accept and whole and not check_support(text, record.document).unsupported)
    return found


def ranges_of(found: Sequence[Facts]) -> Ranges:
    """What all but a few documents (``TAIL`` per cent on a side) have at least or at most."""

    def percentile(name: str, share: float) -> float:
        return float(np.percentile([one[name] for one in found], share))

    return Ranges(
        least_tokens=int(percentile("source_tokens", TAIL)),
        most_unknown=percentile("source_unknown", 100 - TAIL),
        least_common=percentile("source_common", TAIL),
    )


def adjusted(known: Calibration, facts: np.ndarray, accepted: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any, float]:
    """``known`` with its log-odds moved to the share accepted here, and stretched or shrunk: two numbers, where a
    regression of its own would have twelve to find."""
    mean, deviation, weight = map(np.array, (known.mean, known.deviation, known.weight))
    odds = (facts - mean) / deviation @ weight + known.bias
    middle, by, more, level = regression(odds[:, None], accepted, KEPT, odds)
    stretch = 1 + float(more[0] / by[0])
    return mean, deviation, stretch * weight, stretch * known.bias + level - float(more @ (middle / by))


def regression(
    facts: np.ndarray, accepted: np.ndarray, penalty: float = RIDGE, odds: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Logistic regression with a ridge by Newton's method, of what is to be added to the log-odds ``odds``: mean,
    deviation and weight (F,) each, and the bias."""
    mean, deviation = facts.mean(0), facts.std(0)
    deviation[deviation < 1e-12] = 1.0
    design = np.column_stack([(facts - mean) / deviation, np.ones(len(facts))])
    ridge = np.diag([penalty] * facts.shape[1] + [0.0])
    weight = np.zeros(design.shape[1])
    for _ in range(50):
        probability = sigmoid(odds + design @ weight)
        gradient = design.T @ (accepted - probability) - ridge @ weight
        curvature = (design * (probability * (1 - probability))[:, None]).T @ design + ridge
        step = np.linalg.solve(curvature + 1e-9 * np.eye(len(weight)), gradient)
        step = step.clip(-1, 1)  # from far-off odds a whole step would go too far
        weight += step
        if np.abs(step).max() < 1e-9:
            break
    return mean, deviation, weight[:-1], float(weight[-1])
