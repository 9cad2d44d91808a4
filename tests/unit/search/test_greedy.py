"""Greedy decoding, sampling and the stream of tokens."""

from __future__ import annotations

import pytest
import torch
from search_tables import EOS, SPECIALS, TableModel, slow_beam

from laconic.config.schema import SearchConfig
from laconic.errors import ConfigError
from laconic.search.greedy import Sampling, greedy_search, greedy_tokens


def greedy(model: TableModel, config: SearchConfig, sampling: Sampling | None = None) -> list[list[int]]:
    results = greedy_search(
        model.step, model.start(), memory=model.memory, config=config, specials=SPECIALS, sampling=sampling
    )
    return [hypotheses[0].ids for hypotheses in results]


def test_takes_the_best_token_at_each_step() -> None:
    model = TableModel(8, vocab=9, seed=1)
    config = SearchConfig(max_length=6, no_repeat_ngram=2)
    assert greedy(model, config) == [list(slow_beam(model, d, config)[0][1]) for d in range(8)]


def test_tokens_come_one_step_at_a_time() -> None:
    model = TableModel(3, vocab=9, seed=1)
    config = SearchConfig(max_length=6)
    stream = greedy_tokens(model.step, model.start(), memory=model.memory, config=config, specials=SPECIALS)
    collected: list[list[int]] = [[], [], []]
    for number, token in enumerate(stream, start=1):
        assert len(model.steps) == number, "a step was taken before its token was asked for"
        for document in token.alive.nonzero()[:, 0].tolist():
            id_ = int(token.ids[document])
            if id_ != EOS and number <= config.max_length:
                collected[document].append(id_)
    assert collected == greedy(model, config)


def test_a_seed_gives_the_same_draws_and_another_seed_others() -> None:
    model = TableModel(6, vocab=9, seed=2, sharpness=0.3)
    config = SearchConfig(max_length=8, min_length=4)
    one, again, other = (greedy(model, config, Sampling(seed=seed)) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_top_one_and_cold_draws_are_greedy() -> None:
    model = TableModel(6, vocab=9, seed=3)
    config = SearchConfig(max_length=8)
    assert greedy(model, config, Sampling(top_k=1)) == greedy(model, config)
    assert greedy(model, config, Sampling(temperature=1e-6)) == greedy(model, config)


def test_draws_follow_the_distribution() -> None:
    model = TableModel(1, vocab=7, seed=4)
    many = model.only([0] * 4000)
    config = SearchConfig(max_length=1, min_length=1)
    for top_k in (None, 2):
        drawn = torch.tensor([ids[0] for ids in greedy(many, config, Sampling(top_k=top_k, temperature=2.0))])
        frequency = torch.bincount(drawn, minlength=7) / 4000
        scores = model.log_probs[0, 0, 2].clone() / 2.0
        scores[:4] = -torch.inf
        if top_k:
            scores[scores < scores.topk(top_k).values[-1]] = -torch.inf
        assert frequency.tolist() == pytest.approx(scores.softmax(-1).tolist(), abs=0.03)


def test_one_hypothesis_only() -> None:
    model = TableModel(1, vocab=7)
    with pytest.raises(ConfigError, match="one hypothesis"):
        greedy(model, SearchConfig(beam_size=2, num_return=2))
