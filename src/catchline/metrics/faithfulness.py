"""What a summary states that its source does not: numbers, dates and times, names, and other content words.

A missing claim is not always wrong and a present one not always right (two names of the source may be put together
wrongly): each has its places in both texts, so that a person can look. Number words are English.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, cached_property, lru_cache
from itertools import chain
from typing import Literal

from catchline.config.names import DEFAULT, ROOT
from catchline.metrics.words import WORD, is_character, is_stop_word, lowered, repeats, stem, words
from catchline.text.normalization import located
from catchline.text.truecase import Casing

Kind = Literal["number", "date", "name", "word"]
CLAIMS: tuple[Kind, ...] = ("number", "date", "name")
Span = tuple[int, int]
_ENDLESS = 10_000  # characters


@dataclass(frozen=True, slots=True)
class Claim:
    """``summary[start:end] == text``; ``source`` is where the source has it, None where it does not."""

    kind: Kind
    text: str
    start: int
    end: int
    source: Span | None


@dataclass(frozen=True, slots=True)
class SupportReport:
    """Every number, date, name and other content word of a summary, in order."""

    claims: tuple[Claim, ...]

    @property
    def unsupported(self) -> tuple[Claim, ...]:
        """The numbers, dates and names that the source lacks."""
        return tuple(claim for claim in self.claims if claim.source is None and claim.kind != "word")


def check_support(summary: str, source: str | SourceFacts) -> SupportReport:
    """Compare a summary's numbers, dates, names and content words with its source.

    * numbers: by value ("two million" is 2,000,000, "3.50" is 3.5; "2019-2020" supports "2019-20");
    * dates: months, week days and days in every common form ("Tue.", "5/14", "14th of May"), times of half a day;
    * names: each word of the name, accents and endings aside, its initials, or its letters ("U.S." is "US");
    * words: the word or another form of it; of scripts without blanks each character.
    """
    facts = source if isinstance(source, SourceFacts) else SourceFacts(source)
    text, places = located(summary)
    text = re.sub(r"<unk>|\[UNK\]", lambda mark: " " * len(mark[0]), text)
    values = [*_values(text)]
    verdicts = [(kind, a, b, facts.offers(needs)) for kind, a, b, needs in values if text[a:b].lower() not in _VAGUE]
    for run in _runs(text, _words_of(text, values), facts):
        plain, is_name = [word.plain for word in run], run[0].is_name
        place = facts.has_name(plain) if is_name else facts.has_word(plain[0])
        verdicts.append(("name" if is_name else "word", run[0].start, run[-1].end, place))
    claims = []
    for kind, a, b, place in sorted(verdicts, key=lambda verdict: verdict[1]):
        start, end = _within((a, b), places)
        claims.append(Claim(kind, summary[start:end], start, end, place and _within(place, facts.places)))
    return SupportReport(tuple(claims))


def first_faultless(texts: Iterable[str], document: str) -> int:
    """The place of the first text that does not repeat itself, and of whose names, numbers and dates the document has
    all; 0 where there is none. A copied "word" of any length passes."""
    source = SourceFacts(document)
    for place, text in enumerate(texts):
        if len(text) > _ENDLESS or not (repeats(words(text)) or check_support(text, source).unsupported):
            return place
    return 0


def _within(span: Span, places: Sequence[int]) -> Span:
    """The span of a text without invisible characters (`located`) in the text itself."""
    return (places[span[0]], places[span[1] - 1] + 1) if span[1] else span


# --------------------------------------------------------------------------------------------- numbers, dates and times

# A source has one key of each group: "14" (a number), "month 5", "day 5 14", "weekday mon", "time 270" (in minutes).
Needs = tuple[tuple[str, ...], ...]


def _numbered(names: str, start: int, step: int = 1) -> dict[str, int]:
    return {name: start + step * place for place, name in enumerate(names.split())}


_SMALL = _numbered("zero one two three four five six seven eight nine ten eleven twelve", 0)
_SMALL |= _numbered("thirteen fourteen fifteen sixteen seventeen eighteen nineteen", 13)
_SMALL |= _numbered("first second third fourth fifth sixth seventh eighth ninth tenth", 1)
_TENS = _numbered("twenty thirty forty fifty sixty seventy eighty ninety", 20, 10)
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SUFFIXES = {"k": 10**3, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9}
_VAGUE = frozenset(("one", "first", "second"))  # alone they state no number
_MONTHS = _numbered("jan feb mar apr may jun jul aug sep oct nov dec", 1)
_WORDLIKE = frozenset(("may", "march", "mar", "sun", "sat", "wed", "dec"))  # dates behind a preposition only
_LOW = rf"(?:(?:{'|'.join(_TENS)})(?:[-\s](?:{'|'.join(_SMALL)}))?|{'|'.join(_SMALL)})\b"
_SCALE = rf"(?:{'|'.join(_SCALES)})s?\b"
_JOINED = r"[^\W\u0e00-\U0003ffff]"  # digits stand by themselves among characters of scripts without blanks
_APART = rf"(?<!{_JOINED})"
_GROUPED = r"\d{1,3}(?:[,'’\u00a0\u202f]\d{3})+(?:\.\d+)?(?!\d)"
_NUMERIC = re.compile(rf"(?<![.,/-]){_APART}(\d{{4}}|\d\d?)([-/.])(\d\d?)(?:\2(\d{{4}}|\d\d?))?(?!{_JOINED}|/|[-.]\d)")
_WORDED = re.compile(
    r"\b(?:(?P<before>\d\d?)(?:st|nd|rd|th)?(?:\s+of)?\s+)?(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?"
    r"|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b(?:\.(?=,?\s*\d))?"
    r"(?:\s+(?P<day>\d\d?)(?:st|nd|rd|th)?(?![\d:])(?:\s?[-–]\s?(?P<last>\d\d?)\b)?)?(?:,?\s+(?P<year>\d{4})\b)?"
)
_WEEKDAY = re.compile(r"\b(mon|tue|wed|thu|fri|sat|sun)(?:s|nes|rs?|ur)?(?:days?)?\b")
_TIME = re.compile(r"(?<![\w.:,])(\d\d?)(?:(?::(\d\d)){1,2}|(?=\s?[ap]\.?m\b))(?:\s?[ap]\.?m\b\.?)?")
_NUMBER = re.compile(
    rf"{_APART}(?<!\d[.,])({_GROUPED}|\d+(?:[.,]\d+)*|(?<![\w.])\.\d+)(?:({'|'.join(_SUFFIXES)})\b|[-\s]?({_SCALE})|(?:st|nd|rd|th|['’]?s)\b)?"
    rf"(?!{_JOINED})"
)
_SPELLED = re.compile(rf"\b(?:{_LOW}|{_SCALE})(?:[-\s]+{_SCALE}(?:[-\s]+(?:and\s+)?{_LOW})?)*")
_YEARS = re.compile(r"(?<!\w)(1[89]|20)(\d\d)[-–/](?:1[89]|20)?(\d\d)(?!\d)")  # 2019-20, 2019-2020
_PREPOSITION = re.compile(r"\b(?:in|on|by|since|until|till|before|after|of|from|last|next|this|every)\s$")


def _amount(value: int | str | Decimal) -> str:
    return f"{Decimal(value).normalize():f}"


def _numeric(match: re.Match[str]) -> Needs:
    """5/14, 5/14/01, 14.5.2001, 2001-05-14: month before day or day before month, where that can be."""
    first, second, third = (int(part or 0) for part in match.group(1, 3, 4))
    year, orders = (first, [(second, third)]) if first > 31 else (third, [(first, second), (second, first)])
    days = tuple(f"day {month} {day}" for month, day in orders if 1 <= month <= 12 and 1 <= day <= 31)
    years = ((_amount(year + 2000 * (year < 100)),),) if year else ()
    return (days, *years) if days and (years or match[2] == "/") else ()


def _worded(match: re.Match[str]) -> Needs:
    """14 May, May 14-16, May 14th, 2001, May 2001, May."""
    month, days = _MONTHS[match["month"][:3]], [match[name] for name in ("before", "day", "last") if match[name]]
    needs = [(f"day {month} {int(day)}",) for day in days] or [(f"month {month}",)]
    return (*needs, *([(_amount(match["year"]),)] if match["year"] else []))


def _number(match: re.Match[str]) -> Needs:
    digits = match[1][:60]
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})+,\d+", digits):  # 1.200,50
        digits = digits.translate({44: ".", 46: ","})
    plain = re.sub(r"[^\d.]", "", digits) if re.fullmatch(_GROUPED, digits) else digits.replace(",", ".")
    scale = _SUFFIXES.get(match[2] or "", 1) * _SCALES.get((match[3] or "").rstrip("s"), 1)
    return ((digits if plain.count(".") > 1 else _amount(Decimal(plain) * scale),),)


def _spelled(match: re.Match[str]) -> Needs:
    total = part = 0
    for word in re.findall(r"[a-z]+", match[0]):
        scale = _SCALES.get(word.rstrip("s"), 1)
        part = (part or 1) * scale if scale > 1 else part + (_SMALL.get(word) or _TENS.get(word) or 0)
        if scale > 100:
            total, part = total + part, 0
    return ((_amount(total + part),),)


_READERS: tuple[tuple[Kind, re.Pattern[str], Callable[[re.Match[str]], Needs]], ...] = (
    ("date", _NUMERIC, _numeric),
    ("date", _WORDED, _worded),
    ("date", _TIME, lambda match: ((f"time {int(match[1]) % 12 * 60 + int(match[2] or 0)}",),)),
    ("date", _WEEKDAY, lambda match: ((f"weekday {match[1]}",),)),
    ("number", _NUMBER, _number),
    ("number", _SPELLED, _spelled),
)


def _values(text: str) -> Iterator[tuple[Kind, int, int, Needs]]:
    lower, busy = lowered(text), bytearray(len(text))
    for kind, pattern, read in _READERS:
        for match in pattern.finditer(lower):
            start, end = match.span()
            told = match[0].rstrip(".") not in _WORDLIKE or _PREPOSITION.search(lower, max(0, start - 8), start)
            if told and busy.find(1, start, end) < 0 and (needs := read(match)):
                busy[start:end] = b"\1" * (end - start)
                yield kind, start, end, needs


# ----------------------------------------------------------------------------------------------------- names and words


@dataclass(slots=True)
class _Word:
    """``plain``: lower-cased, without accents and possessive ending; ``opens``: first of a line or sentence."""

    text: str
    plain: str
    start: int
    end: int
    opens: bool
    abbreviates: bool
    is_name: bool = False


_TOKEN = re.compile(rf"(?P<dotted>(?<![\w.])(?:[^\W\d_]\.\s?)+[^\W\d_](?:\.|(?!\w)))|{WORD.pattern}")
_OPENING = re.compile(r"(?:^|[.!?:;|\n]\s*|^[\W_]+|[-–—•*>/]\s+|[\"“‘(\[]\s*)$")
_JOINT = re.compile(r"\s+|\s*[-&/.'’]\s*|\s+(?:(?:of|the|and|de|van|von|der|del|la|bin|al)\s+)+")
_SMALL_WORDS = frozenset(("and", "as", "at", "by", "for", "from", "in", "into", "of", "on", "or", "the", "to", "with"))
_ENDINGS = ("", "s", "es", "n", "an", "ian", "ans", "ians", "ese", "i", "ish", "ic")


@lru_cache(maxsize=100_000)
def _plain(word: str) -> str:
    if not word.isascii():
        word = unicodedata.normalize("NFKD", word.casefold()).replace("’", "'")
        word = "".join(sign for sign in word if not unicodedata.combining(sign))
    return word.lower().removesuffix("'s").rstrip("'")


@cache
def _ordinary() -> frozenset[str]:
    """The stems of the bundled model's words; those that are written with a capital within sentences are left out."""
    file, names = ROOT / DEFAULT / "tokenizer.json", Casing.load(ROOT / DEFAULT).forms
    words = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"] if file.is_file() else ()
    return frozenset(stem(word) for word in words if word not in names)


