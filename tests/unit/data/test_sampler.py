"""Batches in pools, and cut from sorted data by number and by tokens, against the definition; each process's part."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from catchline.data.sampler import BucketSampler, Sampler, SortedSampler, cut_by_number, cut_by_tokens

RANDOM = np.random.default_rng(0)
SOURCES = RANDOM.integers(1, 60, 503).tolist()
TARGETS = RANDOM.integers(1, 80, 503).tolist()
TOKENS = 400
Make = Callable[..., Sampler]


def in_pools(seed: int = 5, **options: int) -> BucketSampler:
    return BucketSampler(SOURCES, 16, seed, pool_batches=10, **options)


def by_number(seed: int = 5, **options: int) -> SortedSampler:
    return SortedSampler(SOURCES, cut_by_number(16), seed, **options)


def by_tokens(seed: int = 5, ranks: int = 1, **options: int) -> SortedSampler:
    return SortedSampler(SOURCES, cut_by_tokens(SOURCES, TARGETS, TOKENS, ranks), seed, **options)


ALL = pytest.mark.parametrize("make", [in_pools, by_number, partial(by_tokens, ranks=3)])
SORTED = pytest.mark.parametrize("make", [by_number, by_tokens])


@ALL
def test_every_example_once_an_epoch(make: Make) -> None:
    sampler = make()
    batches = list(sampler)
    assert sorted(index for batch in batches for index in batch) == list(range(503))
    assert len(batches) == len(sampler)


@SORTED
def test_sorted_through(make: Make) -> None:
    batches = list(make())
    spans = sorted((min(SOURCES[i] for i in batch), max(SOURCES[i] for i in batch)) for batch in batches)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))


@pytest.mark.parametrize("make", [in_pools, by_number])
def test_by_number_all_batches_but_one_are_full(make: Make) -> None:
    sizes = sorted(map(len, make()))
    assert sizes == [503 % 16] + [16] * 31


@ALL
def test_order_depends_on_seed_and_epoch_alone(make: Make) -> None:
    one, other = make(), make()
    first, second = one.batches(0), one.batches(1)
    assert first != second
    assert list(other) == list(other) == first
    assert make(seed=6).batches(0) != first
    other.set_epoch(1)
    other.seek(7)
    assert list(other) == second[7:]
    assert list(other) == second
    other.set_epoch(0)
    assert list(other) == first


@SORTED
def test_sorted_batches_stay(make: Make) -> None:
    assert sorted(make().batches(0)) == sorted(make().batches(1))


def test_lengths_within_a_batch_of_a_pool_are_similar() -> None:
    lengths = np.random.default_rng(0).integers(1, 400, 1003).tolist()

    def spread(**options: int) -> float:
        batches = BucketSampler(lengths, 16, 5, **options)
        return float(np.mean([np.ptp([lengths[index] for index in batch]) for batch in batches]))

    assert spread() < 15
    assert spread(pool_batches=1) > 200


@ALL
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_each_batch(make: Make, world_size: int) -> None:
    alone = make().batches(2)
    ranks = [make(rank=rank, world_size=world_size).batches(2) for rank in range(world_size)]
    for batch, *parts in zip(alone, *ranks, strict=True):
        again = batch[: max(0, world_size - len(batch))]  # by tokens the last batch has two examples
        assert [[*batch, *again][rank::world_size] for rank in range(world_size)] == parts
        assert not again or batch == max(alone, key=lambda batch: SOURCES[batch[0]])
    seen = [index for batches in ranks for batch in batches for index in batch]
    assert set(seen) == set(range(503))
    assert len(seen) - 503 < world_size


@ALL
def test_no_rank_waits_for_another(make: Make) -> None:
    ranks = [make(rank=rank, world_size=2).batches(1) for rank in range(2)]
    longest = np.array([[max(SOURCES[i] for i in batch) for batch in batches] for batches in ranks])
    assert longest.max(0).mean() < 1.02 * longest.mean()


@ALL
def test_a_rank_goes_on_where_it_stopped(make: Make) -> None:
    whole, resumed = (make(rank=1, world_size=2) for _ in range(2))
    resumed.set_epoch(3)
    resumed.seek(11)
    assert list(resumed) == whole.batches(3)[11:]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_by_tokens_no_rank_has_more_than_fits(world_size: int) -> None:
    cut = cut_by_tokens(SOURCES, TARGETS, TOKENS, world_size)

    def part(batch: list[int]) -> int:
        return -(-len(batch) // world_size) * max(max(SOURCES[i], TARGETS[i]) for i in batch)

    batches = sorted(SortedSampler(SOURCES, cut, 5).batches(0), key=lambda batch: min(SOURCES[i] for i in batch))
    assert all(part(batch) <= TOKENS for batch in batches)
    assert by_tokens(ranks=world_size).batches(0) == SortedSampler(SOURCES, cut, 5).batches(0)
    order = SortedSampler(SOURCES, cut_by_number(503), 5).batches(0)[0]
    flat = sorted(batches, key=lambda batch: order.index(batch[0]))
    assert [i for batch in flat for i in batch] == order
    # none could have taken one example more
    assert all(part([*batch, following[0]]) > TOKENS for batch, following in itertools.pairwise(flat))


def test_an_example_that_is_too_long_stands_alone_and_each_rank_has_one() -> None:
    lengths = [3, 9, 2, 50, 4, 60]
    batches = SortedSampler(lengths, cut_by_tokens(lengths, [1] * 6, 12), 0).batches(0)
    assert sorted(map(tuple, map(sorted, batches))) == [(0, 2, 4), (1,), (3,), (5,)]
    cut = cut_by_tokens(lengths, [1] * 6, 12, 2)
    ranks = [SortedSampler(lengths, cut, 0, rank=rank, world_size=2).batches(0) for rank in range(2)]
    assert sorted(zip(*ranks, strict=True)) == [([1], [3]), ([2, 4], [0]), ([5], [5])]
    few = [BucketSampler([5, 1, 3], 4, 0, rank=rank, world_size=4).batches(0) for rank in range(4)]
    assert few == [[[1]], [[2]], [[0]], [[1]]]


@pytest.mark.parametrize(
    ("make", "epoch", "known"),
    [
        (in_pools, 0, "0c83d31a2103d0a1"),
        (in_pools, 3, "84c51107979b0de6"),
        (by_number, 1, "2a9cc36e205847fe"),
        (by_tokens, 1, "6826211804e67844"),
    ],
)
def test_one_process_has_the_batches_that_it_always_had(make: Make, epoch: int, known: str) -> None:
    """Digests of the batches when the first runs were stored, which are resumed to the bit."""
    assert hashlib.sha256(json.dumps(make().batches(epoch)).encode()).hexdigest()[:16] == known
