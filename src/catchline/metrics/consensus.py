"""Minimum Bayes risk: of several summaries of a document the one that agrees most with the others.

    y* = argmax_y  sum_y' w(y') u(y, y'),        w(y') = exp(score(y')) / sum_y'' exp(score(y''))

over the hypotheses of a search: an N-best list stands for all summaries, its scores for their probabilities (Kumar and
Byrne 2004; Eikema and Aziz 2022 on why the likeliest is often an odd one out). u is the mean F of ROUGE-1, ROUGE-2 and
ROUGE-L in the profile ``unicode``, y as the system's summary and y' as the reference. The weights are the model's own
probabilities with ``length_normalisation: none``; divided scores make them flatter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from catchline.metrics.rouge import RougeEngine, make_options, parse_kind

KINDS = ("1", "2", "L")
PROFILE = "unicode"


@lru_cache(maxsize=1)
def _engine() -> RougeEngine:
    options = make_options(PROFILE, {})
    return RougeEngine([parse_kind(kind) for kind in KINDS], PROFILE, options)


def weights_of(scores: Sequence[float]) -> list[float]:
    """exp(score), made to sum to one."""
    highest = max(scores)
    weights = [math.exp(score - highest) for score in scores]
    return [weight / sum(weights) for weight in weights]


def expected_utilities(texts: Sequence[str], scores: Sequence[float]) -> list[float]:
    """sum_y' w(y') u(y, y') of each text y, itself among the y'; between 0 and 1."""
    engine, weights = _engine(), weights_of(scores)
    utilities = []
    for text in texts:
        found = (engine.score(text, [other])[0] for other in texts)
        utilities.append(sum(w * sum(s.f for s in parts) / len(parts) for w, parts in zip(weights, found, strict=True)))
    return utilities
