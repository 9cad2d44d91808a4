"""Which examples form a batch, and in which order: random, but of similar length within a batch.

The order is a function of (seed, epoch) alone, so a run that stops at batch n of epoch e goes on with
``set_epoch(e)`` and ``seek(n)`` and sees exactly the batches it would have seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial

import numpy as np

Cut = Callable[[np.ndarray], list[np.ndarray]]  # indices in order of length -> batches, in that order


class Sampler:
    """What the ways of batching share: epochs, positions, and each rank's part of every batch.

    Batches are those of all ranks together, in order of length, and rank r takes every ``world_size``-th example: the
    parts are alike in length, so that no rank waits for another, and ``world_size`` changes no batch. Where a batch has
    fewer examples than there are ranks, they are used again. Give it to a ``DataLoader`` as ``batch_sampler``. A
    subclass says how many batches an epoch has, the same in every epoch, and which.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        assert 0 <= rank < world_size, (rank, world_size)
        self._rank, self._world_size = rank, world_size
        self.epoch = 0
        self.position = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch; the next iteration starts at its first batch."""
        self.epoch = epoch
        self.position = 0

    def seek(self, position: int) -> None:
        """Let the next iteration start at batch ``position`` of the present epoch."""
        assert 0 <= position <= len(self), (position, len(self))
        self.position = position

    def __len__(self) -> int:
        """Batches in a whole epoch, wherever `seek` stands."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[list[int]]:
        """The batches from `seek`'s position to the end of the epoch; afterwards the position is 0 again."""
        start, self.position = self.position, 0
        yield from self._batches(self.epoch, start)

    def batches(self, epoch: int) -> list[list[int]]:
        """This rank's parts of all batches of ``epoch``."""
        return list(self._batches(epoch, 0))

    def _batches(self, epoch: int, start: int) -> Iterator[list[int]]:
        ranks = self._world_size
        every = self._every_batch(epoch)[start:]
        return (np.resize(batch, max(len(batch), ranks))[self._rank :: ranks].tolist() for batch in every)

    def _every_batch(self, epoch: int) -> list[np.ndarray]:
        raise NotImplementedError


class BucketSampler(Sampler):
    """Batches of similar length (the scheme of See et al., 2017).

    The indices are shuffled by (seed, epoch), cut into pools of ``pool_batches`` batches, each pool is sorted
    by length and sliced, and the batches are shuffled.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        seed: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        pool_batches: int = 100,
    ) -> None:
        super().__init__(rank, world_size)
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._batch_size, self._seed, self._pool_batches = batch_size, seed, pool_batches

    def __len__(self) -> int:
        return -(-len(self._lengths) // self._batch_size)

    def _every_batch(self, epoch: int) -> list[np.ndarray]:
        size = self._batch_size
        random = np.random.default_rng((self._seed, epoch))
        batches: list[np.ndarray] = []
        for pool in _slices(size * self._pool_batches, random.permutation(len(self._lengths))):
            batches += _slices(size, pool[np.argsort(self._lengths[pool], kind="stable")])
        return [batches[number] for number in random.permutation(len(batches))]


class SortedSampler(Sampler):
    """Sort everything by length, cut, shuffle the order of the batches (the scheme of Chen et al., 2016).

    ``cut`` is `cut_by_number` or `cut_by_tokens`. Which examples stand together never changes: documents of equal
    length are ordered by ``seed`` once, and only the order of the batches depends on the epoch.
    """

    def __init__(self, lengths: Sequence[int], cut: Cut, seed: int, *, rank: int = 0, world_size: int = 1) -> None:
        super().__init__(rank, world_size)
        self._lengths, self._cut, self._seed = np.asarray(lengths, dtype=np.int64), cut, seed

    def __len__(self) -> int:
        return len(self._fixed)

    @cached_property
    def _fixed(self) -> list[np.ndarray]:
        order = np.random.default_rng(self._seed).permutation(len(self._lengths))
        return self._cut(order[np.argsort(self._lengths[order], kind="stable")])

    def _every_batch(self, epoch: int) -> list[np.ndarray]:
        order = np.random.default_rng((self._seed, epoch)).permutation(len(self._fixed))
        return [self._fixed[number] for number in order]


def cut_by_number(size: int) -> Cut:
    """Batches of ``size`` examples; the last may have fewer."""
    return partial(_slices, size)


def cut_by_tokens(sources: Sequence[int], targets: Sequence[int], tokens: int, ranks: int = 1) -> Cut:
    """Batches of as many examples as fit: a rank's examples times the longest source, or target if that is longer, is
    at most ``tokens`` (the batches of Duan et al., 2019). An example that is longer by itself is all that a rank gets.
    """
    longer = np.maximum(np.asarray(sources, dtype=np.int64), np.asarray(targets, dtype=np.int64))
    return partial(_fitting, longer, tokens, ranks)


def _slices(size: int, order: np.ndarray) -> list[np.ndarray]:
    return [order[start : start + size] for start in range(0, len(order), size)]


def _fitting(longer: np.ndarray, tokens: int, ranks: int, order: np.ndarray) -> list[np.ndarray]:
    cuts, start, longest = [], 0, 0
    for place, length in enumerate(longer[order].tolist()):
        longest = max(longest, length)
        if place - start >= ranks and longest * -((start - place - 1) // ranks) > tokens:
            cuts.append(place)
            start, longest = place, length
    return np.split(order, cuts)
