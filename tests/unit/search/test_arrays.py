"""Re-ordering of nested states; the best of wide rows equal a sort, ties included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.search.arrays import rows_of_documents, select, select_documents, stable_topk, top_candidates
from catchline.types import Memory, Shared


class Pair(NamedTuple):
    hidden: Any
    name: str


@dataclass(frozen=True, slots=True)
class Frozen:
    rows: Any
    nothing: None = None


class Cache:
    """Like a wrapped transformers cache: rows in the second axis."""

    def __init__(self, keys: Any):
        self.keys = keys

    def select(self, index: Any) -> Cache:
        return Cache(self.keys[:, index])

    def select_documents(self, document_index: Any, beams: int) -> Cache:
        return self.select(rows_of_documents(document_index, beams))


@pytest.fixture(params=[torch.tensor, np.array], ids=["tensors", "arrays"])
def made(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Makes the leaves and the indices."""
    return request.param


def state(made: Callable[[Any], Any]) -> dict[str, Any]:
    """Three documents, two beams: row b * 2 + k holds 10 b + k."""
    rows = made([0, 1, 10, 11, 20, 21])
    documents = made([0, 1, 2])
    memory = Memory(made([[[0.0]]] * 3), made([[True]] * 3), documents[:, None], 7)
    return {
        "tensor": rows,
        "list": [rows, (rows.reshape(6, 1), None, 3, "word")],
        "pair": Pair(rows, "kept"),
        "frozen": Frozen(rows),
        "cache": Cache(rows[None]),
        "scalar": made(5),
        "shared": Shared({"documents": documents, "memory": memory, "size": 7}),
    }


def everything_in_rows(tree: dict[str, Any]) -> list[list[int]]:
    column = tree["list"][1][0]
    assert column.shape[1] == 1
    return [
        part.reshape(-1).tolist()
        for part in (tree["tensor"], tree["list"][0], column, tree["pair"].hidden, tree["frozen"].rows)
    ] + [tree["cache"].keys[0].tolist()]


def test_every_tensor_is_reordered_and_shared_parts_are_the_same_objects(made: Callable[[Any], Any]) -> None:
    before = state(made)
    index = made([1, 1, 2, 3, 5, 4])
    after = select(before, index)
    assert everything_in_rows(after) == [[1, 1, 10, 11, 21, 20]] * 6
    assert after["shared"] is before["shared"]
    assert after["list"][1][1:] == (None, 3, "word")
    assert after["pair"].name == "kept"
    assert int(after["scalar"]) == 5
    assert everything_in_rows(before) == [[0, 1, 10, 11, 20, 21]] * 6, "the argument was modified"


def test_what_holds_no_rows_is_left_alone(made: Callable[[Any], Any]) -> None:
    half = type("Half", (), {"select": lambda self, index: None})()
    for thing in (half, Cache, Frozen):
        assert select(thing, made([0])) is thing


def test_one_row_a_document_is_widened_to_beams(made: Callable[[Any], Any]) -> None:
    assert select([made([7, 8])], made([0, 0, 0, 1, 1, 1]))[0].tolist() == [7, 7, 7, 8, 8, 8]


def test_documents_are_dropped_from_rows_and_from_shared_parts(made: Callable[[Any], Any]) -> None:
    before = state(made)
    after = select_documents(before, made([0, 2]), 2)
    assert everything_in_rows(after) == [[0, 1, 20, 21]] * 6
    shared = after["shared"].tree
    assert shared["documents"].tolist() == [0, 2]
    assert shared["memory"].extended_ids.tolist() == [[0], [2]]
    assert shared["memory"].batch_size == 2
    assert shared["memory"].extended_vocab_size == shared["size"] == 7
    assert before["shared"].tree["documents"].tolist() == [0, 1, 2], "the argument was modified"


# ------------------------------------------------------------------------------------- the best entries


def by_sorting(scores: np.ndarray, count: int) -> tuple[list, list]:
    """Descending, of equal values the lower id first; minus infinity stands for nothing."""
    values, ids = [], []
    for row in scores:
        order = np.argsort(-row, kind="stable")[:count]
        values.append(row[order].tolist())
        ids.append(order[row[order] > -np.inf].tolist())
    return values, ids


def check(scores: np.ndarray, count: int, block: int | None = None) -> None:
    untouched = scores.copy()
    values, ids = top_candidates(scores, count, block)
    expected_values, expected_ids = by_sorting(scores, count)
    assert values.dtype == scores.dtype
    assert values.tolist() == expected_values
    finite = [[id_ for v, id_ in zip(*row, strict=True) if v > -np.inf] for row in zip(values, ids, strict=True)]
    assert finite == expected_ids
    assert np.array_equal(scores, untouched)


@settings(max_examples=60)
@given(data=st.data())
def test_equals_a_sort(data: st.DataObject) -> None:
    rows, width = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 90))
    levels = data.draw(st.sampled_from([1, 2, 3, 7, 1000]))  # few levels: many ties
    forbidden = data.draw(st.floats(0, 1))
    random = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    scores = random.integers(levels, size=(rows, width)).astype(np.float32) - levels
    scores[random.random((rows, width)) < forbidden] = -np.inf
    check(scores, data.draw(st.integers(1, 9)), data.draw(st.integers(1, 8)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [50_000, 50_037, 4_095, 3_000, 511])
def test_wide_rows(width: int, dtype: type) -> None:
    scores = np.random.default_rng(width).standard_normal((5, width)).astype(dtype)
    check(scores, 8)
    check(scores.astype(np.float16).astype(dtype), 8)  # with ties
    scores[1:3] = -np.inf  # all but one is forbidden, and all
    scores[1, width - 3] = -7.0
    check(scores, 8)


def test_a_tie_between_a_better_and_a_worse_block() -> None:
    scores = np.zeros((1, 64), dtype=np.float32)
    scores[0, [8, 40, 41]] = [7.0, 9.0, 7.0]
    assert top_candidates(scores, 2, block=4)[1].tolist() == [[40, 8]]


@pytest.mark.parametrize("width", [20, 4096])
def test_a_number_that_is_none_is_not_lost(width: int) -> None:
    scores = np.random.default_rng(0).standard_normal((3, width)).astype(np.float32)
    scores[1, width - 2] = np.nan
    values, _ = top_candidates(scores, 4)
    assert np.isnan(values).any(axis=1).tolist() == [False, True, False]
    assert values[2].tolist() == sorted(scores[2].tolist(), reverse=True)[:4]


def test_stable_topk_orders_equal_values_by_index() -> None:
    values, index = stable_topk(np.array([[1.0, 3.0, 3.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0, 1.0]]), 2)
    assert values.tolist() == [[3.0, 3.0], [1.0, 0.0]]
    assert index.tolist() == [[1, 2], [4, 0]]
