"""Exact and near duplicates among many texts, in one pass and a few hundred bytes a text."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

SHINGLE = 5  # words
BINS = 32
BAND = 4  # bins that must agree for two texts to be compared
THRESHOLD = 0.7  # estimated Jaccard similarity of the 5-grams
MAX_WORDS = 2000  # only so many words of a text are looked at for near duplicates

_PRIME = 0x9E3779B97F4A7C15
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(slots=True)
class DuplicateFinder:
    """`add` texts one by one; each call tells which earlier text is the same or nearly the same.

    Near duplicates are found by one-permutation MinHash over word 5-grams: the hashes are spread over `BINS` bins,
    the least of each bin is kept, texts that agree in a band of `BAND` bins are compared, and the share of
    agreeing bins estimates the Jaccard similarity. Results do not change from run to run.
    """

    names: list[str] = field(default_factory=list)
    _exact: dict[int, int] = field(default_factory=dict)
    _bands: dict[tuple[int, bytes], int] = field(default_factory=dict)
    _sketches: list[np.ndarray | None] = field(default_factory=list)
    _words: dict[str, int] = field(default_factory=dict)

    def add(self, words: Sequence[str], name: str) -> tuple[str, int]:
        """Return ``("exact" or "near", number of the earlier text)``, or ``("", -1)`` for a new one."""
        number = len(self.names)
        self.names.append(name)
        codes = self._codes(words)
        key = hash(codes.tobytes())
        if key in self._exact:
            self._sketches.append(None)
            return "exact", self._exact[key]
        self._exact[key] = number
        sketch = _sketch(codes[:MAX_WORDS])
        self._sketches.append(sketch)
        if sketch is None:
            return "", -1
        bands = [(start, sketch[start : start + BAND].tobytes()) for start in range(0, BINS, BAND)]
        candidates = sorted({self._bands[band] for band in bands if band in self._bands})
        for band in bands:
            self._bands.setdefault(band, number)
        for candidate in candidates:
            other = self._sketches[candidate]
            if other is not None and _similarity(sketch, other) >= THRESHOLD:
                return "near", candidate
        return "", -1

    def _codes(self, words: Sequence[str]) -> np.ndarray:
        known = self._words
        codes = np.empty(len(words), dtype=np.uint64)
        for index, word in enumerate(words):
            code = known.get(word)
            if code is None:
                code = known[word] = zlib.crc32(word.encode("utf-8", "surrogatepass"))
            codes[index] = code
        return codes


def _sketch(codes: np.ndarray) -> np.ndarray | None:
    if len(codes) < SHINGLE:
        return None  # too short to be more than equal or not
    hashes = np.zeros(len(codes) - SHINGLE + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for place in range(SHINGLE):
            hashes = hashes * np.uint64(1_000_003) + codes[place : place + len(hashes)]
        hashes ^= hashes >> np.uint64(29)
        hashes *= np.uint64(_PRIME)
        hashes ^= hashes >> np.uint64(32)
    sketch = np.full(BINS, _EMPTY, dtype=np.uint64)
    np.minimum.at(sketch, (hashes % np.uint64(BINS)).astype(np.int64), hashes)
    return sketch


def _similarity(one: np.ndarray, other: np.ndarray) -> float:
    used = (one != _EMPTY) | (other != _EMPTY)
    return float(((one == other) & used).sum() / used.sum())
