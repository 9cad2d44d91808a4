"""Encode, start and search in one call; replacement of UNK; switches of the model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_tables import SPECIALS, Encoding, TableModel, batch_of, search

from catchline.config.schema import SearchConfig
from catchline.errors import ConfigError
from catchline.models.base import SummarizationModel
from catchline.search.decode import _note_reading as note_reading
from catchline.search.decode import switched, without_unk
from catchline.search.hypotheses import rows_of_documents, select, select_documents, stable_topk, top_candidates
from catchline.search.torch_bridge import decode
from catchline.types import Hypothesis, Memory, Shared
from samples import IDS


@pytest.mark.parametrize(("word", "times"), [("1987", 3), ("Zebratown", 1)])
def test_scorers_know_the_words_that_the_vocabulary_lacks(word: str, times: int) -> None:
    model = TableModel(1, vocab=9)
    model.log_probs[..., 8] = 1e-3  # it always wins where it may come
    batch = replace(batch_of(torch.full((1, 5), 8), 8), oov_words=[[word]])
    options = {"max_length": 3, "min_length": 3, "min_length_share": None}
    config = SearchConfig(**options, no_repeat_word=True)
    known = {"vocabulary": [*"abcdefgh"], "whole_words": True}
    assert decode(Encoding(model), batch, config, **IDS, **known)[0][0].ids.count(8) == times


def unknown(ids: list[int], attention: list[list[float]]) -> Hypothesis:
    rows = np.array(attention)
    log_probs = [-0.1 * t for t in range(len(rows))]
    return Hypothesis(ids, 0.0, 0.0, log_probs, True, attention=rows, details={"step": np.arange(len(rows))})


def replaced(hypothesis: Hypothesis, source: list[int], mode: str = "words", separator: int | None = None) -> list[int]:
    return without_unk(hypothesis, np.array(source), replace(SPECIALS, separator_id=separator), mode).ids


SOURCE = [2, 57, 8, 1, 3, 0]  # BOS, a word outside the vocabulary, a word inside, UNK, EOS, PAD


def test_unk_becomes_the_most_attended_source_word() -> None:
    attention = [[0.9, 0.05, 0.03, 0.02, 0, 0], [0.1, 0.2, 0.3, 0.4, 0, 0], [0.2] * 5 + [0], [1, 0, 0, 0, 0, 0]]
    assert replaced(unknown([1, 1, 6], attention), SOURCE) == [57, 8, 6]
    assert replaced(unknown([1, 1, 6], attention), SOURCE, separator=57) == [8, 8, 6]
    assert replaced(unknown([1], [[0.9, 0.1], [0.5, 0.5]]), [57, 8]) == [57]


@pytest.mark.parametrize(("position", "ids"), [(0, [6, 1]), (1, [6, 57]), (2, [6]), (3, [6, 1]), (4, [6, 1])], ids=str)
def test_argmax_takes_what_stands_there(position: int, ids: list[int]) -> None:
    """The released code's rules: a word replaces, a separator (8) drops, the end of the document keeps UNK."""
    attention = np.full((3, 6), 0.1)
    attention[1, position] = 0.5
    hypothesis = unknown([6, 1], attention.tolist())
    made = without_unk(hypothesis, np.array(SOURCE), replace(SPECIALS, separator_id=8), "argmax")
    assert made.ids == ids
    assert hypothesis.ids == [6, 1], "the argument is left alone"
    kept = [0, 1, 2] if len(ids) == 2 else [0, 2]
    assert made.details["step"].tolist() == kept, "what explains the steps loses the dropped one too"
    assert made.attention.tolist() == attention[kept].tolist()
    assert made.token_log_probs == [hypothesis.token_log_probs[t] for t in kept]


def test_unk_stays_where_there_is_nothing_to_put() -> None:
    assert replaced(unknown([1], [[1.0, 0.0], [1.0, 0.0]]), [2, 1]) == [1]
    assert replaced(unknown([1], [[1.0], [1.0]]), [8], separator=8) == [1]
    assert replaced(Hypothesis([1], 0.0, 0.0, [], True), [7]) == [1]


@pytest.mark.parametrize("beam_size", [1, 2])
def test_decode_is_encode_start_search_and_replaces_unk_when_asked(beam_size: int) -> None:
    model = TableModel(1, vocab=9)
    model.log_probs[..., 1] = 1e-3  # UNK always wins
    source = torch.tensor([[4, 5, 6, 7, 30]])
    config = SearchConfig(beam_size=beam_size, max_length=3, min_length=3, forbid_unk=False)
    kept = decode(Encoding(model), batch_of(source, 9), config, **IDS)[0][0]
    changed = config.model_copy(update={"replace_unk": "words"})
    put = decode(Encoding(model), batch_of(source, 9), changed, **IDS)[0][0]
    assert kept.ids == search(model, config)[0][0].ids == [1, 1, 1]
    assert put.ids == [int(source[0, position]) for position in kept.attention[:3].argmax(1)]


class Switchable(SummarizationModel):
    encode = start = step = forward = None  # type: ignore[assignment]

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.values = {"score": "joint", "weight": 0.2}

    def switches(self):
        return self.values

    def _set_switch(self, name, value):
        self.values[name] = value