def _words_of(text: str, values: Sequence[tuple[Kind, int, int, Needs]]) -> list[_Word]:
    """The words outside ``values``; "U.S." is one, a letter by itself none."""
    busy, found = bytearray(len(text)), []
    for _, start, end, _ in values:
        busy[start:end] = b"\1" * (end - start)
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        letters = match[0] if match["dotted"] is None else re.sub(r"\W", "", match[0])
        if (len(letters) < 2 and letters.isascii()) or busy.find(1, start, end) >= 0:
            continue
        opens = letters[0].isupper() and _OPENING.search(text, max(0, start - 12), start) is not None
        if letters.lower() not in ("am", "pm", "ie", "eg"):
            short = match["dotted"] is not None or letters == "US"
            found.append(_Word(letters, _plain(letters), start, end, opens and not short, short))
    return found


def _runs(text: str, every: list[_Word], facts: SourceFacts) -> Iterator[list[_Word]]:
    """Words by themselves, and the words of each name together. Capitals tell names but in titles."""
    small = any(word.text[0].islower() and word.plain not in _SMALL_WORDS for word in every)
    telling, shouted = small or all(word.opens for word in every if word.text[0].isupper()), text.isupper()
    run: list[_Word] = []
    for word in (word for word in every if word.abbreviates or not is_stop_word(word.plain)):
        coined = any(map(str.isupper, word.text[1:])) and not (word.text.isupper() and (shouted or len(word.text) > 5))
        # the first word of a line that neither the source nor ordinary English has
        unknown = word.opens and stem(word.plain) not in _ordinary() and facts.has_word(word.plain) is None
        told = telling and word.text[0].isupper() and (not word.opens or unknown)
        word.is_name = word.plain[0].isalpha() and (coined or told or facts.is_name(word.plain))
        if run and not (run[-1].is_name and word.is_name and _JOINT.fullmatch(text, run[-1].end, word.start)):
            yield run
            run = []
        run.append(word)
    yield from [run] if run else []


