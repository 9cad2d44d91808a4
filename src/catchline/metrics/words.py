"""What a word is to every measure of copying, repetition and faithfulness; function words and ordinary words.

A word is a run of letters and digits, with accents, vowel signs and apostrophes inside; each character of a script
written without blanks is one. Words are compared in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

import Stemmer

from catchline.text.normalization import MARKS, UNSPACED

_WHOLE = rf"{UNSPACED}\uac00-\ud7af"  # each character of these is a word
_RUN = rf"[^\W_{_WHOLE}]+(?:[{MARKS}]+[^\W_{_WHOLE}]*)*"
_CHARACTER = re.compile(rf"(?=\w)[{_WHOLE}][{MARKS}]*")
WORD = re.compile(rf"({_CHARACTER.pattern}|{_RUN}(?:['’]{_RUN})*)")  # a group, so that `split` keeps the words
_ALONE = re.compile(f"[{_WHOLE}]")
ASCII_WORD = re.compile(r"([A-Za-z0-9]+(?:'[A-Za-z0-9]+)*)")  # the same where all is ASCII, in half the time
_APOSTROPHE = re.compile(r"'(?:(?![A-Za-z0-9])|(?<![A-Za-z0-9]'))")  # one that is not within a word
_ASCII_SIGNS = {code: " " for code in range(128) if not chr(code).isalnum() and chr(code) != "'"}
_PREFIX = re.compile(
    r"(?:re|un|pre|non|over|under|sub|super|multi|micro|auto|anti|inter|mis|out|counter|cross)(?=\w{4})"
)
# ROUGE's exception lists begin with four letters.
_IRREGULAR_PAIRS = (
    "met:meet led:lead ran:run won:win fed:feed men:man sat:sit saw:see "
    "got:get ate:eat dug:dig hid:hide lit:light fled:flee tied:tie lay:lie"
)
_IRREGULAR = dict(pair.split(":") for pair in _IRREGULAR_PAIRS.split())


def words(text: str) -> list[str]:
    """The lower-cased words of ``text``, punctuation left out."""
    if not text.isascii():
        return WORD.findall(lowered(text))
    plain = _APOSTROPHE.sub(" ", text) if "'" in text else text
    return plain.lower().translate(_ASCII_SIGNS).split()


def lowered(text: str) -> str:
    """``text`` in lower case with every character in its place; the few whose lower case is longer stay."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c if len(c.lower()) > 1 else c.lower() for c in text)


def beginning(listed: str, letters: str) -> Iterator[str]:
    """Those words of ``listed``, with a blank around each, that begin with ``letters``."""
    place = listed.find(f" {letters}")
    while place >= 0:
        yield listed[place + 1 : listed.index(" ", place + 1)]
        place = listed.find(f" {letters}", place + 1)


def without_characters(text: str) -> str:
    """``text`` with a character that is part of nothing in place of each that is a word by itself: what stands between
    them are numbers and names, in 共有30人 as in GDP增长5.2%."""
    return text if text.isascii() else _ALONE.sub("\0", text)


def is_character(word: str) -> bool:
    """Is ``word`` one character of a text whose words blanks do not part?"""
    return _CHARACTER.fullmatch(word) is not None


@lru_cache(maxsize=50_000)
def is_stop_word(word: str) -> bool:
    """Is the lower-cased ``word`` an English function word? A contraction is one if its parts are ("they're")."""
    stops = smart_stop_words()
    if word in stops:
        return True
    if "'" not in word and "’" not in word:
        return False
    plain = word.replace("’", "'")
    parts = plain.removesuffix("n't").split("'")
    return plain.replace("'", "") in stops or all(part in stops or part in ("wo", "sha") for part in parts)


@lru_cache(maxsize=200_000)
def stem(word: str) -> str:
    """The stem of a lower-cased word; of an irregular form ("wrote", "children") that of its base form."""
    bare = word.removesuffix("'s").removesuffix("’s")
    return _stemmer().stemWord(_IRREGULAR.get(bare) or wordnet_exceptions().get(bare, bare))


@cache
def irregular_forms() -> frozenset[str]:
    """The words whose stem is that of another word's base form."""
    return frozenset(wordnet_exceptions()) | frozenset(_IRREGULAR)


@lru_cache(maxsize=50_000)
def is_ordinary(word: str) -> bool:
    """Is the lower-cased ``word`` an English word other than a proper name, as WordNet writes it?

    Words of common prefixes are ordinary if the rest is ("recalculate"), and so are function words.
    """
    if word in younger_words() or is_stop_word(word):
        return True
    stems = ordinary_stems()
    if f"-{word}" in stems:
        return False
    if stem(word) in stems or stem(word) + stem(word)[-1] in stems:  # "staffing" has the stem "staf"
        return True
    rest = _PREFIX.sub("", word, count=1)
    return rest != word and stem(rest) in stems


@cache
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("english", 0)


# ----------------------------------------------------------------------------------------------------------- word lists


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
def english_words() -> dict[str, float]:
    """The 16,000 most frequent words of English of no particular kind, and their shares (notice in the data file)."""
    return {word: int(count) / 1e7 for word, count in map(str.split, _lines("english_words.txt"))}


@cache
def place_adjectives() -> dict[str, str]:
    """Adjective -> place ("french" -> "france"), and back."""
    pairs = [line.split() for line in _lines("place_adjectives.txt")]
    return {one: other for pair in pairs for one, other in (pair, pair[::-1])}
