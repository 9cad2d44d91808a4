"""Concept coverage as an integer linear programme (Gillick and Favre 2009; Berkeley's bigram baseline).

Choose sentences s_j within a budget of words so that the concepts they cover weigh most:

    max  sum_c w_c z_c - eps sum_j j s_j    with  sum_j len_j s_j <= L,  z_c <= sum_{j contains c} s_j

Concepts are bigrams of stems after stop words and punctuation are dropped; a concept weighs the number of sentences
that contain it. With positive weights z may be continuous: it sits at min(1, sum s). The solver is HiGHS through scipy;
when time runs out its best solution is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from catchline.errors import ConfigError, not_installed
from catchline.extractive.base import Extractor, WordsConfig
from catchline.extractive.words import SentenceTerms

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_EARLIER = 1e-6


SECONDS = 5.0  # of the solver


class ConceptIlp(Extractor):
    """``max_words`` is the budget in blank-separated words; ``sentences`` is not used. When not even one sentence fits,
    the shortest is taken."""

    in_short = "Takes sentences that together hold the most frequent pairs of words, up to this many words."

    class Config(WordsConfig):
        max_words: int = Field(50, ge=1)

    def __init__(self, config: Any | None = None) -> None:
        super().__init__(config)
        if find_spec("scipy") is None:
            raise ConfigError(not_installed("scipy"))

    def pick(self, sentences: list[str]) -> Sequence[int]:
        lengths = np.array([len(sentence.split()) for sentence in sentences], dtype=np.float64)
        if lengths.min() > self.config.max_words:
            return [int(lengths.argmin())]
        weights, occurrence = self._concepts(SentenceTerms(sentences, self.config))
        chosen = solve_coverage(weights, occurrence, lengths, self.config.max_words)
        return chosen or [int(np.flatnonzero(lengths <= self.config.max_words)[0])]

    def _concepts(self, terms: SentenceTerms) -> tuple[np.ndarray, csr_array]:
        from scipy.sparse import csr_array  # the base package does without

        rows = enumerate(set(pairwise(row)) for row in terms.content)
        numbers: dict[object, int] = {}
        pairs = [(index, numbers.setdefault(pair, len(numbers))) for index, row in rows for pair in row]
        sentence_of, concept_of = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
        shape = (len(numbers), len(terms))
        occurrence = csr_array((np.ones(len(pairs)), (concept_of, sentence_of)), shape=shape)
        weights = np.bincount(concept_of, minlength=len(numbers)).astype(np.float64)
        return weights, occurrence


def solve_coverage(weights: np.ndarray, occurrence: csr_array, lengths: np.ndarray, budget: float) -> list[int]:
    """The sentences of the best solution found in time. ``weights`` (concepts,) are
    positive; ``occurrence`` (concepts, sentences) is 1 where the sentence contains the concept; ``lengths``
    (sentences,)."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import hstack, identity

    concepts, total = occurrence.shape
    if not concepts:
        return []
    cost = np.concatenate([_EARLIER * np.arange(total), -weights])
    solution = milp(
        cost,
        integrality=np.concatenate([np.ones(total), np.zeros(concepts)]),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(np.concatenate([lengths, np.zeros(concepts)]), -np.inf, budget),
            LinearConstraint(hstack([-occurrence, identity(concepts)]), -np.inf, 0.0),
        ],
        options={"time_limit": SECONDS},
    )
    return [] if solution.x is None else np.flatnonzero(solution.x[:total] > 0.5).tolist()
