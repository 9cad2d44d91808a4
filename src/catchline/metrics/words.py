"""What a word is to measures of copying, repetition and faithfulness: a run of letters and digits, with accents, vowel
signs and apostrophes inside, in lower case; or a character of a script written without blanks. Stems, stop words."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path

import Stemmer

from catchline.text.normalization import MARKS, UNSPACED, without_invisible

_WHOLE = rf"{UNSPACED}\uac00-\ud7af"  # each character of these is a word
_RUN = rf"[^\W_{_WHOLE}]+(?:[{MARKS}]+[^\W_{_WHOLE}]*)*"
_CHARACTER = re.compile(rf"(?=\w)[{_WHOLE}][{MARKS}]*")
WORD = re.compile(rf"{_CHARACTER.pattern}|{_RUN}(?:['’]{_RUN})*")
_APOSTROPHE = re.compile(r"'(?:(?![A-Za-z0-9])|(?<![A-Za-z0-9]'))")  # one that is not within a word
_ASCII_SIGNS = {code: " " for code in range(128) if not chr(code).isalnum() and chr(code) != "'"}
_SHORT_FORMS = (  # of fewer letters than those of ROUGE's exception lists
    "met:meet led:lead ran:run won:win fed:feed men:man sat:sit saw:see got:get ate:eat dug:dig hid:hide lit:light"
)
_STEMMER = Stemmer.Stemmer("english", 0)
_DATA = Path(__file__).parent / "data"


def words(text: str) -> list[str]:
    """The lower-cased words of ``text``, punctuation left out."""
    if not text.isascii():
        return WORD.findall(lowered(without_invisible(text)))
    plain = _APOSTROPHE.sub(" ", text) if "'" in text else text
    return plain.lower().translate(_ASCII_SIGNS).split()


def lowered(text: str) -> str:
    """``text`` in lower case with every character in its place; the few whose lower case is longer stay."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c if len(c.lower()) > 1 else c.lower() for c in text)


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
    return _STEMMER.stemWord(_base_forms().get(bare, bare))


@cache
def _base_forms() -> dict[str, str]:
    return wordnet_exceptions() | dict(pair.split(":") for pair in _SHORT_FORMS.split())


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
