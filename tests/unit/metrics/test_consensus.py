"""Minimum Bayes risk against its definition, summary by summary."""

from __future__ import annotations

import math
import random

import pytest

from catchline.metrics.consensus import expected_utilities, weights_of
from catchline.metrics.rouge import rouge

WORDS = [
    "river", "town", "flood", "bridge", "rain", "mayor", "says", "Says", "closed", "open", "again", "Städte",
    "水", "12",
]  # fmt: skip


def utility(system: str, reference: str) -> float:
    found = rouge([system], [reference], kinds=("1", "2", "L"), profile="unicode")
    return sum(score.f for score in found.mean.values()) / 3


def highest(values: list[float]) -> int:
    return values.index(max(values))


def random_texts(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randrange(7))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(8))
def test_expected_utility_is_the_weighted_sum_over_all_pairs(seed: int) -> None:
    texts = random_texts(seed, 5)
    scores = [random.Random(seed).uniform(-6, 1) for _ in texts]
    total = sum(math.exp(score) for score in scores)
    expected = [
        sum(math.exp(score) / total * utility(text, other) for other, score in zip(texts, scores, strict=True))
        for text in texts
    ]
    assert expected_utilities(texts, scores) == pytest.approx(expected)


def test_the_summary_that_others_agree_with_goes_before_the_likeliest() -> None:
    texts = ["rain again", "the mayor closed the bridge", "mayor closed the bridge", "the mayor closed a bridge"]
    assert highest(expected_utilities(texts, [-1.0, -1.2, -1.3, -1.4])) == 1
    assert highest(expected_utilities(texts, [5.0, -1.2, -1.3, -1.4])) == 0, "nearly all of the probability"


def test_texts_without_words_and_single_ones() -> None:
    assert expected_utilities(["", "", ""], [-1.0, -1.0, -1.0]) == [0.0, 0.0, 0.0]
    assert expected_utilities(["rain"], [-700.0])[0] > 0


def test_weights_of_scores_that_are_far_apart_or_very_small() -> None:
    assert weights_of([-1e4, -1e4]) == [0.5, 0.5]
    assert weights_of([0.0, -1e4]) == [1.0, 0.0]
