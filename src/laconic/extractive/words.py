"""Words of a sentence for the extractive methods: which stretches are words, their stems, and the stop words.

A word is a letter followed by letters, hyphens and apostrophes, as in sumy; numbers and punctuation are none.
The rule ``treebank`` first cuts a text as the Penn Treebank's tokenizer does ("don't" is "do" and "n't", "word,"
is "word" and ","; a full stop stays on its word except at the sentence's end, and "word." is not a word).
``blanks`` cuts at white space only, for text that is already tokenized; ``characters`` makes every letter of a
script without blanks a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

import Stemmer

from laconic.config.section import Section
from laconic.errors import ConfigError, unknown_choice
from laconic.extractive.english import stem_english

_DATA = Path(__file__).parent / "data"


class WordConfig(Section):
    """``stemmer``: a Snowball language or ``none``; ``stop_words``: ``english``, ``none`` or a file with one a line.

    ``word_rule`` ``auto`` is ``treebank``, or ``characters`` for a document mostly in a script without blanks.
    """

    stemmer: str = "english"
    stop_words: str = "english"
    word_rule: Literal["auto", "treebank", "blanks", "characters"] = "auto"


_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|['-])*")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")

# One chunk between blanks, with a blank on each side, is cut by these in turn (Treebank conventions).
_CUTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile('[«“‘„»”’;@#$%&?!*\\[\\](){}<>\u2012-\u2015"]|`+|\\.{2,}|--'), r" \g<0> "),
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
    """The words of one sentence by the rule ``treebank``."""
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


def blank_words(sentence: str) -> list[str]:
    """The words of one sentence by the rule ``blanks``."""
    return [word for word in sentence.split() if _WORD.fullmatch(word)]


def character_words(sentence: str) -> list[str]:
    """By the rule ``characters``: unspaced scripts letter by letter, other words whole."""
    return _WORD.findall(_UNSPACED.sub(r" \g<0> ", sentence))


_RULES: dict[str, Callable[[str], list[str]]] = {
    "blanks": blank_words,
    "characters": character_words,
    "treebank": treebank_words,
}


def cut_words(sentences: Sequence[str], rule: str) -> list[list[str]]:
    """The words of each sentence, cased as written."""
    if rule == "auto":
        text = "".join(sentences)
        rule = "characters" if 3 * len(_UNSPACED.findall(text)) > len(text) else "treebank"
    return [_RULES[rule](sentence) for sentence in sentences]


@cache
def stop_words(name: str) -> frozenset[str]:
    """Lower-case stop words: a list that comes with the toolkit, ``none``, or a file's lines.

    Raises:
        ConfigError: no such list and no such file.
    """
    if name == "none":
        return frozenset()
    path = _DATA / f"stop_words_{name}.txt"
    if not path.is_file():
        path = Path(name)
    if not path.is_file():
        lists = [file.stem.removeprefix("stop_words_") for file in _DATA.glob("stop_words_*.txt")]
        raise ConfigError(unknown_choice("stop-word list (and no such file)", name, [*lists, "none"]))
    lines = path.read_text(encoding="utf-8").splitlines()
    return frozenset(word.lower() for line in lines if not line.startswith("#") for word in line.split())


@cache
def stemmer(name: str) -> Callable[[str], str]:
    """A function from a lower-case word to its stem, remembering what it has seen.

    English is the Porter2 of Snowball before its 3.0 revision (`laconic.extractive.english`), so that picks equal
    sumy's; other languages are those of the installed Snowball.

    Raises:
        ConfigError: Snowball has no such language.
    """
    if name == "none":
        return str
    if name in ("english", "en"):
        return lru_cache(maxsize=200_000)(stem_english)
    try:
        return lru_cache(maxsize=200_000)(Stemmer.Stemmer(name).stemWord)
    except KeyError:
        raise ConfigError(unknown_choice("stemmer", name, [*Stemmer.algorithms(), "none"])) from None
