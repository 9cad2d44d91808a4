"""Words of a sentence for the extractive methods: which stretches are words, stop words, stems, and the counts of them.

A word is a letter followed by letters, hyphens and apostrophes, as in sumy; numbers and punctuation are none.
A text is first cut as the Penn Treebank's tokenizer does ("don't" is "do" and "n't", "word,"
is "word" and ","; a full stop stays on its word except at the sentence's end, and "word." is not a word).
In a document mostly in a script without blanks every letter of it is a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, cached_property, lru_cache
from itertools import chain
from pathlib import Path

import numpy as np
import Stemmer

from catchline.errors import ConfigError, unknown_choice
from catchline.extractive.base import WordsConfig
from catchline.metrics.rouge_text import longest_suffix
from catchline.text.normalization import MARKS, UNSPACED

_DATA = Path(__file__).parent / "data"

_WORD = re.compile(rf"[^\W\d_](?:[^\W\d_]|['{MARKS}-])*")
_UNSPACED = re.compile(rf"(?=\w)[{UNSPACED}][{MARKS}]*")

# One chunk between blanks, with a blank on each side, is cut by these in turn (Treebank conventions).
_CUTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile('[«“‘„»”’;@#$%&?!¿¡،؛؟۔।॥*\\[\\](){}<>\u2012-\u2015"]|`+|\\.{2,}|--'), r" \g<0> "),
    (re.compile(r"(?i)(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)"), "' "),
    (re.compile(r"([:,])(?=\D)"), r" \1 "),
    (re.compile(r"''"), " '' "),
    (re.compile(r"(?<=[^' ])('[sSmMdD]|') "), r" \1 "),
    (re.compile(r"(?<=[^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) "), r" \1 "),
    (re.compile(r"(?i)\b(can)(not)\b"), r" \1 \2 "),
    (re.compile(r"(?i)\b(d)('ye)\b"), r" \1 \2 "),
    (re.compile(r"(?i)\b(gim|lem)(me)\b"), r" \1 \2 "),
    (re.compile(r"(?i)\b(gon|wan)(na)\b"), r" \1 \2 "),
    (re.compile(r"(?i)\b(got)(ta)\b"), r" \1 \2 "),
    (re.compile(r"(?i)\b(more)('n)\b"), r" \1 \2 "),
    (re.compile(r"(?i) ('t)(is|was)\b"), r" \1 \2 "),
)
_JOINED = frozenset({"cannot", "gimme", "lemme", "gonna", "wanna", "gotta"})  # what the cuts part inside letters
_FINAL_STOP = re.compile(r"(?<=[^.])(\.)([\])}>\"'»”’ ]*)$")
_CLOSERS = re.compile("(?!'')[\\])}>'»”’][\\])}>\"'»”’]*")  # what may stand alone after the last full stop


@lru_cache(maxsize=200_000)
def _chunk_words(chunk: str, final: bool) -> tuple[str, ...]:
    """The words in one stretch without blanks; ``final`` if it ends its sentence."""
    if chunk.isalpha():  # the common cases need no cutting
        if chunk.lower() not in _JOINED:
            return (chunk,)
    elif chunk[:-1].isalpha() and chunk[-1] in ".,;:?!" and chunk[:-1].lower() not in _JOINED:
        return (chunk[:-1],) if final or chunk[-1] != "." else ()
    if final:
        chunk = _FINAL_STOP.sub(r" \1 \2 ", chunk)
    text = f" {chunk} "
    for pattern, replacement in _CUTS:
        text = pattern.sub(replacement, text)
    return tuple(word for word in text.split() if _WORD.fullmatch(word))


def treebank_words(sentence: str) -> list[str]:
    """The words of one sentence, cut as the Penn Treebank's tokenizer does."""
    chunks = sentence.split()
    if not chunks:
        return []
    end = len(chunks) - 1
    while end and _CLOSERS.fullmatch(chunks[end]):
        end -= 1
    words: list[str] = []
    for place, chunk in enumerate(chunks):
        words.extend(_chunk_words(chunk, place == end))
    return words


def character_words(sentence: str) -> list[str]:
    """Unspaced scripts letter by letter, other words whole."""
    return _WORD.findall(_UNSPACED.sub(r" \g<0> ", sentence))