class SourceFacts:
    """A document as summaries are compared with it."""

    def __init__(self, text: str) -> None:
        self.text, self.places = located(text)
        self._lower, self.words = lowered(self.text), words(self.text)
        self._known = {word if word.isalpha() and word.isascii() else _plain(word): word for word in self.words}

    @cached_property
    def _stems(self) -> Mapping[str, str]:
        return {stem(word): word for word in self._known}

    @cached_property
    def _offered(self) -> Mapping[str, Span]:
        """Each key of the text's values, of a day also its month and number, of a time its hour."""
        found: dict[str, Span] = {}
        for _, start, end, needs in _values(self.text):
            for key in chain.from_iterable(needs):
                first, *rest = key.split()[1:] or [""]
                more = [f"month {first}", *rest] if rest else [str(int(first) // 60)] if key[:4] == "time" else []
                for each in (key, *more):
                    found.setdefault(each, (start, end))
        for years in _YEARS.finditer(self.text):
            for last in (years[3], years[1] + years[3]):
                found.setdefault(_amount(last), years.span())
        return found

    def offers(self, needs: Needs) -> Span | None:
        places = [next((self._offered[key] for key in group if key in self._offered), None) for group in needs]
        return places[0] if all(places) else None

    def has_word(self, word: str) -> Span | None:
        """Where the source has the word, another form of it, or its letters with blanks or hyphens between."""
        if form := word if word in self._known else self._stems.get(stem(word)):
            return next(self._places(self._known[form]), (0, 0))
        return self._letters(word)

    def has_name(self, run: Sequence[str]) -> Span | None:
        """Where the source has all words of a name, its letters, or its initials."""
        letters, places = "".join(run), [self.has_word(word) or self._form(word) for word in run]
        if all(places) and not (len(run) == 1 and is_stop_word(run[0])):  # "us" is not the US
            return (self._letters(letters) if len(run) > 1 else None) or places[0]
        if len(run) == 1:
            return self._initials(run[0]) or self._initials(run[0].removesuffix("s"))
        short = self._initials("".join(word[0] for word in run))
        return self._letters(letters) or (short if short and self.text[slice(*short)].isupper() else None)

    def _initials(self, letters: str) -> Span | None:
        """Where capitals or, of three and more, words in a row are these initials, function words left out or not."""
        capitals = r"(?:[a-z]*[\s-]|\.\s?|)".join(map(re.escape, letters.upper()))
        if match := re.search(rf"(?<!\w){capitals}(?![A-Z])", self.text):
            return match.span()
        plain = list(map(_plain, self.words))
        for listed in (plain, [word for word in plain if not is_stop_word(word)]):
            if len(letters) > 2 and (place := "".join(word[0] for word in listed).find(letters)) >= 0:
                return self.has_word(listed[place])
        return None

    def is_name(self, word: str) -> bool:
        """Is the word written with a capital within sentences, and never without?"""
        known = self._known.get(word) if f" {word} " not in self.text else None
        places = [start for start, _ in self._places(known)] if known else []
        within = any(not _OPENING.search(self.text, max(0, start - 12), start) for start in places)
        return within and all(self.text[start].isupper() for start in places)

    def _places(self, word: str) -> Iterator[Span]:
        """Where the word stands by itself, or the character within others."""
        start = self._lower.find(word)
        while start >= 0:
            end = start + len(word)
            beside = (self._lower[start - 1 : start], self._lower[end : end + 1])
            if is_character(word) or not any(sign.isalnum() and not is_character(sign) for sign in beside):
                yield start, end
            start = self._lower.find(word, start + 1)

    def _letters(self, letters: str) -> Span | None:
        """Where these letters begin a word and go on, whatever stands between them."""
        known = len(letters) > 4 and letters in "".join(map(_plain, self.words))
        match = known and re.search(r"(?<![^\W_])" + r"[\W_]*".join(map(re.escape, letters)), self._lower)
        return match.span() if match else None

    def _form(self, name: str) -> Span | None:
        """Where the source has the name with or without an ending ("Iran", "Iranians")."""
        forms = [name + ending for ending in _ENDINGS] + [name.rstrip("aeiouy") + end for end in _ENDINGS if end[1:]]
        forms += [name.removesuffix(ending) for ending in _ENDINGS if len(name) > len(ending) + 3]
        return next((self.has_word(form) for form in forms if form in self._known), None)
