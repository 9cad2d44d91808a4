"""What a summary states that its source does not: numbers, dates and times, names, and other content words.

Rules and word lists only, no models. Letter case need not tell names: where the summary's capitals say nothing (all
lower case, a Title Line, a sentence's first word) a word is a name if the source writes it as one, or if it is no
ordinary English word. Numbers, dates and times are compared by what they are worth (`catchline.metrics.quantities`).

A claim that is missing is not always wrong and one that is present is not always right (two names of the source may
be put together wrongly); every verdict has its places in both texts so that a person can look. Numbers in words,
months, magnitudes and the word lists are English; in other languages digits and capitals remain.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, chain, combinations
from operator import attrgetter, itemgetter
from typing import Literal

from rapidfuzz.distance import OSA

from catchline.metrics.dates import read_quantities, takes
from catchline.metrics.quantities import Key, Quantity
from catchline.metrics.words import (
    ASCII_WORD,
    WORD,
    beginning,
    irregular_forms,
    is_character,
    is_ordinary,
    is_stop_word,
    lowered,
    place_adjectives,
    smart_stop_words,
    stem,
    words,
    younger_words,
)

Kind = Literal["number", "date", "name", "word"]
CLAIMS: tuple[Kind, ...] = ("number", "date", "name")
Span = tuple[int, int]
_SOMEWHERE: Span | None = (0, 0)
_Verdict = tuple[Kind, int, int, Span | None]  # a claim and where the source has it

_UNKNOWN = re.compile(r"<unk>|\[UNK\]")  # what models write for a word that they do not know
_without_marks = partial(_UNKNOWN.sub, lambda mark: " " * len(mark[0]))  # places stay what they are
_DOTTED = re.compile(r"(?<![\w.])(?:[^\W\d_]\.\s?){1,}[^\W\d_](?:\.|(?!\w))")
_ASIDE = re.compile(r"(?<![\w.])(?i:e\.\s?g|i\.\s?e|[ap]\.\s?m|cf|vs|etc)\.")  # never part of a name
# before a point of one of these: a letter by itself, or what an aside ends with
_POINT = re.compile(r"\.(?:(?<=(?<![\w.])[^\W\d_]\.)|(?i:(?<=cf\.)|(?<=vs\.)|(?<=etc\.)))")
_OPENING = re.compile(r"(?:^|[.!?:;|]\s+|\n\s*|^[\W_]+|[-–—•*>/]\s+|[\"“‘(\[]\s*)$")
_JOINT = re.compile(r"\s+|\s*[-&/.'’]\s*|\s+(?:(?:of|the|de|van|von|der|del|la|bin|al)\s+)+")
_CAPITAL = re.compile(r"[A-Z](?<![^\W_][A-Z])")
_CASED_WORD = re.compile(r"[^\W\d_]+")
_CAPITAL_RUN = re.compile(  # from the first capital of a word; sought from each of them, a long word took its square
    r"(?<![\w'’])(?:(?![A-Z])[\w'’])*+([A-Z][\w'’]*+(?:[\s-]+(?:(?:of|and|for|the|in|&)\s+)*[A-Z][\w'’]*+)+)"
)
_TITLES = {"mr", "mrs", "ms", "dr", "prof", "sir", "st", "jr", "sr", "inc", "corp", "co", "ltd", "llc", "plc"}
# What may follow a name or be left out of it: plurals, adjectives of places, their people.
_ENDINGS = ("s", "n", "an", "ian", "ean", "ese", "i", "ish", "ic", "er", "ers", "ns", "ans", "ians", "y")
_SMALL_WORDS = smart_stop_words() | _TITLES
_BREAKING = smart_stop_words() - {"of", "and", "for", "in", "on"}  # an abbreviation does not run across these
_LONGEST_NAME = 8  # words
_ENGLISH = 0.15  # of an English text's distinct words at least so many are function words
_DOUBLED = re.compile(r"(.)\1")
_SQUEEZED = 5  # letters from which a name may be found across blanks and hyphens


@dataclass(frozen=True, slots=True)
class Claim:
    """``summary[start:end] == text``; ``source`` is where the source has it, None where it does not."""

    kind: Kind
    text: str
    start: int
    end: int
    source: Span | None

    @property
    def supported(self) -> bool:
        return self.source is not None


@dataclass(frozen=True, slots=True)
class SupportReport:
    """Every number, date, name and other content word of a summary, in order."""

    claims: tuple[Claim, ...]

    @property
    def checked(self) -> dict[Kind, int]:
        """How many of each kind were compared."""
        counts = Counter(claim.kind for claim in self.claims)
        return {kind: counts[kind] for kind in (*CLAIMS, "word")}

    @property
    def unsupported(self) -> tuple[Claim, ...]:
        """The numbers, dates and names that the source lacks."""
        return tuple(claim for claim in self.claims if claim.source is None and claim.kind != "word")

    @property
    def new_words(self) -> tuple[Claim, ...]:
        """The other content words that the source has in no form."""
        return tuple(claim for claim in self.claims if claim.source is None and claim.kind == "word")

    @property
    def rate(self) -> float | None:
        """The share of numbers, dates and names that the source supports; None if there is none to compare."""
        total = sum(claim.kind != "word" for claim in self.claims)
        return 1.0 - len(self.unsupported) / total if total else None


class SourceFacts:
    """A document as summaries are compared with it; what a comparison needs is made when it is first needed. Without
    ``places`` what it has is found at its beginning, for those who only ask whether it has it."""

    def __init__(self, text: str, *, places: bool = True) -> None:
        self.text, self.lower, self.with_places = text, lowered(text), places
        self._names: dict[str, bool] = {}
        self._offers: dict[Key, Span] = {}  # by what was read of it so far

    @cached_property
    def words(self) -> list[str]:
        return words(self.text)

    @cached_property
    def known(self) -> frozenset[str]:
        """Its words, also without possessive endings."""
        distinct = frozenset(self.words)
        ending = "'" in self.lower or "’" in self.lower
        return distinct.union([_bare(word) for word in distinct if not word.isalnum()]) if ending else distinct

    @cached_property
    def _reading(self) -> Iterator[Quantity]:
        return read_quantities(self.text, self.lower, self.known)

    def offered(self, keys: Sequence[Key]) -> Span | None:
        """Where one of the document's numbers and dates supports the first of these ``keys`` that is supported."""
        while self.with_places or self._offers.keys().isdisjoint(keys):
            if (quantity := next(self._reading, None)) is None:
                break
            for key in quantity.offers:
                self._offers.setdefault(key, (quantity.start, quantity.end))
        return next((self._offers[key] for key in keys if key in self._offers), None)

    @cached_property
    def is_english(self) -> bool:
        """Do its function words say so, or its other words?"""
        if len(self.known & smart_stop_words()) >= _ENGLISH * len(self.known):
            return True
        return sum(map(is_ordinary, self.known)) >= len(self.known) / 2

    @cached_property
    def is_titled(self) -> bool:
        """Do so many of its words have capitals that these say nothing?"""
        return len(_CAPITAL.findall(self.text)) > 0.5 * len(self.words)

    def names(self, word: str) -> bool:
        """Does the document write the lower-cased ``word`` as a name: with a capital, though not for a sentence's or
        title's sake, and never without?"""
        if word not in self._names:
            self._names[word] = self._is_name(word)
        return self._names[word]

    def has_whole(self, summary: str) -> bool:
        """Does the summary, if it is ASCII, stand in the document as it is, between blanks? Then so do its words."""
        start = self.text.find(summary) if summary.isascii() else -1
        around = self.text[start - 1 : start] + self.text[start + len(summary) :][:1]
        return start >= 0 and (not around or around.isspace())

    def _is_name(self, word: str) -> bool:
        if not word.isalpha() or (word[0].islower() and f" {word} " in self.text):  # found quickly
            return False
        if is_character(word) or is_stop_word(word):
            return False
        within = capital = False
        for start, _ in self._places(word):
            if self.text[start].islower():
                return False
            capital = True
            before = self.text[max(0, start - 2) : start]
            within |= before[-1:] == " " and (before[:1].islower() or before[:1].isdigit() or before[:1] == ",")
        return capital and (not is_ordinary(word) or (within and not self.is_titled))

    def _places(self, word: str) -> Iterator[Span]:
        """Where the lower-cased ``word`` stands by itself, a character that is a word anywhere; "us" is "US" there."""
        start = self.lower.find(word)
        while start >= 0:
            end = start + len(word)
            within = _goes_on(self.lower[start - 1 : start]) or _goes_on(self.lower[end : end + 1])
            if (is_character(word) or not within) and (word != "us" or self.text[start:end] == "US"):
                yield start, end
            start = self.lower.find(word, start + 1)

    def form_of(self, word: str) -> str | None:
        """Another form of the lower-cased ``word`` that the document has ("pays" for "paid")."""
        wanted = stem(word)
        alike = beginning(self._listed, wanted[:3])
        return min((other for other in chain(alike, self._irregular) if stem(other) == wanted), default=None)

    @cached_property
    def _listed(self) -> str:
        return f" {' '.join(self.known)} "

    @cached_property
    def _irregular(self) -> frozenset[str]:
        return self.known & irregular_forms()

    @cached_property
    def _accented(self) -> dict[str, str]:
        return {_folded(word): word for word in sorted(self.known) if not word.isascii()}  # ß is ss

    def accented(self, word: str) -> str | None:
        """The word of the document that is the lower-cased ``word``, accents aside."""
        plain = _folded(word)
        return self._accented.get(plain) or (plain if plain in self.known else None)

    @cached_property
    def squeezed(self) -> str:
        """The words one after another, without anything between."""
        return "".join(self.words)

    @cached_property
    def initials(self) -> dict[str, Span]:
        """The initials of runs of capitalised words, small words left out or not; of three and more also in a run."""
        found: dict[str, Span] = {}
        for run in _CAPITAL_RUN.finditer(self.text):
            parts = _CASED_WORD.findall(run[1])
            large = [part for part in parts if part[0].isupper()]
            for letters in (parts, large) if len(parts) <= _LONGEST_NAME else ():
                name = "".join(part[0] for part in letters).lower()
                for start, end in combinations(range(len(name) + 1), 2):
                    if end - start > 2 or (end - start) == len(name):
                        found.setdefault(name[start:end], run.span(1))
        return found

    def find_initials(self, letters: str) -> Span | None:
        """The words whose initials are ``letters``: capitalised, or three or more from a content word to another."""
        if found := self.initials.get(letters):
            return found
        every = "".join(word[0] for word in self.words)
        place = every.find(letters) if len(letters) > 2 else -1
        while place >= 0:
            run = self.words[place : place + len(letters)]
            if not (is_stop_word(run[0]) or is_stop_word(run[-1])) and not _BREAKING.intersection(run):
                return self.find(run)
            place = every.find(letters, place + 1)
        return None

    def nearly(self, word: str) -> str | None:
        """The ordinary word of the document that ``word`` shortens ("sched") or has with one slip of the pen; of a
        name, two letters that changed places or one written twice are a slip, another letter is another name."""
        if len(word) < 4:
            return None

        def alike(other: str) -> bool:
            slip = len(word) > 5 and abs(len(other) - len(word)) < 2 and OSA.distance(word, other, score_cutoff=1) < 2
            if slip and (sorted(word) == sorted(other) or _DOUBLED.sub(r"\1", word) == _DOUBLED.sub(r"\1", other)):
                return True
            return (slip or other.startswith(word)) and is_ordinary(other)

        return min(filter(alike, self.known), default=None)

    def find(self, run: Sequence[str]) -> Span | None:
        """The first place where these lower-cased words stand in a row, else where the first of them stands."""
        if not self.with_places and run[0] != "us":
            return _SOMEWHERE
        first: Span | None = None
        for start, end in self._places(run[0]):
            first = first or (start, end)
            for word in run[1:]:
                while end < len(self.lower) and not self.lower[end].isalnum():
                    end += 1
                if not self.lower.startswith(word, end):
                    break
                end += len(word)
            else:
                return start, end
        return first

    def find_squeezed(self, letters: str, *, whole: bool = False) -> Span | None:
        """Where these letters and digits stand with anything between the words, from a word's beginning on; if
        ``whole``, to a word's end."""
        if letters not in self.squeezed:
            return None
        ending = r"(?![^\W_])" if whole else ""
        found = re.search(r"(?<![^\W_])" + r"[\W_]*".join(map(re.escape, letters)) + ending, self.lower)
        return found.span() if found else None


