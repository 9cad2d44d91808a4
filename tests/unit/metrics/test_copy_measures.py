"""Copying and repetition on cases a person can check."""

from __future__ import annotations

import random

import pytest

from catchline.metrics.copying import (
    correct_counts,
    coverage_and_density,
    novel_rate,
    over_copied,
    repeated_ngram_rate,
    repeated_ngram_rates,
    repeats,
    shared_runs,
)
from catchline.metrics.words import words

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
    assert shared_runs(summary, summary) == range(6, 0, -1)
    assert shared_runs(summary, list(summary)) == [6, 5, 4, 3, 2, 1]
    assert shared_runs([], SOURCE) == shared_runs([], []) == []


def test_correct_ngrams_need_source_and_reference():
    summary, reference = ["red", "car", "red", "bike"], ["a", "red", "car", "crashed"]
    in_both = (shared_runs(summary, other) for other in (SOURCE, reference))
    assert correct_counts(*in_both, 3) == [(3, 4), (1, 3), (0, 2)]


def test_over_copied_words():
    summary, reference = ["the", "red", "wall", "hit", "the", "car"], ["red", "car"]
    in_both = (shared_runs(summary, other) for other in (SOURCE, reference))
    assert over_copied(summary, *in_both) == ["the", "wall", "hit", "the"]


def test_repeated_ngrams():
    summary = ["a", "b", "a", "b", "a", "c"]
    assert repeated_ngram_rate(summary, 1) == 0.5
    assert repeated_ngram_rate(summary, 2) == pytest.approx(2 / 5)
    assert repeated_ngram_rate([], 1) is None
    for text in (summary, summary[:3], list("abca"), ["a"], []):
        assert repeated_ngram_rates(text, 4) == [repeated_ngram_rate(text, n) for n in (1, 2, 3, 4)]


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
    if heard:
        assert repeats(words(text), repeated_ngram_rate(words(text), 4))
