"""Scores of neighbouring spans against plain counting, a dynamic programme and exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.errors import ConfigError
from laconic.study.spans.scoring import BlockScorer, ScoreKey, Shape, clipped_matches, common_lengths, local_ids
from span_counts import counted, scored

WEIGHTS = [(1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1)]


def block(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(row) for row in rows])
    padded = [row + [-7] * (int(lengths.max()) - len(row)) for row in rows]
    return np.array(padded, dtype=np.int32).T.copy(), lengths


@st.composite
def chunks(draw: st.DrawFn) -> tuple[Shape, list[list[int]]]:
    shape = Shape(draw(st.integers(1, 40)), draw(st.sampled_from([1, 2, 5, 31, 32, 33, 64])), draw(st.integers(1, 12)))
    most = draw(st.integers(1, 9))
    rows = st.lists(st.integers(0, most), min_size=shape.window, max_size=shape.window + 45)
    return shape, draw(st.lists(rows, min_size=1, max_size=4))


@settings(max_examples=60)
@given(chunks(), st.sampled_from([*WEIGHTS, (Fraction("0.3"), 2, Fraction("1.25"))]))
def test_the_best_window_of_each_chunk_is_that_of_brute_force(
    drawn: tuple[Shape, list[list[int]]], weights: tuple[int, int, int]
) -> None:
    shape, rows = drawn
    exact = tuple(Fraction(weight) for weight in weights)
    key = ScoreKey.of(exact, shape)  # type: ignore[arg-type]
    found = BlockScorer(shape, key).best(*block(rows))
    assert found.column.tolist() == list(range(len(rows)))
    for number, row in enumerate(rows):
        windows = {start: counted(row, start, shape) for start in range(0, len(row) - shape.window + 1, shape.stride)}
        scores = {start: scored(counts, exact, shape) for start, counts in windows.items()}
        start = max(scores, key=lambda place: (scores[place], -place))
        counts = (int(found.m1[number]), int(found.m2[number]), int(found.ml[number]))
        assert (int(found.start[number]), counts) == (start, windows[start])
        assert key.score(*counts) == scores[start]


@settings(max_examples=40)
@given(chunks(), st.sampled_from(WEIGHTS), st.sampled_from(["0", "0.2", "0.5", "1"]))
def test_every_window_over_a_score(
    drawn: tuple[Shape, list[list[int]]], weights: tuple[int, int, int], over: str
) -> None:
    shape, rows = drawn
    exact = tuple(Fraction(weight) for weight in weights)
    key = ScoreKey.of(exact, shape)  # type: ignore[arg-type]
    tokens, lengths = block(rows)
    found = BlockScorer(shape, key).above(tokens, lengths, None, int(Fraction(over) * key.denominator))
    expected = [
        (number, start, *counted(row, start, shape))
        for number, row in enumerate(rows)
        for start in range(0, len(row) - shape.window + 1, shape.stride)
        if scored(counted(row, start, shape), exact, shape) > Fraction(over)
    ]
    assert [tuple(map(int, window)) for window in zip(*vars_of(found), strict=True)] == expected


def vars_of(found: object) -> list[np.ndarray]:
    return [getattr(found, name) for name in ("column", "start", "m1", "m2", "ml")]


def test_single_measures_at_every_start() -> None:
    generator = np.random.default_rng(3)
    shape = Shape(128, 32)
    tokens = np.minimum(generator.zipf(1.3, size=(240, 6)), 60).astype(np.int32) * 17
    ids = local_ids(tokens)
    unigrams = clipped_matches(ids, 128, 128, 32)
    lengths = common_lengths(ids.astype(np.uint16), shape)
    for column in range(6):
        for start in range(240 - 159):
            one, _, common = counted(tokens[:, column].tolist(), start, shape)
            assert (unigrams[start, column], lengths[start, column]) == (one, common)


def test_bigrams_do_not_reach_over_the_cut() -> None:
    shape = Shape(3, 3)
    row = [1, 2, 9, 9, 1, 2]  # "9 9" stands across the cut only; "1 2" in both
    found = BlockScorer(shape, ScoreKey.of((Fraction(0), Fraction(1), Fraction(0)), shape)).best(*block([row]))
    assert (found.m1.tolist(), found.m2.tolist(), found.ml.tolist()) == ([3], [1], [2])


def test_scores_are_cut_at_the_ceilings() -> None:
    key = ScoreKey.of((Fraction(1), Fraction(1), Fraction(1)), Shape())
    assert key.score(32, 0, 0) == key.score(0, 0, 32) == Fraction(2, 5)
    assert key.score(0, 31, 0) == Fraction(62, 158)


def test_few_subsequences_are_computed_and_none_without_weight() -> None:
    generator = np.random.default_rng(4)
    tokens = np.minimum(generator.zipf(1.2, size=(512, 64)), 5000).astype(np.int32)
    lengths = np.full(64, 512)
    for weights, most in (((1, 1, 1), 0.6), ((1, 1, 0), 0.0)):
        scorer = BlockScorer(Shape(), ScoreKey.of(tuple(map(Fraction, weights)), Shape()))  # type: ignore[arg-type]
        scorer.best(tokens, lengths)
        assert scorer.subsequences <= most * 353 * 64


@pytest.mark.parametrize("weights", [(1, 1, 1), (0, 0, 1), (1, 0, 2)])
def test_what_is_passed_over_could_not_have_been_best(weights: tuple[int, int, int]) -> None:
    """Chunks of many bands of windows, all subsequences computed here."""
    generator = np.random.default_rng(5)
    tokens = np.minimum(generator.zipf(1.4, size=(512, 96)), 300).astype(np.int32)
    tokens[:, ::3] = generator.integers(0, 6, size=(512, 32))
    key = ScoreKey.of(tuple(map(Fraction, weights)), Shape())  # type: ignore[arg-type]
    found = BlockScorer(Shape(), key).best(tokens, np.full(96, 512))
    ids = local_ids(tokens)
    ones = clipped_matches(ids, 128, 128, 32)
    twos = clipped_matches(local_ids(ids[:-1] * 512 + ids[1:]), 127, 128, 31)[:353]
    scores = key.value(ones, twos, common_lengths(ids.astype(np.uint16), Shape()))
    assert found.start.tolist() == scores.argmax(axis=0).tolist()
    assert key.value(found.m1, found.m2, found.ml).tolist() == scores.max(axis=0).tolist()


def test_windows_of_blanks_are_passed_over() -> None:
    shape = Shape(3, 2)
    rows = [[1, 1, 1, 1, 1, 5, 6, 7, 5, 6], [1] * 10]
    tokens, lengths = block(rows)
    key = ScoreKey.of((Fraction(1), Fraction(1), Fraction(1)), shape)
    found = BlockScorer(shape, key).best(tokens, lengths, tokens != 1)
    assert (found.column.tolist(), found.start.tolist()) == ([0], [5])
    given_one = BlockScorer(shape, key).given(tokens, lengths, np.array([7, 7], dtype=np.uint64), tokens != 1)
    assert given_one.column.tolist() == [0]
    assert 3 <= int(given_one.start[0]) <= 5


def test_weights_of_too_many_digits() -> None:
    weights = (Fraction("1.0000000000000000000001"), Fraction(1), Fraction(1))
    with pytest.raises(ConfigError, match="too many digits"):
        ScoreKey.of(weights, Shape())
