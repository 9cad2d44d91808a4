"""Batches cut from sorted data, by number and by tokens, against the definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from laconic.data.sampler import SortedSampler, cut_by_number, cut_by_tokens

RANDOM = np.random.default_rng(0)
SOURCES = RANDOM.integers(1, 60, 503).tolist()
TARGETS = RANDOM.integers(1, 80, 503).tolist()
TOKENS = 400


def by_number(seed: int = 5, **options: int) -> SortedSampler:
    return SortedSampler(SOURCES, cut_by_number(16), seed, **options)


def by_tokens(seed: int = 5, **options: int) -> SortedSampler:
    return SortedSampler(SOURCES, cut_by_tokens(SOURCES, TARGETS, TOKENS), seed, **options)


@pytest.mark.parametrize("make", [by_number, by_tokens])
def test_every_example_once_and_sorted_through(make) -> None:
    sampler = make()
    batches = list(sampler)
    assert sorted(index for batch in batches for index in batch) == list(range(503))
    assert len(batches) == len(sampler)
    spans = sorted((min(SOURCES[i] for i in batch), max(SOURCES[i] for i in batch)) for batch in batches)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))


def test_by_number_all_batches_but_one_are_full() -> None:
    sizes = sorted(map(len, by_number()))
    assert sizes == [503 % 16] + [16] * 31


def test_by_tokens_batches_are_as_large_as_fits() -> None:
    batches = sorted(by_tokens(), key=lambda batch: min(SOURCES[i] for i in batch))

    def padded(batch: list[int]) -> int:
        return len(batch) * max(max(SOURCES[i] for i in batch), max(TARGETS[i] for i in batch))

    assert all(padded(batch) <= TOKENS for batch in batches)
    order = SortedSampler(SOURCES, cut_by_number(503), 5).batches(0)[0]
    flat = sorted(batches, key=lambda batch: order.index(batch[0]))
    assert [i for batch in flat for i in batch] == order
    # none could have taken one example more
    assert all(padded([*batch, following[0]]) > TOKENS for batch, following in itertools.pairwise(flat))


def test_an_example_that_is_too_long_stands_alone() -> None:
    lengths = [3, 9, 2, 50, 4, 60]
    batches = SortedSampler(lengths, cut_by_tokens(lengths, [1] * 6, 12), 0).batches(0)
    assert sorted(map(tuple, map(sorted, batches))) == [(0, 2, 4), (1,), (3,), (5,)]


@pytest.mark.parametrize("make", [by_number, by_tokens])
def test_batches_stay_and_their_order_depends_on_seed_and_epoch(make) -> None:
    one, other = make(), make()
    first, second = one.batches(0), one.batches(1)
    assert first != second
    assert sorted(first) == sorted(second)
    assert other.batches(1) == second
    assert make(seed=6).batches(0) != first
    other.set_epoch(1)
    other.seek(7)
    assert list(other) == second[7:]


@pytest.mark.parametrize("make", [by_number, by_tokens])
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_the_batches(make, world_size: int) -> None:
    alone = make().batches(2)
    ranks = [make(rank=rank, world_size=world_size).batches(2) for rank in range(world_size)]
    assert {len(batches) for batches in ranks} == {-(-len(alone) // world_size)}
    dealt = [ranks[number % world_size][number // world_size] for number in range(world_size * len(ranks[0]))]
    assert dealt == [*alone, *alone][: len(dealt)]
