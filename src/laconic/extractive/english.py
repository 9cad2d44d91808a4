"""The Porter2 ("Snowball English") stemmer, as published before Snowball 3.0 and as NLTK has it.

Snowball 3 changed some frequent words ("organization", "international", "added"); picks that shall equal those of
tools that use the older algorithm need the older algorithm. Regions: R1 is what follows the first consonant after
a vowel, R2 the same within R1; a, e, i, o, u, y are vowels, except that a y at the start or after a vowel is a
consonant (written Y below).
"""

from __future__ import annotations

import re

_VOWELS = "aeiouy"
_SPECIAL = {
    "skis": "ski", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "idly": "idl", "gently": "gentl",
    "ugly": "ugli", "early": "earli", "only": "onli", "singly": "singl", "sky": "sky", "news": "news", "howe": "howe",
    "atlas": "atlas", "cosmos": "cosmos", "bias": "bias", "andes": "andes", "inning": "inning", "innings": "inning",
    "outing": "outing", "outings": "outing", "canning": "canning", "cannings": "canning", "herring": "herring",
    "herrings": "herring", "earring": "earring", "earrings": "earring", "proceed": "proceed", "proceeds": "proceed",
    "proceeded": "proceed", "proceeding": "proceed", "exceed": "exceed", "exceeds": "exceed", "exceeded": "exceed",
    "exceeding": "exceed", "succeed": "succeed", "succeeds": "succeed", "succeeded": "succeed",
    "succeeding": "succeed",
}  # fmt: skip
_STEP_2 = {
    "ization": "ize", "ational": "ate", "fulness": "ful", "ousness": "ous", "iveness": "ive", "tional": "tion",
    "biliti": "ble", "lessli": "less", "entli": "ent", "ation": "ate", "alism": "al", "aliti": "al", "ousli": "ous",
    "iviti": "ive", "fulli": "ful", "enci": "ence", "anci": "ance", "abli": "able", "izer": "ize", "ator": "ate",
    "alli": "al", "bli": "ble", "ogi": "og", "li": "",
}  # fmt: skip
_STEP_3 = {
    "ational": "ate", "tional": "tion", "alize": "al", "icate": "ic", "iciti": "ic", "ative": "", "ical": "ic",
    "ness": "", "ful": "",
}  # fmt: skip
_STEP_4 = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize", "ion",
    "al", "er", "ic",
)  # fmt: skip
_DOUBLE = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")
_LI = frozenset("cdeghkmnrt")
_REGION = re.compile(r"[aeiouy][^aeiouy]")


def _regions(word: str) -> tuple[int, int]:
    """Where R1 and R2 begin."""
    first = re.match("gener|commun|arsen", word)
    if first is None:
        first = _REGION.search(word)
    if first is None:
        return len(word), len(word)
    second = _REGION.search(word, first.end())
    return first.end(), second.end() if second else len(word)


def _longest(word: str, suffixes: tuple[str, ...]) -> str:
    if not word.endswith(suffixes):
        return ""
    return next(suffix for suffix in suffixes if word.endswith(suffix))


_SUFFIXES_2 = tuple(sorted(_STEP_2, key=len, reverse=True))
_SUFFIXES_3 = tuple(sorted(_STEP_3, key=len, reverse=True))
_SUFFIXES_4 = tuple(sorted(_STEP_4, key=len, reverse=True))


def _mark_consonant_y(word: str) -> str:
    if "y" not in word:
        return word
    letters = list(word)
    for index, letter in enumerate(letters):
        if letter == "y" and (index == 0 or letters[index - 1] in _VOWELS):
            letters[index] = "Y"
    return "".join(letters)


def _is_short(word: str, r1: int) -> bool:
    """R1 is empty and the word ends in a short syllable."""
    if r1 < len(word) or len(word) < 2:
        return False
    if len(word) == 2:
        return word[0] in _VOWELS and word[1] not in _VOWELS
    return word[-1] not in "aeiouywxY" and word[-2] in _VOWELS and word[-3] not in _VOWELS


