"""What a written summary is worth: ROUGE against the gold one, less what a reader would strike out.

    r(y) = (ROUGE-1 + ROUGE-2 + ROUGE-L) / 3 - repetition * R(y) - support * U(y)

ROUGE is F of the library's scorer in its profile ``unicode``, on the decoded texts. R is the share of y's words that
say a word again, U the share of its content words and numbers that nobody gave it. What the gold summary does is no
fault: a word may stand as often as there, and what the gold summary says counts as given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from pydantic import Field

from laconic.config.base import ConfigBase
from laconic.metrics.rouge_engine import RougeEngine, make_options, parse_kind
from laconic.metrics.rouge_text import TextOptions, shared_text, stem_rouge155
from laconic.metrics.words import smart_stop_words

_PROFILE = "unicode"
_stem = lru_cache(maxsize=100_000)(stem_rouge155)


class RewardConfig(ConfigBase):
    """The weights of the two penalties; each share is between 0 and 1."""

    repetition: float = Field(1.0, ge=0)
    support: float = Field(0.5, ge=0)


def repeated_words(words: Sequence[str], gold: Sequence[str]) -> int:
    """How many words were said before, more often than ``gold`` says them.

    Function words (of English) may come again, but not one directly after the other.
    """
    allowed, seen, count = Counter(gold), Counter[str](), 0
    for place, word in enumerate(words):
        seen[word] += 1
        doubled = place > 0 and words[place - 1] == word
        count += (doubled or word not in smart_stop_words()) and seen[word] > max(1, allowed[word])
    return count


def unsupported_words(words: Sequence[str], given: Sequence[str]) -> int:
    """How many content words and numbers have no form of theirs (equal Porter stem) among the words ``given``."""
    stems = {_stem(word) for word in given}
    return sum(word not in smart_stop_words() and _stem(word) not in stems for word in words)


class SummaryReward:
    """``reward(summary, gold, document)`` of three texts; see the file's docstring."""

    def __init__(self, config: RewardConfig) -> None:
        self.config = config
        options = make_options(_PROFILE, {})
        self._engine = RougeEngine([parse_kind(kind, options) for kind in ("1", "2", "L")], _PROFILE, options)
        text = shared_text(
            _PROFILE, TextOptions(options.stem, options.exceptions, options.remove_stop_words, options.better)
        )
        self._words = text.words

    def __call__(self, summary: str, gold: str, document: str) -> float:
        """At most 1, for the gold summary itself; 0 for an empty one."""
        scores, _, _ = self._engine.score(summary, [gold])
        words, wanted = self._words(summary), self._words(gold)
        if not words:
            return 0.0
        repeated = repeated_words(words, wanted) / len(words)
        unsupported = unsupported_words(words, [*wanted, *self._words(document)]) / len(words)
        fall = self.config.repetition * repeated + self.config.support * unsupported
        return sum(score.f for score in scores) / len(scores) - fall
