"""Numbers behind ``#``: what a model that never saw a digit wrote, with the document's own numbers put back."""

from __future__ import annotations

import re

_HASHED = re.compile(r"(?<!\w)#(?:[\w#.,:/\-]*[\w#])?")
_NUMBER = re.compile(r"(?<!\w)\d(?:[\w.,:/\-]*\w)?")


def restore_numbers(summary: str, document: str) -> str:
    """Replace each word of ``summary`` that starts with ``#`` by a number of ``document`` of the same length.

    Of several numbers of one length the last is taken; a word without a number of its length stays (Rush et al. 2015
    do so before scoring DUC; specification contrastive c.36).
    """
    if "#" not in summary:
        return summary
    numbers = {len(number): number for number in _NUMBER.findall(document)}
    return _HASHED.sub(lambda found: numbers.get(len(found[0]), found[0]), summary)
