"""Copying, repetition, support, significance, alignment and perplexity on cases a person can check."""

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
    copy_rate,
    correct_ngram_counts,
    correct_ngram_rate,
    extractive_fragments,
    fragment_statistics,
    length_ratio,
    most_over_copied,
    novel_ngram_rate,
    over_copied_words,
    words,
)
from laconic.metrics.repetition import (
    has_repeated_ngram,
    longest_repeated_run,
    repeated_ngram_rate,
    repeated_sentence_rate,
)
from laconic.metrics.significance import (
    approximate_randomization,
    bootstrap_interval,
    holm,
    paired_bootstrap,
    paired_t_test,
)
from laconic.metrics.support import check_support, support_rate

SOURCE = ["the", "red", "car", "hit", "a", "wall", "and", "the", "driver", "left"]


def test_fragments_and_their_statistics():
    summary = ["red", "car", "hit", "the", "driver", "today"]
    assert extractive_fragments(summary, SOURCE) == [(0, 3), (3, 2)]
    found = fragment_statistics(summary, SOURCE)
    assert (found.coverage, found.density, found.compression) == pytest.approx((5 / 6, 13 / 6, 10 / 6))
    assert fragment_statistics([], SOURCE).coverage == 0.0
    whole = fragment_statistics(SOURCE, SOURCE)
    assert (whole.coverage, whole.density) == (1.0, len(SOURCE))


def test_fragments_take_the_longest_of_several_places():
    assert extractive_fragments(["a", "b", "c"], ["a", "b", "x", "a", "b", "c"]) == [(0, 3)]


def test_novel_ngrams():
    summary = ["red", "car", "hit", "the", "wall"]
    assert novel_ngram_rate(summary, SOURCE, 1) == 0.0
    assert novel_ngram_rate(summary, SOURCE, 2) == 0.5
    assert novel_ngram_rate(summary, SOURCE, 9) == 0.0


def test_correct_ngrams_need_source_and_reference():
    summary, reference = ["red", "car", "red", "bike"], ["a", "red", "car", "crashed"]
    assert correct_ngram_counts(summary, SOURCE, reference, 1) == (3, 4)
    assert correct_ngram_counts(summary, SOURCE, reference, 2) == (1, 3)
    triples = ([summary, ["wall"]], [SOURCE, SOURCE], [reference, reference])
    assert correct_ngram_rate(*triples, 1) == 3 / 5
    assert correct_ngram_rate(*triples, 1, average="macro") == 3 / 8
    with pytest.raises(DataError, match="micro"):
        correct_ngram_rate(*triples, 1, average="mean")


def test_over_copied_words():
    summary, reference = ["the", "red", "wall", "hit", "the", "car"], ["red", "car"]
    assert over_copied_words(summary, SOURCE, reference) == ["the", "wall", "hit", "the"]
    assert over_copied_words(summary, SOURCE, reference, {"the"}) == ["wall", "hit"]
    assert most_over_copied([summary], [SOURCE], [reference], 1) == [("the", 2)]
    assert copy_rate(["red", "bike"], SOURCE) == 0.5
    assert length_ratio([["a"], ["b"]], [["a", "b"], []]) == 0.5
    assert words("The U.S. didn't—ever!") == ["the", "u", "s", "didn't", "ever"]


def test_repetition():
    summary = ["a", "b", "a", "b", "a", "c"]
    assert repeated_ngram_rate(summary, 1) == 0.5
    assert repeated_ngram_rate(summary, 2) == pytest.approx(2 / 5)
    assert repeated_ngram_rate([], 1) == 0.0
    assert has_repeated_ngram(summary, 3)
    assert longest_repeated_run(summary) == 3
    assert longest_repeated_run(["a", "b"]) == 0
    assert longest_repeated_run(["a"] * 5) == 4
    assert repeated_sentence_rate(["A b.", "a  b.", "c"]) == pytest.approx(1 / 3)


def test_support_finds_what_the_source_lacks():
    source = "The firm paid 1,000 dollars to three men from New York on 4 May. oxford's mayor agreed."
    summary = "Firm paid 1000 dollars and 12 cents to 3 men of Oxford and Peter Smith on Monday, 4 May."
    report = check_support(summary, source)
    assert [(piece.kind, piece.text) for piece in report.unsupported] == [
        ("number", "12"),
        ("name", "Peter Smith"),
        ("date", "Monday"),
    ]
    for piece in report.unsupported:
        assert summary[piece.start : piece.end] == piece.text
    assert report.checked == {"number": 4, "date": 2, "name": 2}
    assert report.rate == pytest.approx(5 / 8)
    assert check_support("nothing here", source).rate == 1.0
    assert support_rate([summary, "nothing"], [source, source]) == pytest.approx(5 / 8)
    assert check_support("May we go? It costs 007.50.", "it costs 7.5").unsupported == ()


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
