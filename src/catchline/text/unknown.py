"""Words that the vocabulary lacks: their extended ids, what stands for UNK, and numbers behind ``#``.

In the extended vocabulary of an example, ids from V on stand for source words that the vocabulary lacks. Numbering is
by first appearance within the (truncated) source, so what the decoder may copy is exactly what the encoder has read,
and the numbering of a shorter truncation is a prefix of that of a longer one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from catchline.text.stretches import Coded
from catchline.types import TokenizedText

KEEP, DROP = -1, -2
_HASHED = re.compile(r"(?<!\w)#(?:[\w#.,:/\-]*[\w#])?")
_NUMBER = re.compile(r"(?<!\w)\d(?:[\w.,:/\-]*\w)?")


def extended(
    text: TokenizedText, vocab_size: int, unk_id: int, words: Sequence[str] | None = None
) -> tuple[np.ndarray, Sequence[str]]:
    """The ids (S,) int32 of a text with extended ids for its unknown words, and the strings of V, V + 1, ... .

    A source, truncated already, numbers its own words; a summary is given the ``words`` of its source, and unknown
    words that are not among them stay UNK.
    """
    unknown = [token for index, token in zip(text.ids, text.tokens, strict=True) if index == unk_id]
    words = list(dict.fromkeys(unknown)) if words is None else words
    ids = np.array(text.ids, dtype=np.int32)
    if unknown and words:
        numbers = {word: vocab_size + index for index, word in enumerate(words)}
        ids[ids == unk_id] = [numbers.get(word, unk_id) for word in unknown]
    return ids, words


class ExtendedIds:
    """`extended` of many sources at once: their ``ids``, one behind the other, and the ``words`` of each that have
    ids from V on; none where ``extends`` is false."""

    def __init__(self, source: Coded, vocab_size: int, unk_id: int, extends: bool) -> None:
        self._unk_id, self._unknown = unk_id, source.unknown
        places = np.flatnonzero(source.codes < 0)
        # a key is a string and the text it stands in, ascending with the text
        keys = source.rows[places] * len(source.unknown) + ~source.codes[places] if extends else places[:0]
        self._keys, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        counts = np.bincount(self._keys // max(1, len(source.unknown)), minlength=len(source.lengths))
        self._numbers = np.empty(len(order), np.int32)
        self._numbers[order] = vocab_size + np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.ids = source.codes.copy()
        self.ids[places] = self._numbers[inverse] if extends else unk_id
        strings = [source.unknown[key % len(source.unknown)] for key in self._keys[order].tolist()]
        ends = np.cumsum(counts).tolist()
        self.words = [strings[end - count : end] for end, count in zip(ends, counts.tolist(), strict=True)]

    def of_targets(self, target: Coded) -> np.ndarray:
        """`extended` of the texts' summaries."""
        places = np.flatnonzero(target.codes < 0)
        strings = ~target.codes[places]
        if target.unknown is not self._unknown:
            numbers = {word: number for number, word in enumerate(self._unknown)}
            strings = np.array([numbers.get(word, -1) for word in target.unknown], np.int64)[strings]
        wanted = np.where(strings < 0, -1, target.rows[places] * len(self._unknown) + strings)
        ids = target.codes.copy()
        ids[places] = self._unk_id
        if len(self._keys):
            where = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
            ids[places] = np.where(self._keys[where] == wanted, self._numbers[where], self._unk_id)
        return ids


@dataclass(frozen=True, slots=True)
class UnkRule:
    """What a summary says where the model wrote UNK: a source word that its step attended to.

    * ``words``: the most attended word of the source; special tokens and sentence separators are passed over.
    * ``argmax`` (Chen et al. 2016, released code): whatever is most attended. A word replaces UNK; a sentence separator
      makes UNK disappear; the end of the document, and anything else that is no word, leaves it as it is.

    ``separator_id`` is the id of the token between sentences, where there is one.
    """

    mode: Literal["words", "argmax"] = "words"
    separator_id: int | None = None

    def positions(self, attention: np.ndarray, ids: np.ndarray, words: np.ndarray) -> np.ndarray:
        """For each step (T,) int64 the source position that stands for UNK, or `KEEP` or `DROP`.

        ``attention`` (T, S) has the weights of the steps that wrote UNK, ``ids`` (S,) are the source's, among which the
        separators are found, ``words`` (S,) is true where a word stands that can replace UNK.
        """
        if not attention.size:
            return np.full(len(attention), KEEP, dtype=np.int64)
        separators = ids == self.separator_id
        words = words & ~separators
        if self.mode == "words":
            best = np.where(words, attention, -1.0).argmax(1)
            chosen = np.where(words.any(), best, KEEP)
        else:
            best = attention.argmax(1)
            chosen = np.where(separators[best], DROP, np.where(words[best], best, KEEP))
        return np.where(attention.max(1) > 0, chosen, KEEP)


def restore_numbers(summary: str, document: str) -> str:
    """Replace each word of ``summary`` that starts with ``#`` by a number of ``document`` of the same length.

    Of several numbers of one length the last is taken; a word without a number of its length stays (Rush et al. 2015
    do so before scoring DUC).
    """
    if "#" not in summary:
        return summary
    numbers = {len(number): number for number in _NUMBER.findall(document)}
    return _HASHED.sub(lambda found: numbers.get(len(found[0]), found[0]), summary)
