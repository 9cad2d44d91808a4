"""The two word lists that ROUGE-1.5.5 reads: WordNet's irregular forms and the SMART stop words."""

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
