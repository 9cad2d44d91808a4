"""Is the difference of two systems more than chance? All tests are paired over documents; seeds are fixed."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np

from catchline.errors import DataError

Name = TypeVar("Name", bound=Hashable)
SAMPLES, _SEED = 10_000, 1
_CHUNK = 4_000_000  # elements drawn at a time


class TestResult(NamedTuple):
    """``difference`` is mean(first) - mean(second), ``p`` two-sided, ``n`` the number of documents; ``low`` and
    ``high`` bound the difference with 95%, ``statistic`` is t of the t-test."""

    difference: float
    p: float
    n: int
    statistic: float | None = None
    low: float | None = None
    high: float | None = None


def paired_bootstrap(first: Sequence[float], second: Sequence[float], *, samples: int = SAMPLES) -> TestResult:
    """Resample documents with replacement (Koehn 2004). p is twice the smaller tail on the other side of zero,
    (1 + count) / (1 + samples) so that it is never zero; the interval is that of percentiles."""
    difference = _differences(first, second)
    means = _resampled_means(difference, samples)
    below, above = int((means <= 0).sum()), int((means >= 0).sum())
    p = min(1.0, 2.0 * (1 + min(below, above)) / (1 + samples))
    return TestResult(float(difference.mean()), p, len(difference), None, *np.percentile(means, [2.5, 97.5]).tolist())


def approximate_randomization(first: Sequence[float], second: Sequence[float], *, samples: int = SAMPLES) -> TestResult:
    """Swap the two systems' scores document by document at random (Noreen 1989)."""
    difference = _differences(first, second)
    observed, tolerance = abs(difference.sum()), 1e-12 * np.abs(difference).sum()
    generator, extreme = np.random.default_rng(_SEED), 0
    for size in _chunks(samples, len(difference)):
        signs = generator.integers(0, 2, size=(size, len(difference)), dtype=np.int8) * 2.0 - 1.0
        extreme += int((np.abs(signs @ difference) >= observed - tolerance).sum())
    return TestResult(float(difference.mean()), (1 + extreme) / (1 + samples), len(difference))


def paired_t_test(first: Sequence[float], second: Sequence[float]) -> TestResult:
    """Student's paired t-test, two-sided. Equal scores throughout give t = 0 and p = 1."""
    difference = _differences(first, second)
    total = len(difference)
    if total < 2:
        raise DataError("A paired t-test needs at least two documents.")
    mean, deviation = float(difference.mean()), float(difference.std(ddof=1))
    if deviation == 0.0:
        return TestResult(mean, 1.0 if mean == 0 else 0.0, total, 0.0 if mean == 0 else math.copysign(math.inf, mean))
    from scipy import stats  # the base package does without

    found = stats.ttest_1samp(difference, 0.0)
    bounds = found.confidence_interval()
    return TestResult(mean, float(found.pvalue), total, float(found.statistic), *map(float, bounds))


def holm(p_values: Mapping[Name, float]) -> dict[Name, float]:
    """Holm's adjusted p for a family of comparisons, by name: reject where it is below the level."""
    ordered = sorted(p_values, key=p_values.__getitem__)
    scaled = (min(1.0, (len(ordered) - rank) * p_values[name]) for rank, name in enumerate(ordered))
    adjusted = dict(zip(ordered, accumulate(scaled, max), strict=True))
    return {name: adjusted[name] for name in p_values}


def bootstrap_interval(scores: Sequence[float] | np.ndarray, samples: int = SAMPLES) -> tuple[Any, Any]:
    """The 95% percentile bootstrap interval of a mean over documents (n,), or of each column's (n, columns)."""
    values = np.asarray(scores, dtype=np.float64)
    if not len(values):
        raise DataError("A confidence interval needs at least one score.")
    low, high = np.percentile(_resampled_means(values, samples), [2.5, 97.5], axis=0)
    return low, high


def _differences(first: Sequence[float], second: Sequence[float]) -> np.ndarray:
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.shape != two.shape or one.ndim != 1 or not one.size:
        raise DataError(
            f"A paired test needs a score of each document and system; there are {one.size} and {two.size}."
        )
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        raise DataError("A paired test needs finite scores; one of them is not a number.")
    return one - two


def _chunks(samples: int, width: int) -> list[int]:
    size = max(1, min(samples, _CHUNK // max(width, 1)))
    return [min(size, samples - start) for start in range(0, samples, size)]


def _resampled_means(values: np.ndarray, samples: int) -> np.ndarray:
    """The means (samples, ...) of values (n, ...), each drawn n times with replacement."""
    total, generator, means = len(values), np.random.default_rng(_SEED), []
    for size in _chunks(samples, total):
        drawn = generator.integers(0, total, size=(size, total))
        counts = np.array([np.bincount(row, minlength=total) for row in drawn], dtype=np.float64)
        means.append(counts @ values / total)
    return np.concatenate(means)
