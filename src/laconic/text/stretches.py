"""Many texts to ids at once: each stretch between blanks is read once and remembered, the rest is arithmetic.

What a vocabulary lacks has a code below zero, the complement of its number among the unknown strings met so far.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from laconic.jobs import Pieces
from laconic.text.normalization import across_blanks

MOST = 1_000_000  # stretches that are remembered
_LINES = 250  # of a text that is cut at once
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


def coded(texts: Sequence[tuple[np.ndarray, int]], unknown: Sequence[str]) -> Coded:
    """Texts one by one, as their codes and their totals."""
    codes, lengths = joined([codes for codes, _ in texts])
    return Coded(codes, lengths, np.array([total for _, total in texts], np.int64), unknown)


Read = Callable[[list[str], Numbers], tuple[np.ndarray, np.ndarray]]
Whole = Callable[[str, int, Numbers], tuple[np.ndarray, int]]


def joined(found: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The codes of texts, one behind the other, and how many each has."""
    return np.concatenate([*found, np.zeros(0, np.int32)]), np.array([len(codes) for codes in found], np.int64)


class LinesOfAscii:
    """Reads words: of letters alone they are as they stand, other ASCII is cut as the lines of one text, and ``others``
    are read as they always are."""

    def __init__(
        self, normalise: Callable[[str], str], cut: Callable[[str], Any], vocabulary: Mapping[str, int], others: Read
    ) -> None:
        self._normalise, self._cut, self._vocabulary, self._others = normalise, cut, vocabulary, others

    def __call__(self, stretches: list[str], unknown: Numbers) -> tuple[np.ndarray, np.ndarray]:
        """The codes of the stretches, and how many each has."""
        found = [self._some(stretches[start : start + _LINES], unknown) for start in range(0, len(stretches), _LINES)]
        codes, sizes = zip(*found, strict=True)
        return np.concatenate(codes), np.concatenate(sizes)

    def _some(self, stretches: list[str], unknown: Numbers) -> tuple[np.ndarray, np.ndarray]:
        ascii_ = np.array([stretch.isascii() for stretch in stretches])
        letters = np.array([stretch.isalpha() for stretch in stretches]) & ascii_
        groups = letters, ascii_ & ~letters, ~ascii_
        words, lines, rest = ([stretches[place] for place in np.flatnonzero(group)] for group in groups)
        normalised = self._normalise("\n".join(lines))
        found = self._cut(normalised)
        ends = np.cumsum([len(line) + 1 for line in normalised.split("\n")])
        within = np.searchsorted(ends, [start for _, (start, _) in found], side="right")
        pieces = [*self._normalise("\n".join(words)).split("\n")[: len(words)], *(piece for piece, _ in found)]
        ids = map(self._vocabulary.get, pieces)
        codes = [~unknown[piece] if id is None else id for piece, id in zip(pieces, ids, strict=True)]
        other_codes, other_sizes = self._others(rest, unknown)
        parts = np.ones(len(words), np.int64), np.bincount(within, minlength=len(lines))[: len(lines)], other_sizes
        places = np.concatenate([np.flatnonzero(group) for group in groups])
        sizes = np.empty(len(stretches), np.int64)
        sizes[places] = np.concatenate(parts)
        order = np.argsort(np.repeat(places, sizes[places]), kind="stable")  # from groups to the stretches' own order
        return np.concatenate((np.array(codes, np.int32), other_codes))[order], sizes


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
            places = np.array(list(map(self._numbers.__getitem__, stretches.split())), np.int64)
            times = np.concatenate((times, np.zeros(len(self._numbers) - len(times), np.int64)))
            times[places] += own
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
        numbers, ends = array("i"), [0]
        for text in texts:
            if not across_blanks(text):
                numbers.extend(map(self._numbers.__getitem__, text.split()))
            ends.append(len(numbers))
        if new := self._numbers.names[len(self._sizes) :]:
            self._remember(*self.read(new, self._unknown))
        codes, lengths, totals = self._gathered(np.frombuffer(numbers, np.int32), np.array(ends), most)
        stops = np.cumsum(lengths)
        for place in np.flatnonzero(totals == 0)[::-1].tolist():
            own, totals[place] = self.whole(texts[place], most, self._unknown)
            codes = np.insert(codes, stops[place], own)
            lengths[place] = len(own)
        return Coded(codes, lengths, totals, self._unknown.names)

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
    times: Counter[str] = Counter()
    for text in texts:
        times.update(() if across_blanks(text) else text.split())
    return " ".join(times), np.fromiter(times.values(), np.int64), list(filter(across_blanks, texts))
