"""What every extractive summarizer shares: its settings, sentences, and how picks become text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from catchline.config.base import ConfigBase
from catchline.config.names import EXTRACTIVE, build
from catchline.errors import DataError
from catchline.search.scorers import Length
from catchline.text.sentences import sentence_strings


class ExtractorConfig(ConfigBase):
    """``sentences``: how many to pick; ``language``: of the text, an ISO code, where the text does not tell it."""

    sentences: int = Field(3, ge=1)
    language: str | None = Field(None, pattern=r"^[a-z]{2,3}$")


class WordsConfig(ExtractorConfig):
    """``stemmer``: a Snowball language or ``none``; ``stop_words``: ``english``, ``none`` or a file with one a line."""

    stemmer: str = "english"
    stop_words: str = "english"


class Extractor:
    """Picks sentences of a document. A subclass implements `pick`, or `rate` when sentences are ranked once. A document
    is a text (split here) or the list of its sentences. Sentences without any visible character are never picked, and
    of identical sentences only the first can be."""

    Config: type[ExtractorConfig] = ExtractorConfig
    in_short: ClassVar[str] = ""  # what it does, a sentence for people who know none of these methods
    needs_reference: ClassVar[bool] = False  # does `summarize` take ``references``?
    cuts: ClassVar[bool] = False  # may `text` end inside a sentence?

    length: Length | None = None  # of the text that is shown, where the settings do not say it

    def __init__(self, config: Any | None = None) -> None:
        self.config: Any = self.Config() if config is None else config

    def summarize(self, document: str | Sequence[str]) -> list[int]:
        """The indices of the picked sentences, in document order; all of them if there are too few. Raises DataError
        where the document is neither a text nor a list of texts."""
        first: dict[str, int] = {}
        for index, sentence in enumerate(self.sentences(document)):
            if stripped := sentence.strip():
                first.setdefault(stripped, index)
        if not first:
            return []
        places = list(first.values())
        return sorted(places[chosen] for chosen in self.pick(list(first)))

    def text(self, document: str | Sequence[str], separator: str = " ") -> str:
        """The summary as text: the picked sentences verbatim, in document order."""
        sentences = self.sentences(document)
        return separator.join(sentences[index].strip() for index in self.summarize(sentences))

    def sentences(self, document: str | Sequence[str]) -> list[str]:
        """The document's sentences, split here if they are not given."""
        if isinstance(document, str):
            return sentence_strings(document, self.config.language)
        sentences = list(document)
        for number, sentence in enumerate(sentences, 1):
            if not isinstance(sentence, str):
                raise DataError(f"Sentence {number} is of type {type(sentence).__name__}; a document is made of texts.")
        return sentences

    def pick(self, sentences: list[str]) -> Sequence[int]:
        """Indices into ``sentences``: distinct, not empty, at least one; in any order."""
        return best(self.rate(sentences), self.config.sentences)

    def rate(self, sentences: list[str]) -> np.ndarray:
        """One rating a sentence, (sentences,); the highest are picked."""
        raise NotImplementedError


def best(ratings: np.ndarray, count: int) -> list[int]:
    """The positions of the ``count`` highest ratings; of equals the earlier; what is not a number comes last."""
    finite = np.where(np.isnan(ratings), -np.inf, ratings)
    return np.argsort(-finite, kind="stable")[:count].tolist()


def summarize(name: str, document: str | Sequence[str], **options: Any) -> str:
    """Summarize with the method ``name`` of the table EXTRACTIVE (``lead``, ``lexrank``, ...). Raises ConfigError for
    an unknown method or option, DataError where the document is neither a text nor a list of texts."""
    extractor: Extractor = build("extractive method", EXTRACTIVE, {"type": name, **options})
    return extractor.text(document)
