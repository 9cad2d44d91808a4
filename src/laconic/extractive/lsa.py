"""Latent semantic analysis of a document's sentences, in the readings people mean by it.

A is a (terms, sentences) matrix and A = U S V^T.

* ``first``: sentences by |v_1|, their weight in the first topic (Gong and Liu's first pick; the headline paper).
* ``gong_liu``: Gong and Liu 2001: topic by topic, the sentence with the largest |v_ik| not yet picked.
* ``steinberger``: Steinberger and Jezek 2004: sqrt(sum over the first ``topics`` of s_i^2 v_ik^2); by default half
  the rank, at least one.
* ``full``: the same with every topic, which is sumy's setting. It equals the Euclidean norm of the column, so no
  decomposition is done: the sentence with the most distinct words wins.

``auto`` is ``first`` for one sentence and ``full`` for several. The matrix holds tf-idf (smoothed idf over the
article's own sentences) for the first three and sumy's smoothed term frequency, 0.4 + 0.6 f / max f, for
``full``; ``weighting`` overrides. Signs of singular vectors are arbitrary, so magnitudes count; ties go to the
earlier sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from laconic.extractive.base import Extractor, WordsConfig, best
from laconic.extractive.terms import SentenceTerms

_SMOOTH = 0.4
_DIGITS = 10  # ratings are compared to this many digits, so that rounding noise breaks no tie


class Lsa(Extractor):
    """See the module. A document without a word keeps its order."""

    class Config(WordsConfig):
        method: Literal["auto", "first", "gong_liu", "steinberger", "full"] = "auto"
        topics: int | None = Field(None, ge=1)
        weighting: Literal["auto", "tfidf", "smooth_tf"] = "auto"

    def pick(self, sentences: list[str]) -> Sequence[int]:
        config = self.config
        method = config.method
        if method == "auto":
            method = "first" if config.sentences == 1 else "full"
        weighting = config.weighting
        if weighting == "auto":
            weighting = "smooth_tf" if method == "full" else "tfidf"
        terms = SentenceTerms(sentences, config)
        if not terms.numbers:
            return range(min(config.sentences, len(sentences)))
        if method == "full" and weighting == "smooth_tf":
            return best(smoothed_norms(terms.counts_of_all), config.sentences)
        matrix = tfidf(terms.counts) if weighting == "tfidf" else smooth_tf(terms.counts_of_all)
        if method == "full":
            return best(np.round(np.linalg.norm(matrix, axis=0), _DIGITS), config.sentences)
        _, strengths, topics = np.linalg.svd(matrix, full_matrices=False)
        return self._pick_by_topics(method, strengths, topics)

    def _pick_by_topics(self, method: str, strengths: np.ndarray, topics: np.ndarray) -> Sequence[int]:
        count = self.config.sentences
        weights = np.round(np.abs(topics), _DIGITS)
        if method == "first":
            return best(weights[0], count)
        if method == "gong_liu":
            return gong_liu(weights, count)
        rank = int((strengths > strengths[0] * 1e-12).sum()) if len(strengths) and strengths[0] > 0 else 1
        kept = min(self.config.topics or max(1, rank // 2), len(strengths))
        return best(np.round(steinberger(strengths, topics, kept), _DIGITS), count)


class LsaFirst(Lsa):
    """The headline paper's row: one sentence, the heaviest in the first topic."""

    class Config(Lsa.Config):
        sentences: int = Field(1, ge=1)
        method: Literal["auto", "first", "gong_liu", "steinberger", "full"] = "first"


def tfidf(counts: np.ndarray) -> np.ndarray:
    """(terms, sentences): counts times ln((1 + n) / (1 + df)) + 1."""
    idf = np.log((1.0 + len(counts)) / (1.0 + (counts > 0).sum(axis=0))) + 1.0
    return (counts * idf).T


def smooth_tf(counts: np.ndarray) -> np.ndarray:
    """(terms, sentences): 0.4 + 0.6 f / max f; columns without any term stay zero."""
    highest = counts.max(axis=1, initial=0.0)
    scaled = _SMOOTH + (1.0 - _SMOOTH) * counts / np.maximum(highest, 1.0)[:, None]
    return np.where(highest[:, None] > 0, scaled, 0.0).T


def smoothed_norms(counts: np.ndarray) -> np.ndarray:
    """The column norms of `smooth_tf`, from sums of integers, so that equal sentences are exactly equal."""
    highest = counts.max(axis=1, initial=0.0)
    safe = np.maximum(highest, 1.0)
    linear, square = counts.sum(axis=1) / safe, (counts * counts).sum(axis=1) / (safe * safe)
    rest = 1.0 - _SMOOTH
    squared = counts.shape[1] * _SMOOTH**2 + 2 * _SMOOTH * rest * linear + rest * rest * square
    return np.where(highest > 0, np.sqrt(squared), 0.0)


def steinberger(strengths: np.ndarray, topics: np.ndarray, kept: int) -> np.ndarray:
    """sqrt(sum over the first ``kept`` topics of s_i^2 v_ik^2), (sentences,)."""
    return np.sqrt(np.square(strengths[:kept, None] * topics[:kept]).sum(axis=0))


def gong_liu(weights: np.ndarray, count: int) -> list[int]:
    """One sentence a topic, strongest topic first; after the last topic the rest in order of the first."""
    picked: list[int] = []
    for row in weights:
        if len(picked) == count:
            break
        picked.append(next(index for index in best(row, len(row)) if index not in picked))
    rest = [index for index in best(weights[0], weights.shape[1]) if index not in picked]
    return picked + rest[: max(0, count - len(picked))]
