"""Which examples form a batch, and in which order: random, but of similar length within a batch.

Both are functions of seed and epoch alone, so a run that stops at batch n of epoch e continues with the batches that it
would have seen. Batches are those of all processes together, in order of length (`part_of_rank`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Cut = Callable[[np.ndarray], list[np.ndarray]]  # indices in order of length -> batches, in that order
POOL = 100  # batches


def bucketed(lengths: np.ndarray, size: int, seed: int, epoch: int, pool: int = POOL) -> list[np.ndarray]:
    """Batches of similar length (the scheme of See et al., 2017): the indices are shuffled by (seed, epoch), cut into
    pools of ``pool`` batches, each pool is sorted by length and sliced, and the batches are shuffled."""
    random = np.random.default_rng((seed, epoch))
    batches: list[np.ndarray] = []
    for part in _slices(size * pool, random.permutation(len(lengths))):
        batches += _slices(size, part[np.argsort(lengths[part], kind="stable")])
    return [batches[number] for number in random.permutation(len(batches))]


def presorted(lengths: np.ndarray, cut: Cut, seed: int) -> list[np.ndarray]:
    """All examples sorted by length and cut (the scheme of Chen et al., 2016). Which examples are together never
    changes: documents of equal length are ordered by ``seed`` once, and `shuffled` orders the batches of an epoch."""
    order = np.random.default_rng(seed).permutation(len(lengths))
    return cut(order[np.argsort(lengths[order], kind="stable")])


def shuffled(batches: Sequence[np.ndarray], seed: int, epoch: int) -> list[np.ndarray]:
    """The batches in the order of ``epoch``."""
    return [batches[number] for number in np.random.default_rng((seed, epoch)).permutation(len(batches))]


def cut_by_number(size: int) -> Cut:
    """Batches of ``size`` examples; the last may have fewer."""
    return lambda order: _slices(size, order)


def cut_by_tokens(sources: np.ndarray, targets: np.ndarray, tokens: int, ranks: int = 1) -> Cut:
    """Batches of as many examples as fit: a rank's examples times the longest source, or target if that is longer, is
    at most ``tokens`` (the batches of Duan et al., 2019). An example that is longer by itself is all that a rank gets.
    """
    longer = np.maximum(sources, targets)

    def cut(order: np.ndarray) -> list[np.ndarray]:
        cuts, start, longest = [], 0, 0
        for place, length in enumerate(longer[order].tolist()):
            longest = max(longest, length)
            if place - start >= ranks and longest * -((start - place - 1) // ranks) > tokens:
                cuts.append(place)
                start, longest = place, length
        return np.split(order, cuts)

    return cut


def part_of_rank(batch: np.ndarray, rank: int, ranks: int) -> list[int]:
    """Every ``ranks``-th example of a batch: the parts are alike in length, so that no process waits for another. Where
    a batch has fewer examples than there are ranks, they are used again."""
    return np.resize(batch, max(len(batch), ranks))[rank::ranks].tolist()


def _slices(size: int, order: np.ndarray) -> list[np.ndarray]:
    return [order[start : start + size] for start in range(0, len(order), size)]
