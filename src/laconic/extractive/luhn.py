"""Luhn 1958, "The automatic creation of literature abstracts": clusters of significant words.

Significant are the stems of content words that occur at least twice. Within a sentence significant words with
fewer than ``gap`` other words between them form a cluster, worth its significant words squared over its length
(nothing if there is only one); a sentence is worth its best cluster.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from pydantic import Field

from laconic.extractive.base import Extractor, WordsConfig
from laconic.extractive.terms import SentenceTerms


class Luhn(Extractor):
    """``gap``: how many insignificant words in a row end a cluster."""

    class Config(WordsConfig):
        gap: int = Field(4, ge=1)

    def rate(self, sentences: list[str]) -> np.ndarray:
        terms = SentenceTerms(sentences, self.config)
        names = list(terms.numbers)
        frequency = Counter(number for row in terms.content for number in row)
        significant = {names[number] for number, count in frequency.items() if count > 1}
        return np.array([best_cluster(stems, significant, self.config.gap) for stems in terms.stems])


def best_cluster(stems: list[str], significant: set[str], gap: int) -> float:
    """The worth of a sentence's best cluster."""
    clusters: list[list[int]] = []
    for position, stem in enumerate(stems):
        if stem not in significant:
            continue
        if clusters and position - clusters[-1][-1] <= gap:
            clusters[-1].append(position)
        else:
            clusters.append([position])
    worths = [len(cluster) ** 2 / (cluster[-1] - cluster[0] + 1) for cluster in clusters if len(cluster) > 1]
    return max(worths, default=0.0)