def check_support(summary: str, source: str | SourceFacts) -> SupportReport:
    """Compare a summary's numbers, dates, names and content words with its source.

    * numbers: by value ("two million" is 2,000,000, "3 billion" is not "3 million"), with their unit where the summary
      gives one (per cent, a currency), ordinals and quarters with ordinals; of versions every digit counts;
    * dates: months, week days and days in every form ("Tue.", "5/14", "14th of May"), times of day by the minute;
    * names: each word of the name in any case, a plural or possessive ending, an adjective's ending and accents aside;
      initials support the name in full and back; spelling with blanks or hyphens does not matter;
    * words: the word or another form of it, accents aside; of scripts without blanks each character.

    A mark for an unknown word (``<unk>``, ``[UNK]``) is a blank.
    """
    summary, given = _without_marks(summary), source if isinstance(source, SourceFacts) else SourceFacts(source)
    claims = [Claim(kind, summary[a:b], a, b, found) for kind, a, b, found in verdicts(summary, given)]
    return SupportReport(tuple(sorted(claims, key=attrgetter("start"))))


def verdicts(summary: str, source: SourceFacts, said: Sequence[str] | None = None) -> list[_Verdict]:
    """Of every claim that `check_support` finds its kind and places, unordered; ``said``: the words, where known."""
    summary = _without_marks(summary)
    read = list(read_quantities(summary, lowered(summary), frozenset(words(summary) if said is None else said)))
    found: list[_Verdict] = [(one.kind, one.start, one.end, _quantity_place(one, source)) for one in read if one.needs]
    return [*found, *_of_words(summary, [(one.start, one.end) for one in read], source)]


