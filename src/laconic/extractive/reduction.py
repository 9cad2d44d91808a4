"""Reduction (the algorithm sumy called TextRank before 0.8): the sum of a sentence's edge weights, no iteration."""

from __future__ import annotations

import numpy as np

from laconic.extractive.base import Extractor, WordsConfig
from laconic.extractive.terms import SentenceTerms, common_words, log_length_sums


class Reduction(Extractor):
    """An edge weighs (pairs of equal content words) / (log |a| + log |b|), or nothing between one-word sentences."""

    Config = WordsConfig

    def rate(self, sentences: list[str]) -> np.ndarray:
        terms = SentenceTerms(sentences, self.config)
        common, norms = common_words(terms), log_length_sums(terms)
        weights = np.divide(common, norms, out=np.zeros_like(common), where=norms > 0)
        np.fill_diagonal(weights, 0.0)
        return np.cumsum(weights, axis=1)[:, -1]  # added one by one, in order: ties fall as in plain code
