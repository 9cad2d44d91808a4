"""The dates, week days and times of an English text, as `catchline.metrics.quantities` has numbers.

Keys: ``m`` a month, ``md`` month and day, ``y`` a year, ``wd`` a week day, ``t`` minutes since midnight, ``t12`` the
same of a time that does not say which half of the day.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from decimal import Decimal

from catchline.metrics.quantities import NUMBER_WORDS, Key, Quantity, amount_key, in_order, quantities, year_of
from catchline.metrics.words import without_characters

_MONTHS = in_order(
    "january/jan february/feb march/mar april/apr may june/jun july/jul august/aug september/sept/sep october/oct "
    "november/nov december/dec",
    1,
)
_DAYS = in_order(
    "monday/mon tuesday/tues/tue wednesday/weds/wed thursday/thurs/thur/thu friday/fri saturday/sat sunday/sun"
)
_FULL = frozenset({*(name for name in _MONTHS if len(name) > 4), "may", "june", "july"})
_ORDINARY_MONTHS = frozenset({"may", "march", "mar", "jan"})  # words and names too
_ORDINARY_DAYS = frozenset({"sat", "sun", "wed", "mon", "fri", "thu"})
_MONTH_WORDS = frozenset({*_MONTHS, *(f"{month}'s" for month in _MONTHS)})
_DAY_WORDS = frozenset(f"{day}{ending}" for day in _DAYS for ending in ("", "s", "'s", "’s"))
_CLOCK_WORDS = frozenset({"am", "pm", "o'clock", "o’clock"})
_QUANTITY_WORDS = NUMBER_WORDS | _MONTH_WORDS | _DAY_WORDS | {"noon", "midday", "midnight"}
_DIGIT, _ANY_DIGIT = re.compile(r"[0-9]"), re.compile(r"\d")
_WHOLE_NUMBER = re.compile(r"(?<![\w/.])\d{1,3}\s\Z")
_WINDOW = 40  # characters that are looked at before a word: more than the words that tell
_HALF = re.compile(r"[0-9]\s?[ap]\.?\s?m\b")
_MINUTES = re.compile(r":[0-5]\d")

_DAY = (
    r"(?:[0-2]?\d|3[01])(?:st|nd|rd|th)?"
    r"(?![\w:%]|[.,]\d|\s?(?:[ap]\.?m\b|percent|%|million|billion)|\s?-\s?\d{1,2}\s?[ap]\.?m)"
)
_SEVERAL = (
    rf"{_DAY}(?:(?:\s*(?:-|–|—|/|&|,(?=[\s\w,]{{0,16}}(?:and|&))|\bto\b|\bthrough\b|\bthru\b|,?\s*\band\b)\s*){_DAY})*"
)
_YEAR = r"(?:(?:19|20)\d\d(?![\w%]|[.,]\d)|['’]\d\d(?!\w))"
# Patterns begin with what must stand there, which makes searching fast; what may not precede is looked at afterwards.
_MONTH = re.compile(rf"(?:{'|'.join(sorted(_MONTHS, key=len, reverse=True))})(?![^\W\d_]|['’][a-z])")
_WEEKDAY = re.compile(rf"(?P<day>{'|'.join(sorted(_DAYS, key=len, reverse=True))})(?:s|['’]s)?(?![^\W_])\.?")
_BEFORE_MONTH = re.compile(rf"(?<![\w.,:/$])(?P<days>{_SEVERAL})[\s-]*(?:of\s+)?$")
_YEAR_BEHIND = re.compile(rf"\.?[\s,-]*(?:of\s+)?(?P<year>{_YEAR}|(?<=-)\d\d(?!\w))")
_DAYS_BEHIND = re.compile(
    rf"\.?(?:\s*-\s*|,?\s+(?:the\s+)?|(?<=\.))(?P<days>{_SEVERAL})(?:[\s,-]*(?:of\s+)?(?P<year>{_YEAR}))?"
)
_NUMERIC = re.compile(
    r"\d\d{0,3}(?:/(?P<b>\d{1,4})(?:/(?P<c>\d{4}|\d\d))?|(?P<sign>[-.])(?P<d>\d{1,2})(?P=sign)(?P<e>\d{4}|\d\d))(?![\w/]|[.,]\d)"
)
_TIME = re.compile(
    r"(?:(?P<h0>[01]?\d|2[0-4])(?::(?P<m0>[0-5]\d))?\s?(?:-|–|—|to|and)\s?)?(?P<h>[01]?\d|2[0-4])"
    r"(?:(?P<sign>[:.])(?P<m>[0-5]\d)(?::[0-5]\d)?)?(?:\s?(?P<half>[ap])\.?\s?m\b\.?|\s?(?P<clock>o['’]clock))?(?![\w:]|\.\d)"
)
_NOON = re.compile(r"(?P<noon>noon|midday)\b|midnight\b")
_NEAR = re.compile(
    r"(?:\b(?:in|of|since|by|until|till|last|next|this|early|late|mid|through|before|after|during|from|for|on|every|each|"
    r"end|first|second|third|fourth)|[-/&])[\s-]*$"
)
_DAY_NEAR = re.compile(
    r"\b(?:on|this|next|last|every|by|until|through|thru|and|or)\s+$|(?:day|mon|tues?|wed|thu|thurs?|fri|sat)\s?[-/&,]\s?$"
)
_DAY_BEHIND = re.compile(rf",?\s*(?:\d|at\b|morning|night|noon|evening|[-/&]|(?:{'|'.join(_MONTHS)})\b)")


def read_quantities(text: str, lower: str, known: AbstractSet[str]) -> Iterator[Quantity]:
    """The dates and numbers of ``text``, none within another; the earlier reading of a place counts."""
    if not known.isdisjoint(_QUANTITY_WORDS) or _ANY_DIGIT.search(text):
        busy = bytearray(len(text))
        found = [quantity for quantity in dates(text, lower, known) if takes(busy, quantity.start, quantity.end)]
        yield from found
        yield from quantities(text, lower, known, [(quantity.start, quantity.end) for quantity in found])


def takes(busy: bytearray, start: int, end: int) -> bool:
    """Marks these characters, unless one of them is ``busy`` already."""
    free = busy.find(1, start, end) < 0
    if free:
        busy[start:end] = b"\1" * (end - start)
    return free


def dates(text: str, lower: str, known: AbstractSet[str]) -> Iterator[Quantity]:
    """Every date, week day and time of ``text``, whose lower case is ``lower`` and whose words are ``known``."""
    lower = without_characters(lower)
    digits = any(map(str.isdigit, lower)) if not lower.isascii() else _DIGIT.search(lower) is not None
    if digits and ("/" in lower or "-" in lower or "." in lower):
        for found in _NUMERIC.finditer(lower):
            if not _follows(lower, found.start(), "/.$") and not _is_fraction(lower, found):
                yield from _numeric(found)
    if not _MONTH_WORDS.isdisjoint(known):
        for found in _MONTH.finditer(lower):
            if not _follows(lower, found.start(), "'’", letters_only=True):
                yield from _worded(text, lower, found)
    if not _DAY_WORDS.isdisjoint(known):
        for found in _WEEKDAY.finditer(lower):
            paired = _DAY_NEAR.search(lower, max(0, found.start() - _WINDOW), found.start())  # Monday-Friday
            if not _follows(lower, found.start(), "'’" if paired else "'’-") and (
                found["day"] not in _ORDINARY_DAYS or _is_day(text, lower, found)
            ):
                key = ("wd", _DAYS[found["day"]])
                yield _date(*found.span(), (key,), offers={key})
    if digits and (_MINUTES.search(lower) or not _CLOCK_WORDS.isdisjoint(known) or _HALF.search(lower)):
        for found in _TIME.finditer(lower):
            if (found["half"] or found["clock"] or found["sign"] == ":") and not _follows(lower, found.start(), ":.,$"):
                yield from _times(found)
    if not known.isdisjoint(("noon", "midday", "midnight")):
        for found in _NOON.finditer(lower):
            key = ("t", 720 if found["noon"] else 0)
            yield _date(*found.span(), (key,), offers={key, ("t12", 0)})


def _is_fraction(text: str, found: re.Match[str]) -> bool:
    """Is it of a mixed number: 2 3/4 cups?"""
    over, _, under = found[0].partition("/")
    before = text[max(0, found.start() - 6) : found.start()]
    return len(found[0]) == 3 and "0" < over < under and _WHOLE_NUMBER.search(before) is not None


def _follows(text: str, place: int, signs: str, *, letters_only: bool = False) -> bool:
    """Does a letter, digit, or one of ``signs`` stand right before ``place``?"""
    before = text[place - 1 : place] if place else ""
    return bool(before) and (before in signs or (before.isalpha() if letters_only else before.isalnum()))


def _date(start: int, end: int, *needs: tuple[Key, ...], offers: set[Key]) -> Quantity:
    return Quantity("date", start, end, needs, frozenset(offers))


def _number_keys(*values: int) -> set[Key]:
    """A day supports the amount and the ordinal."""
    return {key for value in values for key in (amount_key(value), ("o", Decimal(value).normalize()))}


def _numeric(found: re.Match[str]) -> Iterator[Quantity]:
    """5/14, 5/14/01, 14.5.2001, 2001-05-14: month before day, or day before month where that can be; 12/2001."""
    parts = [int(part) for part in re.findall(r"\d+", found[0])]
    first, second, third = parts[0], parts[1], found["c"] or found["e"]
    if second > 31 and not third:
        if 1 <= first <= 12 and 1900 <= second <= 2099:
            month, year = ("m", first), ("y", second)
            yield _date(*found.span(), (month,), (year,), offers={month, year, amount_key(second)})
        return
    if first > 31:
        in_year, pairs = first, [(second, parts[2])] if third and first > 99 else []
    else:
        in_year, pairs = year_of(third) if third else 0, [(first, second), (second, first)]
    pairs = [(month, day) for month, day in pairs if 1 <= month <= 12 and 1 <= day <= 31]
    if not pairs:
        return
    written = ("w", found[0])
    keys: list[Key] = [("md", *pair) for pair in dict.fromkeys(pairs)]  # in this order a document is looked through
    keys += [] if in_year else [("n", Decimal(first) / second)]
    offers = {*keys, written} | {("m", month) for month, _ in pairs} | _number_keys(*(day for _, day in pairs))
    needs: list[tuple[Key, ...]] = [(*keys, written)]
    if in_year:
        needs.append((("y", in_year), written))
        offers |= {("y", in_year), amount_key(in_year)}
    yield _date(*found.span(), *needs, offers=offers)


def _worded(text: str, lower: str, found: re.Match[str]) -> Iterator[Quantity]:
    """14 May, May 14-16, May 14th, 2001, May 2001, May."""
    name, start, end = found[0], found.start(), found.end()
    month = _MONTHS[name]
    days = year = ""
    if before := _BEFORE_MONTH.search(lower, max(0, start - _WINDOW), start):
        days, start = before["days"], start - len(before[0])
    behind = (None if days else _DAYS_BEHIND.match(lower, end)) or _YEAR_BEHIND.match(lower, end)
    if behind:
        parts = behind.groupdict()
        days, year, end = days or parts.get("days", ""), parts["year"] or "", behind.end()
    elif name not in _FULL and lower[end : end + 1] == ".":
        end += 1
    if name in _ORDINARY_MONTHS and not days and not year and not _is_month(text, lower, found):
        return
    offers: set[Key] = {("m", month)}
    needs: list[tuple[Key, ...]] = []
    for day in map(int, re.findall(r"\d+", days)):
        needs.append((("md", month, day),))
        offers |= {("md", month, day)} | _number_keys(day)
    if not needs:
        needs.append((("m", month),))
    if year:
        value = year_of(year.strip("'’"))
        needs.append((("y", value),))
        offers |= {("y", value), amount_key(value)}
    yield _date(start, end, *needs, offers=offers)


def _is_month(text: str, lower: str, found: re.Match[str]) -> bool:
    """A month, not the verb, the walk or a person: after "in" and the like, or a capital among small letters."""
    start, (before, behind) = found.start(), _beside(text, *found.span())
    if _NEAR.search(lower, max(0, start - _WINDOW), start):
        return True
    if text[start].islower() or not before:
        return False
    return before[0].islower() or not behind.isupper()


def _is_day(text: str, lower: str, found: re.Match[str]) -> bool:
    """A week day, not "sat" or "the sun"."""
    (start, end), (before, behind) = found.span(), _beside(text, *found.span())
    if _DAY_NEAR.search(lower, max(0, start - _WINDOW), start) or _DAY_BEHIND.match(lower, end):
        return True
    if not before or (found["day"] in ("sat", "sun") and (text[start:end].isupper() or before[0].isupper())):  # Li Sun
        return False
    return text[start].isupper() and not behind.isupper()


def _beside(text: str, start: int, end: int) -> tuple[str, str]:
    """The word before a place, empty where a sentence begins, and the letter behind it, a blank aside."""
    words = text[max(0, start - _WINDOW) : start].split()
    return words[-1] if words and words[-1][-1] not in ".!?:" else "", text[end : end + 2].lstrip()[:1]


def _times(found: re.Match[str]) -> Iterator[Quantity]:
    """4:30, 4:30 pm, 16:30, 4 p.m., 4-5 pm, 4 o'clock."""
    if found["h0"]:
        hour = int(found["h0"])
        if hour > 12 or found["m0"] or found["half"]:
            yield _time(found.start("h0"), found.end("m0" if found["m0"] else "h0"), hour, found["m0"], found["half"])
    yield _time(found.start("h"), found.end(), int(found["h"]), found["m"], found["half"])


def _time(start: int, end: int, hour: int, minutes: str | None, half: str | None) -> Quantity:
    minute = int(minutes or 0)
    clock = ("t12", hour % 12 * 60 + minute)
    offers: set[Key] = {clock} if minute else {clock, amount_key(hour)}
    if half or not 1 <= hour <= 12:
        exact = ("t", (hour % 12 + 12 * (half == "p") if half else hour % 24) * 60 + minute)
        needs = (exact, ("hour", hour)) if half and not minute else (exact,)
        return _date(start, end, needs, offers={*offers, exact})
    offers |= {("t", clock[1]), ("t", clock[1] + 720)}
    return _date(start, end, (clock,), offers=offers)