def _quantity_place(quantity: Quantity, source: SourceFacts) -> Span | None:
    places = []
    for group in quantity.needs:
        place = source.offered(group)
        if place is None and group[0][0] == "code":
            place = source.find_squeezed(group[0][1])
        places.append(place)
    return places[0] if all(places) else None


# --------------------------------------------------------------------------------------- names and words


# A word of a summary: as it is written and in lower case, beginning and end; is it first of a sentence, behind a blank?
_Word = tuple[str, str, int, int, bool, bool]


def _of_words(summary: str, taken: Sequence[Span], source: SourceFacts) -> Iterator[_Verdict]:
    listed, whole, place = _content_words(summary, taken), source.has_whole(summary), 0
    names = _names(listed, source, whole)
    whole = whole and not source.with_places
    while place < len(listed):
        _, lower, start, end, _, _ = listed[place]
        is_name, run = names[place], [lower]
        place += 1
        as_written = end - start == len(lower)  # "U.S." is more than its letters, and the source has it in pieces
        while is_name and place < len(listed) and names[place]:
            _, another, begin, stop, _, _ = listed[place]
            if not _JOINT.fullmatch(summary, end, begin):
                break
            run.append(another)
            end, place, as_written = stop, place + 1, as_written and stop - begin == len(another)
        if whole and as_written:
            found = _SOMEWHERE
        elif is_name:
            found = _name_place(run, source) or _initials_place(summary, start, source)
        else:
            found = _word_place(lower, source)
        if found is None and not as_written:
            written = re.search(rf"(?<!\w){re.escape(summary[start:end])}(?!\w)", source.text)
            found = written and written.span()
        yield "name" if is_name else "word", start, end, found


