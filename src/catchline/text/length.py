"""Bounds of the text that is shown: in words, characters and sentences. A word is what stands between blanks, or a
character of a script that is written without them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

from catchline.config.schema import LengthConfig
from catchline.text.normalization import UNIT
from catchline.text.sentences import sentence_spans
from catchline.types import Summary

_LONG_WORD = 20  # characters: where fewer are left, the next word may be too long


@dataclass(frozen=True, slots=True)
class Length:
    """At least ``least`` words; at most ``words``, ``characters`` and ``sentences`` (None: any)."""

    least: int = 0
    words: int | None = None
    characters: int | None = None
    sentences: int | None = None

    @classmethod
    def of(cls, config: LengthConfig) -> Length | None:
        """The bounds that settings ask for, if any."""
        least, _, most = (config.words or "").rpartition("-")
        found = cls(int(least or 0), int(most) if most else None, config.characters, config.sentences)
        return None if found == cls() else found

    def missing(self, text: str) -> int:
        """How many words ``text`` has too few."""
        return max(0, self.least - len(UNIT.findall(text))) if self.least else 0

    def end(self, text: str) -> int:
        """Where ``text`` has to end: behind a word or a sentence, or within a word that is too long by itself."""
        ends = [match.end() for match in UNIT.finditer(text)] or [0]
        found = [len(text)]
        if self.words is not None and len(ends) > self.words:
            found.append(ends[self.words - 1])
        if self.characters is not None and len(text) > self.characters:
            found.append(max((end for end in ends if end <= self.characters), default=self.characters))
        if self.sentences is not None:
            found += [end for _, end in islice(sentence_spans(text), self.sentences)][self.sentences - 1 :]
        return min(found)

    def reached(self, text: str) -> bool:
        """May the next word be too much?"""
        full = self.words is not None and len(UNIT.findall(text)) >= self.words
        full = full or (self.characters is not None and len(text) + _LONG_WORD > self.characters)
        return full or (self.sentences is not None and text[-1:] in set(".!?…。！？"))

    def within(self, document: str, start: int, end: int) -> tuple[int, int]:
        """A span of ``document`` that has these bounds, as far as the document has the words."""
        if self.missing(document[start:end]):
            words = list(islice(UNIT.finditer(document, start), self.least))
            end = words[-1].end()
        return start, start + self.end(document[start:end])

    def cut(self, summary: Summary) -> Summary:
        """The summary up to where it has to end, with the provenance of its words."""
        end = self.end(summary.text)
        if end == len(summary.text):
            return summary
        words = tuple(word for word in summary.words if word.end <= end)
        chunks = tuple(replace(chunk, weights=chunk.weights[: len(words)]) for chunk in summary.chunks)
        return replace(summary, text=summary.text[:end], words=words, chunks=chunks)
