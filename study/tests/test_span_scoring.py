"""Scores of neighbouring spans against plain counting, a dynamic programme and exact fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.errors import ConfigError
from catchline_study.spans.scoring import ScoreKey, Shape, WindowBlock
from span_counts import counted, scored


def block(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(row) for row in rows])
    padded = [row + [-7] * (int(lengths.max()) - len(row)) for row in rows]
    return np.array(padded, dtype=np.int32).T.copy(), lengths


def key_of(weights: Sequence[int | Fraction], shape: Shape) -> ScoreKey:
    return ScoreKey.of(tuple(map(Fraction, weights)), shape)  # type: ignore[arg-type]


@st.composite
def chunks(draw: st.DrawFn) -> tuple[Shape, list[list[int]]]:
    shape = Shape(draw(st.integers(1, 40)), draw(st.sampled_from([1, 2, 5, 31, 32, 33, 64])), draw(st.integers(1, 12)))
    most = draw(st.integers(1, 9))
    rows = st.lists(st.integers(0, most), min_size=shape.window, max_size=shape.window + 30)
    return shape, draw(st.lists(rows, min_size=1, max_size=3))


@settings(max_examples=40)
@given(
    chunks(),
    st.sampled_from([*list(product((0, 1), repeat=3))[1:], (Fraction("0.3"), 2, Fraction("1.25"))]),
    st.sampled_from(["0", "0.2", "0.5", "1"]),
)
def test_the_best_windows_and_all_over_a_score_are_those_of_brute_force(
    drawn: tuple[Shape, list[list[int]]], weights: tuple[int, int, int], over: str
) -> None:
    shape, rows = drawn
    key, exact = key_of(weights, shape), list(map(Fraction, weights))
    tokens, lengths = block(rows)
    found = WindowBlock(shape, key, tokens, lengths, tokens != -9).best()
    assert found.column.tolist() == list(range(len(rows)))
    many = []
    for number, row in enumerate(rows):
        windows = {start: counted(row, start, shape) for start in range(0, len(row) - shape.window + 1, shape.stride)}
        scores = {start: scored(counts, exact, shape) for start, counts in windows.items()}
        start = max(scores, key=lambda place: (scores[place], -place))
        counts = (int(found.m1[number]), int(found.m2[number]), int(found.ml[number]))
        assert (int(found.start[number]), counts) == (start, windows[start])
        assert key.score(*counts) == scores[start]
        many += [(number, place, *windows[place]) for place in windows if scores[place] > Fraction(over)]
    above = WindowBlock(shape, key, tokens, lengths, tokens != -9).above(int(Fraction(over) * key.denominator))
    columns = [getattr(above, name).tolist() for name in ("column", "start", "m1", "m2", "ml")]
    assert list(zip(*columns, strict=True)) == many


def test_windows_of_blanks_are_passed_over() -> None:
    shape = Shape(3, 2)
    rows = [[1, 1, 1, 1, 1, 5, 6, 7, 5, 6], [1] * 10]
    tokens, lengths = block(rows)
    key = key_of((1, 1, 1), shape)
    windows = WindowBlock(shape, key, tokens, lengths, tokens != 1)
    found = windows.best()
    assert (found.column.tolist(), found.start.tolist()) == ([0], [5])
    given_one = windows.given(np.array([7, 7], dtype=np.uint64))
    assert given_one.column.tolist() == [0]
    assert 3 <= int(given_one.start[0]) <= 5


def test_weights_of_too_many_digits() -> None:
    with pytest.raises(ConfigError, match="too many digits"):
        key_of((Fraction("1.0000000000000000000001"), 1, 1), Shape())
