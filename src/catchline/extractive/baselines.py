"""What other methods are held against: lead-k, FIRST, first n words or characters, longest-k, and the ROUGE oracle."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, islice
from typing import Any

import numpy as np
from pydantic import Field

from catchline.errors import DataError
from catchline.extractive.base import Extractor, ExtractorConfig
from catchline.metrics.overlap import ngram_counts, overlap
from catchline.metrics.rouge_text import RougeText
from catchline.metrics.scoring import Scoring, suited
from catchline.text.normalization import UNIT, split_lines
from catchline.text.sentences import sentence_spans

_GAIN = 1e-12


class Lead(Extractor):
    """The first ``sentences`` sentences. With one it is FIRST of Ling and Rush 2017."""

    in_short = "Takes the first sentences of the text."

    def sentences(self, document: str | Sequence[str]) -> list[str]:
        """Those of a text up to the last that is picked."""
        if not isinstance(document, str):
            return super().sentences(document)
        found: list[str] = []
        for start, end in sentence_spans(document, self.config.language):
            found.append(document[start:end])
            if len(found) >= self.config.sentences and len(set(found)) == self.config.sentences:
                break  # of identical ones only the first is picked
        return found

    def pick(self, sentences: list[str]) -> Sequence[int]:
        return range(min(len(sentences), self.config.sentences))


class FirstWords(Extractor):
    """The document's first ``words`` words, the last sentence cut: what stands between blanks, and each character of a
    script without blanks."""

    in_short = "Takes the first words of the text, wherever they end."
    cuts = True
    unit = UNIT

    class Config(ExtractorConfig):
        words: int = Field(50, ge=1)

    @property
    def _limit(self) -> int:
        return int(self.config.words)

    def pick(self, sentences: list[str]) -> Sequence[int]:
        """The first sentences, up to the one in which the limit is reached."""
        sizes = accumulate(len(self.unit.findall(sentence)) for sentence in sentences)
        return range(len(sentences))[: bisect_left([*sizes], self._limit) + 1]

    def text(self, document: str | Sequence[str], separator: str = " ") -> str:
        whole = document if isinstance(document, str) else separator.join(document)
        units = [*islice(self.unit.finditer(whole), self._limit)]
        return separator.join(whole[: units[-1].end()].split()) if units else ""


class FirstCharacters(FirstWords):
    """The document's first ``characters`` characters, blanks not counted (LCSTS's first 30)."""

    in_short = "Takes the first characters of the text, wherever they end."
    unit = re.compile(r"\S")

    class Config(ExtractorConfig):
        characters: int = Field(30, ge=1)

    @property
    def _limit(self) -> int:
        return int(self.config.characters)


class Longest(Extractor):
    """Longest-k: the ``sentences`` sentences (or utterances) with the most words, counted as in `FirstWords`. With
    ``lines`` the units are the document's lines, which in a dialogue are its utterances."""

    in_short = "Takes the longest sentences."

    class Config(ExtractorConfig):
        lines: bool = True

    def sentences(self, document: str | Sequence[str]) -> list[str]:
        if self.config.lines and isinstance(document, str) and len(lines := split_lines(document.strip())) > 1:
            return lines
        return super().sentences(document)

    def rate(self, sentences: list[str]) -> np.ndarray:
        return np.array([len(UNIT.findall(sentence)) for sentence in sentences], dtype=np.float64)


class Oracle(Extractor):
    """The greedy ROUGE oracle: what sentence extraction can nearly reach, found with the reference.

    Sentences are added one at a time, each the one that raises mean F of ROUGE-1 and ROUGE-2 most, until none does or
    ``sentences`` are picked (Nallapati et al. 2017). N-gram matches are clipped counts over the summary's words as one
    text; with several references the best of them counts at each comparison. It is no bound of any one kind of ROUGE:
    another choice may have more of that kind, or of the mean over references.

    English text is compared as ROUGE-1.5.5 does with stemming; references mostly of another script as Unicode text.
    """

    in_short = "Takes the sentences most like a summary that is given."
    needs_reference = True

    def summarize(self, document: str | Sequence[str], references: str | Sequence[str] = ()) -> list[int]:
        """The picked indices, in document order. Raises DataError without a reference."""
        models = [references] if isinstance(references, str) else list(references)
        if not models:
            raise DataError("The ROUGE oracle picks sentences by the reference summary; give at least one reference.")
        sentences = self.sentences(document)
        text = RougeText("rouge155", stem=True, exceptions=True)
        if suited(Scoring(), [models]).rouge or not any(text.ids(model) for model in models):
            text = RougeText("unicode", stem=False, exceptions=False)
        return greedy_oracle(
            [text.ids(sentence) for sentence in sentences], [text.ids(model) for model in models], self.config.sentences
        )

    def text(self, document: str | Sequence[str], separator: str = " ", references: Any = ()) -> str:
        sentences = self.sentences(document)
        return separator.join(sentences[index].strip() for index in self.summarize(sentences, references))


def greedy_oracle(sentences: Sequence[list[int]], references: Sequence[list[int]], limit: int) -> list[int]:
    """Indices of the greedy choice for sentences and references given as word ids, in document order."""
    models = [
        [(ngram_counts(reference, n), max(len(reference) - n + 1, 0)) for n in (1, 2)] for reference in references
    ]
    useful = [index for index, sentence in enumerate(sentences) if sentence]
    picked: list[int] = []
    score = 0.0

    def score_with(index: int) -> float:
        words = [word for place in sorted([*picked, index]) for word in sentences[place]]
        return max(_mean_f(words, model) for model in models)

    while len(picked) < limit:
        scores = {index: score_with(index) for index in useful if index not in picked}
        best = max(scores, key=scores.__getitem__, default=None)
        if best is None or scores[best] <= score + _GAIN:
            break
        picked.append(best)
        score = scores[best]
    return sorted(picked)


def _mean_f(words: list[int], model: list[tuple[Counter, int]]) -> float:
    total = 0.0
    for n, (counts, size) in enumerate(model, 1):
        hits = overlap(ngram_counts(words, n), counts)
        total += 2.0 * hits / (size + max(len(words) - n + 1, 0)) if hits else 0.0
    return total / len(model)
