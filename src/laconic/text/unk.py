"""What a summary says where the model wrote UNK: a source word that its step attended to.

* ``words``: the most attended word of the source; special tokens and sentence separators are passed over.
* ``argmax`` (Chen et al. 2016, released code): whatever is most attended. A word replaces UNK; a sentence separator
  makes UNK disappear; the end of the document, and anything else that is no word, leaves it as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

KEEP, DROP = -1, -2


@dataclass(frozen=True, slots=True)
class UnkRule:
    """How UNK is replaced. ``separator_id`` is the id of the token between sentences, where there is one."""

    mode: Literal["words", "argmax"] = "words"
    separator_id: int | None = None

    def positions(self, attention: np.ndarray, ids: np.ndarray, words: np.ndarray) -> np.ndarray:
        """For each step the source position that stands for UNK, or `KEEP` or `DROP`.

        Args:
            attention: (T, S) the weights of the steps that wrote UNK.
            ids: (S,) the source's ids, among which the separators are found.
            words: (S,) true where a word stands that can replace UNK.

        Returns:
            (T,) int64.
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
