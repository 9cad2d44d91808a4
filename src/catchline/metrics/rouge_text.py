"""From text to word ids for ROUGE, where each profile (`TEXTS`) cuts and stems as the scorer whose numbers it gives."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from catchline.metrics.words import smart_stop_words, wordnet_exceptions
from catchline.text.normalization import UNIT, UNSPACED, without_invisible

_STOPPED = -1


class RougeText(dict):
    """Word -> id, by the word's normal form; equal ids are all that counts. The options are those of
    `catchline.metrics.rouge.RougeOptions`."""

    def __init__(self, profile: str, stem: bool, exceptions: bool, remove_stop_words: bool = False) -> None:
        super().__init__()
        self._words, self._stem = TEXTS[profile]
        self._stems, self._forms = stem, dict[str, int]()
        self._stops = smart_stop_words() if remove_stop_words else frozenset()
        self._exceptions = wordnet_exceptions() if stem and exceptions else {}

    def __missing__(self, word: bytes | str) -> int:
        form = word.decode("ascii") if isinstance(word, bytes) else word
        number = _STOPPED
        if form not in self._stops:
            if self._stems and len(form) > 3:
                form = self._exceptions.get(form) or self._stem(form)
            number = self._forms.setdefault(form, len(self._forms))
        self[word] = number
        return number

    def ids(self, text: str) -> list[int]:
        """Those of the words of a text that are not dropped."""
        found = list(map(self.__getitem__, self._words(text)))
        return [number for number in found if number >= 0] if self._stops else found


# Bytes in, bytes out: A-Z to a-z, a-z and 0-9 kept, all else (every byte of a non-ASCII character too) a blank.
_ASCII_WORDS = bytes(
    code + 32 if 65 <= code <= 90 else code if 97 <= code <= 122 or 48 <= code <= 57 else 32 for code in range(256)
)
_CHARACTERS = re.compile(r"<unk>|\S")
# Of scripts written without blanks between words each character is one, with its vowel signs.
_UNSPACED = re.compile(f"[{UNSPACED}]")


class _CharacterClasses(dict):
    """For ``str.translate``: letters, marks and digits stay, all else is a blank."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kept = unicodedata.category(character)[0] in "LMN" or character in "\u200c\u200d"  # joiners of Persian, Hindi
        self[code] = result = character if kept else " "
        return result


_CHARACTER_CLASSES = _CharacterClasses()


# ------------------------------------------------------------------------------------------------------------- stemmers

# Porter's stemmer (Program 14(3), 1980) in the two dialects that ROUGE scorers use. A word is seen as ``[C](VC)^m[V]``
# where C and V are runs of consonants and vowels (a, e, i, o, u, and y after a consonant); m is the measure.
#
# * `stem_rouge155` departs from the paper in step 4: after the list of suffixes it tries ``-ment``, then ``-ent`` or
#   ``-(s|t)ion`` on whatever is left ("fundamental" becomes "fundam"); ``-bli`` and ``-logi`` are its other additions.
# * `stem_nltk` is what rouge-score uses: NLTK's extended variant, with a few irregular words, ``-ies`` and ``-ied``
#   after one letter, ``-fulli``, and a step for ``-y`` after a consonant only.

_Endings = tuple[tuple[str, ...], dict[str, str]]


def _ordered(endings: dict[str, str]) -> _Endings:
    """The suffixes, the longest first, and what takes the place of each."""
    return tuple(sorted(endings, key=len, reverse=True)), endings


_STEP_2 = {
    "ational": "ate", "ization": "ize", "iveness": "ive", "fulness": "ful", "ousness": "ous", "tional": "tion",
    "biliti": "ble", "entli": "ent", "ousli": "ous", "ation": "ate", "alism": "al", "aliti": "al", "iviti": "ive",
    "enci": "ence", "anci": "ance", "izer": "ize", "alli": "al", "ator": "ate", "logi": "log", "bli": "ble", "eli": "e",
}  # fmt: skip
_STEP_4 = dict.fromkeys(
    ("ement", "ance", "ence", "able", "ible", "ant", "ism", "ate", "iti", "ous", "ive", "ize", "al", "er", "ic", "ou"),
    "",
)
_ENDINGS_2, _ENDINGS_2_NLTK = _ordered(_STEP_2), _ordered(_STEP_2 | {"fulli": "ful"})
_ENDINGS_3 = _ordered({"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ness": "", "ful": ""})
_ENDINGS_4, _ENDINGS_4_NLTK = _ordered(_STEP_4), _ordered(_STEP_4 | {"ment": "", "ent": "", "ion": ""})
_IRREGULAR = {
    **{word: word for word in ("sky", "news", "howe", "proceed", "exceed", "succeed")},
    **{f"{word}{s}": word for word in ("inning", "outing", "canning") for s in ("", "s")},
    "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie",
}  # fmt: skip


_KINDS = bytes(118 if code in b"aeiou" else 121 if code == 121 else 99 for code in range(256))  # v, y or c


def _shape(word: str) -> bytes:
    """One letter a character: ``v`` for vowels, ``c`` for consonants."""
    shape = word.encode("latin-1", "replace").translate(_KINDS)
    while (place := shape.find(b"y")) >= 0:
        vowel = place > 0 and shape[place - 1] == 99
        shape = shape.replace(b"y", b"v" if vowel else b"c", 1)
    return shape


def _measure(word: str) -> int:
    return _shape(word).count(b"vc")


def _has_vowel(word: str) -> bool:
    return b"v" in _shape(word)


def _is_short(word: str, nltk: bool) -> bool:
    """Porter's condition *o: consonant, vowel, consonant but w, x, y; in NLTK's also a vowel and a consonant alone."""
    return (word[-1] not in "wxy" and _shape(word)[-3:] == b"cvc") or (nltk and _shape(word) == b"vc")


