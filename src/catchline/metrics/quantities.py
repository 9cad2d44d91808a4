"""The numbers of an English text by what they are worth: amounts, percentages, money, ordinals, versions, quarters.

Each `Quantity` says in ``offers`` what it supports and in ``needs`` what must be offered to support it: of every group
one key. A key is a tuple that begins with what it is: ``n`` an amount (a value), ``%``, ``$`` (currency and value),
``o`` an ordinal, ``v`` and ``w`` a version and a number as written, ``q`` a quarter, ``y`` a year, ``decade``; those
of dates and times are in `catchline.metrics.dates`. Numbers in digits are read in any language, the others in English.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Literal

from catchline.metrics.words import is_ordinary, without_characters

Key = tuple


@dataclass(frozen=True, slots=True)
class Quantity:
    """``text[start:end]`` is of this ``kind``. Without ``needs`` it only supports others ("one" as 1)."""

    kind: Literal["number", "date", "name"]
    start: int
    end: int
    needs: tuple[tuple[Key, ...], ...]
    offers: frozenset[Key]


def in_order(names: str, start: int = 0) -> dict[str, int]:
    """Each word of ``names`` -> its place from ``start`` on; words with a slash between them share one."""
    return {name: number for number, same in enumerate(names.split(), start) for name in same.split("/")}


_UNITS = in_order(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_TENS = {
    word: 10 * value for word, value in in_order("twenty thirty forty fifty sixty seventy eighty ninety", 2).items()
}
_ORDINALS = in_order(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth",
    1,
) | {f"{word[:-1]}ieth": value for word, value in _TENS.items()}
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALES |= {"lakh": 10**5, "crore": 10**7, "dozen": 12}
_SHORT_SCALES = {"mln": 10**6, "mn": 10**6, "mm": 10**6, "bln": 10**9, "bn": 10**9, "tn": 10**12, "trn": 10**12}
_LETTERS = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_MOST_DIGITS = 60  # of a longer row of digits the first count
_VAGUE = frozenset({"one", "first", "second"})  # said of no number in particular when they stand alone
_PARTS = {"halves": 2, "thirds": 3, "quarters": 4, "fifths": 5, "sixths": 6, "eighths": 8, "tenths": 10}
_GLYPHS = {"½": Decimal("0.5"), "¼": Decimal("0.25"), "¾": Decimal("0.75"), "⅓": Decimal(1) / 3, "⅔": Decimal(2) / 3}

NUMBER_WORDS = frozenset({*_UNITS, *_TENS, *_ORDINALS, *_SCALES, "half"})
_SPELLED_WORDS = groupby(sorted({*_UNITS, *_TENS, *_ORDINALS, *_SCALES, *_PARTS}), key=itemgetter(0))
_SPELLED_WORD = "|".join(f"{first}(?:{'|'.join(word[1:] for word in same)})" for first, same in _SPELLED_WORDS)
_SPELLED = re.compile(
    rf"\b(?:half\s+an?\s+)?(?:{_SPELLED_WORD})\b"
    rf"(?:(?:\s*-\s*|\s+(?:and\s+(?:a\s+half\s+)?)?)(?:{_SPELLED_WORD})\b)*(?:\s+and\s+a\s+half\b)?"
)
_LETTERS_ONLY = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(
    r"(?P<digits>\d{1,3}(?:[,'’\u00a0\u2009\u202f]\d{3})+(?:\.\d+)?(?!\d)|\d{1,3}(?: \d{3})+(?![\d.,])|\d+(?:[.,]\d+)*)"
    r"(?:\s?(?P<glyph>[½¼¾⅓⅔])|\s(?P<over>\d)/(?P<under>[2-9])(?![\d/]))?"
)
_CURRENCY = re.compile(r"(?:(?P<name>us|a|c|hk|nz)?\$|(?P<sign>[€£¥₹])|\b(?P<code>usd|eur|gbp))\s?$")
_SCALE = re.compile(
    rf"(?:[-\s]?(?P<word>{'|'.join(_SCALES)})s?\b"
    rf"|\s?(?P<short>{'|'.join(_SHORT_SCALES)})\b|(?P<letter>[{''.join(_LETTERS)}])\b)"
)
_UNIT = re.compile(
    r"[-\s]?(?:(?P<percent>%|percent(?:age)?\b|per\s?cent\b|pct\b|pc\b)"
    r"|(?P<money>(?:us\s)?dollars?\b|dlrs?\b|usd\b|bucks\b|euros?\b|eur\b|pounds\b|gbp\b|sterling\b|yen\b|rupees?\b|[€£¥$](?!\s?\d))"
    r"|(?P<cents>cents?\b|cts\b|¢)|(?P<ordinal>(?:st|nd|rd|th)\b))"
)
# By a prefix of the dollar sign, by sign, by the first letter of a code or name.
_CURRENCIES_BY_SIGN = "us:$ hk:HK$ nz:NZ$ a:A$ c:C$ $:$ €:€ £:£ ¥:¥ ₹:₹ d:$ u:$ b:$ e:€ y:¥ r:₹ p:£ g:£ s:£"
_CURRENCIES = dict(pair.split(":") for pair in _CURRENCIES_BY_SIGN.split())
_RANGE = re.compile(r"\s?(?:-|–|—|to|and|or)\s?[$€£¥]?\s?(?=\d)")
_UNIT_LETTERS = re.compile(
    r"(?:k?w|m?w|k?wh|mwh|gw|kv|km|cm|mm|kg|mg|g|gb|mb|kb|tb|hz|k?hz|mhz|ghz|ft|in|lbs?|oz|hrs?|h|mins?|secs?|s|yrs?|x|bpd|mph|°?[cf])\b"
)
_VERSIONED = re.compile(r"(?:\bv\.?|\bver\.?|version|release|rev\.?|revision|build|upgrade to|update to)\s?$")
_BEFORE = re.compile(r"\b(?P<word>[^\W\d_][\w+#-]*)\s$")
_AT = re.compile(r"(?:\bat|@|until|till|from|around|by|before|after|-)\s?$")
_DIGIT = re.compile(r"\d")
_CODE = re.compile(r"(?<![\w-])(?:\d{1,4}[-.])?\(?\d{3}\)?[-. ]\d{3}[-. ]\d{4}(?!\w)|(?<![\w-])\d{3}-\d{4}(?![\w-])")
_NAMED = re.compile(r"(?<![\w-])(?P<letters>[^\W\d_]++)-?(?P<number>\d+)(?![,:]\d)[^\W_]*(?:[-.]\w+)*")
_VERSION = re.compile(r"v\d")
_QUARTER = re.compile(
    r"\b(?:q(?P<after>[1-4])|(?P<before>[1-4])q|(?P<nth>[1-4])(?:st|nd|rd|th)[-\s](?:quarter|qtr)"
    r"|(?P<word>first|second|third|fourth)[-\s](?:quarter|qtr))(?!\w)"
)
_DECADE = re.compile(r"(?<![\w.])(?:(?P<long>[12]\d\d0)['’]?s|['’](?P<short>\d0)['’]?s)(?!\w)")
_SHORT_YEAR = re.compile(
    r"(?<!\w)['’](?P<year>\d\d)(?![\w'’])|(?<!\w)(?:fy|cy|cal)[-\s]?['’]?(?P<fiscal>(?:20|19)?\d\d)(?!\w)"
)
# What must stand there for a pattern to find anything, and is searched fast: it begins with one sign or digit.
_QUARTER_SIGN = re.compile(r"q(?:[1-4]|(?<=[1-4]q)|uarter|tr)")
_DECADE_SIGN = re.compile(r"0['’]?s")
_SHORT_YEAR_SIGN = re.compile(r"\d(?:(?<=['’yl]\d)|(?<=[yl][-\s]\d))")
_CODE_SIGN = re.compile(r"\d\d\d[-. ]\d{4}")
_NAMED_SIGN = re.compile(r"\d(?:(?<=[^\W\d_]\d)|(?<=[^\W\d_]-\d))")


def _each(pattern: re.Pattern[str], sign: re.Pattern[str], lower: str) -> Iterable[re.Match[str]]:
    return pattern.finditer(lower) if sign.search(lower) else ()


def quantities(
    text: str, lower: str, known: AbstractSet[str], taken: Sequence[tuple[int, int]] = ()
) -> Iterator[Quantity]:
    """The numbers of ``text``, whose lower case is ``lower`` and whose words are ``known``, outside ``taken`` spans.

    What is found is blotted out for the readers that follow. No more is read than is asked for.
    """
    lower = blotted(without_characters(lower), taken)
    readers: list[Callable[[str, str], Iterator[Quantity]]] = []
    if _DIGIT.search(lower):
        readers += [_decades, _codes, _digits]
    if not known.isdisjoint(NUMBER_WORDS):
        readers.append(_spelled)
    for read in [_quarters, *readers] if readers else []:
        found = []
        for quantity in read(text, lower):
            found.append((quantity.start, quantity.end))
            yield quantity
        lower = blotted(lower, found)


def blotted(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """``text`` with a character that is part of nothing in place of each within ``spans``."""
    pieces: list[str] = []
    place = 0
    for start, end in sorted(spans):
        pieces += text[place:start], "\0" * (end - max(start, place))
        place = max(place, end)
    return "".join(pieces) + text[place:]


def amount_key(value: int | Decimal) -> Key:
    """The key of an amount, however it is written."""
    return "n", Decimal(value).normalize()


def year_of(text: str) -> int:
    """``01`` and ``2001`` are 2001, ``98`` is 1998."""
    year = int(text)
    return year if year > 99 else year + (2000 if year < 50 else 1900)


def amount(digits: str) -> Decimal:
    """The value of digits with separators: commas, blanks and apostrophes before three digits part thousands."""
    plain = re.sub(r"[ '’\u00a0\u2009\u202f]", "", digits)[:_MOST_DIGITS].rstrip(".,")
    if re.fullmatch(r"\d{1,3}(?:,\d{2,3})*,\d{3}(?:\.\d+)?", plain):
        plain = plain.replace(",", "")
    elif plain.count(".") > 1:
        plain = plain.replace(".", "") if re.fullmatch(r"\d{1,3}(?:\.\d{3})+", plain) else re.split("[.,]", plain)[0]
    elif "," in plain and "." in plain:
        plain = plain.replace(".", "").replace(",", ".") if plain.count(",") == 1 else plain.replace(",", "")
    else:
        plain = plain.replace(",", ".", 1).replace(",", "")
    return Decimal(plain).normalize()


def _number(start: int, end: int, *needs: tuple[Key, ...], offers: set[Key]) -> Quantity:
    return Quantity("number", start, end, needs, frozenset(offers))


def _quarters(text: str, lower: str) -> Iterator[Quantity]:
    for found in _each(_QUARTER, _QUARTER_SIGN, lower):
        said = found["after"] or found["before"] or found["nth"] or str(_ORDINALS[found["word"]])
        yield _number(*found.span(), (("q", int(said)),), offers={("q", int(said)), ("o", Decimal(said))})


def _decades(text: str, lower: str) -> Iterator[Quantity]:
    for found in _each(_DECADE, _DECADE_SIGN, lower):
        decade = int(found["long"]) if found["long"] else year_of(found["short"])
        key = ("decade", decade)
        yield _number(*found.span(), (key,), offers={key})
    for found in _each(_SHORT_YEAR, _SHORT_YEAR_SIGN, lower):
        year = year_of(found["year"] or found["fiscal"])
        yield _number(*found.span(), (("y", year),), offers={("y", year), amount_key(year)})


def _codes(text: str, lower: str) -> Iterator[Quantity]:
    """Telephone numbers, of which all digits count, and names with digits, which stand for themselves ("F-16")."""
    for found in _each(_CODE, _CODE_SIGN, lower):
        key = ("w", re.sub(r"\D", "", found[0]))
        yield _number(*found.span(), (key,), offers={key})
    for found in _named(lower):
        letters = found["letters"]
        if _VERSION.match(found[0]) or (len(letters) > 2 and "-" in found[0] and is_ordinary(letters)):
            continue  # v2, phase-2
        number = Decimal(found["number"]).normalize()
        key = ("code", re.sub(r"[\W_]", "", found[0]))
        yield Quantity("name", *found.span(), ((key,),), frozenset({key, ("n", number), ("o", number)}))


def _named(lower: str) -> Iterator[re.Match[str]]:
    """``_NAMED.finditer(lower)``, from sign to sign; there is no blank within one."""
    end = 0
    for sign in _NAMED_SIGN.finditer(lower):
        if sign.start() >= end:
            if not (match := _NAMED.search(lower, max(end, lower.rfind(" ", 0, sign.start()) + 1))):
                return
            end = match.end()
            yield match


# ------------------------------------------------------------------------------------------- in digits


def _digits(text: str, lower: str) -> Iterator[Quantity]:
    run: list[re.Match[str]] = []  # numbers of which each begins a range that the next one ends
    for match, following in pairwise(chain((m for m in _written(lower) if _begins(lower, m.start())), (None,))):
        assert match is not None
        run.append(match)
        gap = _RANGE.match(lower, match.end()) if following else None
        if gap and following and gap.end() == following.start():
            continue
        shared: _Read | None = None  # how a range's end was read, for its beginning
        found = [shared := _read(lower, one, shared) for one in reversed(run)]
        yield from [_quantity(text, lower, read) for read in reversed(found) if read]
        run = []


def _written(lower: str) -> Iterator[re.Match[str]]:
    """``_NUMBER.finditer(lower)``, from digit to digit."""
    end = 0
    for digit in _DIGIT.finditer(lower):
        if digit.start() >= end and (match := _NUMBER.match(lower, digit.start())):
            end = match.end()
            yield match


def _begins(lower: str, start: int) -> bool:
    """May a number begin here? Not within a word, but behind the v of a version."""
    before = lower[max(0, start - 2) : start]
    return not before[-1:].isalpha() or (before[-1] == "v" and not before[:-1].isalnum())


@dataclass(frozen=True, slots=True)
class _Read:
    """A number as it is written: ``value`` times ``scale`` of ``unit``; ``letter`` if the scale is one ("3m").

    ``lent``: the scale is that of a range's other end, so that the number may do without it.
    """

    start: int
    end: int
    digits: str
    value: Decimal
    scale: int = 1
    unit: str = ""
    letter: str = ""
    lent: bool = False


def _read(lower: str, match: re.Match[str], behind: _Read | None) -> _Read | None:
    """A number in digits with its scale and unit; ``behind`` is the end of the range that it begins."""
    start, end, scale, unit, letter = match.start(), match.end(), 1, "", ""
    value = amount(match["digits"])
    if lower[start - 1 : start] == "." and not lower[start - 2 : start - 1].isalnum():
        start, value = start - 1, Decimal(f"0.{match['digits']}") if match["digits"].isdigit() else value
    if currency := _CURRENCY.search(lower[max(0, start - 4) : start]):
        unit = _CURRENCIES[currency["name"] or currency["sign"] or (currency["code"] or "$")[0]]
        start -= len(currency[0])
    if scaled := _SCALE.match(lower, end):
        word, short, letter = (scaled[name] or "" for name in ("word", "short", "letter"))
        if short == "mm" and not unit:
            letter = short
        scale = _SCALES.get(word) or _SHORT_SCALES.get(short) or _LETTERS[letter]
        end = scaled.end()
        while (again := _SCALE.match(lower, end)) and again["word"]:  # two hundred thousand
            scale, end = scale * _SCALES[again["word"]], again.end()
    if (named := _UNIT.match(lower, end)) and (not unit or _unit_of(named) == unit):  # "$3 £2" are two sums
        unit, end = _unit_of(named), named.end()
    if lower[end : end + 1].isalpha() and end == match.end() and not _UNIT_LETTERS.match(lower, end):
        return None  # 3D, 747s: a code
    if match["glyph"]:
        value += _GLYPHS[match["glyph"]]
    elif match["over"]:
        value += Decimal(match["over"]) / Decimal(match["under"])
    lent = False
    if behind is not None and scale == 1 and value < behind.value and (not unit or behind.unit in ("", unit)):
        scale, unit, letter, lent = behind.scale, unit or behind.unit, behind.letter, behind.scale > 1
    return _Read(start, end, match["digits"], value, scale, unit, letter, lent)


def _unit_of(named: re.Match[str]) -> str:
    if named["percent"]:
        return "%"
    if named["money"]:
        return _CURRENCIES[named["money"][0]]
    return "¢" if named["cents"] else "o"


def _quantity(text: str, lower: str, read: _Read) -> Quantity:
    start, end, unit = read.start, read.end, read.unit
    plain, total = read.value.normalize(), (read.value * read.scale).normalize()
    offers: set[Key] = {("n", plain)} if read.lent else set()  # the 3 of "3 to 5 million" may be three
    if unit in ("%", "o"):
        return _number(start, end, ((unit, total),), offers=offers | {(unit, total)})
    if unit == "¢":
        money = ("$", "$", total / 100)
        return _number(start, end, (money,), offers=offers | {money, ("n", total)})
    if unit:
        money = ("$", unit, total)
        specific = total >= 1000 or total != total.to_integral_value()
        needs = (money, ("bare", total)) if specific else (money,)
        return _number(start, end, needs, offers=offers | {money, ("n", total)})
    written = ("w", read.digits)
    if read.scale == 1 and "." in read.digits and _is_version(text, lower, read):
        version = ("v", read.digits)
        whole = not read.digits.split(".", 1)[1].strip("0.")
        return _number(start, end, (version, written), offers={version, written} | ({("n", total)} if whole else set()))
    offers |= {("n", total), ("bare", total)}
    if lower.startswith(" quarters", end):  # "2 quarters" may be a half, "two quarters" two of a year
        offers.add(amount_key(total / 4))
    elif lower.endswith(" quarters", start, end):
        offers.add(amount_key(total * 4))
    if read.letter:  # 3m: three million, or three metres
        length = ("x", plain, read.letter)
        return _number(start, end, (("n", total), length), offers=offers | {length, ("n", plain)})
    if read.scale > 1 or not read.digits:
        return _number(start, end, (("n", total),), offers=offers)
    offers.add(written)
    if re.fullmatch(r"(?:19|20)\d\d", read.digits):
        year = ("y", int(read.digits))
        return _number(start, end, (("n", total), year), offers=offers | {year})
    if total <= 12 and _AT.search(lower[max(0, start - 8) : start]):
        offers.add(("hour", int(total)))
    return _number(start, end, (("n", total), written) if "." in read.digits else (("n", total),), offers=offers)


def _is_version(text: str, lower: str, read: _Read) -> bool:
    """Two points, or after "version" or the like or a product's name, if nothing parts thousands: then 1.1 is not 1.10.

    That the name is an ordinary word tells nothing ("Python 3.10").
    """
    begin = max(0, read.start - 40)
    if read.digits.count(".") > 1 or _VERSIONED.search(lower[begin : read.start]):
        return True
    found = _BEFORE.search(text[begin : read.start]) if read.digits.replace(".", "").isdecimal() else None
    return found is not None and (found["word"][0].isupper() or not is_ordinary(found["word"].lower()))


# ------------------------------------------------------------------------------------------- in words


def _spelled(text: str, lower: str) -> Iterator[Quantity]:
    for run in _SPELLED.finditer(lower):
        tokens = [(m[0], m.start(), m.end()) for m in _LETTERS_ONLY.finditer(lower, run.start(), run.end())]
        for value, start, end, ordinal, vague in _values(tokens):
            unit = _UNIT.match(lower, end)
            if ordinal or vague:
                key = ("o" if ordinal else "n", value.normalize())
                yield _number(start, end, *([] if vague else [(key,)]), offers={key})
            elif unit and not unit["ordinal"]:
                yield _quantity(text, lower, _Read(start, unit.end(), "", value, unit=_unit_of(unit)))
            else:
                yield _quantity(text, lower, _Read(start, end, "", value))


def _values(tokens: list[tuple[str, int, int]]) -> Iterator[tuple[Decimal, int, int, bool, bool]]:
    """(value, start, end, is an ordinal, says no number in particular) of the numbers in a row of number words."""
    total, current, begin, end, count, last = Decimal(0), Decimal(0), -1, -1, 0, ""

    def closed() -> tuple[Decimal, int, int, bool, bool]:
        nonlocal total, current, begin, count, last
        found = total + current, begin, end, last in _ORDINALS, count == 1 and last in _VAGUE
        total, current, begin, count, last = Decimal(0), Decimal(0), -1, 0, ""
        return found

    for place, (word, start, stop) in enumerate(tokens):
        if word in ("and", "a", "an"):
            half = any(later == "half" for later, *_ in tokens[place + 1 : place + 3])
            if word == "and" and begin >= 0 and last not in _SCALES and not half:
                yield closed()
            continue
        if begin >= 0 and not _fits(word, last, current):
            yield closed()
        if begin < 0 and word in _PARTS:  # soldiers' quarters
            continue
        if begin < 0:
            begin = start
        count += 1
        if word == "half":
            current += Decimal("0.5")
        elif word in _UNITS or word in _TENS:
            value = _UNITS.get(word, _TENS.get(word, 0))
            teens = last in _UNITS or last in _TENS
            current = current * 100 + value if teens and not (last in _TENS and value < 10) else current + value
        elif word in _SCALES and word not in ("hundred", "dozen"):
            total, current = total + (current or Decimal(1)) * _SCALES[word], Decimal(0)
        elif word in _SCALES:
            current = (current or Decimal(1)) * _SCALES[word]
        elif word in _PARTS:
            current = current / _PARTS[word]
        else:
            current += _ORDINALS[word]
        last, end = word, stop
        if word in _ORDINALS or word in _PARTS:
            yield closed()
    if begin >= 0:
        yield closed()


def _fits(word: str, last: str, current: Decimal) -> bool:
    """Does ``word`` go on with the number that ``last`` ended?"""
    if word in _SCALES or last in _SCALES or word == "half":
        return True
    if word in _PARTS:
        return last in _UNITS
    value = _UNITS.get(word) or _TENS.get(word) or _ORDINALS.get(word, 0)
    if last in _TENS and 0 < value < 10:
        return True
    return 10 <= current <= 20 and value >= 10 and word not in _ORDINALS  # nineteen ninety, twenty twenty
