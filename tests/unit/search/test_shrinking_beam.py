"""The beam that a finished hypothesis leaves smaller, against products done by hand."""

from __future__ import annotations

import math

import pytest
import torch
from search_tables import BOS, EOS, SPECIALS, TableModel

from laconic.config.schema import SearchConfig
from laconic.errors import ConfigError
from laconic.search.beam import beam_search
from laconic.search.scorers.constraints import ForcedPrefix
from laconic.types import Hypothesis

A, B = 4, 5


def hand_model(rows: dict[int, dict[int, float]]) -> TableModel:
    model = TableModel(1, 6, source=2)
    model.log_probs[:] = -torch.inf
    for last, row in rows.items():
        for token, probability in row.items():
            model.log_probs[0, :, last, token] = math.log(probability)
    return model


def search(model: TableModel, beam: int, max_length: int, **options: object) -> list[Hypothesis]:
    config = SearchConfig(
        **{"length_normalisation": "none", "shrink_beam": True, **options},
        beam_size=beam,
        num_return=beam,
        max_length=max_length,
    )
    return beam_search(model.step, model.start(), memory=model.memory, config=config, specials=SPECIALS)[0]


def test_a_finished_hypothesis_gives_up_its_place() -> None:
    """Of A .5, EOS .3, B .2 the beam of two takes A and EOS; A has one place then, and A A takes it."""
    model = hand_model({BOS: {A: 0.5, EOS: 0.3, B: 0.2}, A: {A: 0.55, EOS: 0.45}, B: {EOS: 1.0}})
    found = search(model, 2, 2)
    assert [(h.ids, h.finished) for h in found] == [([], True), ([A, A], False)]
    assert [h.score for h in found] == pytest.approx([math.log(0.3), math.log(0.5 * 0.55)])
    usual = search(model, 2, 2, shrink_beam=False)
    assert [h.ids for h in usual] == [[], [A]]


def test_what_still_lives_competes_with_what_has_finished() -> None:
    model = hand_model({BOS: {A: 0.7, EOS: 0.3}, A: {A: 1.0}})
    assert [(h.ids, h.finished) for h in search(model, 2, 3)] == [([A, A, A], False), ([], True)]
    assert [(h.ids, h.finished) for h in search(model, 2, 3, shrink_beam=False)] == [([], True), ([A, A, A], False)]


def test_the_maximum_length_counts_the_end_token() -> None:
    """Two tokens: A and EOS fit, A A and EOS do not."""
    model = hand_model({BOS: {A: 1.0}, A: {A: 0.6, EOS: 0.4}})
    found = search(model, 2, 2)
    assert [(h.ids, h.finished) for h in found] == [([A, A], False), ([A], True)]
    assert len(found[0].token_log_probs) == len(found[0].attention) == 2


def test_it_ends_when_all_have_finished() -> None:
    model = hand_model({BOS: {EOS: 0.6, A: 0.4}, A: {EOS: 0.9, A: 0.1}})
    found = search(model, 2, 20)
    assert [h.ids for h in found] == [[], [A]]
    assert len(model.steps) == 2


def test_hypotheses_after_which_nothing_may_come_are_kept() -> None:
    config = SearchConfig(beam_size=2, shrink_beam=True, max_length=5)
    scorers = [ForcedPrefix(ForcedPrefix.Config(ids=[A, B]), specials=SPECIALS)]
    model = hand_model({BOS: {A: 0.5, B: 0.5}, A: {A: 1.0}})  # B may not follow A, and must
    arguments = {"memory": model.memory, "config": config, "specials": SPECIALS, "scorers": scorers}
    found = beam_search(model.step, model.start(), **arguments)[0]
    assert [(h.ids, h.finished) for h in found] == [([A], False)]


@pytest.mark.parametrize("predicted", ["average", "predicted", "gnmt"])
def test_beams_side_by_side_are_as_alone(predicted: str) -> None:
    model = TableModel(6, vocab=9, seed=1, sharpness=1.0)
    config = SearchConfig(beam_size=3, num_return=3, max_length=6, shrink_beam=True, length_normalisation=predicted)

    def run(model: TableModel) -> list[list[Hypothesis]]:
        return beam_search(model.step, model.start(), memory=model.memory, config=config, specials=SPECIALS)

    for document, together in enumerate(run(model)):
        alone = run(model.only([document]))[0]
        assert [(h.ids, h.finished) for h in together] == [(h.ids, h.finished) for h in alone]
        assert [h.score for h in together] == pytest.approx([h.score for h in alone])
        assert [h.score for h in together] == sorted((h.score for h in together), reverse=True)


@pytest.mark.parametrize(
    "options",
    [
        {"early_stopping": False},
        {"early_stopping": "never"},
        {"finish": "within_beam"},
        {"unfinished": "drop"},
        {"diverse_groups": 2, "beam_size": 4},
    ],
)
def test_what_it_cannot_be_combined_with(options: dict) -> None:
    with pytest.raises(ValueError, match="shrink_beam ends by its own rules"):
        SearchConfig(shrink_beam=True, **options)
    with pytest.raises(ConfigError, match="shrink_beam"):
        search(TableModel(1, 6), 4, 3, scorers=({"type": "diverse_groups", "groups": 2},))
