"""KL-Sum (Haghighi and Vanderwende 2009): greedily the sentence that brings the summary closest to the document.

As in sumy: words are not stemmed; the document's words are filtered by the stop list before they are lower-cased
(a capitalised stop word stays) and a candidate's after; the running summary is neither filtered nor lower-cased;
and the divergence sums p(w) log(p(w) / q(w)) over the words of candidate and summary only, p being the document's
distribution and q the summary's with the candidate. Only the sentences asked for are ranked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from laconic.extractive.base import Extractor, WordsConfig
from laconic.extractive.terms import SentenceTerms

_NEAR = 1e-9  # candidates this close to the best are compared again, added up word by word


class KlSum(Extractor):
    """The stemmer of the settings is not used."""

    Config = WordsConfig

    def pick(self, sentences: list[str]) -> Sequence[int]:
        terms = SentenceTerms(sentences, self.config)
        stops = terms.stops
        document = Counter(word.lower() for words in terms.words for word in words if word not in stops)
        total = document.total()
        probability = {word: count / total for word, count in document.items()}
        candidates = [Counter(word for word in words if word not in stops) for words in terms.lowered]
        table = _CandidateTable(candidates, probability)
        summary: Counter[str] = Counter()
        open_ = np.ones(len(candidates), dtype=bool)
        picked: list[int] = []
        while open_.any() and len(picked) < self.config.sentences:
            divergence = np.where(open_, table.divergences(summary), np.inf)
            near = np.flatnonzero(divergence <= divergence.min() + _NEAR)
            chosen = int(min(near, key=lambda index: (kl_divergence(candidates[index], summary, probability), index)))
            picked.append(chosen)
            open_[chosen] = False
            summary.update(terms.words[chosen])
        return picked


def kl_divergence(candidate: Counter[str], summary: Counter[str], probability: dict[str, float]) -> float:
    """The divergence of one candidate with the summary so far, word by word."""
    total = float(candidate.total() + summary.total())
    joint = dict(candidate)
    for word, count in summary.items():
        joint[word] = joint.get(word, 0) + count
    result = 0.0
    for word, count in joint.items():
        if frequency := probability.get(word):
            result += frequency * math.log(frequency / (count / total))
    return result


class _CandidateTable:
    """All candidates' divergences at once.

    With counts a of the candidate, r of the summary and n words in both, the divergence is
    sum p log p + log(n) sum p - sum p log(a + r) over the words of both.
    """

    def __init__(self, candidates: Sequence[Counter[str]], probability: dict[str, float]) -> None:
        numbers = {word: number for number, word in enumerate(probability)}
        self._numbers = numbers
        self._p = np.array(list(probability.values()))
        self._p_log_p = self._p * np.log(self._p) if len(self._p) else self._p
        pairs = [[(numbers[w], c) for w, c in candidate.items() if w in numbers] for candidate in candidates]
        self._rows = np.repeat(np.arange(len(candidates)), [len(row) for row in pairs])
        self._words = np.array([number for row in pairs for number, _ in row], dtype=np.int64)
        self._counts = np.array([count for row in pairs for _, count in row], dtype=np.float64)
        self._sizes = np.array([candidate.total() for candidate in candidates], dtype=np.float64)

    def divergences(self, summary: Counter[str]) -> np.ndarray:
        used = np.zeros(len(self._p))
        for word, count in summary.items():
            if word in self._numbers:
                used[self._numbers[word]] = count
        inside = used > 0
        logs = np.log(np.where(inside, used, 1.0))
        both = used[self._words]
        new = both == 0
        mass, entropy = self._p[self._words], self._p_log_p[self._words]
        # What the candidate's words add to, or change in, the sums over the summary's words.
        extra = np.where(new, entropy, 0.0) - mass * (np.log(self._counts + both) - logs[self._words])
        total_mass = self._by_row(np.where(new, mass, 0.0)) + self._p[inside].sum()
        constant = (self._p_log_p[inside] - self._p[inside] * logs[inside]).sum()
        sizes = self._sizes + summary.total()
        return self._by_row(extra) + constant + total_mass * np.log(np.maximum(sizes, 1.0))

    def _by_row(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self._rows, weights=values, minlength=len(self._sizes))
