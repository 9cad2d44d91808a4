"""LexRank (Erkan and Radev 2004): centrality in a graph of sentences that are alike.

Edges join sentences whose idf-modified cosine exceeds ``threshold``; a sentence's rating is its share in the
random walk. As in sumy: term frequencies are divided by the sentence's largest, idf is log(N / (1 + n)), which
squared also weighs ubiquitous terms, and the power method stops at a change of ``epsilon`` (loose by design).
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from laconic.extractive.base import Extractor, WordsConfig
from laconic.extractive.terms import SentenceTerms


class LexRank(Extractor):
    """See the module; documents whose sentences share nothing keep their order."""

    class Config(WordsConfig):
        threshold: float = Field(0.1, ge=0)
        epsilon: float = Field(0.1, gt=0)

    def rate(self, sentences: list[str]) -> np.ndarray:
        cosine = idf_cosine(SentenceTerms(sentences, self.config).counts)
        edges = (cosine > self.config.threshold).astype(np.float64)
        edges /= np.maximum(edges.sum(axis=1), 1.0)[:, None]
        return normalised_power(edges, self.config.epsilon)


def idf_cosine(counts: np.ndarray) -> np.ndarray:
    """The idf-modified cosine of every two rows of counts, (sentences, sentences); 0 where a row is empty."""
    total = len(counts)
    occurs = (counts > 0).sum(axis=0)
    table = np.array([math.log(total / (1 + number)) for number in range(total + 1)])
    weighted = counts / np.maximum(counts.max(axis=1, initial=0.0), 1.0)[:, None] * table[occurs]
    norms = np.sqrt((weighted * weighted).sum(axis=1))
    below = norms[:, None] * norms[None, :]
    return np.divide(weighted @ weighted.T, below, out=np.zeros_like(below), where=below > 0)


def normalised_power(matrix: np.ndarray, epsilon: float) -> np.ndarray:
    """Iterate ``p <- M^T p / |M^T p|`` from the uniform vector until it moves by no more than ``epsilon``."""
    transposed = matrix.T
    current = np.full(len(matrix), 1.0 / len(matrix))
    change = math.inf
    while change > epsilon:
        following = np.dot(transposed, current)
        norm = np.linalg.norm(following)
        if norm == 0:
            return current
        following /= norm
        change = float(np.linalg.norm(following - current))
        current = following
    return current
