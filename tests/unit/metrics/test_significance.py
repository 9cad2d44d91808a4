"""Tests of significance on cases whose p is known: by counting, by scipy, by hand."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from catchline.errors import DataError
from catchline.metrics.significance import (
    approximate_randomization,
    bootstrap_interval,
    holm,
    paired_bootstrap,
    paired_t_test,
)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([3.0, -1.0], 0.5),  # means 3, 1, 1, -1: a quarter on the other side, and that twice
        ([1.0, 0.0], 0.5),  # means 1, 1/2, 1/2, 0: zero is on the other side, too
        ([5.0, 5.0, -1.0], 2 / 27),  # only three times the third
        ([1.0, -1.0], 1.0),  # three quarters on either side of zero
        ([0.0, 0.0], 1.0),
    ],
)
def test_p_of_the_bootstrap_is_two_sided(differences: list[float], p: float, sign: float) -> None:
    values = [sign * value for value in differences]
    found = paired_bootstrap(values, [0.0] * len(values), samples=20_000)
    assert found.p == pytest.approx(p, abs=0.02)
    assert found.difference == pytest.approx(np.mean(values))
    assert found.n == len(values)


def test_p_is_never_zero() -> None:
    ones, zeros = [1.0] * 20, [0.0] * 20
    assert paired_bootstrap(ones, zeros, samples=99).p == 2 / 100
    assert approximate_randomization(ones, zeros, samples=99).p == 1 / 100
    assert approximate_randomization(zeros, ones, samples=99).p == 1 / 100


def test_the_interval_is_that_of_the_resampled_means() -> None:
    """Of three with a one the mean is 1 in 3.7% of the resamples, of five it is above 3/5 in 0.7%."""
    for count, high in ((3, 1.0), (5, 0.6)):
        scores = [1.0] + [0.0] * (count - 1)
        found = paired_bootstrap(scores, [0.0] * count)
        assert (found.low, found.high) == bootstrap_interval(scores) == (0.0, high)
    found = paired_bootstrap([3.0, 3.0], [1.0, 1.0])
    assert (found.low, found.high) == (2.0, 2.0)


def test_randomization_is_two_sided() -> None:
    """Near the share of all changes of signs whose sum is as far from zero; rounding tells no equal sums apart."""
    generator = random.Random(3)
    for mean in (0.2, -0.4):
        differences = np.array([generator.gauss(0.0, 1.0) for _ in range(12)])
        differences += mean - differences.mean()
        sums = [abs(float(np.dot(signs, differences))) for signs in itertools.product((1, -1), repeat=12)]
        expected = float(np.mean([value >= abs(differences.sum()) - 1e-9 for value in sums]))
        found = approximate_randomization(differences.tolist(), [0.0] * 12)
        assert found.p == pytest.approx(expected, abs=0.02)
        assert (found.difference, found.n) == (pytest.approx(differences.mean()), 12)
    assert approximate_randomization([0.1, 0.2, -0.3], [0.0] * 3).p == 1.0
    assert approximate_randomization([0.1, 0.2, 0.3], [0.0] * 3).p == pytest.approx(2 / 8, abs=0.02)


def test_students_test_is_scipys() -> None:
    generator = random.Random(4)
    first, second = ([generator.gauss(mean, 1.0) for _ in range(9)] for mean in (0.3, 0.0))
    for one, two in ((first, second), (second, first)):
        found, expected = paired_t_test(one, two), stats.ttest_rel(one, two)
        assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue))
        assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_students_test_without_any_spread() -> None:
    assert (paired_t_test([1.0, 1.0], [1.0, 1.0]).p, paired_t_test([1.0, 1.0], [1.0, 1.0]).statistic) == (1.0, 0.0)
    for sign in (1.0, -1.0):
        found = paired_t_test([sign, sign], [0.0, 0.0])
        assert (found.p, found.statistic) == (0.0, sign * float("inf"))


def test_holm_multiplies_by_what_is_left_and_never_falls() -> None:
    assert holm({"a": 0.02, "b": 0.011, "c": 0.5}) == pytest.approx({"b": 0.033, "a": 0.04, "c": 0.5})
    assert holm({"a": 0.02, "b": 0.019, "c": 0.5}) == pytest.approx({"b": 0.057, "a": 0.057, "c": 0.5})
    assert holm({"x": 0.9, "y": 0.8}) == {"x": 1.0, "y": 1.0}
    assert list(holm({"z": 0.2, "a": 0.1})) == ["z", "a"]


@pytest.mark.parametrize("test", [paired_bootstrap, approximate_randomization, paired_t_test])
def test_wrong_scores_are_refused(test):
    with pytest.raises(DataError, match="2 and 1"):
        test([1.0, 2.0], [1.0])
    with pytest.raises(DataError):
        test([], [])
    with pytest.raises(DataError, match="finite"):
        test([1.0, math.nan], [1.0, 2.0])


def test_too_few_documents_are_refused():
    with pytest.raises(DataError, match="at least two"):
        paired_t_test([1.0], [2.0])
    with pytest.raises(DataError, match="at least one score"):
        bootstrap_interval([])
