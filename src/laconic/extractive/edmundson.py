"""Edmundson 1969: cue words, title words and location.

A sentence is worth (bonus words - stigma words), plus its words that stand in the title, plus one for opening or
closing the text. sumy's command line has no headings and Czech cue words, so that on other text location alone
acts: the first, the last and then the earliest sentences. That is the default here too; give ``bonus_words``,
``stigma_words`` and ``title`` for more.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from laconic.extractive.base import Extractor, WordsConfig
from laconic.extractive.terms import SentenceTerms


class Edmundson(Extractor):
    """Weights multiply the three parts; title words that are stop words do not count."""

    class Config(WordsConfig):
        bonus_words: tuple[str, ...] = ()
        stigma_words: tuple[str, ...] = ()
        title: str = ""
        cue_weight: float = Field(1.0, ge=0)
        title_weight: float = Field(1.0, ge=0)
        location_weight: float = Field(1.0, ge=0)

    def rate(self, sentences: list[str]) -> np.ndarray:
        config = self.config
        ratings = np.zeros(len(sentences))
        if config.bonus_words or config.stigma_words or config.title:
            terms = SentenceTerms(sentences, config)
            bonus, stigma = self._stems(config.bonus_words), self._stems(config.stigma_words)
            title = self._stems((config.title,)) - self._stems(tuple(terms.stops))
            for index, stems in enumerate(terms.stems):
                cue = sum([(stem in bonus) - (stem in stigma) for stem in stems])
                titled = sum([stem in title for stem in stems])
                ratings[index] = config.cue_weight * cue + config.title_weight * titled
        ratings[0] += config.location_weight
        if len(ratings) > 1:
            ratings[-1] += config.location_weight
        return ratings

    def _stems(self, texts: tuple[str, ...]) -> set[str]:
        return {stem for stems in SentenceTerms(texts, self.config).stems for stem in stems} if texts else set()