def _content_words(summary: str, taken: Sequence[Span]) -> list[_Word]:
    """Words outside numbers and dates that are no function words; "U.S." is one."""
    points = _POINT.search(summary)
    text = _ASIDE.sub(lambda aside: " " * len(aside[0]), summary) if points else summary
    busy = bytearray(len(summary) if taken or points else 0)  # looked up at once however many are taken
    for start, end in taken:
        busy[start:end] = b"\1" * (end - start)
    found: list[_Word] = []
    for dotted in _DOTTED.finditer(text) if points else ():
        letters = "".join(_CASED_WORD.findall(dotted[0]))
        if len(letters) > 1 and letters.lower() not in ("am", "pm", "ie", "eg") and takes(busy, *dotted.span()):
            found.append((letters.upper(), letters.lower(), *dotted.span(), True, True))
    pattern, lower_case = (ASCII_WORD, str.lower) if text.isascii() else (WORD, lowered)
    pieces = pattern.split(text)  # a word behind each gap, in less time than by matches
    said, places = pieces[1::2], list(accumulate(map(len, pieces)))
    for word, lower, start, end in zip(said, map(lower_case, said), places[::2], places[1::2], strict=False):
        if lower in _SMALL_WORDS or (not lower.isalpha() and is_stop_word(lower)):
            continue
        if (busy and busy.find(1, start, end) >= 0) or (end - start == 1 and lower.isascii()):
            continue
        if start > 1 and summary[start - 1] == " " and summary[start - 2].isalnum():
            found.append((word, lower, start, end, False, True))
        else:
            before = summary[max(0, start - 12) : start]
            found.append((word, lower, start, end, _OPENING.search(before) is not None, before[-1:].isspace()))
    return sorted(found, key=itemgetter(2)) if points else found


