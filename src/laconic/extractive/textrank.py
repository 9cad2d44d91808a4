"""TextRank (Mihalcea and Tarau 2004): PageRank over sentences weighted by the words they share.

An edge weighs (pairs of equal content words) / (log |a| + log |b|), a sentence's edge to itself included as in
sumy; two one-word sentences weigh their number of common words.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from laconic.extractive.base import Extractor, WordsConfig
from laconic.extractive.terms import SentenceTerms, common_words, log_length_sums

_NO_DIVISION_BY_ZERO = 1e-7


class TextRank(Extractor):
    """``damping``: probability of following an edge; ``epsilon``: where the power method stops."""

    class Config(WordsConfig):
        damping: float = Field(0.85, gt=0, lt=1)
        epsilon: float = Field(1e-4, gt=0)

    def rate(self, sentences: list[str]) -> np.ndarray:
        terms = SentenceTerms(sentences, self.config)
        weights = edge_weights(terms)
        weights /= weights.sum(axis=1)[:, None] + _NO_DIVISION_BY_ZERO
        damping, total = self.config.damping, len(terms)
        matrix = np.full((total, total), (1.0 - damping) / total) + damping * weights
        current = np.full(total, 1.0 / total)
        change = math.inf
        while change > self.config.epsilon:
            following = np.dot(matrix.T, current)
            change = float(np.linalg.norm(following - current))
            current = following
        return current


def edge_weights(terms: SentenceTerms) -> np.ndarray:
    """The weights of all edges, (sentences, sentences)."""
    common, norms = common_words(terms), log_length_sums(terms)
    small = np.isclose(norms, 0.0)
    weights = np.divide(common, norms, out=np.zeros_like(common), where=~small)
    weights[small] = common[small]
    return weights
