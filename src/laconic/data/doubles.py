"""What the makers of corpora share: doubles and near doubles are left out, and whole groups are held out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from statistics import median

_SHINGLE = 5
_WORDS = re.compile(r"[a-z0-9]+")


def words_of(text: str) -> list[str]:
    """Lower-cased runs of ASCII letters and digits: what is compared."""
    return _WORDS.findall(text.lower())


class Doubles:
    """Remembers the pairs that were kept, wherever they came from.

    Args:
        near: a larger share of a body's 5-grams seen before makes it a near duplicate.
    """

    def __init__(self, near: float = 0.5) -> None:
        self._near = near
        self._exact: set[int] = set()
        self._shingles: set[int] = set()

    def refuse(self, summary: str, body: str) -> str:
        """Why this pair is left out, or nothing: then it is remembered."""
        words = words_of(body)
        keys = {_key(["s", *words_of(summary)]), _key(["b", *words])}
        if keys & self._exact:
            return "duplicate"
        shingles = {_key(words[start : start + _SHINGLE]) for start in range(max(1, len(words) - _SHINGLE + 1))}
        if len(shingles & self._shingles) > self._near * len(shingles):
            return "near duplicate"
        self._exact |= keys
        self._shingles |= shingles
        return ""


def _key(words: Sequence[str]) -> int:
    return hash(tuple(words))  # compared within one process only


def hold_out(counts: Mapping[str, int], records: int, seed: int = 0) -> set[str]:
    """Groups that together have at most ``records`` records, in the order of a seeded hash of their names.

    No group takes more than a tenth of the room, unless the middle one of them does: held-out records are of many
    groups where there are many.
    """
    largest = max(records / 10, median(counts.values() or [0]))
    chosen: set[str] = set()
    for name in sorted(counts, key=lambda name: shuffled(f"{seed} {name}")):
        if counts[name] <= min(records, largest):
            chosen.add(name)
            records -= counts[name]
    return chosen


def shuffled(text: str) -> str:
    """A key to sort by: an order that looks random and is the same everywhere."""
    return hashlib.sha256(text.encode()).hexdigest()
