"""Fitting a confidence: the regression on facts of summaries, and what recognises texts of another kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from catchline.config.names import DEFAULT, ROOT
from catchline.data.dataset import encode_documents
from catchline.metrics.confidence import FACTS, Calibration, Facts, mean_ratio, packed, sigmoid, unpacked, word_ids
from catchline.text.base import Tokenizer
from catchline.types import Record

LEAST_RECORDS = 100
PRIOR, UNKNOWN = 2000, 0.2  # words of English, and the share of them that a vocabulary lacks


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


def with_domain(calibration: Calibration, system: Any, documents: Sequence[str]) -> Calibration:
    """``calibration`` with what recognises texts of another kind than ``documents``.

    Their unigrams have a Dirichlet prior of ``PRIOR`` words of English (Zhai and Lafferty, 2001); the bound is the
    most that one of the documents has, each without its own words.
    """
    english = english_shares(system.tokenizer)
    encoded = encode_documents([Record(document) for document in documents], system.tokenizer, system.text)[1]
    ids = [[id_ for id_ in word_ids(source) if id_ < len(english)] for source in encoded]

    def ratios(counts: np.ndarray) -> np.ndarray:
        return np.log(english + 1e-7) - np.log((counts + PRIOR * english) / (counts.sum() + PRIOR) + 1e-7)

    total = np.bincount(np.concatenate(ids).astype(int), minlength=len(english))
    means = [mean_ratio(own, ratios(total - np.bincount(own, minlength=len(english)))) for own in ids]
    return replace(calibration, word_ratios=packed(ratios(total)), most_ratio=max(means))


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
