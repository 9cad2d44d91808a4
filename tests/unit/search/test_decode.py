"""Encode, start and search in one call; replacement of UNK; ensembles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from search_tables import SPECIALS, TableModel

from laconic.config.schema import SearchConfig
from laconic.search.beam import beam_search
from laconic.search.decode import decode, without_unk
from laconic.search.ensemble import Ensemble
from laconic.text.unk import UnkRule
from laconic.types import Batch, Hypothesis, Memory

IDS = {"unk_id": 1, "bos_id": 2, "eos_id": 3, "pad_id": 0}


class Encoding:
    """A `TableModel` with an encoder that reads nothing."""

    def __init__(self, model: TableModel):
        self.model = model

    def encode(self, batch: Batch) -> Memory:
        assert torch.is_inference_mode_enabled()
        return self.model.memory

    def start(self, memory: Memory) -> dict:
        return self.model.start()

    def step(self, last_ids, state):
        return self.model.step(last_ids, state)


def batch_of(source: torch.Tensor, vocab: int) -> Batch:
    return Batch(source.clamp_max(vocab - 1), source, torch.ones_like(source, dtype=torch.bool), int(source.max()) + 1)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_decode_is_encode_start_search(beam_size: int) -> None:
    model = TableModel(4, vocab=9)
    config = SearchConfig(beam_size=beam_size, max_length=5, no_repeat_ngram=2)
    results = decode(Encoding(model), batch_of(torch.full((4, 5), 4), 9), config, **IDS)
    expected = beam_search(model.step, model.start(), memory=model.memory, config=config, specials=SPECIALS)
    assert [h[0].ids for h in results] == [h[0].ids for h in expected]


def unknown(ids: list[int], attention: list[list[float]]) -> Hypothesis:
    rows = np.array(attention)
    log_probs = [-0.1 * t for t in range(len(rows))]
    return Hypothesis(ids, 0.0, 0.0, log_probs, True, attention=rows, details={"step": np.arange(len(rows))})


def replaced(hypothesis: Hypothesis, source: list[int], mode: str = "words", separator: int | None = None) -> list[int]:
    return without_unk(hypothesis, np.array(source), SPECIALS, UnkRule(mode, separator)).ids


SOURCE = [2, 57, 8, 1, 3, 0]  # BOS, a word outside the vocabulary, a word inside, UNK, EOS, PAD


def test_unk_becomes_the_most_attended_source_word() -> None:
    attention = [[0.9, 0.05, 0.03, 0.02, 0, 0], [0.1, 0.2, 0.3, 0.4, 0, 0], [0.2] * 5 + [0], [1, 0, 0, 0, 0, 0]]
    assert replaced(unknown([1, 1, 6], attention), SOURCE) == [57, 8, 6]
    assert replaced(unknown([1, 1, 6], attention), SOURCE, separator=57) == [8, 8, 6]


@pytest.mark.parametrize(("position", "ids"), [(0, [6, 1]), (1, [6, 57]), (2, [6]), (3, [6, 1]), (4, [6, 1])], ids=str)
def test_argmax_takes_what_stands_there(position: int, ids: list[int]) -> None:
    """The released code's rules: a word replaces, a separator (8) drops, the end of the document keeps UNK."""
    attention = np.full((3, 6), 0.1)
    attention[1, position] = 0.5
    hypothesis = unknown([6, 1], attention.tolist())
    made = without_unk(hypothesis, np.array(SOURCE), SPECIALS, UnkRule("argmax", 8))
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


@pytest.mark.parametrize(("given", "meant"), [(True, "words"), (False, False), ("off", False), ("argmax", "argmax")])
def test_ways_to_say_it(given: object, meant: object) -> None:
    assert SearchConfig(replace_unk=given).replace_unk == meant


def test_decode_replaces_unk_when_asked() -> None:
    model = TableModel(1, vocab=9)
    model.log_probs[..., 1] = 1e-3  # UNK always wins
    source = torch.tensor([[4, 5, 6, 7, 30]])
    options = {"beam_size": 2, "max_length": 3, "min_length": 3, "forbid_unk": False}
    kept = decode(Encoding(model), batch_of(source, 9), SearchConfig(**options), **IDS)[0][0]
    put = decode(Encoding(model), batch_of(source, 9), SearchConfig(**options, replace_unk=True), **IDS)[0][0]
    assert kept.ids == [1, 1, 1]
    assert put.ids == [int(source[0, position]) for position in kept.attention[:3].argmax(1)]


def test_an_ensemble_averages_probabilities() -> None:
    one, two = TableModel(3, vocab=8, seed=1), TableModel(3, vocab=8, seed=2)
    mean = TableModel(3, vocab=8)
    mean.log_probs = ((one.log_probs.exp() + two.log_probs.exp()) / 2).log()
    mean.attention = (one.attention + two.attention) / 2
    config = SearchConfig(beam_size=3, num_return=3, max_length=5)
    batch = batch_of(torch.full((3, 5), 4), 8)
    together = decode(Ensemble([Encoding(one), Encoding(two)]), batch, config, **IDS)
    expected = decode(Encoding(mean), batch, config, **IDS)
    for left, right in zip(together, expected, strict=True):
        assert [h.ids for h in left] == [h.ids for h in right]
        assert [h.score for h in left] == pytest.approx([h.score for h in right])
        assert np.allclose(left[0].attention, right[0].attention)


def test_an_ensemble_of_one_is_its_member() -> None:
    model = TableModel(3, vocab=8, seed=1)
    config = SearchConfig(beam_size=3, max_length=5)
    batch = batch_of(torch.full((3, 5), 4), 8)
    one = decode(Ensemble([Encoding(model)]), batch, config, **IDS)
    assert [h[0].ids for h in one] == [h[0].ids for h in decode(Encoding(model), batch, config, **IDS)]
