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
    best, first, last, inside = 0.0, 0, 0, 0
    for position, stem in enumerate(stems):
        if stem not in significant:
            continue
        if inside and position - last <= gap:
            inside += 1
        else:
            first, inside = position, 1
        last = position
        if inside > 1:
            best = max(best, inside * inside / (last - first + 1))
    return best
