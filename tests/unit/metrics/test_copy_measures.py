"""Copying, repetition, significance, alignment and perplexity on cases a person can check."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from laconic.errors import DataError
from laconic.metrics.alignment import alignment_error_rate, attention_entropy, hard_alignment, perplexity
from laconic.metrics.copying import (
    correct_ngram_counts,
    coverage_and_density,
    extractive_fragments,
    novel_ngram_rate,
    over_copied_words,
)
from laconic.metrics.repetition import repeated_ngram_rate, repeats
from laconic.metrics.significance import (
    approximate_randomization,
    bootstrap_interval,
    holm,
    paired_bootstrap,
    paired_t_test,
)
from laconic.metrics.words import words

SOURCE = ["the", "red", "car", "hit", "a", "wall", "and", "the", "driver", "left"]


def test_fragments_and_their_statistics():
    summary = ["red", "car", "hit", "the", "driver", "today"]
    assert extractive_fragments(summary, SOURCE) == [(0, 3), (3, 2)]
    assert coverage_and_density(summary, SOURCE) == pytest.approx((5 / 6, 13 / 6))
    assert coverage_and_density([], SOURCE) is None
    assert coverage_and_density(SOURCE, SOURCE) == (1.0, len(SOURCE))


def test_coverage_is_the_share_of_words_that_the_source_holds():
    generator = random.Random(3)
    for _ in range(100):
        summary, source = ([generator.choice("abcdef") for _ in range(length)] for length in (6, 9))
        coverage, density = coverage_and_density(summary, source)
        assert coverage == pytest.approx(sum(word in source for word in summary) / len(summary))
        assert density >= coverage


def test_fragments_take_the_longest_of_several_places():
    assert extractive_fragments(["a", "b", "c"], ["a", "b", "x", "a", "b", "c"]) == [(0, 3)]


def test_novel_ngrams_are_counted_once_each():
    summary = ["red", "car", "hit", "the", "wall"]
    assert novel_ngram_rate(summary, SOURCE, 1) == 0.0
    assert novel_ngram_rate(summary, SOURCE, 2) == 0.5
    assert novel_ngram_rate([*summary, "the", "wall"], SOURCE, 2) == 3 / 5  # "the wall" is one of five
    assert novel_ngram_rate(summary, SOURCE, 9) is None


def test_correct_ngrams_need_source_and_reference():
    summary, reference = ["red", "car", "red", "bike"], ["a", "red", "car", "crashed"]
    assert correct_ngram_counts(summary, SOURCE, reference, 1) == (3, 4)
    assert correct_ngram_counts(summary, SOURCE, reference, 2) == (1, 3)


def test_over_copied_words():
    summary, reference = ["the", "red", "wall", "hit", "the", "car"], ["red", "car"]
    assert over_copied_words(summary, SOURCE, reference) == ["the", "wall", "hit", "the"]


def test_repeated_ngrams():
    summary = ["a", "b", "a", "b", "a", "c"]
    assert repeated_ngram_rate(summary, 1) == 0.5
    assert repeated_ngram_rate(summary, 2) == pytest.approx(2 / 5)
    assert repeated_ngram_rate([], 1) is None


@pytest.mark.parametrize(
    "text",
    [
        "meeting meeting on friday",
        "the the meeting",
        "gas prices and gas",
        "on friday on friday",
        "he said he said he would",
        "the firm said on monday that sales rose and that the firm said on monday",
    ],
)
def test_a_reader_hears_a_repetition(text):
    assert repeats(words(text))


@pytest.mark.parametrize(
    "text",
    [
        "the man and the dog and the cat",
        "sales of the firm rose and profits of the bank fell",
        "the firm bought a bank and later sold the firm",
        "a 2 by 2 table for 5,000,000 men",
        "",
    ],
)
def test_a_reader_hears_none(text):
    assert not repeats(words(text))


def test_paired_t_test_equals_scipy():
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=40), generator.normal(0.2, size=40)
    ours, theirs = paired_t_test(first, second), stats.ttest_rel(first, second)
    assert (ours.statistic, ours.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    interval = theirs.confidence_interval()
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high))
    assert paired_t_test([1, 2], [1, 2]).p == 1.0


def test_randomization_is_exact_for_few_documents():
    first, second = [0.9, 0.8, 0.7, 0.4, 0.9], [0.5, 0.9, 0.2, 0.1, 0.3]
    difference = np.subtract(first, second)
    sums = [abs(np.dot(signs, difference)) for signs in itertools.product((1, -1), repeat=5)]
    exact = np.mean([value >= abs(difference.sum()) - 1e-12 for value in sums])
    assert approximate_randomization(first, second).p == pytest.approx(exact)
    assert approximate_randomization(first, first).p == 1.0


def test_tests_agree_on_clear_cases():
    generator = random.Random(1)
    base = [generator.random() for _ in range(200)]
    better = [value + 0.1 + 0.05 * generator.random() for value in base]
    same = [value + generator.gauss(0, 0.1) for value in base]
    for test in (paired_bootstrap, approximate_randomization, paired_t_test):
        assert test(better, base).p < 0.001
        assert test(better, base).difference > 0
        assert test(same, base).p > 0.01
    assert paired_bootstrap(same, base) == paired_bootstrap(same, base)  # seeded
    found = paired_bootstrap(better, base)
    assert found.low < found.difference < found.high
    low, high = bootstrap_interval(base)
    assert low < np.mean(base) < high


def test_holm():
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert holm({"x": 0.9, "y": 0.8}) == {"x": 1.0, "y": 1.0}


@pytest.mark.parametrize("test", [paired_bootstrap, approximate_randomization, paired_t_test])
def test_wrong_scores_are_refused(test):
    with pytest.raises(DataError, match="2 and 1"):
        test([1.0, 2.0], [1.0])
    with pytest.raises(DataError):
        test([], [])
    with pytest.raises(DataError, match="finite"):
        test([1.0, math.nan], [1.0, 2.0])


def test_alignment_error_rate():
    sure, possible = [{(0, 0), (1, 1)}], [{(2, 1)}]
    assert alignment_error_rate([{(0, 0), (1, 1)}], sure, possible) == 0.0
    assert alignment_error_rate([{(0, 0), (2, 1)}], sure, possible) == pytest.approx(1 - 3 / 4)
    assert alignment_error_rate([{(5, 5)}], sure) == 1.0
    with pytest.raises(DataError, match="not defined"):
        alignment_error_rate([set()], [set()])
    with pytest.raises(DataError, match="document by document"):
        alignment_error_rate([set()], [])


def test_alignment_entropy_and_perplexity():
    assert hard_alignment(np.array([[0.1, 0.9], [0.5, 0.5]])) == {(0, 1), (1, 0)}
    assert attention_entropy(np.full((3, 10), 0.1)) == pytest.approx(math.log(10))
    assert attention_entropy(np.array([[1.0, 0.0], [0.0, 0.0]])) == 0.0
    assert perplexity([[math.log(0.5)] * 3, [math.log(0.5)]]) == pytest.approx(2.0)
    assert perplexity([[-1e6]]) == math.inf
    with pytest.raises(DataError):
        perplexity([[]])
