"""From text to word ids for ROUGE: one class a profile, each normalising as the scorer it stands for.

Ids mean nothing but equality. Each class remembers every word it has seen, so that stemming is paid once
a word. ``ids(text)`` gives the ids of one stretch of text.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from laconic.metrics.porter import stem_nltk, stem_rouge155
from laconic.metrics.wordlists import smart_stop_words, wordnet_exceptions

_MEMORY_LIMIT = 1_000_000  # words remembered before starting afresh
_STOPPED = -1


@dataclass(frozen=True, slots=True)
class TextOptions:
    """What happens to a text before counting (see `laconic.metrics.rouge.RougeOptions`)."""

    stem: bool
    exceptions: bool
    remove_stop_words: bool
    better: str = "well"


class _Memory(dict):
    """Word -> id; an unknown word is normalised once and numbered by its normal form."""

    def __init__(self, normal_form: Callable[[str], str | None]) -> None:
        super().__init__()
        self._normal_form = normal_form
        self._ids: dict[str, int] = {}

    def __missing__(self, word: bytes | str) -> int:
        text = word.decode("ascii") if isinstance(word, bytes) else word
        form = self._normal_form(text)
        number = _STOPPED if form is None else self._ids.setdefault(form, len(self._ids))
        self[word] = number
        return number

    def trim(self) -> None:
        """Forget everything when too much is remembered; call it between documents only."""
        if len(self) > _MEMORY_LIMIT:
            self.clear()
            self._ids.clear()


class RougeText:
    """Base of the profiles' texts: ``normal_form`` of a word, None for a word that is dropped."""

    def __init__(self, options: TextOptions) -> None:
        self.options = options
        self.memory = _Memory(self.normal_form)
        self._stops = smart_stop_words() if options.remove_stop_words else frozenset()
        self._exceptions = wordnet_exceptions() if options.stem and options.exceptions else {}
        if self._exceptions and options.better != "well":
            self._exceptions = {**self._exceptions, "better": options.better, "best": options.better}

    def words(self, text: str) -> list:
        """The words of ``text``, cased and cut as the profile has it."""
        raise NotImplementedError

    def stem(self, word: str) -> str:
        return word

    def normal_form(self, word: str) -> str | None:
        if word in self._stops:
            return None
        if self.options.stem and len(word) > 3:
            return self._exceptions.get(word) or self.stem(word)
        return word

    def ids(self, text: str) -> list[int]:
        found = list(map(self.memory.__getitem__, self.words(text)))
        return [number for number in found if number >= 0] if self._stops else found


# Bytes in, bytes out: A-Z to a-z, a-z and 0-9 kept, all else (every byte of a non-ASCII character too) a blank.
_ASCII_WORDS = bytes(
    code + 32 if 65 <= code <= 90 else code if 97 <= code <= 122 or 48 <= code <= 57 else 32 for code in range(256)
)


class Rouge155Text(RougeText):
    """ROUGE-1.5.5: runs of ASCII letters and digits, lower-cased byte by byte; everything else is a gap."""

    def words(self, text: str) -> list[bytes]:
        return text.encode("utf-8", "replace").translate(_ASCII_WORDS).split()

    def stem(self, word: str) -> str:
        return stem_rouge155(word)


class GoogleText(RougeText):
    """rouge-score: lower-cased as Unicode, then runs of ASCII letters and digits; NLTK's stemmer."""

    def words(self, text: str) -> list[bytes]:
        return text.lower().encode("utf-8", "replace").translate(_ASCII_WORDS).split()

    def stem(self, word: str) -> str:
        return stem_nltk(word)


class PlainText(RougeText):
    """The distraction paper's scorer: words are what stands between blanks, case and punctuation count."""

    def words(self, text: str) -> list[str]:
        return text.split()


class CharacterText(RougeText):
    """LCSTS: every character is a word, whatever its script; blanks and case-folding play no part.

    Equal to numbering the characters and giving the numbers to ROUGE-1.5.5, as the field does because the tool drops
    what is not ASCII. A mark ``<unk>`` is one word.
    """

    def words(self, text: str) -> list[str]:
        return _CHARACTERS.findall(text)


_CHARACTERS = re.compile(r"<unk>|\S")

# Scripts written without blanks between words: each character is a word.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)


class _CharacterClasses(dict):
    """For ``str.translate``: letters, marks and digits stay, characters of unspaced scripts stand alone."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kept = unicodedata.category(character)[0] in "LMN"
        result = character if kept else " "
        if kept and _UNSPACED.match(character):
            combining = unicodedata.category(character)[0] == "M"  # a vowel sign stays with its consonant
            result = character if combining else f" {character}"
        elif kept:
            result = character
        self[code] = result
        return result


class UnicodeText(RougeText):
    """Any script: NFKC, case folded, runs of letters, marks and digits; by character where scripts have no blanks."""

    def __init__(self, options: TextOptions) -> None:
        super().__init__(options)
        self._classes = _CharacterClasses()

    def words(self, text: str) -> list[str]:
        spaced = unicodedata.normalize("NFKC", text).casefold().translate(self._classes)
        return spaced.split()

    def stem(self, word: str) -> str:
        return stem_rouge155(word) if word.isascii() else word


TEXTS: dict[str, type[RougeText]] = {
    "characters": CharacterText,
    "google": GoogleText,
    "plain": PlainText,
    "rouge155": Rouge155Text,
    "unicode": UnicodeText,
}


_SHARED = threading.local()


def shared_text(profile: str, options: TextOptions) -> RougeText:
    """The calling thread's text of a profile, so that later calls know the stems of earlier ones."""
    known: dict[tuple[str, TextOptions], RougeText] = _SHARED.__dict__.setdefault("texts", {})
    key = (profile, options)
    if key not in known:
        known[key] = TEXTS[profile](options)
    return known[key]
