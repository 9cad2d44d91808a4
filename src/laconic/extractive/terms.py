"""The sentence-term model that the extractive methods share: words, stems as integers, counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from laconic.extractive.words import WordConfig, cut_words, stemmer, stop_words


class SentenceTerms:
    """The words of a document's sentences. Terms are numbered by first appearance, so nothing depends on hashes.

    ``words`` are cased as written, ``lowered`` in lower case; ``stems`` has the stem of every word, stop words
    too; ``content`` the term numbers of the words that are no stop words.
    """

    def __init__(self, sentences: Sequence[str], config: WordConfig) -> None:
        self.stops = stop_words(config.stop_words)
        self._stem = stemmer(config.stemmer)
        self.words = cut_words(sentences, config.word_rule)
        self.lowered = [[word.lower() for word in words] for words in self.words]

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def stems(self) -> list[list[str]]:
        stem = self._stem
        return [list(map(stem, words)) for words in self.lowered]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Term -> number; the terms are the stems of content words."""
        stops = self.stops
        numbers: dict[str, int] = {}
        for words, stems in zip(self.lowered, self.stems, strict=True):
            for word, stem in zip(words, stems, strict=True):
                if word not in stops:
                    numbers.setdefault(stem, len(numbers))
        return numbers

    @cached_property
    def content(self) -> list[list[int]]:
        numbers, stops = self.numbers, self.stops
        return [
            [numbers[stem] for word, stem in zip(words, stems, strict=True) if word not in stops]
            for words, stems in zip(self.lowered, self.stems, strict=True)
        ]

    @cached_property
    def lengths(self) -> np.ndarray:
        """How many content words each sentence has, (sentences,)."""
        return np.array([len(terms) for terms in self.content])

    @cached_property
    def counts(self) -> np.ndarray:
        """How often a term stands in a sentence, (sentences, terms), content words only."""
        return count_matrix(self.content, len(self.numbers))

    @cached_property
    def counts_of_all(self) -> np.ndarray:
        """The same, but a stop word counts too where its stem is a term (as in sumy's LSA)."""
        numbers = self.numbers
        every = [[numbers[stem] for stem in stems if stem in numbers] for stems in self.stems]
        return count_matrix(every, len(numbers))


def count_matrix(rows: Sequence[Sequence[int]], width: int) -> np.ndarray:
    """Counts of integers by row, (rows, width) float64."""
    height = len(rows)
    lengths = [len(row) for row in rows]
    columns = np.fromiter((number for row in rows for number in row), dtype=np.int64, count=sum(lengths))
    keys = np.repeat(np.arange(height), lengths) * width + columns
    return np.bincount(keys, minlength=height * width).astype(np.float64).reshape(height, width)


def common_words(terms: SentenceTerms) -> np.ndarray:
    """Pairs of equal content words of two sentences, repeats counted, (sentences, sentences)."""
    counts = terms.counts
    return counts @ counts.T


def log_length_sums(terms: SentenceTerms) -> np.ndarray:
    """``log |a| + log |b|`` of two sentences' content words, (sentences, sentences); empty ones count as one word."""
    # By math.log, whose last bit may differ from numpy's: ties shall fall as in a plain implementation.
    table = [0.0, *(math.log(length) for length in range(1, int(terms.lengths.max(initial=0)) + 1))]
    logs = np.array(table)[terms.lengths]
    return logs[:, None] + logs[None, :]
