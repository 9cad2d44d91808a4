"""Krippendorff's alpha against a case worked by hand, the published example, and its own definition by pairs."""

from __future__ import annotations

import itertools
import random

import pytest

from catchline_study.judge import krippendorff_alpha

# Krippendorff 2011, example C: four observers, twelve units, missing ratings.
PUBLISHED = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]


@pytest.mark.parametrize(("level", "expected"), [("ordinal", 0.815), ("interval", 0.849)])
def test_the_published_example(level: str, expected: float) -> None:
    assert krippendorff_alpha(PUBLISHED, level) == pytest.approx(expected, abs=5e-4)


def test_by_hand() -> None:
    """Two annotators, three units: (1, 1), (2, 3), (3, 3).

    Coincidences: 1-1 twice, 2-3 and 3-2 once each, 3-3 twice; so n_1 = 2, n_2 = 1, n_3 = 3, n = 6.

    Interval: D_o = 2 * 1 = 2. D_e = 2 (n_1 n_2 1 + n_1 n_3 4 + n_2 n_3 1) / (n - 1) = 2 (2 + 24 + 3) / 5 = 11.6.
    alpha = 1 - 2 / 11.6.

    Ordinal: distances are sums of n_g from one value to the other less half of both ends, squared:
    1-2: 2 + 1 - 1.5 = 1.5; 2-3: 1 + 3 - 2 = 2; 1-3: 2 + 1 + 3 - 2.5 = 3.5.
    D_o = 2 * 4 = 8. D_e = 2 (2 * 2.25 + 6 * 12.25 + 3 * 4) / 5 = 36. alpha = 1 - 8 / 36.
    """
    ratings = [[1, 2, 3], [1, 3, 3]]
    assert krippendorff_alpha(ratings, "interval") == pytest.approx(1 - 2 / 11.6)
    assert krippendorff_alpha(ratings, "ordinal") == pytest.approx(1 - 8 / 36)


def test_interval_is_one_minus_the_ratio_of_mean_squares() -> None:
    """Without missing ratings: mean squared difference of pairs within units over that of all pairs."""
    generator = random.Random(2)
    ratings = [[generator.randint(1, 5) for _ in range(20)] for _ in range(3)]
    within = [(a - b) ** 2 for unit in zip(*ratings, strict=True) for a, b in itertools.permutations(unit, 2)]
    everything = [value for row in ratings for value in row]
    among = [(a - b) ** 2 for a, b in itertools.permutations(everything, 2)]
    expected = 1 - (sum(within) / len(within)) / (sum(among) / len(among))
    assert krippendorff_alpha(ratings) == pytest.approx(expected)


def test_extremes() -> None:
    assert krippendorff_alpha([[1, 2, 3], [1, 2, 3]], "ordinal") == 1.0
    assert krippendorff_alpha([[1, 2], [2, 1]], "interval") == pytest.approx(-0.5)
    assert krippendorff_alpha([[3, 3], [3, 3]]) is None
    assert krippendorff_alpha([[1, None], [None, 2]]) is None
