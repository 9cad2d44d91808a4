"""Methods that compare sentences by the words they share: LexRank, TextRank, Reduction, latent semantic analysis."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from catchline.extractive.base import Extractor, WordsConfig
from catchline.extractive.words import SentenceTerms

_NO_DIVISION_BY_ZERO = 1e-7
_SMOOTH = 0.4
_MOST_ITERATIONS = 1000  # ten are usual; rounding may keep the vector from ever resting
_DIGITS = 10  # ratings of LSA are compared to this many digits, so that rounding noise breaks no tie


class LexRank(Extractor):
    """LexRank (Erkan and Radev 2004): centrality in a graph of sentences that are alike.

    Edges join sentences whose idf-modified cosine exceeds 0.1; a sentence's rating is its share in the
    random walk. As in sumy: term frequencies are divided by the sentence's largest, idf is log(N / (1 + n)), which
    squared also weighs ubiquitous terms, and the power method stops at a change of 0.1 (loose by design).

    Documents whose sentences share nothing keep their order.
    """

    in_short = "Takes the sentences that are most like many others."

    Config = WordsConfig

    def rate(self, sentences: list[str]) -> np.ndarray:
        cosine = idf_cosine(SentenceTerms(sentences, self.config).counts)
        edges = (cosine > 0.1).astype(np.float64)
        edges /= np.maximum(edges.sum(axis=1), 1.0)[:, None]
        return power_method(edges, 0.1, normalised=True)


def idf_cosine(counts: np.ndarray) -> np.ndarray:
    """The idf-modified cosine of every two rows of counts, (sentences, sentences); 0 where a row is empty."""
    total = len(counts)
    occurs = (counts > 0).sum(axis=0)
    table = np.array([math.log(total / (1 + number)) for number in range(total + 1)])
    weighted = counts / np.maximum(counts.max(axis=1, initial=0.0), 1.0)[:, None] * table[occurs]
    norms = np.sqrt((weighted * weighted).sum(axis=1))
    below = norms[:, None] * norms[None, :]
    return np.divide(weighted @ weighted.T, below, out=np.zeros_like(below), where=below > 0)


def power_method(matrix: np.ndarray, epsilon: float, *, normalised: bool = False) -> np.ndarray:
    """Iterate ``p <- M^T p``, over its norm if ``normalised``, from the uniform vector until it moves by no more than
    ``epsilon``, or a thousand times."""
    current = np.full(len(matrix), 1.0 / len(matrix))
    for _ in range(_MOST_ITERATIONS):
        following = np.dot(matrix.T, current)
        if normalised:
            norm = np.linalg.norm(following)
            if norm == 0:
                return current
            following /= norm
        change = float(np.linalg.norm(following - current))
        current = following
        if change <= epsilon:
            break
    return current


class TextRank(Extractor):
    """TextRank (Mihalcea and Tarau 2004): PageRank over sentences weighted by the words they share.

    An edge weighs (pairs of equal content words) / (log |a| + log |b|), a sentence's edge to itself included as in
    sumy; two one-word sentences weigh their number of common words.

    An edge is followed with probability 0.85; the power method stops at a change of 1e-4.
    """

    in_short = "Takes the sentences that share most words with others that do."

    Config = WordsConfig

    def rate(self, sentences: list[str]) -> np.ndarray:
        terms = SentenceTerms(sentences, self.config)
        weights = edge_weights(terms, alone=1.0)
        weights /= weights.sum(axis=1)[:, None] + _NO_DIVISION_BY_ZERO
        damping, total = 0.85, len(terms)
        return power_method(np.full((total, total), (1.0 - damping) / total) + damping * weights, 1e-4)


def edge_weights(terms: SentenceTerms, *, alone: float) -> np.ndarray:
    """Common words over log lengths, (sentences, sentences); between one-word sentences ``alone`` times the former.
    Common words are pairs of equal content words, repeats counted; an empty sentence is as long as one word."""
    counts = terms.counts
    common = counts @ counts.T
    # By math.log, whose last bit may differ from numpy's: ties fall as in a plain implementation.
    table = [0.0, *(math.log(length) for length in range(1, int(terms.lengths.max(initial=0)) + 1))]
    logs = np.array(table)[terms.lengths]
    norms = logs[:, None] + logs[None, :]
    return np.divide(common, norms, out=alone * common, where=norms > 0)


class Reduction(Extractor):
    """Reduction (the algorithm sumy called TextRank before 0.8): the sum of a sentence's edge weights, no iteration. An
    edge weighs (pairs of equal content words) / (log |a| + log |b|), or nothing between one-word sentences."""

    in_short = "Takes the sentences that share most words with all the others."
    Config = WordsConfig

    def rate(self, sentences: list[str]) -> np.ndarray:
        weights = edge_weights(SentenceTerms(sentences, self.config), alone=0.0)
        np.fill_diagonal(weights, 0.0)
        return np.cumsum(weights, axis=1)[:, -1]  # added one by one, in order: ties fall as in plain code


LsaMethod = Literal["auto", "first", "gong_liu", "steinberger", "full"]
_NO_TOPIC = 1e-10  # of the strongest topic's singular value


class Lsa(Extractor):
    """Latent semantic analysis of a document's sentences, in the readings people mean by it.

    A is a (terms, sentences) matrix and A = U S V^T.

    * ``first``: sentences by |v_1|, their weight in the first topic (Gong and Liu's first pick; the headline paper).
      The matrix holds tf-idf, with a smoothed idf over the article's own sentences.
    * ``gong_liu``: for several sentences, one from each topic in turn, that with the largest |v_ik| not yet taken.
    * ``steinberger``: sqrt(sum_i s_i^2 v_ik^2) over half of the topics, rounded down.
    * ``full``: Steinberger and Jezek 2004, sqrt(sum_i s_i^2 v_ik^2), with every topic, which is sumy's setting. It
      equals the Euclidean norm of the column, so no decomposition is done: the sentence with the most distinct words
      wins. The matrix holds sumy's smoothed term frequency, 0.4 + 0.6 f / max f.

    ``auto`` is ``first`` for one sentence and ``full`` for several. Signs of singular vectors are arbitrary, so
    magnitudes count; ties go to the earlier sentence. A document without a word keeps its order.
    """

    in_short = "Takes the sentences that stand most for the text's main topics."

    class Config(WordsConfig):
        method: LsaMethod = "auto"

    def rate(self, sentences: list[str]) -> np.ndarray:
        method, terms = self.config.method, SentenceTerms(sentences, self.config)
        if not terms.numbers:
            return np.zeros(len(sentences))
        if method == "full" or (method == "auto" and self.config.sentences > 1):
            return smoothed_norms(terms.counts_of_all)
        _, strengths, topics = np.linalg.svd(tfidf(terms.counts), full_matrices=False)
        if method == "steinberger":
            kept = max(1, int((strengths > _NO_TOPIC * strengths[0]).sum()) // 2)
            return np.round(np.sqrt(np.square(strengths[:kept, None] * topics[:kept]).sum(axis=0)), _DIGITS)
        ratings = np.round(np.abs(topics), _DIGITS)
        return ratings[0] if method != "gong_liu" else one_a_topic(ratings)


def one_a_topic(weights: np.ndarray) -> np.ndarray:
    """Of (topics, sentences) for each topic the sentence with the largest weight that no topic before it has, rated by
    the topics' order, (sentences,)."""
    ratings = np.zeros(weights.shape[1])
    for place, topic in enumerate(weights):
        ratings[np.argmax(np.where(ratings == 0, topic, -1.0))] = len(weights) - place
    return ratings


def tfidf(counts: np.ndarray) -> np.ndarray:
    """(terms, sentences): counts times ln((1 + n) / (1 + df)) + 1."""
    idf = np.log((1.0 + len(counts)) / (1.0 + (counts > 0).sum(axis=0))) + 1.0
    return (counts * idf).T


def smoothed_norms(counts: np.ndarray) -> np.ndarray:
    """The norm of each sentence's column of 0.4 + 0.6 f / max f, from sums of integers, so that equal sentences are
    exactly equal; 0 where there is no term."""
    highest = counts.max(axis=1, initial=0.0)
    safe = np.maximum(highest, 1.0)
    linear, square = counts.sum(axis=1) / safe, (counts * counts).sum(axis=1) / (safe * safe)
    rest = 1.0 - _SMOOTH
    squared = counts.shape[1] * _SMOOTH**2 + 2 * _SMOOTH * rest * linear + rest * rest * square
    return np.where(highest > 0, np.sqrt(squared), 0.0)