def _names(listed: Sequence[_Word], source: SourceFacts, whole: bool) -> list[bool]:
    """Which are names? Capitals tell where most words go without; a ``whole`` the source has as it is written."""
    within = [word[0].isupper() for word, _, _, _, opens, apart in listed if not opens and apart and word[0].isalpha()]
    telling = 0 < (capitals := sum(within)) < len(within) / 2
    shouted = sum([one[0].isupper() for one in listed]) > len(listed) / 2

    def is_name(word: str, lower: str, told: bool) -> bool:
        if lower[0].isdigit() or not lower[-1:].isalnum():
            return False
        bare, capital, small = _bare(lower), word[0].isupper(), whole and word[0].islower()
        if (capital if told else _is_coined(word, shouted)) or (not small and source.names(bare)):
            return True
        if told or (capitals and not capital) or len(bare) < (2 if word[:2].isupper() else 3):
            return False
        return bare.isascii() and bare.isalpha() and not is_ordinary(bare) and source.is_english

    return [  # of a whole, what is in lower case is found quickly
        not (whole and word.islower() and (capitals or (word.isalpha() and is_ordinary(lower))))
        and is_name(word, lower, telling and not opens)
        for word, lower, _, _, opens, _ in listed
    ]


def _is_coined(text: str, shouted: bool) -> bool:
    """A capital within ("eSource"), or a short word all in capitals where not all is ("EBB")."""
    if not any(map(str.isupper, text[1:])) or not text.isalpha() or text.lower() in younger_words():
        return False
    return not text.isupper() or (not shouted and 2 < len(text) < 5)


def _word_place(word: str, source: SourceFacts) -> Span | None:
    if word in source.known:
        return source.find([word])
    other = source.form_of(word) or source.accented(word)
    if other is None and len(word) >= _SQUEEZED:
        return source.find_squeezed(word)
    return source.find([other]) if other else None


def _name_place(run: Sequence[str], source: SourceFacts) -> Span | None:
    """Where the name stands: all of its words must be there, or its initials, or its letters in one word."""
    forms = [form for word in run if (form := _form(word, source))]
    if len(forms) == len(run) and (found := source.find(forms)):
        return found
    letters = "".join(map(_bare, run))
    if len(letters) >= _SQUEEZED and (found := source.find_squeezed(letters)):
        return found
    return source.find_initials(letters) if len(run) == 1 and len(letters) <= 6 else None


def _initials_place(summary: str, place: int, source: SourceFacts) -> Span | None:
    """Where the source has the initials of the capitalised words around ``place`` ("PG&E", "U.S.")."""
    for run in _CAPITAL_RUN.finditer(summary):
        if run.start(1) <= place < run.end():
            letters = "".join(part[0] for part in _CASED_WORD.findall(run[1]) if part[0].isupper()).lower()
            for length in range(len(letters), min(2, len(letters) - 1), -1):  # a word such as "Company" may be left out
                found = source.find_squeezed(letters[:length], whole=True)
                if found and source.text[slice(*found)].isupper():  # "us" is not the U.S.
                    return found
    return None


def _form(word: str, source: SourceFacts) -> str | None:
    """The form of a name's word in the source."""
    bare = _bare(word)
    if form := next((each for each in chain((word, bare), _related(bare)) if each in source.known), None):
        return form
    if is_ordinary(bare):
        return source.form_of(bare)
    return source.accented(bare) or source.nearly(bare)


def _related(name: str) -> Iterable[str]:
    """A name's plural and the adjective of a place, and back."""
    for ending in _ENDINGS:
        yield name + ending
        if name.endswith(ending) and len(name) - len(ending) > 3:
            yield name[: -len(ending)]
    if name in place_adjectives():
        yield place_adjectives()[name]
    if name.endswith(("y", "ies")):
        yield f"{name[:-1]}ies" if name.endswith("y") else f"{name[:-3]}y"


def _goes_on(character: str) -> bool:
    """Is a word longer by this neighbour?"""
    return character.isalnum() and not is_character(character)


def _bare(word: str) -> str:
    """Without a possessive ending."""
    return word if word.isalpha() else word.removesuffix("'s").removesuffix("’s").rstrip("'’")


def _folded(word: str) -> str:
    if word.isascii():
        return word.lower()
    return "".join(c for c in unicodedata.normalize("NFKD", word.casefold()) if not unicodedata.combining(c))
