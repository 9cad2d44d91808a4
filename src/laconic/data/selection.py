"""Which pairs are worth training on: a summary that its document does not support teaches invention."""

from __future__ import annotations

import re

from laconic.types import Record

_WORDS = re.compile(r"\w+")


def supported_share(record: Record, max_words: int | None = None) -> float:
    """The share of the summary's words that stand among the document's first ``max_words``, letter case aside.

    1 for a summary without words.
    """
    words = _WORDS.findall(record.summary.lower())
    offered = set(_WORDS.findall(record.document.lower())[:max_words])
    return sum(word in offered for word in words) / len(words) if words else 1.0