def _replace(word: str, endings: _Endings, least: int) -> str:
    """Replace the longest listed suffix if the stem before it has a measure of more than ``least``."""
    suffixes, replacements = endings
    if not word.endswith(suffixes):
        return word
    suffix = next(suffix for suffix in suffixes if word.endswith(suffix))
    stem = word[: -len(suffix)]
    return stem + replacements[suffix] if _measure(stem) > least else word


def _step_1a(word: str, nltk: bool) -> str:
    if word.endswith(("sses", "ies")) and not (nltk and len(word) == 4 and word[1] == "i"):
        return word[:-2]
    return word if word[-2] == "s" else word[:-1]


def _step_1b(word: str, nltk: bool) -> str:
    """``-eed``, ``-ed``, ``-ing`` and the repairs after them."""
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    stem = word[:-2] if word.endswith("ed") else word[:-3] if word.endswith("ing") else ""
    if not stem or not _has_vowel(stem):
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if stem[-2:-1] == stem[-1] and stem[-1] not in ("lsz" if nltk else "lszy") and _shape(stem)[-1] == 99:
        return stem[:-1]
    return stem + "e" if _measure(stem) == 1 and _is_short(stem, nltk) else stem


def _step_2_nltk(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]) > 0:
        return _step_2_nltk(word[:-2])
    if word.endswith("logi"):  # the l counts as part of the stem
        return word[:-1] if _measure(word[:-3]) > 0 else word
    return _replace(word, _ENDINGS_2_NLTK, 0)


def _step_4(word: str) -> str:
    """The list, then ``-ment``, then ``-ent`` or ``-ion`` after s or t."""
    word = _replace(word, _ENDINGS_4, 1)
    if word[-1] not in "nt":
        return word
    if word.endswith("ment") and _measure(word[:-4]) > 1:
        word = word[:-4]
    return word[:-3] if word.endswith(("ent", "sion", "tion")) and _measure(word[:-3]) > 1 else word


def _step_4_nltk(word: str) -> str:
    if word.endswith("ion") and word[-4:-3] not in ("s", "t"):
        return word
    return _replace(word, _ENDINGS_4_NLTK, 1)


def _step_5(word: str, nltk: bool) -> str:
    if word.endswith("e"):
        stem = word[:-1]
        measure = _measure(stem)
        if measure > 1 or (measure == 1 and not _is_short(stem, nltk)):
            word = stem
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _porter(word: str, nltk: bool) -> str:
    """Each step is tried only on words whose last letter can end one of its suffixes."""
    if word[-1] == "s":
        word = _step_1a(word, nltk)
    if nltk and word.endswith("ied"):
        word = word[:-1] if len(word) == 4 else word[:-2]
    elif word[-1] in "dg":
        word = _step_1b(word, nltk)
    if word[-1] == "y" and (len(word) > 2 and _shape(word)[-2] == 99 if nltk else _has_vowel(word[:-1])):
        word = word[:-1] + "i"
    if word[-1] in "ilmnrs":
        word = _step_2_nltk(word) if nltk else _replace(word, _ENDINGS_2, 0)
    if word[-1] in "eils":
        word = _replace(word, _ENDINGS_3, 0)
    if word[-1] in "ceilmnrstu":
        word = _step_4_nltk(word) if nltk else _step_4(word)
    return _step_5(word, nltk) if word[-1] in "el" else word


@lru_cache(maxsize=200_000)
def stem_rouge155(word: str) -> str:
    """Stem a lower-case ASCII word as ROUGE-1.5.5 does (exception lists are looked up before, not here)."""
    return word if len(word) < 3 else _porter(word, nltk=False)


@lru_cache(maxsize=200_000)
def stem_nltk(word: str) -> str:
    """Stem a lower-case word as NLTK's ``PorterStemmer`` does in its default (extended) mode."""
    if len(word) < 3 or word in _IRREGULAR:
        return _IRREGULAR.get(word, word)
    return _porter(word, nltk=True)


# ------------------------------------------------------------------------------------------------------------- profiles


def _ascii_words(text: str) -> list[bytes]:
    return text.encode("utf-8", "replace").translate(_ASCII_WORDS).split()


def _unicode_words(text: str) -> list[str]:
    kept = unicodedata.normalize("NFKC", without_invisible(text)).casefold().translate(_CHARACTER_CLASSES)
    return UNIT.findall(kept) if _UNSPACED.search(kept) else kept.split()


# Profile -> what cuts a text into words, and what stems a word.
TEXTS: dict[str, tuple[Callable[[str], list], Callable[[str], str]]] = {
    # LCSTS: every character is a word, and so is ``<unk>``. Equal to numbering the characters and giving the numbers to
    # ROUGE-1.5.5, as the field does because the tool drops what is not ASCII.
    "characters": (_CHARACTERS.findall, str),
    # rouge-score: lower-cased as Unicode, then runs of ASCII letters and digits; NLTK's stemmer.
    "google": (lambda text: _ascii_words(text.lower()), stem_nltk),
    # The distraction paper's scorer: words are what stands between blanks, case and punctuation count.
    "plain": (str.split, str),
    # ROUGE-1.5.5: runs of ASCII letters and digits, lower-cased byte by byte; everything else is a gap.
    "rouge155": (_ascii_words, stem_rouge155),
    # Any script: NFKC without invisible characters, case folded, runs of letters, marks and digits; by character where
    # scripts have no blanks.
    "unicode": (_unicode_words, lambda word: stem_rouge155(word) if word.isascii() else word),
}
