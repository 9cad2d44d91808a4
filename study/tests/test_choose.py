"""Parts of a data set by length, by mean length, at random."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.errors import DataError
from catchline_study.corpora.subset import SubsetOptions, choose

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=25)


@given(lengths=LENGTHS, mean=st.floats(1, 60))
@settings(max_examples=60)
def test_shortest_documents_by_mean(lengths: list[int], mean: float) -> None:
    """By the definition: of all prefixes of the sorted list the longest whose mean is within the bound."""
    order = sorted(range(len(lengths)), key=lambda place: (lengths[place], place))
    fitting = [n for n in range(1, len(order) + 1) if sum(lengths[i] for i in order[:n]) <= mean * n]
    if not fitting:
        with pytest.raises(DataError, match="Even the shortest"):
            choose(lengths, SubsetOptions(shortest_mean=mean))
        return
    assert choose(lengths, SubsetOptions(shortest_mean=mean)) == sorted(order[: max(fitting)])


@given(lengths=LENGTHS, mean=st.floats(1, 30), window=st.floats(1, 60))
@settings(max_examples=60)
def test_as_many_documents_of_another_mean(lengths: list[int], mean: float, window: float) -> None:
    order = sorted(range(len(lengths)), key=lambda place: (lengths[place], place))
    count = max((n for n in range(1, len(order) + 1) if sum(lengths[i] for i in order[:n]) <= mean * n), default=0)
    options = SubsetOptions(shortest_mean=mean, window_mean=window)
    if not count or 2 * count > len(order):
        with pytest.raises(DataError):
            choose(lengths, options)
        return
    windows = [order[start : start + count] for start in range(count, len(order) - count + 1)]
    best = min(windows, key=lambda places: abs(sum(lengths[i] for i in places) / count - window))
    chosen = choose(lengths, options)
    assert chosen == sorted(best)
    assert not set(chosen) & set(order[:count])


def test_bounds_and_samples() -> None:
    lengths = [5, 1, 9, 5, 7]
    assert choose(lengths, SubsetOptions(min_tokens=5, max_tokens=7)) == [0, 3, 4]
    with pytest.raises(DataError, match="within the bounds"):
        choose(lengths, SubsetOptions(min_tokens=10))
    assert choose(lengths, SubsetOptions(last=2)) == [3, 4]
    assert choose(lengths, SubsetOptions(last=2, max_tokens=5)) == [1, 3]
    many = list(range(1, 200))
    one, again = (choose(many, SubsetOptions(sample=20, seed=3)) for _ in range(2))
    assert one == again == sorted(set(one))
    assert len(one) == 20
    assert choose(many, SubsetOptions(sample=20, seed=4)) != one
    assert choose(many, SubsetOptions(sample=5, max_tokens=5)) == [0, 1, 2, 3, 4]
    with pytest.raises(DataError, match="6 documents"):
        choose(lengths, SubsetOptions(sample=6))
