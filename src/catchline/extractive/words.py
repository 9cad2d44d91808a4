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
from catchline.text.normalization import MARKS, UNSPACED, without_invisible

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


def cut_words(sentences: Sequence[str]) -> list[list[str]]:
    """The words of each sentence, cased as written, without invisible characters; in a text mostly in scripts without
    blanks its letters."""
    text, sentences = "".join(sentences), list(map(without_invisible, sentences))
    if 3 * len(_UNSPACED.findall(text)) > len(text):
        return [_WORD.findall(_UNSPACED.sub(r" \g<0> ", sentence)) for sentence in sentences]
    return list(map(treebank_words, sentences))


@cache
def stop_words(name: str) -> frozenset[str]:
    """Lower-case stop words: a list that comes with the toolkit, ``none``, or a file's lines. Raises ConfigError where
    there is neither, or the file cannot be read."""
    if name == "none":
        return frozenset()
    lists = {file.stem.removeprefix("stop_words_"): file for file in _DATA.glob("stop_words_*.txt")}
    try:
        lines = lists.get(name, Path(name)).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ConfigError(f"The file of stop words {name} is not UTF-8; save it as UTF-8.") from None
    except (OSError, ValueError):  # a name with NUL is a ValueError
        raise ConfigError(unknown_choice("stop-word list (and no file to read)", name, [*lists, "none"])) from None
    return frozenset(word.lower() for line in lines if not line.startswith("#") for word in line.split())


@cache
def stemmer(name: str) -> Callable[[str], str]:
    """A function from a lower-case word to its stem, remembering what it has seen. English is `stem_english`, so that
    picks equal sumy's; other languages are Snowball's. Raises ConfigError where it has no such language."""
    if name == "none":
        return str
    if name in ("english", "en"):
        return lru_cache(maxsize=200_000)(stem_english)
    try:
        return lru_cache(maxsize=200_000)(Stemmer.Stemmer(name).stemWord)
    except (KeyError, UnicodeEncodeError):
        raise ConfigError(unknown_choice("stemmer", name, [*Stemmer.algorithms(), "none"])) from None


# Picks that equal those of tools with older stems (sumy, NLTK) need the stems of Porter2 before Snowball 3.0,
# whichever Snowball is installed. 3.0 has other regions for words that begin as `_NEWER` has it, keeps "add" of
# "adding", and cuts "-ogist". NLTK keeps the e of "-ize" where the suffix reaches beyond R2 ("realization":
# "realize").
_SNOWBALL = Stemmer.Stemmer("english").stemWord
_NEWER = re.compile("inter|univers|emerg|organ|later|past")
_SPECIAL = {"evening": "even", "evenings": "even", "vying": "vy"}
_APOSTROPHES = str.maketrans("\u2018\u2019\u201b", "'''")
_DOUBLE = frozenset(("add", "all", "ass", "ebb", "egg", "ell", "err", "ess", "odd", "off"))
_KEEPS_E = re.compile(r"(ization|izer|ational(?=ly|it))(?:ly|ity|ities)?(?:'?s'?|')?\Z")
_REGION = re.compile(r"[aeiouy][^aeiouy]")


def stem_english(word: str) -> str:
    """The stem of a lower-case word; words of one or two letters are their own."""
    if len(word) <= 2:
        return word
    word = word.translate(_APOSTROPHES).removeprefix("'")
    if special := _SPECIAL.get(word.removesuffix("'s")):
        return special
    known = word
    if _NEWER.match(word):  # another vowel, or another consonant, in front
        known = ("b" if word[0] in "lp" else "e" if word[0] == "a" else "a") + word[1:]
    stem = _SNOWBALL(known.replace("ogist", "ogyst")).replace("ogyst", "ogist")
    if stem in _DOUBLE and word.endswith(("ed", "ing", "edly", "ingly")):
        stem = stem[:2]
    elif (suffix := _KEEPS_E.search(word)) and stem.endswith(("iz", "at")) and stem[-3:-2] not in "aeiouy":
        stem += "e" if _second_region(word) > suffix.start() > 0 else ""
    return stem if known is word else word[0] + stem[1:]


def _second_region(word: str) -> int:
    """Where R2 begins: behind the second vowel with a consonant behind it."""
    first = re.match("gener|commun|arsen", word) or _REGION.search(word)
    second = _REGION.search(word, first.end()) if first else None
    return second.end() if second else len(word)


class SentenceTerms:
    """The words of a document's sentences. Terms are numbered by first appearance, so nothing depends on hashes.
    ``words`` are cased as written, ``lowered`` in lower case; ``stems`` has the stem of every word, stop words too;
    ``content`` the term numbers of the words that are no stop words."""

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