def cut_words(sentences: Sequence[str]) -> list[list[str]]:
    """The words of each sentence, cased as written."""
    text = "".join(sentences)
    rule = character_words if 3 * len(_UNSPACED.findall(text)) > len(text) else treebank_words
    return [rule(sentence) for sentence in sentences]


@cache
def stop_words(name: str) -> frozenset[str]:
    """Lower-case stop words: a list that comes with the toolkit, ``none``, or a file's lines.

    Raises:
        ConfigError: no such list and no such file, or one that cannot be read.
    """
    if name == "none":
        return frozenset()
    lists = {file.stem.removeprefix("stop_words_"): file for file in _DATA.glob("stop_words_*.txt")}
    try:
        lines = lists.get(name, Path(name)).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ConfigError(f"The file of stop words {name} is not UTF-8 text; save it as such.") from None
    except (OSError, ValueError):  # a name with NUL is a ValueError
        raise ConfigError(unknown_choice("stop-word list (and no file to read)", name, [*lists, "none"])) from None
    return frozenset(word.lower() for line in lines if not line.startswith("#") for word in line.split())


@cache
def stemmer(name: str) -> Callable[[str], str]:
    """A function from a lower-case word to its stem, remembering what it has seen.

    English is `stem_english`, so that picks equal sumy's; other languages are those of the installed Snowball.

    Raises:
        ConfigError: Snowball has no such language.
    """
    if name == "none":
        return str
    if name in ("english", "en"):
        return lru_cache(maxsize=200_000)(stem_english)
    try:
        return lru_cache(maxsize=200_000)(Stemmer.Stemmer(name).stemWord)
    except (KeyError, UnicodeEncodeError):
        raise ConfigError(unknown_choice("stemmer", name, [*Stemmer.algorithms(), "none"])) from None


# -------------------------------------------------------------------------------------------------------- English stems

# The Porter2 ("Snowball English") stemmer, as published before Snowball 3.0 and as NLTK has it. Snowball 3 changed some
# frequent words ("organization", "international", "added"); picks that shall equal those of tools that use the older
# algorithm, whichever Snowball is installed, need the older algorithm. Regions: R1 is what follows the first consonant
# after a vowel, R2 the same within R1; a, e, i, o, u, y are vowels, except that a y at the start or after a vowel is a
# consonant (written Y below).

