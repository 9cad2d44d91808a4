"""Torch models at the search's edge; a model of arrays is searched in the same way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from catchline.config.schema import SearchConfig
from catchline.search import decode as search
from catchline.search import torch_bridge as decoding
from catchline.search.arrays import top_candidates
from catchline.search.torch_bridge import DeviceScores, decode
from catchline.types import Batch, Memory, Shared, StepOutput

IDS = {"unk_id": 1, "bos_id": 2, "eos_id": 3, "pad_id": 0}
VOCAB, SOURCE, DOCUMENTS = 9, 5, 4


@pytest.fixture
def threads() -> Iterator[None]:
    """Four threads of torch, whatever the machine has."""
    with decoding.threads(4):
        yield


@pytest.mark.usefixtures("threads")
def test_threads_share_those_of_torch_and_leave_them_as_they_were() -> None:
    meeting = threading.Barrier(2, timeout=30)

    def work(_: int, go_on: Callable[[], None]) -> int:
        meeting.wait()
        another = threading.Thread(target=torch.set_num_threads, args=(3,))  # which says it of those to come
        another.start()
        another.join(30)
        torch.ones(300, 300) @ torch.ones(300, 300)
        return torch.get_num_threads()

    assert list(decoding.in_threads(work, range(4), 2)) == [2, 2, 2, 2]
    assert torch.get_num_threads() == 4
    later = list[int]()
    new = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    new.start()
    new.join(30)
    assert later == [4], "what a share was does not stay"
    assert list(decoding.in_threads(lambda *_: torch.get_num_threads(), range(2), 1)) == [4, 4]
    with pytest.raises(ZeroDivisionError):
        list(decoding.in_threads(lambda *_: 1 // 0, range(2), 2))
    assert torch.get_num_threads() == 4


class Table:
    """P(next | document, last two tokens), attention by (document, last token); of arrays."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        scores = 1.5 * random.standard_normal((DOCUMENTS, VOCAB, VOCAB, VOCAB))
        self.log_probs = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
        self.attention = random.dirichlet(np.ones(SOURCE), (DOCUMENTS, VOCAB))

    def encode(self, batch: Batch) -> Memory:
        return Memory(self.attention, batch.source_mask, batch.source_extended_ids, VOCAB, self.log_probs)

    def start(self, memory: Memory) -> dict[str, Any]:
        return {"before": np.zeros(DOCUMENTS, dtype=np.int64), "own": Shared([memory.states, memory.final])}

    def step(self, last_ids: Any, state: dict[str, Any]) -> tuple[StepOutput, dict[str, Any]]:
        attention, log_probs = state["own"].tree
        here = np.arange(len(last_ids)) // (len(last_ids) // len(attention))
        found = log_probs[here, state["before"], last_ids]
        output = StepOutput(found + 0, found, attention[here, last_ids], details={"read": last_ids + 0})  # copies
        return output, state | {"before": last_ids}

    def read_figures(self, memory: Memory) -> list[dict[str, int]]:
        return []


class TorchTable(Table):
    """The same of tensors."""

    def start(self, memory: Memory) -> dict[str, Any]:
        assert torch.is_inference_mode_enabled()
        tensors = [torch.as_tensor(memory.states), torch.as_tensor(memory.final)]
        return {"before": torch.zeros(DOCUMENTS, dtype=torch.int64), "own": Shared(tensors)}

    def step(self, last_ids: Any, state: dict[str, Any]) -> tuple[StepOutput, dict[str, Any]]:
        assert torch.is_inference_mode_enabled()
        return super().step(last_ids, state)


def batch_of(tensors: bool) -> Batch:
    source = np.random.default_rng(1).integers(4, VOCAB + 2, (DOCUMENTS, SOURCE))
    batch = Batch(np.minimum(source, 1), source, np.ones_like(source, dtype=bool), VOCAB)
    return batch.changed(torch.from_numpy) if tensors else batch


