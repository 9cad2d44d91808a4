"""Word lists: WordNet's irregular forms and the SMART stop words, which ROUGE-1.5.5 reads, and ordinary words."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_DATA = Path(__file__).parent / "data"


def _lines(name: str) -> list[str]:
    text = (_DATA / name).read_text(encoding="ascii")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@cache
def wordnet_exceptions() -> dict[str, str]:
    """Inflected form -> base form, from WordNet 2.0's exception lists (notice in the data file)."""
    return {form: base for base, *forms in map(str.split, _lines("wordnet_exceptions.txt")) for form in forms}


@cache
def smart_stop_words() -> frozenset[str]:
    """English function words, lower-case, letters and digits only."""
    return frozenset(word for line in _lines("smart_stop_words.txt") for word in line.split())


@cache
def ordinary_stems() -> frozenset[str]:
    """Stems of the words that WordNet 3.0 does not write with a capital (notice in the data file).

    With a minus in front: a name that is also the stem of such a word.
    """
    return frozenset(_lines("ordinary_stems.txt"))


@cache
def younger_words() -> frozenset[str]:
    """Ordinary words that WordNet lacks."""
    return frozenset(word for line in _lines("younger_words.txt") for word in line.split())


@cache
def place_adjectives() -> dict[str, str]:
    """Adjective -> place ("french" -> "france"), and back."""
    pairs = [line.split() for line in _lines("place_adjectives.txt")]
    return {one: other for pair in pairs for one, other in (pair, pair[::-1])}
