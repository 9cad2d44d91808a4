"""Many texts to ids at once: each stretch between blanks is read once and remembered, the rest is arithmetic.

What a vocabulary lacks has a code below zero, the complement of its number among the unknown strings met so far.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np

from catchline.jobs import Pieces
from catchline.text.normalization import across_blanks

MOST = 1_000_000  # stretches that are remembered
_PIECE = 20_000  # stretches, a piece of work of a process


class Numbers(dict[str, int]):
    """Strings, numbered in the order in which they are first asked for; ``names`` are those of the numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __missing__(self, text: str) -> int:
        self[text] = number = len(self.names)
        self.names.append(text)
        return number


@dataclass(frozen=True, slots=True)
class Coded:
    """Of B texts: ``codes`` (N,) int32, one text behind the other; ``lengths`` (B,) int64, how many of them each has;
    ``totals`` (B,) int64, how many it had before the cut; ``unknown``, the strings of the codes -1, -2, ..."""

    codes: np.ndarray
    lengths: np.ndarray
    totals: np.ndarray
    unknown: Sequence[str]

    @property
    def rows(self) -> np.ndarray:
        """The text of each code."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def chosen(self, keep: np.ndarray) -> Coded:
        """Those texts for which ``keep`` (B,) is true."""
        if keep.all():
            return self
        codes = self.codes[np.repeat(keep, self.lengths)]
        return Coded(codes, self.lengths[keep], self.totals[keep], self.unknown)


class Split(list[str]):
    """B texts with their stretches: the ``names`` that occur, which of them (``numbers``, int32) each text has, one
    behind the other, and their places: ``ends`` (B + 1,) int64. A text that is more than its stretches has none."""

    def __init__(
        self, texts: Iterable[str], names: list[str], numbers: np.ndarray | bytes, ends: np.ndarray | bytes
    ) -> None:
        super().__init__(texts)
        self.names, self.numbers, self.ends = names, np.frombuffer(numbers, np.int32), np.frombuffer(ends, np.int64)

    @classmethod
    def of(cls, texts: Sequence[str]) -> Split:
        if isinstance(texts, Split):
            return texts
        numbers, ends, known = list[int](), [0], defaultdict[str, int](count().__next__)
        for text in texts:
            numbers += () if across_blanks(text) else map(known.__getitem__, text.split())
            ends.append(len(numbers))
        return cls(texts, list(known), np.array(numbers, np.int32), np.array(ends))

    def __add__(self, other: list[str]) -> Split:  # type: ignore[override]
        more = Split.of(other)
        numbers = np.concatenate((self.numbers, more.numbers + np.int32(len(self.names))))
        ends = np.concatenate((self.ends, more.ends[1:] + len(self.numbers)))
        return Split([*self, *more], [*self.names, *more.names], numbers, ends)


def coded(texts: Sequence[tuple[np.ndarray, int]], unknown: Sequence[str]) -> Coded:
    """Texts one by one, as their codes and their totals."""
    codes, lengths = joined([codes for codes, _ in texts])
    return Coded(codes, lengths, np.array([total for _, total in texts], np.int64), unknown)


Read = Callable[[list[str], Numbers], tuple[np.ndarray, np.ndarray]]
Whole = Callable[[str, int, Numbers], tuple[np.ndarray, int]]


def joined(found: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The codes of texts, one behind the other, and how many each has."""
    return np.concatenate([*found, np.zeros(0, np.int32)]), np.array([len(codes) for codes in found], np.int64)


class ReadAscii:
    """Reads stretches: those of ASCII are normalised as the lines of one text and then ``cut``, ``others`` are read as
    they always are."""

    def __init__(
        self, normalise: Callable[[str], str], cut: Callable[[str], Any], vocabulary: Mapping[str, int], others: Read
    ) -> None:
        self._normalise, self._cut, self._vocabulary, self._others = normalise, cut, vocabulary, others

    def __call__(self, stretches: list[str], unknown: Numbers) -> tuple[np.ndarray, np.ndarray]:
        """The codes of the stretches, and how many each has."""
        plain = np.array([stretch.isascii() for stretch in stretches], bool)
        lines = [stretch for stretch in stretches if stretch.isascii()]
        found = list(map(self._cut, self._normalise("\n".join(lines)).split("\n")))[: len(lines)]
        ids = ((piece, self._vocabulary.get(piece)) for piece in chain.from_iterable(found))
        own = [~unknown[piece] if id is None else id for piece, id in ids]
        codes, sizes = self._others([stretch for stretch in stretches if not stretch.isascii()], unknown)
        in_all = np.empty(len(stretches), np.int64)
        in_all[plain], in_all[~plain] = list(map(len, found)), sizes
        of_plain = np.repeat(plain, in_all)
        result = np.empty(len(of_plain), np.int32)
        result[of_plain], result[~of_plain] = own, codes
        return result, in_all


