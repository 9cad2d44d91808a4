"""Baselines that look at position and length only: lead-k, FIRST, first n words or characters, longest-k."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from laconic.extractive.base import Extractor, ExtractorConfig


class Lead(Extractor):
    """The first ``sentences`` sentences."""

    def rate(self, sentences: list[str]) -> np.ndarray:
        return -np.arange(len(sentences), dtype=np.float64)


class First(Lead):
    """FIRST of Ling and Rush 2017: the article's first sentence."""

    class Config(ExtractorConfig):
        sentences: int = Field(1, ge=1)


class FirstWords(Extractor):
    """The document's first ``words`` blank-separated words; the last sentence is cut."""

    class Config(ExtractorConfig):
        words: int = Field(50, ge=1)

    def pick(self, sentences: list[str]) -> Sequence[int]:
        picked, used = [], 0
        for index, sentence in enumerate(sentences):
            if used >= self.config.words:
                break
            picked.append(index)
            used += len(sentence.split())
        return picked

    def text(self, document: str | Sequence[str], separator: str = " ") -> str:
        whole = document if isinstance(document, str) else separator.join(document)
        return separator.join(whole.split()[: self.config.words])


class FirstCharacters(Extractor):
    """The document's first ``characters`` characters, blanks not counted (LCSTS's first 30)."""

    class Config(ExtractorConfig):
        characters: int = Field(30, ge=1)

    def pick(self, sentences: list[str]) -> Sequence[int]:
        picked, used = [], 0
        for index, sentence in enumerate(sentences):
            if used >= self.config.characters:
                break
            picked.append(index)
            used += len("".join(sentence.split()))
        return picked

    def text(self, document: str | Sequence[str], separator: str = " ") -> str:
        whole = document if isinstance(document, str) else separator.join(document)
        places = [place for place, character in enumerate(whole) if not character.isspace()]
        kept = places[: self.config.characters]
        return whole[kept[0] : kept[-1] + 1] if kept else ""


class Longest(Extractor):
    """Longest-k: the ``sentences`` sentences (or utterances) with the most blank-separated words.

    With ``lines`` the units are the document's lines, which in a dialogue are its utterances.
    """

    class Config(ExtractorConfig):
        lines: bool = True

    def sentences(self, document: str | Sequence[str]) -> list[str]:
        if self.config.lines and isinstance(document, str) and "\n" in document.strip():
            return document.splitlines()
        return super().sentences(document)

    def rate(self, sentences: list[str]) -> np.ndarray:
        return np.array([len(sentence.split()) for sentence in sentences], dtype=np.float64)
