"""ROUGE-1.5.5's bootstrap interval, with the tool's own random numbers.

The tool seeds Perl's generator with 0, 1, 2, ..., draws as many documents as there are, with replacement, and
averages; the interval's ends are read off the sorted averages. The figure it prints as the average is the mean of
these resampled averages, which differs from the plain mean in the fourth decimal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from laconic.metrics.rouge_engine import Score

_MULTIPLIER, _INCREMENT, _START = 0x5DEECE66D, 0xB, 0x330E  # drand48, which Perl's rand is


@dataclass(frozen=True, slots=True)
class RougeInterval:
    """``low`` and ``high`` ends, and the ``mean`` of the resampled averages that the tool prints."""

    low: Score
    high: Score
    mean: Score


def rouge_interval(scores: Sequence[Score], confidence: float = 95.0, samples: int = 1000) -> RougeInterval:
    """The tool's interval for per-document scores given in file order (document 1 first).

    The tool keeps its documents in the order of their numbers as text ("1", "10", "11", "2", ...); so does this.
    """
    total = len(scores)
    order = sorted(range(total), key=lambda position: f"{position + 1}.")
    values = np.asarray([scores[position] for position in order], dtype=np.float64)  # (documents, 3)
    state = (np.arange(samples, dtype=np.uint64) << np.uint64(16)) + np.uint64(_START)
    mask = np.uint64((1 << 48) - 1)
    sums = np.zeros((samples, 3))
    for _ in range(total):
        with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is exact modulo 2**48
            state = (state * np.uint64(_MULTIPLIER) + np.uint64(_INCREMENT)) & mask
        drawn = (state.astype(np.float64) / float(1 << 48) * total).astype(np.int64)
        sums += values[drawn]
    averages = np.sort(sums / total, axis=0)
    delta = samples * ((100.0 - confidence) / 2.0) / 100.0
    upper = min(int(samples - delta - 1), samples - 2)
    lower = min(int(delta), samples - 2)
    share = samples - delta - 1 - upper
    low = averages[lower] + (averages[lower + 1] - averages[lower]) * share
    high = averages[upper] + (averages[upper + 1] - averages[upper]) * share
    mean = averages.sum(axis=0) / samples
    return RougeInterval(*(Score(*(round(float(value), 5) for value in row)) for row in (low, high, mean)))
