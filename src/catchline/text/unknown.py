"""Words that the vocabulary lacks: their extended ids, what replaces UNK, and numbers behind ``#``.

Ids from V on are source words that the vocabulary lacks, numbered by first appearance in the (truncated) source: the
numbering of a shorter truncation is a prefix of that of a longer one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from catchline.types import TokenizedText

KEEP, DROP = -1, -2
_HASHED = re.compile(r"(?<!\w)#(?:[\w#.,:/\-]*[\w#])?")
_NUMBER = re.compile(r"(?<!\w)\d(?:[\w.,:/\-]*\w)?")


def unknown_words(text: TokenizedText, unk_id: int) -> list[str]:
    """The strings of the tokens that are UNK, in order."""
    return [token for index, token in zip(text.ids, text.tokens, strict=True) if index == unk_id]


def extended(
    text: TokenizedText, vocab_size: int, unk_id: int, words: Sequence[str] | None = None
) -> tuple[np.ndarray, list[str]]:
    """`extend_ids` of a text's ids."""
    return extend_ids(np.array(text.ids, np.int32), unknown_words(text, unk_id), vocab_size, unk_id, words)


def extend_ids(
    ids: np.ndarray, unknown: Sequence[str], vocab_size: int, unk_id: int, words: Sequence[str] | None = None
) -> tuple[np.ndarray, list[str]]:
    """The ids (S,) int32 of a text with extended ids for its ``unknown`` words, and the strings of V, V + 1, ... . A
    source numbers its own words; a summary is given the ``words`` of its source, and others stay UNK."""
    words = list(dict.fromkeys(unknown) if words is None else words)
    if unknown and words:
        numbers = {word: vocab_size + index for index, word in enumerate(words)}
        ids = ids.copy()
        ids[ids == unk_id] = [numbers.get(word, unk_id) for word in unknown]
    return ids, words


def replacing(
    mode: str, attention: np.ndarray, ids: np.ndarray, words: np.ndarray, separator_id: int | None
) -> np.ndarray:
    """For each step (T,) int64 the source position that replaces UNK, or `KEEP` or `DROP`: by ``mode`` ``words`` the
    most attended word; by ``argmax`` (Chen et al. 2016, released code) whatever is most attended: a sentence separator
    makes UNK disappear, anything else that is no word leaves it.

    ``attention`` (T, S) has the weights of the steps that wrote UNK, ``ids`` (S,) are the source's, among which the
    separators are found, ``words`` (S,) is true at words, which can replace UNK.
    """
    if not attention.size:
        return np.full(len(attention), KEEP, dtype=np.int64)
    separators = ids == separator_id
    words = words & ~separators
    if mode == "words":
        chosen = np.where(words.any(), np.where(words, attention, -1.0).argmax(1), KEEP)
    else:
        best = attention.argmax(1)
        chosen = np.where(separators[best], DROP, np.where(words[best], best, KEEP))
    return np.where(attention.max(1) > 0, chosen, KEEP)


def restore_numbers(summary: str, document: str) -> str:
    """Replace each word of ``summary`` that starts with ``#`` by the last number of ``document`` of the same length, if
    there is one (Rush et al. 2015 do so before scoring DUC)."""
    numbers = {len(number): number for number in _NUMBER.findall(document)}
    return _HASHED.sub(lambda found: numbers.get(len(found[0]), found[0]), summary)
