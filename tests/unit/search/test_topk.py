"""The two-stage top-k equals a sort, ties included."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.search.topk import stable_topk, top_candidates


def by_sorting(scores: torch.Tensor, count: int) -> tuple[list, list]:
    """Descending, of equal values the lower id first; minus infinity stands for nothing."""
    values, ids = [], []
    for row in scores.tolist():
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))[:count]
        values.append([row[i] for i in order])
        ids.append([i for i in order if row[i] > -torch.inf])
    return values, ids


def check(scores: torch.Tensor, count: int, block: int) -> None:
    untouched = scores.clone()
    values, ids = top_candidates(scores, count, block)
    expected_values, expected_ids = by_sorting(scores, count)
    assert values.tolist() == expected_values
    finite = [[id_ for v, id_ in zip(*row, strict=True) if v > -torch.inf] for row in zip(values, ids, strict=True)]
    assert [[int(i) for i in row] for row in finite] == expected_ids
    assert torch.equal(scores, untouched)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_equals_a_sort(data: st.DataObject) -> None:
    rows, width = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 90))
    levels = data.draw(st.sampled_from([1, 2, 3, 7, 1000]))  # few levels: many ties
    forbidden = data.draw(st.floats(0, 1))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 10**6)))
    scores = torch.randint(levels, (rows, width), generator=generator).float() - levels
    scores[torch.rand(rows, width, generator=generator) < forbidden] = -torch.inf
    check(scores, data.draw(st.integers(1, 9)), data.draw(st.integers(1, 8)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("width", [50_000, 50_037, 3_000, 257])
def test_equals_topk_on_wide_rows(width: int, dtype: torch.dtype) -> None:
    scores = torch.randn(5, width, generator=torch.Generator().manual_seed(width)).to(dtype)
    values, ids = top_candidates(scores, 8)
    expected, expected_ids = scores.topk(8)
    assert torch.equal(values, expected)
    if dtype != torch.bfloat16:  # which has ties
        assert torch.equal(ids, expected_ids)
    else:
        check(scores, 8, 128)


def test_winners_in_the_last_columns_and_in_one_block() -> None:
    scores = torch.zeros(2, 1030)
    scores[0, 1025:] = torch.arange(1.0, 6.0)
    scores[1, 640:645] = torch.arange(1.0, 6.0)
    _, ids = top_candidates(scores, 5, block=128)
    assert ids.tolist() == [[1029, 1028, 1027, 1026, 1025], [644, 643, 642, 641, 640]]


def test_a_tie_between_a_better_and_a_worse_block() -> None:
    scores = torch.zeros(1, 64)
    scores[0, [8, 40, 41]] = torch.tensor([7.0, 9.0, 7.0])
    assert top_candidates(scores, 2, block=4)[1].tolist() == [[40, 8]]


def test_rows_that_are_not_contiguous() -> None:
    wide = torch.randn(3, 4096, 2, generator=torch.Generator().manual_seed(0))[:, :, 0]
    check(wide, 6, 32)


def test_stable_topk_orders_equal_values_by_index() -> None:
    values, index = stable_topk(torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0, 1.0]]), 2)
    assert values.tolist() == [[3.0, 3.0], [1.0, 0.0]]
    assert index.tolist() == [[1, 2], [4, 0]]
