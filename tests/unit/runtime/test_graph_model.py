"""What search sees of graphs, over sessions that only say what they are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from catchline.errors import ConfigError, DataError
from catchline.runtime.model import Exported, GraphModel, Layout
from catchline.search.hypotheses import select
from catchline.types import Batch

V = 6
LAYOUT = {"rows": ("h", "seen"), "shared": ("keys",), "next": ("h",), "outputs": ("log_probs", "details.p_gen")}


class Asked:
    """A session that remembers what it was given, and adds one to the state. Rows enter as documents by beams, and a
    step's scores leave so."""

    outputs: ClassVar[dict[str, list[str | int]]] = {"log_probs": ["B", "K", V], "next.h": ["N", 2]}

    def __init__(self) -> None:
        self.given: list[dict[str, np.ndarray]] = []

    def run(self, values: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        self.given.append(dict(values))
        if "source_ids" in values:
            rows = np.zeros((len(values["source_ids"]), 2), np.float32)
            return {"state.h": rows, "taught.h": rows + 5, "state.seen": rows + 1, "state.keys": rows + 2}
        count = values["last_ids"].size
        found = {"log_probs": np.tile(np.arange(V, dtype=np.float32), (count, 1)), "details.p_gen": np.ones(count)}
        found |= {"next.h": values["state.h"].reshape(count, 2) + 1, "scores": found["log_probs"] * 2}
        return found | {"log_probs": found["log_probs"].reshape(2, -1, V)}


def model(**options: Any) -> tuple[GraphModel, Asked, Asked]:
    layout = Layout(**(LAYOUT | options.pop("layout", {})))
    sessions = Asked(), Asked()
    about = Exported(format=1, vocab_size=V, start_id=1, layout=layout, sha256={}, **options)
    made: Any = GraphModel(*sessions, about)  # type: ignore[arg-type]
    return made, *sessions


def batch(length: int = 3) -> Batch:
    ids = np.full((2, length), 4)
    return Batch(ids, ids + 2, np.ones_like(ids, dtype=bool), V + 2)


def test_a_state_goes_through_steps() -> None:
    """What a step changes comes back to it, the rest stays; beams are chosen of rows, documents stay."""
    graphs, encoder, step = model()
    state = select(graphs.start(graphs.encode(batch())), np.array([0, 0, 1, 1]))
    assert encoder.given[0]["outside"].shape == (2,)
    for _ in range(3):
        output, state = graphs.step(np.array([1, 2, 3, 4]), state)
    assert [float(each["state.h"][0, 0, 0]) for each in step.given] == [0, 1, 2]
    assert {each["state.seen"].shape for each in step.given} == {(2, 2, 2)}
    assert {len(each["state.keys"]) for each in step.given} == {2}
    assert output.scores is output.log_probs
    assert output.log_probs.shape == (4, V)
    assert list(output.details) == ["p_gen"]
    taught = graphs.start(graphs.encode(batch()), "taught")
    assert (taught["rows"]["h"][0, 0], taught["rows"]["seen"][0, 0]) == (5, 1)  # where there is none, the other


def test_first_words_and_other_scores() -> None:
    graphs, _, step = model(layout={"first_id": 3, "forced_id": 5, "same_scores": False})
    state = graphs.start(graphs.encode(batch()))
    first, state = graphs.step(np.array([1, 1]), state)
    second, state = graphs.step(np.array([1, 1]), state)
    assert [each["last_ids"].tolist() for each in step.given] == [[[3], [3]], [[1], [1]]]
    assert np.isfinite(first.scores).sum(axis=1).tolist() == [1, 1]
    assert first.scores[:, 5].tolist() == [0, 0]
    np.testing.assert_array_equal(second.scores, 2 * second.log_probs)


def test_what_is_too_long() -> None:
    graphs, _, _ = model(max_source_tokens=3, max_target_tokens=2)
    with pytest.raises(DataError, match=r"A source of 4 tokens .* text\.max_source_tokens lower"):
        graphs.encode(batch(4))
    state = graphs.start(graphs.encode(batch(3)))
    for _ in range(2):
        _, state = graphs.step(np.array([1, 1]), state)
    with pytest.raises(DataError, match=r"A summary of 3 tokens .* search\.max_length lower"):
        graphs.step(np.array([1, 1]), state)


def test_switches_stay() -> None:
    graphs, _, _ = model(switches={"coverage": True})
    graphs.switch({"coverage": True})
    for options, words in (({"coverage": False}, "coverage is True"), ({"other": 1}, "not one of them")):
        with pytest.raises(ConfigError, match=words):
            graphs.switch(options)
