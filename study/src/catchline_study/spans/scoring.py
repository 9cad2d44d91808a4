"""How much a span and the span behind it overlap: ROUGE-1, -2 and -L between neighbours, for every place of a text.

=============  =====================================================================================
paper          here
=============  =====================================================================================
128, 32        ``Shape.input``, ``Shape.output``: tokens of the input span and of the output span
R1, R2, RL     F1 from the matches ``m1``, ``m2`` (clipped counts) and ``ml`` (longest common subsequence)
lambda 1 to 3  ``weights``
=============  =====================================================================================

With fixed lengths the score is a function of three whole numbers, so it is kept as one: `ScoreKey.value` is the exact
score times a common denominator, and no order ever depends on the rounding of a float.

Arrays stand position by chunk, ``[N, C]``: all chunks of a block slide together, and one step of a slide is some
operations on rows of C neighbours in memory. Tokens are numbered anew within each chunk (`local_ids`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from catchline.errors import ConfigError

Ints = NDArray[np.integer]

_BITS_OF_BYTE = np.array([bin(value).count("1") for value in range(256)], dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Shape:
    """Tokens of the input and the output span, and the distance between windows that are looked at."""

    input: int = 128
    output: int = 32
    stride: int = 1

    @property
    def window(self) -> int:
        """Tokens of both spans."""
        return self.input + self.output

    @property
    def ceiling(self) -> int:
        """The most tokens that can match."""
        return min(self.input, self.output)


@dataclass(frozen=True, slots=True)
class ScoreKey:
    """The score (equation 22) as a whole number: ``value(m1, m2, ml) / denominator`` is the exact score."""

    one: int
    two: int
    longest: int
    denominator: int

    @classmethod
    def of(cls, weights: tuple[Fraction, Fraction, Fraction], shape: Shape) -> ScoreKey:
        """F1 of m matches between spans of p and q items is 2m/(p + q); bigrams are one fewer a span. Raises
        ConfigError: the weights have too many digits for a score of 62 bits."""
        pairs = shape.window - 2
        parts = [
            weights[0] * Fraction(2, shape.window),
            weights[1] * Fraction(2, pairs) if pairs else Fraction(0),
            weights[2] * Fraction(2, shape.window),
        ]
        denominator = math.lcm(*(part.denominator for part in parts))
        one, two, longest = (int(part * denominator) for part in parts)
        if (one + two + longest) * shape.ceiling >= 2**62:
            raise ConfigError("--weights: the numbers have too many digits; use some fewer.")
        return cls(one, two, longest, denominator)

    def value(self, m1: Ints, m2: Ints, ml: Ints) -> NDArray[np.int64]:
        return m1.astype(np.int64) * self.one + m2.astype(np.int64) * self.two + ml.astype(np.int64) * self.longest

    def score(self, m1: int, m2: int, ml: int) -> Fraction:
        return Fraction(m1 * self.one + m2 * self.two + ml * self.longest, self.denominator)


# ----------------------------------------------------------------------------------- single measures


def local_ids(tokens: Ints) -> NDArray[np.int32]:
    """``[N, C]`` tokens numbered from 0 within each column, in the order of their size."""
    rows = np.ascontiguousarray(tokens.T)
    order = np.argsort(rows, axis=1)
    ranked = np.take_along_axis(rows, order, axis=1)
    numbers = np.zeros(rows.shape, dtype=np.int32)
    np.cumsum(ranked[:, 1:] != ranked[:, :-1], axis=1, out=numbers[:, 1:])
    found = np.empty_like(numbers)
    np.put_along_axis(found, order, numbers, axis=1)
    return np.ascontiguousarray(found.T)


def clipped_matches(ids: NDArray[np.int32], first: int, gap: int, second: int) -> NDArray[np.int16]:
    """Clipped matches between ``first`` items and the ``second`` items that begin ``gap`` behind the first of them.

    ``[N, C]`` ids below N to ``[N - gap - second + 1, C]``. Only ``d = count in the first - count in the second`` of
    each item is kept: the sum of the smaller counts falls by one when the first span loses an item with d <= 0 or the
    second one with d >= 0, and grows when the first gains an item with d < 0 or the second one with d > 0.
    """
    length, columns = ids.shape
    starts = length - gap - second + 1
    places = ids.astype(np.intp) + np.arange(columns, dtype=np.intp) * length  # into one table for all columns
    cells = columns * length
    before = np.bincount(places[:first].ravel(), minlength=cells)
    behind = np.bincount(places[gap : gap + second].ravel(), minlength=cells)
    matches = np.minimum(before, behind).reshape(columns, length).sum(axis=1).astype(np.int16)
    difference = (before - behind).astype(np.int16)
    found = np.empty((starts, columns), dtype=np.int16)
    found[0] = matches
    for start in range(starts - 1):
        for where, loses, change in ((start, True, -1), (start + gap, False, 1)):
            at = places[where]
            there = difference.take(at)
            matches -= there <= 0 if loses else there >= 0
            difference[at] = there + change
        for where, gains, change in ((start + first, True, 1), (start + gap + second, False, -1)):
            at = places[where]
            there = difference.take(at)
            matches += there < 0 if gains else there > 0
            difference[at] = there + change
        found[start + 1] = matches
    return found


def common_lengths(ids: NDArray[np.uint16], shape: Shape) -> NDArray[np.uint8]:
    """Lengths of the longest common subsequences: ``[R, n]`` tokens to ``[R - window + 1, n]``, every start at once.

    The bit-parallel dynamic programme (Hyyrö 2004) with the output span as the bits of a word, read backwards: input
    tokens are taken from the last to the first, and bit b is the last output token but b. So the match word of
    the token at p against the output span beginning d behind it comes from that of d - 1 by one shift and one
    comparison, whichever window it is wanted for.
    """
    rows, columns = ids.shape
    starts = rows - shape.window + 1
    word = np.uint32 if shape.output <= 32 else np.uint64
    matches = np.zeros((rows, columns), dtype=word)
    state = np.full((starts, columns), np.iinfo(word).max, dtype=word)
    common = np.empty_like(state)
    spare = np.empty((rows, columns), dtype=word)
    equal = np.empty((rows, columns), dtype=bool)
    for newest in range(1, shape.window):  # the distance of the output span's last token from p
        distance = newest - shape.output + 1  # ... and of its first
        low = max(0, shape.input - shape.output + 1 - distance)
        high = min(rows - newest, starts + shape.input - max(distance, 1))
        here, count = matches[low:high], high - low
        np.equal(ids[low:high], ids[low + newest : high + newest], out=equal[:count])
        np.copyto(spare[:count], equal[:count])
        np.add(here, here, out=here)
        np.bitwise_or(here, spare[:count], out=here)
        if distance >= 1:
            first = shape.input - distance
            np.bitwise_and(state, matches[first : first + starts], out=common)
            np.add(state, common, out=spare[:starts])
            np.subtract(state, common, out=state)
            np.bitwise_or(state, spare[:starts], out=state)
    zeros = ~state
    if shape.output < zeros.itemsize * 8:
        zeros &= word((1 << shape.output) - 1)
    return _BITS_OF_BYTE[zeros.view(np.uint8)].reshape(starts, columns, zeros.itemsize).sum(axis=2, dtype=np.uint8)


# -------------------------------------------------------------------------------------- whole blocks


@dataclass(frozen=True, slots=True)
class Found:
    """Windows of a block: the column of the chunk, the start in it and the three counts, each ``[n]``."""

    column: NDArray[np.int64]
    start: NDArray[np.int64]
    m1: Ints
    m2: Ints
    ml: Ints


class WindowBlock:
    """All windows of a block of chunks ``[N, C]``, padded below with anything; ``lengths [C]`` says where. ``text [N,
    C]`` is false at tokens that are blank: no window may be chosen with a span of blanks only. The counts ``m1``,
    ``m2`` and ``ml`` and ``values``, negative where a window may not be chosen, are ``[windows, C]``."""

    def __init__(self, shape: Shape, key: ScoreKey, tokens: Ints, lengths: Ints, text: NDArray[np.bool_]) -> None:
        ids, step, window = local_ids(tokens), shape.stride, shape.window
        self.stride = step
        self.m1 = clipped_matches(ids, shape.input, shape.input, shape.output)[::step]
        self.m2 = np.zeros_like(self.m1)
        if min(shape.input, shape.output) > 1:
            bigrams = local_ids(ids[:-1] * np.int32(len(ids)) + ids[1:])  # [N - 1, C], by where they begin
            pairs = clipped_matches(bigrams, shape.input - 1, shape.input, shape.output - 1)
            self.m2 = pairs[: len(ids) - window + 1 : step]
        self.ml = common_lengths(ids.astype(np.uint16), shape)[::step]
        starts = np.arange(len(self.m1)) * step
        seen = np.zeros((len(ids) + 1, ids.shape[1]), dtype=np.int32)
        np.cumsum(text, axis=0, out=seen[1:])
        middle = seen[starts + shape.input]
        valid = (starts[:, None] + window <= lengths) & (middle > seen[starts]) & (seen[starts + window] > middle)
        self.values = np.where(valid, key.value(self.m1, self.m2, self.ml), -1)

    def best(self) -> Found:
        """The best window of each chunk, the earliest of equals; none of a chunk without any that may be chosen."""
        columns = np.flatnonzero(self.values.max(axis=0) >= 0)
        return self._found(self.values.argmax(axis=0)[columns], columns)

    def above(self, floor: int) -> Found:
        """Every window whose value is above ``floor`` (0 or more), chunk by chunk in order."""
        columns, places = np.nonzero((self.values > floor).T)
        return self._found(places, columns)

    def given(self, draws: NDArray[np.uint64]) -> Found:
        """One window of each chunk, by a number drawn for it, among those that may be chosen."""
        counts = (self.values >= 0).sum(axis=0)
        good = np.flatnonzero(counts)
        wanted = (draws[good] % counts[good].astype(np.uint64)).astype(np.int64) + 1
        places = ((self.values[:, good] >= 0).cumsum(axis=0) >= wanted).argmax(axis=0)
        return self._found(places, good)

    def _found(self, places: NDArray[np.int64], columns: NDArray[np.int64]) -> Found:
        m1, m2, ml = (counts[places, columns] for counts in (self.m1, self.m2, self.ml))
        return Found(columns, places * self.stride, m1, m2, ml)
