"""Methods that count words: Luhn, Edmundson, SumBasic and KL-Sum."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import chain

import numpy as np

from catchline.extractive.base import Extractor, WordsConfig
from catchline.extractive.words import SentenceTerms


class Luhn(Extractor):
    """Luhn 1958, "The automatic creation of literature abstracts": clusters of significant words. Significant are the
    stems of content words that occur at least twice. Within a sentence significant words with fewer than four other
    words between them form a cluster, worth its significant words squared over its length (nothing if there is only
    one); a sentence is worth its best cluster."""

    in_short = "Takes sentences in which frequent words stand close together."

    Config = WordsConfig

    def rate(self, sentences: list[str]) -> np.ndarray:
        terms = SentenceTerms(sentences, self.config)
        frequency = Counter(chain.from_iterable(terms.content))
        significant = {stem for stem, number in terms.numbers.items() if frequency[number] > 1}
        return np.array([best_cluster(stems, significant) for stems in terms.stems])


def best_cluster(stems: list[str], significant: set[str], gap: int = 4) -> float:
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


class Edmundson(Extractor):
    """Edmundson 1969: cue words and location. A sentence is worth (bonus words - stigma words), plus one for opening or
    closing the text. sumy's command line has no headings and Czech cue words, so that on other text location alone
    acts: the first, the last and then the earliest sentences. That is the default here too; give ``bonus_words`` and
    ``stigma_words`` for more."""

    in_short = "Takes sentences with telling words, and those that open or close the text."

    class Config(WordsConfig):
        bonus_words: tuple[str, ...] = ()
        stigma_words: tuple[str, ...] = ()

    def rate(self, sentences: list[str]) -> np.ndarray:
        config = self.config
        ratings = np.zeros(len(sentences))
        if config.bonus_words or config.stigma_words:
            bonus, stigma = self._telling
            for index, stems in enumerate(SentenceTerms(sentences, config).stems):
                ratings[index] = sum([(stem in bonus) - (stem in stigma) for stem in stems])
        ratings[[0, -1]] += 1.0  # once where these are the same
        return ratings

    @cached_property
    def _telling(self) -> tuple[set[str], set[str]]:
        """The stems of bonus words and stigma words: the same for every document."""
        return self._stems(self.config.bonus_words), self._stems(self.config.stigma_words)

    def _stems(self, texts: tuple[str, ...]) -> set[str]:
        return {stem for stems in SentenceTerms(texts, self.config).stems for stem in stems} if texts else set()


class SumBasic(Extractor):
    """SumBasic (Nenkova and Vanderwende 2005; Vanderwende et al. 2007): frequent words, each less worth once used.

    The sentence with the highest mean word probability is taken, then the probabilities of its words are squared
    (once an occurrence, as in sumy), and so on. There is no rule that it must contain the most probable word.

    Ties go to the earlier sentence; a sentence without content words is worth nothing.
    """

    in_short = "Takes sentences with the most frequent words, each worth less once it was used."
    Config = WordsConfig

    def pick(self, sentences: list[str]) -> Sequence[int]:
        content = SentenceTerms(sentences, self.config).content
        frequency = Counter(chain.from_iterable(content))
        total = frequency.total()
        probability = {number: count / total for number, count in frequency.items()}
        left, picked = list(range(len(content))), list[int]()

        def worth(index: int) -> float:
            row = content[index]
            return sum([probability[number] for number in row]) / len(row) if row else 0.0

        while left and len(picked) < self.config.sentences:
            picked.append(max(left, key=worth))
            left.remove(picked[-1])
            for number in content[picked[-1]]:
                probability[number] *= probability[number]
        return picked


class KlSum(Extractor):
    """KL-Sum (Haghighi and Vanderwende 2009): greedily the sentence that brings the summary closest to the document. As
    in sumy: words are not stemmed, whatever the settings say; the document's words are filtered by the stop list before
    they are lower-cased (a capitalised stop word stays) and a candidate's after; the running summary is neither
    filtered nor lower-cased; and the divergence sums p(w) log(p(w) / q(w)) over the words of candidate and summary, p
    being the document's distribution and q the summary's with the candidate. Only the sentences asked for are ranked.
    """

    in_short = "Takes the sentences whose words are spread most like those of the whole text."
    Config = WordsConfig

    def pick(self, sentences: list[str]) -> Sequence[int]:
        terms = SentenceTerms(sentences, self.config)
        stops = terms.stops
        document = Counter(word.lower() for words in terms.words for word in words if word not in stops)
        total = document.total()
        probability = {word: count / total for word, count in document.items()}
        candidates = [Counter(word for word in words if word not in stops) for words in terms.lowered]
        summary, left, picked = Counter[str](), list(range(len(candidates))), list[int]()
        while left and len(picked) < self.config.sentences:
            picked.append(min(left, key=lambda index: kl_divergence(candidates[index], summary, probability)))
            left.remove(picked[-1])
            summary.update(terms.words[picked[-1]])
        return picked


def kl_divergence(candidate: Counter[str], summary: Counter[str], probability: dict[str, float]) -> float:
    """The divergence of one candidate with the summary so far, word by word."""
    joint = candidate + summary
    total = joint.total()
    result = 0.0
    for word, count in joint.items():
        if frequency := probability.get(word):
            result += frequency * math.log(frequency / (count / total))
    return result
