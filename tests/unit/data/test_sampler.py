"""Batches in pools, and cut from sorted data by number and by tokens, against the definition; each process's part."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable

import numpy as np
import pytest

from catchline.data.sampler import bucketed, cut_by_number, cut_by_tokens, part_of_rank, presorted, shuffled

RANDOM = np.random.default_rng(0)
SOURCES, TARGETS = RANDOM.integers(1, 60, 503), RANDOM.integers(1, 80, 503)
TOKENS = 400
Make = Callable[..., list[list[int]]]


def lists(batches: list[np.ndarray]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def in_pools(epoch: int, seed: int = 5) -> list[list[int]]:
    return lists(bucketed(SOURCES, 16, seed, epoch, pool=10))


def by_number(epoch: int, seed: int = 5) -> list[list[int]]:
    return lists(shuffled(presorted(SOURCES, cut_by_number(16), seed), seed, epoch))


def by_tokens(epoch: int, seed: int = 5, ranks: int = 1) -> list[list[int]]:
    cut = cut_by_tokens(SOURCES, TARGETS, TOKENS, ranks)
    return lists(shuffled(presorted(SOURCES, cut, seed), seed, epoch))


ALL = pytest.mark.parametrize("make", [in_pools, by_number, by_tokens])


@ALL
def test_every_example_once_an_epoch_in_an_order_of_seed_and_epoch_alone(make: Make) -> None:
    batches = make(0)
    assert sorted(index for batch in batches for index in batch) == list(range(503))
    assert make(0) == batches != make(1)
    assert make(0, seed=6) != batches
    if make is not in_pools:
        assert sorted(make(1)) == sorted(batches)  # which examples are together stays
        spans = sorted((min(SOURCES[i] for i in batch), max(SOURCES[i] for i in batch)) for batch in batches)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    if make is not by_tokens:
        assert sorted(map(len, batches)) == [503 % 16] + [16] * 31


def test_lengths_within_a_batch_of_a_pool_are_similar() -> None:
    lengths = np.random.default_rng(0).integers(1, 400, 1003)
    wide, narrow = (np.mean([np.ptp(lengths[b]) for b in bucketed(lengths, 16, 5, 0, pool)]) for pool in (1, 100))
    assert narrow < 15
    assert wide > 200


@ALL
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_each_batch_and_none_waits_for_another(make: Make, ranks: int) -> None:
    longest = []
    for batch in make(2, **({"ranks": ranks} if make is by_tokens else {})):
        parts = [part_of_rank(np.array(batch), rank, ranks) for rank in range(ranks)]
        again = batch[: max(0, ranks - len(batch))]
        assert parts == [[*batch, *again][rank::ranks] for rank in range(ranks)]
        longest.append([max(SOURCES[part]) for part in parts])
    assert np.max(longest, 1).mean() < 1.03 * np.mean(longest)
    few = bucketed(np.array([5, 1, 3]), 4, 0, 0)
    assert [[part_of_rank(batch, rank, 4) for batch in few] for rank in range(4)] == [[[1]], [[2]], [[0]], [[1]]]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_by_tokens_no_rank_has_more_than_fits(ranks: int) -> None:
    def part(batch: list[int]) -> int:
        return -(-len(batch) // ranks) * max(max(SOURCES[i], TARGETS[i]) for i in batch)

    batches = lists(presorted(SOURCES, cut_by_tokens(SOURCES, TARGETS, TOKENS, ranks), 5))
    assert all(part(batch) <= TOKENS for batch in batches)
    assert [i for batch in batches for i in batch] == presorted(SOURCES, cut_by_number(503), 5)[0].tolist()
    # none could have taken one example more
    assert all(part([*batch, following[0]]) > TOKENS for batch, following in itertools.pairwise(batches))


def test_an_example_that_is_too_long_is_alone_and_each_rank_has_one() -> None:
    lengths, ones = np.array([3, 9, 2, 50, 4, 60]), np.ones(6, int)
    assert sorted(map(sorted, lists(presorted(lengths, cut_by_tokens(lengths, ones, 12), 0)))) == [
        [0, 2, 4],
        [1],
        [3],
        [5],
    ]
    batches = presorted(lengths, cut_by_tokens(lengths, ones, 12, 2), 0)
    parts = [tuple(part_of_rank(batch, rank, 2) for rank in range(2)) for batch in batches]
    assert sorted(parts) == [([1], [3]), ([2, 4], [0]), ([5], [5])]


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
    assert hashlib.sha256(json.dumps(make(epoch)).encode()).hexdigest()[:16] == known
