"""Copying, repetition, BLEU, and tests of significance, on cases whose values are known."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from catchline.errors import DataError
from catchline.metrics.bleu import bleu_paper, bleu_sentence, corpus_bleu, sentence_bleu
from catchline.metrics.significance import (
    approximate_randomization,
    bootstrap_interval,
    holm,
    paired_bootstrap,
    paired_t_test,
)
from catchline.metrics.words import (
    correct_counts,
    coverage_and_density,
    novel_rate,
    repeated_ngram_rate,
    repeats,
    shared_runs,
    words,
)

SOURCE = ["the", "red", "car", "hit", "a", "wall", "and", "the", "driver", "left"]


def test_fragments_and_their_statistics():
    summary = ["red", "car", "hit", "the", "driver", "today"]
    assert coverage_and_density(shared_runs(summary, SOURCE)) == pytest.approx((5 / 6, 13 / 6))
    assert coverage_and_density(shared_runs([], SOURCE)) is None
    assert coverage_and_density(shared_runs(SOURCE, SOURCE)) == (1.0, len(SOURCE))


def test_measures_are_what_their_definitions_say():
    generator = random.Random(4)
    for _ in range(150):
        summary, source, reference = ([generator.choice("abcd") for _ in range(length)] for length in (7, 12, 5))
        in_source = shared_runs(summary, source)
        grams = {
            n: [[tuple(t[i : i + n]) for i in range(len(t) - n + 1)] for t in (summary, source, reference)]
            for n in (1, 2, 3)
        }
        for n, (mine, theirs, gold) in grams.items():
            right = sum(g in theirs and g in gold for g in mine)
            assert correct_counts(in_source, shared_runs(summary, reference), n)[-1] == (right, len(mine))
            assert novel_rate(summary, in_source, n) == len(set(mine) - set(theirs)) / len(set(mine))
            assert repeated_ngram_rate(summary, n) == 1 - len(set(mine)) / len(mine)


def test_runs_are_whole_words_and_the_longest_of_several_places():
    summary = ["ed", "red", "car", "hit", "cars", "red"]
    assert shared_runs(summary, ["red", "ed", "red", "c", "red", "car", "hi", "car", "hit"]) == [2, 2, 2, 1, 0, 1]
    assert shared_runs(summary, summary) == [6, 5, 4, 3, 2, 1]
    assert shared_runs([], SOURCE) == shared_runs([], []) == []


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        ("the the meeting", True),
        ("gas prices and gas", True),
        ("on friday on friday", True),
        ("the firm said on monday that sales rose and that the firm said on monday", True),
        ("the man and the dog and the cat", False),
        ("sales of the firm rose and profits of the bank fell", False),
        ("the firm bought a bank and later sold the firm", False),
        ("a 2 by 2 table for 5,000,000 men", False),
        ("", False),
    ],
)
def test_what_a_reader_hears_as_a_repetition(text, heard):
    assert repeats(words(text)) == heard


# The figure's hypotheses with as many unknown words as the typesetting lost; any ten-word reference with exactly the
# matches of the printed words gives the printed value.
FIGURE_6 = [
    ("a1 a2 a3 a4 a5 a6 a7", 2, "r1 r2 r3 r4 r5 r6 r7 r8 r9 r10", 0.0204689180374571),
    ("confidential document x twitter to to", 5, "confidential document y1 y2 y3 y4 y5 y6 y7 y8", 0.08263103182212594),
    (
        "confidential document $ peter thiel z w",
        1,
        "confidential document peter thiel p q r s t u",
        0.11255157994168306,
    ),
]


@pytest.mark.parametrize(("hypothesis", "lost", "reference", "printed"), FIGURE_6)
def test_the_printed_values(hypothesis, lost, reference, printed):
    tokens = hypothesis.split() + [f"<unk{place}>" for place in range(lost)]
    assert bleu_paper([tokens], [[reference.split()]]) == pytest.approx(printed, abs=1e-15)


def test_sentence_bleu_equals_nltk():
    bleu_score = pytest.importorskip("nltk.translate.bleu_score")
    smoothing = bleu_score.SmoothingFunction().method1
    generator = random.Random(4)
    for _ in range(100):
        hypothesis = generator.choices("abcde", k=generator.randint(1, 14))
        references = [generator.choices("abcdef", k=generator.randint(1, 14)) for _ in range(generator.randint(1, 3))]
        expected = bleu_score.sentence_bleu(references, hypothesis, smoothing_function=smoothing)
        assert sentence_bleu(hypothesis, references) == pytest.approx(expected, abs=1e-12)


def test_nothing_in_common_scores_the_markers_only():
    reference = [[f"r{place}" for place in range(10)]]
    assert bleu_paper([["x"] * 10], [reference]) == pytest.approx(0.0203, abs=1e-4)
    assert bleu_sentence([["x"] * 10], [reference]) == 0.0
    unended = math.exp(1 - 12 / 11) * (1 / 11 * 0.1 / 10 * 0.1 / 9 * 0.1 / 8) ** 0.25  # the start marker alone matches
    assert bleu_paper([["x"] * 10], [reference], finished=[False]) == pytest.approx(unended)
    assert bleu_sentence([[]], [reference]) == 0.0


def test_corpus_bleu_is_sacrebleu():
    found, signature = corpus_bleu(["the cat sat on the mat"], [["the cat sat on the mat", "a cat"]])
    assert found == pytest.approx(100.0)
    assert "tok:13a" in signature
    ragged, _ = corpus_bleu(["a b c d e", "x y z w v"], [["a b c d e", "q"], "x y z w v"])
    assert ragged == pytest.approx(100.0)
    with pytest.raises(DataError, match="not 1 and 0"):
        corpus_bleu(["a"], [])
    with pytest.raises(DataError, match="not 0 and 0"):
        corpus_bleu([], [])


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
    assert [approximate_randomization(*both, samples=99).p for both in ((ones, zeros), (zeros, ones))] == [1 / 100] * 2


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
    for value, p, statistic in ((0.0, 1.0, 0.0), (1.0, 0.0, math.inf), (-1.0, 0.0, -math.inf)):  # without any spread
        found = paired_t_test([value, value], [0.0, 0.0])
        assert (found.p, found.statistic) == (p, statistic)


def test_holm_multiplies_by_what_is_left_and_never_falls() -> None:
    assert holm({"a": 0.02, "b": 0.011, "c": 0.5}) == pytest.approx({"b": 0.033, "a": 0.04, "c": 0.5})
    assert holm({"a": 0.02, "b": 0.019, "c": 0.5}) == pytest.approx({"b": 0.057, "a": 0.057, "c": 0.5})
    assert holm({"x": 0.9, "y": 0.8}) == {"x": 1.0, "y": 1.0}
    assert list(holm({"z": 0.2, "a": 0.1})) == ["z", "a"]


@pytest.mark.parametrize("test", [paired_bootstrap, approximate_randomization, paired_t_test])
def test_wrong_scores_are_refused(test):
    for first, second, said in (
        ([1.0, 2.0], [1.0], "2 and 1"),
        ([], [], None),
        ([1.0, math.nan], [1.0, 2.0], "finite"),
    ):
        with pytest.raises(DataError, match=said):
            test(first, second)
    with pytest.raises(DataError, match="at least two"):
        paired_t_test([1.0], [2.0])
    with pytest.raises(DataError, match="at least one score"):
        bootstrap_interval([])