_VOWELS = "aeiouy"
_SPECIAL = {
    **{word: word for word in ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes")},
    **{f"{word}{s}": word for word in ("inning", "outing", "canning", "herring", "earring") for s in ("", "s")},
    **{f"{word}{end}": word for word in ("proceed", "exceed", "succeed") for end in ("", "s", "ed", "ing")},
    "skis": "ski", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "idly": "idl", "gently": "gentl",
    "ugly": "ugli", "early": "earli", "only": "onli", "singly": "singl",
}  # fmt: skip
# Suffix -> what takes its place, the longest first.
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
_STEP_4 = dict.fromkeys(
    ("ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize", "ion",
     "al", "er", "ic"), "",
)  # fmt: skip
_ONLY_AFTER = {"ogi": frozenset("l"), "li": frozenset("cdeghkmnrt"), "ion": frozenset("st")}  # suffix -> letters
_DOUBLE = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")
_REGION = re.compile(r"[aeiouy][^aeiouy]")


def _regions(word: str) -> tuple[int, int]:
    """Where R1 and R2 begin."""
    first = re.match("gener|commun|arsen", word) or _REGION.search(word)
    if first is None:
        return len(word), len(word)
    second = _REGION.search(word, first.end())
    return first.end(), second.end() if second else len(word)


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
    suffix = longest_suffix(word, ("eedly", "ingly", "edly", "eed", "ing", "ed"))
    stem = word[: len(word) - len(suffix)] if suffix else word
    if suffix in ("eed", "eedly"):
        return stem + "ee" if len(stem) >= r1 else word
    if not suffix or not _has_vowel(stem):
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if stem.endswith(_DOUBLE):
        return stem[:-1]
    return stem + "e" if r1 >= len(stem) and _ends_short_syllable(stem) else stem


def _exchange(word: str, region: int, endings: dict[str, str]) -> str:
    """Exchange the longest of the ``endings`` if it lies in the region and may stand after the letter before it."""
    suffix = longest_suffix(word, tuple(endings))
    stem = word[: len(word) - len(suffix)]
    if not suffix or len(stem) < region or (suffix in _ONLY_AFTER and stem[-1:] not in _ONLY_AFTER[suffix]):
        return word
    return stem + endings[suffix]


def _step_5(word: str, r1: int, r2: int) -> str:
    last = len(word) - 1
    if word.endswith("e") and (last >= r2 or (last >= r1 and not _ends_short_syllable(word[:-1]))):
        return word[:-1]
    if word.endswith("ll") and last >= r2:
        return word[:-1]
    return word


def _r2_after(before: str, after: str, r2: int, suffixes: tuple[str, ...]) -> int:
    suffix = longest_suffix(before, suffixes)
    return len(before) if suffix and before != after and len(before) - len(suffix) < r2 else r2


def stem_english(word: str) -> str:
    """The stem of a lower-case word; words of one or two letters are their own."""
    if len(word) <= 2 or word in _SPECIAL:
        return _SPECIAL.get(word, word)
    if not word.isascii():
        word = word.replace("\u2019", "'").replace("\u2018", "'").replace("\u201b", "'")
    word = word.removeprefix("'")
    word = re.sub("(^|[aeiouy])y", r"\1Y", word) if "y" in word else word
    r1, r2 = _regions(word)
    word = word.removesuffix("'").removesuffix("'s") if not word.endswith("'s'") else word[:-3]
    word = _step_1a(word)
    word = _step_1b(word, r1)
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
        word = word[:-1] + "i"
    # NLTK empties R2 where one of these suffixes is exchanged and R2 is the shorter ("realization": "realize").
    before, word = word, _exchange(word, r1, _STEP_2)
    r2 = _r2_after(before, word, r2, ("ization", "izer"))
    before, word = word, word if word.endswith("ative") and len(word) - 5 < r2 else _exchange(word, r1, _STEP_3)
    r2 = _r2_after(before, word, r2, ("ational",))
    word = _step_5(_exchange(word, r2, _STEP_4), r1, r2)
    return word.replace("Y", "y")


# ---------------------------------------------------------------------------------------------- the sentence-term model


class SentenceTerms:
    """The words of a document's sentences. Terms are numbered by first appearance, so nothing depends on hashes.

    ``words`` are cased as written, ``lowered`` in lower case; ``stems`` has the stem of every word, stop words
    too; ``content`` the term numbers of the words that are no stop words.
    """

    def __init__(self, sentences: Sequence[str], config: WordsConfig) -> None:
        self.stops = stop_words(config.stop_words)
        self._stem = stemmer(config.stemmer)
        self.words = cut_words(sentences)
        self.lowered = [[word.lower() for word in words] for words in self.words]

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def stems(self) -> list[list[str]]:
        return [list(map(self._stem, words)) for words in self.lowered]

    @cached_property
    def _content_stems(self) -> list[list[str]]:
        stops = self.stops
        return [
            [stem for word, stem in zip(words, stems, strict=True) if word not in stops]
            for words, stems in zip(self.lowered, self.stems, strict=True)
        ]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Term -> number; the terms are the stems of content words."""
        return {stem: number for number, stem in enumerate(dict.fromkeys(chain.from_iterable(self._content_stems)))}

    @cached_property
    def content(self) -> list[list[int]]:
        return [list(map(self.numbers.__getitem__, stems)) for stems in self._content_stems]

    @cached_property
    def lengths(self) -> np.ndarray:
        """How many content words each sentence has, (sentences,)."""
        return np.array([len(terms) for terms in self.content])

    @cached_property
    def counts(self) -> np.ndarray:
        """How often a term stands in a sentence, (sentences, terms), content words only."""
        return count_matrix(self.content, len(self.numbers))

    @cached_property
    def counts_of_all(self) -> np.ndarray:
        """The same, but a stop word counts too where its stem is a term (as in sumy's LSA)."""
        numbers = self.numbers
        every = [[numbers[stem] for stem in stems if stem in numbers] for stems in self.stems]
        return count_matrix(every, len(numbers))


def count_matrix(rows: Sequence[Sequence[int]], width: int) -> np.ndarray:
    """Counts of integers by row, (rows, width) float64."""
    keys = [place * width + number for place, row in enumerate(rows) for number in row]
    return np.bincount(keys, minlength=len(rows) * width).astype(np.float64).reshape(len(rows), width)
