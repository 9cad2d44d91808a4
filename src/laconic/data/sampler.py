"""Which examples form a batch, and in which order: random, but of similar length within a batch.

The order is a function of (seed, epoch) alone, so a run that stops at batch n of epoch e goes on with
``set_epoch(e)`` and ``seek(n)`` and sees exactly the batches it would have seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np


class BucketSampler:
    """Batches of similar length (specification headline-writer a.5, the scheme of See et al.).

    The indices are shuffled by (seed, epoch), cut into pools of ``pool_batches`` batches, each pool is sorted
    by length and sliced, and the batches are shuffled. Rank r then takes every ``world_size``-th batch; where
    the batches do not divide evenly the first ones are used again, so that all ranks have equally many.

    Give it to a ``DataLoader`` as ``batch_sampler``. With ``shuffle=False`` the batches come in the order of
    the data, unsorted, the same every epoch.
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
        shuffle: bool = True,
    ) -> None:
        assert 0 <= rank < world_size, (rank, world_size)
        assert len(lengths) > 0
        assert batch_size > 0
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._batch_size, self._seed = batch_size, seed
        self._rank, self._world_size = rank, world_size
        self._pool_batches, self._shuffle = pool_batches, shuffle
        self.epoch = 0
        self.position = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch; the next iteration starts at its first batch."""
        self.epoch = epoch
        self.position = 0

    def seek(self, position: int) -> None:
        """Let the next iteration start at this rank's batch ``position`` of the present epoch."""
        assert 0 <= position <= len(self), (position, len(self))
        self.position = position

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch, wherever `seek` stands."""
        batches = -(-len(self._lengths) // self._batch_size)
        return -(-batches // self._world_size)

    def __iter__(self) -> Iterator[list[int]]:
        """The batches from `seek`'s position to the end of the epoch; afterwards the position is 0 again."""
        start, self.position = self.position, 0
        yield from self.batches(self.epoch)[start:]

    def batches(self, epoch: int) -> list[list[int]]:
        """All batches of this rank in ``epoch``."""
        every = self._every_batch(epoch)
        mine = range(self._rank, len(self) * self._world_size, self._world_size)
        return [every[number % len(every)].tolist() for number in mine]

    def _every_batch(self, epoch: int) -> list[np.ndarray]:
        size = self._batch_size
        total = len(self._lengths)
        if not self._shuffle:
            return [np.arange(start, min(start + size, total)) for start in range(0, total, size)]
        random = np.random.default_rng((self._seed, epoch))
        order = random.permutation(total)
        pool_size = size * self._pool_batches
        batches: list[np.ndarray] = []
        for start in range(0, total, pool_size):
            pool = order[start : start + pool_size]
            pool = pool[np.argsort(self._lengths[pool], kind="stable")]
            batches += [pool[first : first + size] for first in range(0, len(pool), size)]
        return [batches[number] for number in random.permutation(len(batches))]
