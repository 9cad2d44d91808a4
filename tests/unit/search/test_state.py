"""Re-ordering of nested states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from catchline.search.state import rows_of_documents, select, select_documents
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


def test_the_rows_of_documents(made: Callable[[Any], Any]) -> None:
    assert rows_of_documents(made([2, 0]), 3).tolist() == [6, 7, 8, 0, 1, 2]
