"""How the training texts write their words: names and acronyms, and how their summaries begin and end.

The table lies beside the tokenizer as ``casing.json``. `catchline.text.render` applies it to what a model with a
lower-cased vocabulary writes (``python bindings for opengl``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from catchline.errors import ModelError
from catchline.jobs import batches, parallel

CASING_FILE = "casing.json"
MAX_FORMS = 20_000  # words that the table holds at most, the most frequent
MAX_CHARACTERS = 20_000_000  # of documents; of more text every k-th document is read
_TEXTS = 2000  # a piece of work of a process
MIN_COUNT = 3  # times a form must have been seen
RELIABLE = 0.8  # share of a word's occurrences that must have the form
STOPPED = 0.05  # of the summaries without a full stop at their end: with fewer that have one, none is written
TITLED = 0.75  # share of Title Case summaries from which on the style is Title Case

Capitals = Literal["sentence", "title", "lower"]

_SMALL = "a an the and or but nor of in on at by for from to into onto with as via per vs"
SMALL_WORDS = frozenset(_SMALL.split())  # which Title Case leaves in lower case
WORD = re.compile(r"\w(?:[\w.&'’‐‑+#-]*[\w+#])?")
CLITIC = re.compile(r"(?:['’](?:s|re|ve|ll|d|m)|n['’]t)\Z", re.IGNORECASE)
PARTS = re.compile(r"([-‐‑/&])")
_BEGIN = re.compile(r"(?:\A|[.!?…]|:(?=[\s\"'“‘(\[])|\n\s*\n|\n\s*(?:[-*•]|\d+[.)]))[\s\"'“”‘’(\[]*\Z")


class Casing(BaseModel, frozen=True):
    """``forms``: lower-cased word -> how it is written inside a sentence, with its count; words that are written in
    lower case are not there. ``capitals``, ``after_colon`` and ``stops`` are the style of the training summaries: how
    they begin, what a colon is followed by, whether full stops end them."""

    capitals: Capitals = "sentence"
    after_colon: bool = True
    stops: bool = True
    forms: dict[str, tuple[str, int]] = {}

    def adapted(self, new: Casing) -> Casing:
        """What was learnt before, with the words of ``new`` texts and the style of their summaries."""
        return new.model_copy(update={"forms": _most_frequent({**self.forms, **new.forms})})

    def save(self, folder: Path) -> None:
        ordered = self.model_copy(update={"forms": dict(sorted(self.forms.items()))})
        (folder / CASING_FILE).write_text(ordered.model_dump_json() + "\n", encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> Casing:
        """Read ``casing.json``; a folder without one (of somebody else) knows no words."""
        path = folder / CASING_FILE
        try:
            return Casing.model_validate_json(path.read_bytes()) if path.is_file() else Casing()
        except ValueError as error:
            raise ModelError(f"{path} is damaged ({' '.join(str(error).split())[:200]}); copy it again.") from None


def learn_casing(documents: Iterable[str], summaries: Iterable[str]) -> Casing:
    """Count how words are written inside sentences, Title Case summaries aside; the style is that of the summaries."""
    counts = _counted(documents)
    names = _reliable(counts)
    casing = _style(summaries, {form for form in counts if form.islower() and form not in names})
    counts.update(_counted(summaries if casing.capitals != "title" else ()))
    return casing.model_copy(update={"forms": _most_frequent(_reliable(counts))})


def _reliable(counts: Counter[str]) -> dict[str, tuple[str, int]]:
    """The forms that most occurrences of their words have, other than lower case."""
    totals: Counter[str] = Counter()
    best: dict[str, tuple[int, str]] = {}
    for form, count in counts.items():
        word = form.lower()
        totals[word] += count
        if form != word and count >= MIN_COUNT:
            best[word] = max(best.get(word, (0, "")), (count, form))
    return {word: (form, count) for word, (count, form) in best.items() if count >= RELIABLE * totals[word]}


def _counted(texts: Iterable[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for part in parallel(_written, batches(texts, _TEXTS)):
        counts.update(part)
    return counts


def _written(texts: Sequence[str]) -> Counter[str]:
    """The words whose case is their own, as they are written."""
    counts: Counter[str] = Counter()
    for text in texts:
        for match in WORD.finditer(text):
            word = match[0]
            if word.islower() or not (capitalised(word) and begins(text, match.start())):
                counts[CLITIC.sub("", word) if "'" in word or "’" in word else word] += 1
    return counts


def _most_frequent(forms: dict[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
    return dict(sorted(forms.items(), key=lambda item: (-item[1][1], item[0]))[:MAX_FORMS])


def begins(text: str, position: int) -> bool:
    """Does a sentence, a list item, a quotation or what a colon introduces begin at ``position``?"""
    return not position or bool(_BEGIN.search(text, max(0, position - 12), position))


@lru_cache(100_000)
def capitalised(word: str) -> bool:
    """Is the only capital of each part of the word its first letter, as Title Case makes it (``Right-of-Way``)?"""
    return word != word.lower() and all(part[1:] == part[1:].lower() for part in PARTS.split(word))


def capital(word: str, style: str, *, begins: bool) -> str:
    """The word as a style has it at the beginning of a sentence, or within: each part that is all lower-case letters
    gets a capital (``libc6`` and ``iPhone`` stay)."""
    parts = PARTS.split(word) if style == "title" else [word]
    for at, part in enumerate(parts):
        first = not at and (begins or len(parts) > 1)
        wanted = style != "lower" if begins and not at else style == "title" and (first or part not in SMALL_WORDS)
        if wanted and part == part.lower() and part.replace("'", "").replace("’", "").replace("-", "").isalpha():
            parts[at] = part[0].upper() + part[1:]
    return "".join(parts)


def _style(summaries: Iterable[str], ordinary: set[str]) -> Casing:
    """How summaries begin, judged by ``ordinary`` words only: a name has its capital anywhere; and how they end."""
    counts: Counter[tuple[str, bool]] = Counter()
    for text in summaries:
        words = WORD.findall(text)
        counts["stop", text.rstrip().endswith(".")] += 1
        if not words or text.isupper():
            continue
        if words[0].lower() in ordinary:
            counts["begun", words[0][0].isupper()] += 1
        inner = [word for word in words[1:] if len(word) > 3 and word.lower() in ordinary]
        if len(inner) > 1:
            counts["titled", sum(word[0].isupper() for word in inner) >= 0.7 * len(inner)] += 1
        behind_colon = WORD.match(text, text.index(": ") + 2) if ": " in text else None
        if behind_colon and behind_colon[0].lower() in ordinary:
            counts["colon", behind_colon[0][0].isupper()] += 1
    titled = counts["titled", True] > TITLED * (counts["titled", True] + counts["titled", False])
    return Casing(
        capitals="title" if titled else "lower" if counts["begun", False] > counts["begun", True] else "sentence",
        after_colon=counts["colon", True] >= counts["colon", False],
        stops=counts["stop", True] >= STOPPED * counts["stop", False],
    )
