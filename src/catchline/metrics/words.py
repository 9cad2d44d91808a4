"""What a word is to measures of copying, repetition and faithfulness: a run of letters and digits, with accents, vowel
signs and apostrophes inside, in lower case; or a character of a script written without blanks. Stems, stop words; how
much of a summary is copied, and how much it repeats."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import accumulate, compress
from operator import eq
from pathlib import Path

import Stemmer

from catchline.metrics.overlap import ngrams
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


# --------------------------------------------------------------------------------------------- copying and repetition

Words = Sequence[str]
Runs = Sequence[int]
_NEAR = 3  # words within which a content word that comes again is heard
_PHRASE = 4  # words of a phrase that is heard wherever it comes again


def shared_runs(summary: Words, other: Words) -> Runs:
    """Of each word of the summary, how many words from there on are in a row in the other text: 0 if it lacks the
    word."""
    held = bytes(map(set(other).__contains__, summary)) + b"\0"
    runs, end = list(held[:-1]), 0
    start = held.find(b"\1\1")  # where a run may be longer than a word
    if start < 0:
        return runs
    mine, theirs = f" {' '.join(summary)} ", f" {' '.join(other)} "
    blanks = list(accumulate((len(word) + 1 for word in summary), initial=0))  # where they are in the first of the two
    while start >= 0:
        # the rest of a run is one, and a longer run is nowhere before a shorter one
        end, place = max(end, start + 1), 0
        while held[end] and (place := theirs.find(mine[blanks[start] : blanks[end + 1] + 1], place)) >= 0:
            end += 1
        runs[start] = end - start
        start = held.find(b"\1\1", start + 1)
    return runs


def novel_rate(summary: Words, runs: Runs, n: int) -> float | None:
    """The share of its distinct n-grams that the source, in which the summary has ``runs``, lacks; None without any."""
    if len(summary) < n:
        return None
    novel = {gram for gram, run in zip(ngrams(summary, n), runs, strict=False) if run < n}
    return len(novel) / len(set(ngrams(summary, n))) if novel else 0.0


def coverage_and_density(runs: Runs) -> tuple[float, float] | None:
    """The share of a summary's words in fragments shared with the source, and the sum of squared lengths of fragments
    over the summary's words; None for an empty summary. After Grusky et al. 2018, but that the fragment at a word is
    the longest run that the source has: their Figure 3 skips what a shorter match covers and may miss it."""
    lengths, end = [], 0
    for start, length in enumerate(runs):
        if length and start >= end:
            lengths.append(length)
            end = start + length
    return (sum(lengths) / len(runs), sum([length * length for length in lengths]) / len(runs)) if runs else None


def correct_counts(in_source: Runs, in_reference: Runs, longest: int) -> list[tuple[int, int]]:
    """CoCoNet's figure 4, for n up to ``longest``: the summary's n-grams that source and reference have, and all."""
    both = sorted(map(min, in_source, in_reference))
    return [(len(both) - bisect_left(both, n), max(0, len(both) - n + 1)) for n in range(1, longest + 1)]


def over_copied(summary: Words, in_source: Runs, in_reference: Runs) -> list[str]:
    """Words of the summary that the source has and the reference has not (CoCoNet section 5, our reading)."""
    return [word for word, run, known in zip(summary, in_source, in_reference, strict=True) if run and not known]


def repeated_ngram_rate(summary: Words, n: int) -> float | None:
    """1 - (distinct n-grams / n-grams): 0 when none repeats; None when there is none."""
    total = len(summary) - n + 1
    return 1.0 - len(set(ngrams(summary, n))) / total if total > 0 else None


def repeats(summary: Words) -> bool:
    """Would a reader say that these lower-cased words repeat themselves: a word or phrase right behind itself, a
    content word again within three words, a phrase of four again anywhere? Function words count in phrases with others
    only, and a number may come again."""
    # a phrase shorter than _PHRASE right behind itself has its words within _NEAR as well
    near = [word for apart in range(1, _NEAR + 1) for word in compress(summary, map(eq, summary, summary[apart:]))]
    if near and (any(map(_is_heard, near)) or _stutters(summary)):
        return True
    seen: set[Words] = set()
    for phrase in zip(*(summary[start:] for start in range(_PHRASE)), strict=False):
        if phrase in seen and any(map(_is_heard, phrase)):
            return True
        seen.add(phrase)
    return False


def _is_heard(word: str) -> bool:
    return not is_stop_word(word) and word.isalpha() and len(word) > 1


def _stutters(words: Words) -> bool:
    """A word or phrase right behind itself; of four words and more it is a phrase that comes again."""
    for length in range(1, min(_PHRASE, len(words) // 2 + 1)):
        run = 0  # how many words in a row equal the one `length` before
        for place, equal in enumerate(map(eq, words[length:], words), length):
            run = run + 1 if equal else 0
            if run == length and any(word.isalpha() for word in words[place - length + 1 : place + 1]):
                return True
    return False
