"""What is dropped of a summary before it is shown: doubled words and phrases, a name that the source does not give,
a dangling end, stray signs, rulers (=====), UNK.

Only whole words are dropped and nothing is added. What the source says itself stays: a doubled name (``Duran Duran``),
signs in a row, a sentence that ends in a preposition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from catchline.text.normalization import DANGLING, may_not_repeat
from catchline.text.sentences import RULER

LONGEST_PHRASE = 8  # words
LONGEST_NAME = 3  # words in front of a colon
_DESCRIPTION = 4  # words that stay, at least, where the name in front of them is dropped
# Words that may be doubled around "and" ("again and again").
_DOUBLED_AROUND_AND = frozenset(("again", "more", "less", "on", "over", "up", "down", "out", "by", "round"))
ENDS = frozenset((".", "!", "?", "…", "..."))  # of sentences
_PAUSES = frozenset((",", ";", ":"))
_SEPARATORS = frozenset((",", "and", "or", "&", "-", "–", "/"))
_NOT_FIRST = _PAUSES | ENDS | frozenset((")", "]", "}", "-", "–", "—", "/", "#", "*", "•", ">"))
_NOT_LAST = _PAUSES | frozenset(("(", "[", "{", "-", "–", "—", "/", "+", "=", "``"))
_ENDS_NAMES = frozenset("+=/")
_PAIRS = {"(": ")", "[": "]", "{": "}", "``": "''", "-lrb-": "-rrb-", "-lsb-": "-rsb-", "-lcb-": "-rcb-"}
_SINGLE = "'‘’"
_QUOTES = {mark: kind for kind in ('"“”„', "«»", _SINGLE) for mark in kind}  # languages differ in which one opens
_TAKES_APOSTROPHE = re.compile(r".*[s\d]|[b-z]")  # the users' files, the 3' end, f'

_VERBS = {"is": "be", "has": "have", "does": "do", "caches": "cache", "aliases": "alias", "focuses": "focus"}


@dataclass(slots=True)
class DraftWord:
    """A word or sign of a summary. ``key`` is what it is compared by, ``unknown``: it is UNK; ``follows``: it stands
    behind the word before it in the source too; ``glued``: without a blank; ``rests``: a sentence of the source ends
    behind it."""

    key: str
    unknown: bool = False
    follows: bool = False
    glued: bool = False
    rests: bool = False


def mended(
    words: Sequence[DraftWord],
    in_source: Callable[[Sequence[str]], bool],
    is_name: Callable[[Sequence[str]], bool],
    english: bool,
    singles: bool,
) -> list[int]:
    """The positions of the words that stay, in order.

    ``in_source(keys)`` says whether the source has these words one after the other, ``is_name(keys)`` whether it uses
    them as a name; of an ``english`` one the function words are known here. ``singles``: a single quotation mark is
    never part of a word, as in ``don ' t``. A summary is never emptied, unless it is nothing but UNK and rulers.
    """
    known = [index for index, word in enumerate(words) if not (word.unknown or RULER.fullmatch(word.key))]
    kept = known
    while True:
        keys = [words[index].key.lower() for index in kept]
        drop = _doubled(keys, in_source) or _coined(keys, is_name) or _stray(kept, keys, words)
        drop = drop or _unpaired(kept, keys, words, singles) or _dangling(kept, keys, words, english)
        if not drop:
            return kept
        kept = [index for at, index in enumerate(kept) if at not in drop]
        if not any(_is_word(words[index].key) for index in kept):
            return known


def _doubled(keys: Sequence[str], in_source: Callable[[Sequence[str]], bool]) -> set[int]:
    """The second of two equal phrases, side by side or with a comma or "and" between them; the longest first."""
    for size in range(min(LONGEST_PHRASE, len(keys) // 2), 0, -1):
        for at in range(len(keys) - 2 * size + 1):
            phrase = keys[at : at + size]
            if not any(map(may_not_repeat, phrase)):
                continue
            second = at + size
            if keys[second : second + size] == phrase:
                both = keys[at : second + size]
            elif keys[second] in _SEPARATORS and keys[second + 1 : second + 1 + size] == phrase:
                if size == 1 and phrase[0] in _DOUBLED_AROUND_AND:
                    continue
                both = keys[at : second + 1 + size]
            else:
                continue
            if not in_source(both):
                return set(range(second, at + len(both)))
    return set()


def _coined(keys: Sequence[str], is_name: Callable[[Sequence[str]], bool]) -> set[int]:
    """A name in front of its description, where the source has no such name: ``Founded: a framework for ...``."""
    colon = keys.index(":") if ":" in keys else 0
    described = len(keys) - colon > _DESCRIPTION and keys[colon + 1] in ("a", "an")
    if not described or not 0 < colon <= LONGEST_NAME or is_name(keys[:colon]):
        return set()
    return set(range(colon + 1))


def _stray(kept: Sequence[int], keys: Sequence[str], words: Sequence[DraftWord]) -> set[int]:
    """Signs in front of the first word, and of two signs in a row the weaker one."""
    if keys and keys[0] in _NOT_FIRST and not (len(kept) > 1 and _glued(1, kept, words)):
        return {0}
    for at in range(1, len(keys)):
        before, sign = keys[at - 1], keys[at]
        if words[kept[at]].follows and kept[at] == kept[at - 1] + 1:
            continue
        if before in _PAUSES and sign in _PAUSES | ENDS:
            return {at - 1}
        weaker = before in ENDS and (sign in _PAUSES or before == sign)
        if weaker or (before in _PAIRS and sign in _PAUSES | ENDS):
            return {at}
    return set()


def _glued(at: int, kept: Sequence[int], words: Sequence[DraftWord]) -> bool:
    """Does the source have this word behind the one before it, without a blank (.NET, fork(), GTK+)?"""
    return words[kept[at]].glued and kept[at] == kept[at - 1] + 1


def _unpaired(kept: Sequence[int], keys: Sequence[str], words: Sequence[DraftWord], singles: bool) -> set[int]:
    """Brackets and quotation marks without their other half, and pairs with nothing between them that the source does
    not have so; of ``singles`` those that cannot be apostrophes."""
    closing = {close: opening for opening, close in _PAIRS.items()}
    opened: list[int] = []
    quoted: dict[str, int] = {}
    for at, key in enumerate(keys):
        if kind := _QUOTES.get(key):
            if kind != _SINGLE and quoted.get(kind) == at - 1:
                return {at - 1, at}
            if quoted.pop(kind, None) is None:
                quoted[kind] = at
        elif key in _PAIRS:
            opened.append(at)
        elif key in closing:
            if not opened or keys[opened[-1]] != closing[key]:
                return {at}
            if opened[-1] == at - 1 and not (at > 1 and _glued(at, kept, words) and _glued(at - 1, kept, words)):
                return {at - 1, at}
            opened.pop()
    behind = (before for before, key in pairwise(keys) if _QUOTES.get(key) == _SINGLE)
    if not singles or any(map(_TAKES_APOSTROPHE.fullmatch, behind)):
        quoted.pop(_SINGLE, None)
    return {*opened, *quoted.values()}


def _dangling(kept: Sequence[int], keys: Sequence[str], words: Sequence[DraftWord], english: bool) -> set[int]:
    """A sign or function word that nothing follows."""
    if not keys or keys[-1] == "?":
        return set()

    def hangs(at: int) -> bool:
        ends_name = keys[at] in _ENDS_NAMES and at > 0 and _glued(at, kept, words)
        return keys[at] in _NOT_LAST and not ends_name

    if hangs(len(keys) - 1):
        return {len(keys) - 1}
    last = len(keys) - (2 if keys[-1] in ENDS else 1)
    if last < 0:
        return set()
    word = words[kept[last]]
    if hangs(last) or (english and keys[last] in DANGLING and not (word.follows and word.rests)):
        return {last}
    return set()


def _is_word(key: str) -> bool:
    return any(map(str.isalnum, key))


def ends_in_stop(words: Sequence[DraftWord]) -> bool:
    """Is it one sentence, with a full stop at its end?"""
    ends = [place for place, word in enumerate(words) if word.key in ENDS]
    return len(words) > 1 and ends == [len(words) - 1] and words[-1].key == "."


def infinitive(verb: str) -> str:
    """Of a verb in the third person; other words, and those with capitals, stay."""
    if verb in _VERBS:
        return _VERBS[verb]
    if not verb.isalpha() or not verb.islower() or not verb.endswith("s") or verb.endswith(("ss", "us", "is")):
        return verb
    if verb.endswith("ies") and len(verb) > len("dies"):
        return verb[:-3] + "y"
    return verb[: -2 if verb.endswith(("sses", "shes", "ches", "xes", "oes", "zzes")) else -1]
