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

_BAND = 32  # neighbouring windows whose subsequences are computed together or not at all
_NOT = -1  # the score of a window that is out of the question
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
        """F1 of m matches between spans of p and q items is 2m/(p + q); bigrams are one fewer a span.

        Raises:
            ConfigError: the weights have so many digits that the score does not fit 62 bits.
        """
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
    tokens are taken from the last to the first, and bit b stands for the last output token but b. So the match word of
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
    """All windows of a block of chunks ``[N, C]``, padded below with anything; ``lengths [C]`` says where. ``text
    [N, C]`` is false at tokens that are blank: no window may be chosen with a span of blanks only.

    ``m1``, ``m2`` and ``valid`` (may it be chosen?) are ``[windows, C]``.
    """

    def __init__(
        self, shape: Shape, key: ScoreKey, tokens: Ints, lengths: Ints, text: NDArray[np.bool_] | None = None
    ) -> None:
        self.shape, self.key = shape, key
        self.subsequences = 0  # windows whose longest common subsequence was computed
        ids = local_ids(tokens)
        self.columns = ids.shape[1]
        self.ids = ids.astype(np.uint16)
        step, window = shape.stride, shape.window
        self.m1 = clipped_matches(ids, shape.input, shape.input, shape.output)[::step]
        if min(shape.input, shape.output) > 1:
            bigrams = local_ids(ids[:-1] * np.int32(len(ids)) + ids[1:])  # [N - 1, C], by where they begin
            pairs = clipped_matches(bigrams, shape.input - 1, shape.input, shape.output - 1)
            self.m2 = pairs[: len(ids) - window + 1 : step]
        else:
            self.m2 = np.zeros_like(self.m1)
        starts = np.arange(len(self.m1)) * step
        self.valid = starts[:, None] + window <= lengths
        if text is not None:
            seen = np.zeros((len(ids) + 1, self.columns), dtype=np.int32)
            np.cumsum(text, axis=0, out=seen[1:])
            middle = seen[starts + shape.input]
            self.valid &= (middle > seen[starts]) & (seen[starts + window] > middle)
        self.band = max(1, _BAND // step) if step < 8 else 1

    def best(self) -> Found:
        """The best window of each chunk, the earliest of equals; none of a chunk without any that may be chosen.

        The subsequences of a band of windows are computed only where the bound that they cannot exceed the clipped
        matches of single tokens leaves them a chance against what is the chunk's best so far.
        """
        scores = bounds = self._bounds()
        columns = np.arange(self.columns)
        if self.key.longest:
            ceilings = self._bands(bounds)
            top = ceilings.argmax(axis=0)
            scores = np.full(bounds.shape, _NOT, dtype=np.int64)
            chosen = np.zeros(ceilings.shape, dtype=bool)
            chosen[top, columns] = True
            self._fill(scores, chosen)
            self._fill(scores, ~chosen & (ceilings >= scores.max(axis=0)) & (ceilings >= 0))
        places = scores.argmax(axis=0)
        good = scores[places, columns] >= 0
        return self._found(places[good], columns[good])

    def above(self, floor: int) -> Found:
        """Every window whose value is above ``floor`` (0 or more), chunk by chunk in order."""
        scores = self._bounds()
        if self.key.longest:
            ceilings = self._bands(scores)
            scores = np.full(scores.shape, _NOT, dtype=np.int64)
            self._fill(scores, ceilings > floor)
        columns, places = np.nonzero((scores > floor).T)
        return self._found(places, columns)

    def given(self, draws: NDArray[np.uint64]) -> Found:
        """One window of each chunk, by a number drawn for it, among those that may be chosen."""
        counts = self.valid.sum(axis=0)
        good = np.flatnonzero(counts)
        wanted = (draws[good] % counts[good].astype(np.uint64)).astype(np.int64) + 1
        places = (self.valid[:, good].cumsum(axis=0) >= wanted).argmax(axis=0)
        return self._found(places, good)

    def _bounds(self) -> NDArray[np.int64]:
        """The most that each window can score, `_NOT` where it may not be chosen; without weight of the longest common
        subsequence its score."""
        return np.where(self.valid, self.key.value(self.m1, self.m2, self.m1), _NOT)

    def _bands(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The largest value of each band of windows, ``[bands, C]``."""
        return np.maximum.reduceat(values, np.arange(0, len(values), self.band), axis=0)

    def _fill(self, scores: NDArray[np.int64], bands: NDArray[np.bool_]) -> None:
        """Put the exact values of the windows of some bands (``[bands, C]``) in their places."""
        band, column = np.nonzero(bands)
        for begin in range(0, len(band), 1024):
            some, of = band[begin : begin + 1024], column[begin : begin + 1024]
            lengths = self._lengths_of(some * self.band, of, self.band)
            self.subsequences += lengths.size
            places = some * self.band + np.arange(self.band)[:, None]
            inside = np.flatnonzero(places.ravel() < len(scores))
            rows, across = places.ravel()[inside], np.broadcast_to(of, places.shape).ravel()[inside]
            values = self.key.value(self.m1[rows, across], self.m2[rows, across], lengths.ravel()[inside])
            values[~self.valid[rows, across]] = _NOT
            scores[rows, across] = values

    def _found(self, places: NDArray[np.int64], columns: NDArray[np.int64]) -> Found:
        begins = range(0, max(1, len(places)), 1024)
        parts = [self._lengths_of(places[at : at + 1024], columns[at : at + 1024], 1)[0] for at in begins]
        m1, m2 = self.m1[places, columns], self.m2[places, columns]
        return Found(columns, places * self.shape.stride, m1, m2, np.concatenate(parts))

    def _lengths_of(self, windows: NDArray[np.int64], columns: NDArray[np.int64], count: int) -> NDArray[np.uint8]:
        """``[count, n]`` lengths of the subsequences of ``count`` windows from each of ``windows [n]`` on.

        Windows that reach beyond the block are computed of whatever stands there and mean nothing.
        """
        step = self.shape.stride
        size = (count - 1) * step + self.shape.window
        rows = np.minimum(windows * step + np.arange(size)[:, None], len(self.ids) - 1)
        return common_lengths(self.ids[rows, columns], self.shape)[::step]