def test_switches_hold_inside_only_and_are_of_one_thread_at_a_time() -> None:
    """They are put back after an error too, and an unknown one is refused."""
    Switchable.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    model, inside, seen = Switchable(), threading.Event(), list[float]()
    with switched(model, {"weight": 0.0}):
        assert model.values == {"score": "joint", "weight": 0.0}
    with pytest.raises(RuntimeError), switched(model, {"score": "pc"}):
        raise RuntimeError
    with pytest.raises(ConfigError, match="no option 'wieght'"), switched(model, {"wieght": 1}):
        pass
    assert model.values == {"score": "joint", "weight": 0.2}

    def other() -> None:
        inside.wait(30)
        with switched(model, {"weight": 2.0}):
            seen.append(model.values["weight"])

    thread = threading.Thread(target=other)
    thread.start()
    with switched(model, {"weight": 1.0}):
        inside.set()
        thread.join(0.2)
        seen.append(model.values["weight"])
    thread.join(30)
    assert (seen, model.values["weight"]) == ([1.0, 2.0], 0.2)


def test_what_a_path_read_of_its_document() -> None:
    """Distinct chunks with a share, and the entropy of the coarse attention over the summary's own tokens."""
    half = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    details = {
        "coarse": half,
        "sampled": np.array([[0, 1], [0, 2], [1, 1]]),
        "shares": np.array([[1, 1], [1, 0], [1, 1]]),
    }
    summary = Hypothesis([5, 6], 0.0, 0.0, [-1.0, -1.0, -1.0], True, details=details)
    empty = Hypothesis([], 0.0, 0.0, [-1.0], True, details={name: value[:1] for name, value in details.items()})
    figures, chunks = {"chunks": 3, "words": 9}, np.array([[0, 3], [3, 6], [6, 9]])
    note_reading([[summary, empty]], [(figures, chunks)])
    assert summary.reading == figures | {"chunks_chosen": 2, "coarse_entropy": pytest.approx(np.log(2) / 2), "steps": 2}
    assert empty.reading == figures | {"chunks_chosen": 2}
    assert summary.chunk_tokens is chunks


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


def in_rows(tree: dict[str, Any]) -> list[list[int]]:
    """Every part of a state that has the rows in front."""
    column, *others = tree["list"][1]
    assert (column.shape[1], others, tree["pair"].name, int(tree["scalar"])) == (1, [None, 3, "word"], "kept", 5)
    parts = (tree["tensor"], tree["list"][0], column, tree["pair"].hidden, tree["frozen"].rows, tree["cache"].keys)
    return [part.reshape(-1).tolist() for part in parts]


@pytest.mark.parametrize("made", [torch.tensor, np.array], ids=["tensors", "arrays"])
def test_every_part_of_a_state_is_reordered_and_loses_documents(made: Callable[[Any], Any]) -> None:
    """Three documents, two beams: row b * 2 + k holds 10 b + k. Shared parts lose documents only."""
    rows, documents = made([0, 1, 10, 11, 20, 21]), made([0, 1, 2])
    memory = Memory(made([[[0.0]]] * 3), made([[True]] * 3), documents[:, None], 7)
    before = {
        "tensor": rows,
        "list": [rows, (rows.reshape(6, 1), None, 3, "word")],
        "pair": Pair(rows, "kept"),
        "frozen": Frozen(rows),
        "cache": Cache(rows[None]),
        "scalar": made(5),
        "shared": Shared({"documents": documents, "memory": memory, "size": 7}),
    }
    after = select(before, made([1, 1, 2, 3, 5, 4]))
    assert in_rows(after) == [[1, 1, 10, 11, 21, 20]] * 6
    assert after["shared"] is before["shared"]
    after = select_documents(before, made([0, 2]), 2)
    assert in_rows(after) == [[0, 1, 20, 21]] * 6
    shared = after["shared"].tree
    assert (shared["documents"].tolist(), shared["memory"].extended_ids.tolist()) == ([0, 2], [[0], [2]])
    assert (len(shared["memory"].mask), shared["memory"].extended_vocab_size, shared["size"]) == (2, 7, 7)
    assert in_rows(before) == [[0, 1, 10, 11, 20, 21]] * 6, "the argument was modified"
    assert before["shared"].tree["documents"].tolist() == [0, 1, 2], "the argument was modified"


@settings(max_examples=60)
@given(data=st.data())
def test_the_best_are_those_of_a_sort(data: st.DataObject) -> None:
    """Descending, of equal values the lower id first; which ids have minus infinity is not defined."""
    rows, width, count = (data.draw(st.integers(1, most)) for most in (4, 90, 9))
    levels = data.draw(st.sampled_from([1, 2, 3, 7, 1000]))  # few levels: many ties
    random = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    scores = random.integers(levels, size=(rows, width)).astype(np.float32) - levels
    scores[random.random((rows, width)) < data.draw(st.floats(0, 1))] = -np.inf
    untouched = scores.copy()
    values, ids = top_candidates(scores, count, data.draw(st.integers(1, 8)))
    assert np.array_equal(scores, untouched)
    assert values.dtype == scores.dtype
    for row, best, places in zip(scores, values, ids, strict=True):
        order = np.argsort(-row, kind="stable")[:count]
        assert best.tolist() == row[order].tolist()
        assert places[best > -np.inf].tolist() == order[row[order] > -np.inf].tolist()


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