def _ends_short_syllable(word: str) -> bool:
    if len(word) == 2:
        return word[0] in _VOWELS and word[1] not in _VOWELS
    return len(word) > 2 and word[-1] not in "aeiouywxY" and word[-2] in _VOWELS and word[-3] not in _VOWELS


def _has_vowel(word: str) -> bool:
    return any(letter in _VOWELS for letter in word)


def _step_1a(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith(("us", "ss")) or not word.endswith("s"):
        return word
    return word[:-1] if _has_vowel(word[:-2]) else word


def _step_1b(word: str, r1: int) -> str:
    suffix = _longest(word, ("eedly", "ingly", "edly", "eed", "ing", "ed"))
    stem = word[: len(word) - len(suffix)] if suffix else word
    if suffix in ("eed", "eedly"):
        return stem + "ee" if len(stem) >= r1 else word
    if not suffix or not _has_vowel(stem):
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if stem.endswith(_DOUBLE):
        return stem[:-1]
    return stem + "e" if _is_short(stem, min(r1, len(stem))) else stem


def _step_2(word: str, r1: int) -> str:
    suffix = _longest(word, _SUFFIXES_2)
    stem = word[: len(word) - len(suffix)] if suffix else word
    if not suffix or len(stem) < r1:
        return word
    if suffix == "ogi" and not stem.endswith("l"):
        return word
    if suffix == "li" and stem[-1:] not in _LI:
        return word
    return stem + _STEP_2[suffix]


def _step_3(word: str, r1: int, r2: int) -> str:
    suffix = _longest(word, _SUFFIXES_3)
    stem = word[: len(word) - len(suffix)] if suffix else word
    if not suffix or len(stem) < r1 or (suffix == "ative" and len(stem) < r2):
        return word
    return stem + _STEP_3[suffix]


def _step_4(word: str, r2: int) -> str:
    suffix = _longest(word, _SUFFIXES_4)
    stem = word[: len(word) - len(suffix)] if suffix else word
    if not suffix or len(stem) < r2 or (suffix == "ion" and stem[-1:] not in ("s", "t")):
        return word
    return stem


def _step_5(word: str, r1: int, r2: int) -> str:
    last = len(word) - 1
    if word.endswith("e") and (last >= r2 or (last >= r1 and not _ends_short_syllable(word[:-1]))):
        return word[:-1]
    if word.endswith("ll") and last >= r2:
        return word[:-1]
    return word


def _r2_after(before: str, after: str, r2: int, suffixes: tuple[str, ...]) -> int:
    suffix = _longest(before, suffixes)
    return len(before) if suffix and before != after and len(before) - len(suffix) < r2 else r2


def stem_english(word: str) -> str:
    """The stem of a lower-case word; words of one or two letters are their own."""
    if len(word) <= 2 or word in _SPECIAL:
        return _SPECIAL.get(word, word)
    if not word.isascii():
        word = word.replace("\u2019", "'").replace("\u2018", "'").replace("\u201b", "'")
    word = word.removeprefix("'")
    word = _mark_consonant_y(word)
    r1, r2 = _regions(word)
    word = word.removesuffix("'").removesuffix("'s") if not word.endswith("'s'") else word[:-3]
    word = _step_1a(word)
    word = _step_1b(word, r1)
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
        word = word[:-1] + "i"
    # NLTK empties R2 where one of these suffixes is exchanged and R2 is the shorter ("realization": "realize").
    before, word = word, _step_2(word, r1)
    r2 = _r2_after(before, word, r2, ("ization", "izer"))
    before, word = word, _step_3(word, r1, r2)
    r2 = _r2_after(before, word, r2, ("ational",))
    word = _step_4(word, r2)
    word = _step_5(word, r1, r2)
    return word.replace("Y", "y")