@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 1},
        {"beam_size": 3, "num_return": 3},
        {
            "beam_size": 4,
            "num_return": 2,
            "forbid_unk": False,
            "replace_unk": "words",
            "distraction": {"attention": -0.5},
        },
    ],
    ids=["greedy", "beam", "distracted"],
)
def test_a_model_of_arrays_is_searched_as_one_of_tensors(options: dict) -> None:
    config = SearchConfig(max_length=7, **options)
    arrays = search.decode(Table(), batch_of(False), config, **IDS)
    tensors = decode(TorchTable(), batch_of(True), config, **IDS)
    assert len({len(hypotheses[0].ids) for hypotheses in arrays}) > 1, "documents end at different steps"
    for one, two in zip(arrays, tensors, strict=True):
        for ours, theirs in zip(one, two, strict=True):
            assert replace(ours, attention=None, details={}) == replace(theirs, attention=None, details={})
            assert np.array_equal(ours.attention, theirs.attention)
            assert np.array_equal(ours.details["read"], theirs.details["read"])


WAYS: list[dict[str, Any]] = [
    {"beam_size": 1, "min_length": 3, "no_repeat_ngram": 2},
    {"beam_size": 3, "min_length": 3, "no_repeat_ngram": 2, "length_normalisation": "average"},
    {"beam_size": 3, "unfinished": "force_end", "forbid_specials": False, "finish": "see", "early_stopping": "never"},
    {"beam_size": 3, "shrink_beam": True, "scorers": [{"type": "repetition_penalty", "penalty": 1.2}]},
    {"beam_size": 3, "scorers": [{"type": "renormalise"}, {"type": "forbid_tokens", "ids": [5]}]},
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(list(way)[1:]))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_that_stay_on_their_device_give_the_same_summaries(
    monkeypatch: pytest.MonkeyPatch, way: dict[str, Any], dtype: torch.dtype
) -> None:
    model = TorchTable()
    model.log_probs = model.log_probs.astype(str(dtype).removeprefix("torch."))
    config = SearchConfig(max_length=8, num_return=min(2, way["beam_size"]), **way)
    here = decode(model, batch_of(True), config, **IDS)
    monkeypatch.setattr(decoding, "_scores", DeviceScores)
    there = decode(model, batch_of(True), config, **IDS)
    for mine, expected in zip(there, here, strict=True):
        assert [h.ids for h in mine] == [h.ids for h in expected]
        np.testing.assert_allclose([h.score for h in mine], [h.score for h in expected], rtol=1e-12)
        for one, other in zip(mine, expected, strict=True):
            assert one.terms == pytest.approx(other.terms)


def test_scores_on_a_device_are_asked_like_an_array() -> None:
    plain = np.random.default_rng(0).integers(0, 4, (5, 40)).astype(np.float32)
    plain[0, 3:] = plain[1, :] = -np.inf
    held = DeviceScores(torch.from_numpy(plain.copy()))
    rows, ids = np.array([0, 2, 4]), np.array([1, 1, 39])
    for scores in (plain, held):
        scores[rows, ids] = np.array([9.0, 8.0, 7.0], np.float32)
        scores[np.ix_(np.array([False, False, True, True, False]), np.array([5, 6]))] = -np.inf
        scores[:, 7] = 2.5
    np.testing.assert_array_equal(np.asarray(held), plain)
    np.testing.assert_array_equal(held[np.array([[1, 2]])], plain[np.array([[1, 2]])])
    assert held.shape == plain.shape
    assert held.dtype == plain.dtype
    values, found = held.top(6)
    expected, places = top_candidates(plain, 6)
    np.testing.assert_array_equal(values, expected)
    sure = (expected > expected[:, -1:]) & (expected > -np.inf)  # of what equals the last one, any may be there
    np.testing.assert_array_equal(found[sure], places[sure])
    held.fill(1.0)
    assert (held.copy() == 1).all()
    assert DeviceScores(torch.ones(2, 3, dtype=torch.bfloat16)).dtype == np.float32
