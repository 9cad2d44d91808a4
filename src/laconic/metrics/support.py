"""What a summary states that its source does not contain: numbers, dates and names. Rules only, no models.

A claim that is missing is not always wrong ("twelve" for "12" is understood, "a dozen" is not), and one that is
present is not always right; the strings are reported so that a person can look.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_SHORT_MONTHS = {name[:3]: name for name in _MONTHS} | {"sept": "september"}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_AMBIGUOUS = frozenset({"may", "march", "mar"})  # verbs too
_DATE_WORD = re.compile(
    r"\b(?:"
    + "|".join(name.capitalize() for name in (*_MONTHS, *_DAYS))
    + "|"
    + "|".join(f"{short.capitalize()}\\.?" for short in sorted(_SHORT_MONTHS, key=len, reverse=True))
    + r")(?!\w)"
)
_NUMBER_WORDS = {
    **{"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9"},
    **{"ten": "10", "eleven": "11", "twelve": "12", "thirteen": "13", "fourteen": "14", "fifteen": "15"},
    **{"sixteen": "16", "seventeen": "17", "eighteen": "18", "nineteen": "19", "twenty": "20", "thirty": "30"},
    **{"forty": "40", "fifty": "50", "sixty": "60", "seventy": "70", "eighty": "80", "ninety": "90"},
}
_NUMBER_WORD = re.compile(r"(?i)\b(?:" + "|".join(sorted(_NUMBER_WORDS, key=len, reverse=True)) + r")\b")
# Capitalised words in a row, small words of names allowed between.
_NAME = re.compile(r"[^\W\d_a-z][\w'’.-]*(?:\s+(?:(?:of|the|de|van|von|der|del|la|bin|al)\s+)*[^\W\d_a-z][\w'’-]*)*")
_SENTENCE_START = re.compile(r"(?:^|[.!?:]\s+|\n\s*|[\"“‘(\[]\s*)$")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One piece of the summary without support: ``summary[start:end] == text``; ``kind`` number, date or name."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SupportReport:
    """How many numbers, dates and names the summary has, and those that the source lacks."""

    checked: dict[str, int]
    unsupported: tuple[Unsupported, ...]

    @property
    def rate(self) -> float:
        """The share of checked pieces that the source supports; 1 if there is nothing to check."""
        total = sum(self.checked.values())
        return 1.0 - len(self.unsupported) / total if total else 1.0


def check_support(summary: str, source: str) -> SupportReport:
    """Compare a summary's numbers, dates and names with its source.

    * numbers: by value as written, thousands separators aside ("1,000" is "1000"); "three" supports "3" and back;
    * dates: months and week days, short forms included;
    * names: runs of capitalised words, not the first word of a sentence alone; supported when every capitalised
      word of the run occurs in the source in any case (a possessive 's aside).
    """
    words = {_bare(word) for word in _WORD.findall(source.lower())}
    numbers = {_number(found) for found in _NUMBER.findall(source)}
    numbers |= {_NUMBER_WORDS[found.lower()] for found in _NUMBER_WORD.findall(source)}
    dates = {_date(found) for found in _DATE_WORD.findall(source)}
    dates |= {date for date in (*_MONTHS, *_DAYS) if date in words and date not in _AMBIGUOUS}
    dated = [found for found in _DATE_WORD.finditer(summary) if not _is_verb(found, summary)]
    spelled = list(_NUMBER_WORD.finditer(summary))
    pieces = [("date", found, _date(found.group()) in dates) for found in dated]
    pieces += [("number", found, _number(found.group()) in numbers) for found in _NUMBER.finditer(summary)]
    pieces += [("number", found, _NUMBER_WORDS[found.group().lower()] in numbers) for found in spelled]
    names = _names(summary, [found.span() for found in (*dated, *spelled)])
    pieces += [("name", found, _is_named(found.group(), words)) for found in names]
    pieces.sort(key=lambda piece: piece[1].start())
    checked = {kind: sum(piece[0] == kind for piece in pieces) for kind in ("number", "date", "name")}
    missing = [Unsupported(kind, found.group(), *found.span()) for kind, found, supported in pieces if not supported]
    return SupportReport(checked, tuple(missing))


def support_rate(summaries: Sequence[str], sources: Sequence[str]) -> float:
    """The share of all checked pieces in a corpus that their sources support; 1 if there is none."""
    reports = [check_support(summary, source) for summary, source in zip(summaries, sources, strict=True)]
    total = sum(sum(report.checked.values()) for report in reports)
    return 1.0 - sum(len(report.unsupported) for report in reports) / total if total else 1.0


def _number(text: str) -> str:
    plain = re.sub(r",(?=\d{3}(?:\D|$))", "", text)
    whole, dot, rest = plain.partition(".")
    whole = whole.lstrip("0") or "0"
    rest = rest.rstrip("0") if dot else ""
    return f"{whole}.{rest}" if rest else whole


def _date(text: str) -> str:
    lowered = text.lower().rstrip(".")
    return _SHORT_MONTHS.get(lowered, lowered)


def _is_verb(found: re.Match[str], summary: str) -> bool:
    """Whether "May" or "March" opens a sentence without a number after it."""
    opens = _SENTENCE_START.search(summary[: found.start()]) is not None
    return opens and _date(found.group()) in _AMBIGUOUS and not re.match(r"\s+\d", summary[found.end() :])


def _is_named(name: str, words: set[str]) -> bool:
    return all(_bare(word.lower()) in words for word in _WORD.findall(name) if word[0].isupper())


def _bare(word: str) -> str:
    return word.removesuffix("'s").removesuffix("’s")


def _names(summary: str, taken: Sequence[tuple[int, int]]) -> list[re.Match[str]]:
    found = []
    for name in _NAME.finditer(summary):
        start, end = name.span()
        if any(start < stop and begin < end for begin, stop in taken):
            continue
        single = len(name.group().split()) == 1
        if single and (len(name.group()) == 1 or _SENTENCE_START.search(summary[:start])):
            continue  # an initial, or only the sentence's first word
        found.append(name)
    return found
