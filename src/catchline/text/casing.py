"""How the training texts write their words: names and acronyms, and how their summaries begin.

A model with a lower-cased vocabulary writes ``python bindings for opengl``. The table learnt here knows that people
write ``Python`` and ``OpenGL``, and whether the summaries it was learnt from begin with a capital. It stands beside the
tokenizer as ``casing.json``; what puts it to use is `catchline.text.surface`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Literal

from catchline.errors import ModelError
from catchline.jobs import batches, parallel
from catchline.text.sentences import ENGLISH, goes_on, language_of

CASING_FILE = "casing.json"
FORMAT = 1
MAX_FORMS = 20_000  # words that the table holds at most, the most frequent
MAX_CHARACTERS = 20_000_000  # of documents; of more text every k-th document is read
_TEXTS = 2000  # a piece of work of a process
MIN_COUNT = 3  # times a form must have been seen
RELIABLE = 0.8  # share of a word's occurrences that must have the form
STOPPED = 0.05  # of the summaries without a full stop at their end: with fewer that have one, none is written
TITLED = 0.75  # share of Title Case summaries from which on the style is Title Case

Capitals = Literal["sentence", "title", "lower"]

# Short words that Title Case leaves in lower case.
_SMALL = "a an the and or but nor of in on at by for from to into onto with as via per vs"
SMALL_WORDS = frozenset(_SMALL.split())
WORD = re.compile(r"\w(?:[\w.&'’‐‑+#-]*[\w+#])?")
CLITIC = re.compile(r"['’](?:s|re|ve|ll|d|m)\Z", re.IGNORECASE)
_PARTS = re.compile(r"([-‐‑/&])")
_BEGIN = re.compile(r"(?:\A|[.!?…]|:(?=[\s\"'“‘(\[])|\n\s*\n|\n\s*(?:[-*•]|\d+[.)]))[\s\"'“”‘’(\[]*\Z")
_SEGMENT_END = re.compile(r"[.!?](?=\s)|\n")


@dataclass(frozen=True)
class Casing:
    """``forms``: lower-cased word -> how it is written inside a sentence, with its count; words that are written in
    lower case are not there. ``capitals``, ``after_colon`` and ``stops`` are the style of the training summaries: how
    they begin, what a colon is followed by, whether full stops end them."""

    forms: dict[str, tuple[str, int]] = field(default_factory=dict)
    capitals: Capitals = "sentence"
    after_colon: bool = True
    stops: bool = True

    def form(self, word: str) -> str | None:
        """How the lower-cased ``word`` is written, if the table knows."""
        found = self.forms.get(word)
        return None if found is None else found[0]

    def adapted(self, new: Casing) -> Casing:
        """What was learnt before, with the words of ``new`` texts and the style of their summaries."""
        return Casing(_most_frequent({**self.forms, **new.forms}), new.capitals, new.after_colon, new.stops)

    def save(self, folder: Path) -> None:
        values = {
            "format": FORMAT,
            "capitals": self.capitals,
            "after_colon": self.after_colon,
            "stops": self.stops,
            "forms": {word: list(found) for word, found in sorted(self.forms.items())},
        }
        (folder / CASING_FILE).write_text(json.dumps(values, ensure_ascii=False) + "\n", encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> Casing:
        """Read ``casing.json``; a folder without one (of an earlier version, or of somebody else) knows no words.

        Raises:
            ModelError: the file is damaged, or of a later version.
        """
        path = folder / CASING_FILE
        if not path.is_file():
            return Casing()
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values["format"] > FORMAT:
                raise ModelError(f"{path} was written by a later version of catchline: upgrade catchline.")
            forms = {str(word): (str(form), int(count)) for word, (form, count) in values["forms"].items()}
            stops = bool(values.get("stops", True))  # files of earlier versions do not say
            return Casing(forms, values["capitals"], bool(values["after_colon"]), stops)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ModelError(f"{path} is damaged ({error}); save or copy the model folder again.") from None


def sampling_step(characters: int) -> int:
    """Every how manyth document is read, where they have so many characters in all."""
    return 1 + characters // MAX_CHARACTERS


def learn_casing(documents: Iterable[str], summaries: Iterable[str]) -> Casing:
    """Count how words are written inside sentences, in both; the style from the summaries.

    Not counted is what says nothing of a word: the beginning of a sentence or list item, Title Case and ALL CAPS.
    """
    written: Counter[str] = Counter()
    for part in parallel(_written, batches(chain(documents, summaries), _TEXTS)):
        written.update(part)
    totals: dict[str, int] = {}
    best: dict[str, tuple[int, str]] = {}
    small: set[str] = set()
    for form, count in written.items():
        word = form.lower()
        totals[word] = totals.get(word, 0) + count
        if form == word:
            small.add(word)
        elif count >= MIN_COUNT:
            best[word] = max(best.get(word, (0, "")), (count, form))
    kept = {word: (form, count) for word, (count, form) in best.items() if count >= RELIABLE * totals[word]}
    return Casing(_most_frequent(kept), *_style(summaries, small - kept.keys()))


def _written(texts: Sequence[str]) -> Counter[str]:
    """The words whose case is their own, as they are written."""
    words: list[str] = []
    for text in texts:
        for start, end in segments(text):
            words += _telling(text, start, end)
    return Counter(words)


def _most_frequent(forms: dict[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
    ordered = sorted(forms.items(), key=lambda item: (-item[1][1], item[0]))
    return dict(ordered[:MAX_FORMS])


def segments(text: str) -> Iterable[tuple[int, int]]:
    """The stretches between sentence ends and line breaks: what is a title or a shout as a whole."""
    start = 0
    for found in _SEGMENT_END.finditer(text):
        yield start, found.end()
        start = found.end()
    if start < len(text):
        yield start, len(text)


def begins(text: str, position: int) -> bool:
    """Does a sentence, a list item, a quotation or what a colon introduces begin at ``position``? Nothing does behind
    a short form or an ordinal of another language than English (``3. Oktober``, ``M. Dupont``)."""
    if not position or not _BEGIN.search(text, max(0, position - 12), position):
        return not position
    short = text[max(0, position - 12) : position].rstrip().endswith(".")
    language = language_of(text) if short else ENGLISH
    return language == ENGLISH or not goes_on(text, max(0, position - 60), position, language)


def is_shouted(words: Sequence[str]) -> bool:
    """Are most of these words in capitals?"""
    long = [word for word in words if len(word) > 1 and word[0].isalpha()]
    return len(long) > 2 and sum(word.isupper() for word in long) > 0.7 * len(long)


def is_titled(words: Sequence[str]) -> bool:
    """Do most of these words, the first and the small ones aside, begin with a capital?"""
    long = [word for word in words[1:] if len(word) > 2 and word[0].isalpha() and word.lower() not in SMALL_WORDS]
    return len(long) > 1 and sum(word[0].isupper() for word in long) >= 0.7 * len(long)


@lru_cache(100_000)
def capitalised(word: str) -> bool:
    """Is the only capital of each part of the word its first letter, as Title Case makes it (``Right-of-Way``)?

    Not of letters alone (``W&T``).
    """
    parts = [part for part in parts_of(word) if part[:1].isalpha()]
    if len(parts) > 1 and max(map(len, parts)) == 1:
        return False
    return bool(parts) and word != word.lower() and all(part[1:] == part[1:].lower() for part in parts)


def parts_of(word: str) -> list[str]:
    """What hyphens and the like join, with the signs between."""
    return _PARTS.split(word)


def _telling(text: str, start: int, end: int) -> list[str]:
    """The words of a segment whose case is their own, in any order."""
    words = WORD.findall(text, start, end)
    large = [word for word in words if not word.islower()]
    begun = len(large) < 2 and (not words or (large == words[:1] and capitalised(words[0])))
    if begun and not (large and start and language_of(text) != ENGLISH):
        return words[1:]  # the common case, for speed
    upper = [word for word in large if word != word.lower()]
    if sum(map(str.isupper, upper)) > 2 and is_shouted(words):
        return []
    most = sum([len(word) > 4 and word[0].isalpha() for word in words[1:]])  # longer than any small word
    titled = len(upper) > 1 and len(upper) >= 0.7 * most and is_titled(words)
    bare = partial(CLITIC.sub, "") if "'" in text or "’" in text else str
    kept = [bare(word) for word in words if word.islower()] + [bare(word) for word in large if word == word.lower()]
    for word in upper:
        start = text.find(word, start)  # between two of them no letter is a capital
        if not (capitalised(bare(word)) and (titled or begins(text, start))):
            kept.append(bare(word))
        start += len(word)
    return kept


def _style(summaries: Iterable[str], ordinary: set[str]) -> tuple[Capitals, bool, bool]:
    """How summaries begin, judged by ``ordinary`` words only: a name has its capital anywhere; and how they end."""
    found: Counter[tuple[str, bool]] = Counter()
    for part in parallel(partial(_styles, ordinary), batches(summaries, _TEXTS)):
        found.update(part)
    style = found["colon", True] >= found["colon", False], found["stop", True] >= STOPPED * found["stop", False]
    if found["titled", True] > TITLED * (found["titled", True] + found["titled", False]):
        return "title", *style
    return ("lower" if found["begun", False] > found["begun", True] else "sentence"), *style


def _styles(ordinary: set[str], summaries: Sequence[str]) -> Counter[tuple[str, bool]]:
    """Which summaries are ``begun`` with a capital, which ``titled``, which words behind a ``colon`` have one, and
    which summaries end in a full ``stop``."""
    counts: Counter[tuple[str, bool]] = Counter()
    for text in summaries:
        words = WORD.findall(text)
        counts["stop", text.rstrip().endswith(".")] += 1
        if not words or is_shouted(words):
            continue
        if words[0].lower() in ordinary:
            counts["begun", words[0][0].isupper()] += 1
        inner = [word for word in words[1:] if len(word) > 3 and word.lower() in ordinary]
        if len(inner) > 1:
            counts["titled", sum([word[0].isupper() for word in inner]) >= 0.7 * len(inner)] += 1
        for found in WORD.finditer(text) if ": " in text else ():
            if text.endswith(": ", 0, found.start()) and found[0].lower() in ordinary:
                counts["colon", found[0][0].isupper()] += 1
    return counts