class Stretches:
    """Texts to codes. ``read`` gives those of stretches, one behind the other, and how many each has; ``whole`` so many
    of a text that is more than its stretches, or has no token in them, and how many it has. Both number what they do
    not know."""

    def __init__(self, read: Read, whole: Whole) -> None:
        self.read, self.whole = read, whole
        self._forget()

    def _forget(self) -> None:
        self._numbers, self._unknown = Numbers(), Numbers()
        self._codes, self._sizes = np.zeros(0, np.int32), np.zeros(0, np.int64)
        self._starts = self._sizes

    def _remember(self, codes: np.ndarray, sizes: np.ndarray) -> None:
        self._codes, self._sizes = np.concatenate((self._codes, codes)), np.concatenate((self._sizes, sizes))
        self._starts = np.cumsum(self._sizes) - self._sizes

    def counts(self, texts: Pieces[str], others: Callable[[list[str]], Counter[str]]) -> Counter[str]:
        """How often each token stands in the texts, while all are unknown; ``others`` counts in texts that are more
        than their stretches. Each stretch is cut once, whichever processes met it."""
        counts, times = Counter[str](), np.zeros(0, np.int64)
        for stretches, own, more in texts.worked(_stretches_of):
            places = self._places(stretches.split())
            times = np.concatenate((times, np.zeros(len(self._numbers) - len(times), np.int64)))
            np.add.at(times, places, own)
            counts.update(others(more))
            if len(self._numbers) > MOST:
                counts.update(self._cut(times))
                self._forget()
                times = times[:0]
        counts.update(self._cut(times))
        return counts

    def _cut(self, times: np.ndarray) -> dict[str, int]:
        """Read the stretches that were met ``times``; the counts of their tokens."""
        names = self._numbers.names
        pieces = Pieces(lambda: range(0, len(names), _PIECE), lambda start: names[start : start + _PIECE])
        for codes, sizes, tokens in pieces.worked(lambda some: (*self.read(list(some), own := Numbers()), own.names)):
            self._remember(np.array([self._unknown[token] for token in tokens], np.int32)[~codes], sizes)
        found = np.bincount(self._codes, np.repeat(times, self._sizes)).astype(np.int64).tolist()
        return dict(zip(self._unknown.names, found, strict=True))

    def learn(self, cut: Stretches, vocabulary: Mapping[str, int]) -> None:
        """Take over what `counts` has cut, but for characters that ``read`` may see differently with a vocabulary."""
        self._numbers = cut._numbers
        for stretch in (one for one in self._numbers.names if not one.isascii()):
            del self._numbers[stretch]
        ids = [vocabulary.get(token, ~self._unknown[token]) for token in cut._unknown.names]
        self._remember(np.array(ids, np.int32)[cut._codes], cut._sizes)

    def coded(self, texts: Sequence[str], most: int) -> Coded:
        """The codes of the texts, ``most`` of each."""
        if len(self._numbers) > MOST:
            self._forget()
        split = Split.of(texts)
        places = self._places(split.names)
        if new := self._numbers.names[len(self._sizes) :]:
            self._remember(*self.read(new, self._unknown))
        codes, lengths, totals = self._gathered(places[split.numbers], split.ends, most)
        stops = np.cumsum(lengths)
        for place in np.flatnonzero(totals == 0)[::-1].tolist():
            own, totals[place] = self.whole(texts[place], most, self._unknown)
            codes = np.insert(codes, stops[place], own)
            lengths[place] = len(own)
        return Coded(codes, lengths, totals, self._unknown.names)

    def _places(self, names: list[str]) -> np.ndarray:
        return np.array(list(map(self._numbers.__getitem__, names)), np.int64)

    def _gathered(self, chosen: np.ndarray, ends: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        sizes = self._sizes[chosen]
        passed = np.concatenate(([0], np.cumsum(sizes)))  # codes before each stretch
        totals = np.diff(passed[ends])
        within = passed[:-1] - np.repeat(passed[ends[:-1]], np.diff(ends))
        kept = within < most
        chosen, sizes, within = chosen[kept], sizes[kept], within[kept]
        own = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # place within its stretch
        codes = self._codes[np.repeat(self._starts[chosen], sizes) + own][np.repeat(within, sizes) + own < most]
        return codes, np.minimum(totals, most), totals


def _stretches_of(texts: Sequence[str]) -> tuple[str, np.ndarray, list[str]]:
    """The stretches of the texts, how often each is there, and the texts that are more."""
    split = Split.of(texts)
    more = [split[place] for place in np.flatnonzero(np.diff(split.ends) == 0) if across_blanks(split[place])]
    return " ".join(split.names), np.bincount(split.numbers, minlength=len(split.names)), more
