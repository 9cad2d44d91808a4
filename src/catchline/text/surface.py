"""Text as people write it: the one step between the tokens a model wrote and the text that is shown.

What it does, and for which ``search.surface``, is told in docs/text.md. Whatever is dropped is dropped by the token, so
that every word keeps its provenance; spans always index the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from catchline.text.base import Tokenizer
from catchline.text.casing import SMALL_WORDS, begins, capitalised, is_shouted, is_titled, parts_of, segments
from catchline.text.detokenize import CLITIC
from catchline.text.mending import ENDS, DraftWord, ends_in_stop, infinitive, mended
from catchline.text.normalization import FUNCTION_WORDS, is_english, is_unspaced
from catchline.text.sentences import WRAPPED, bounds, markup
from catchline.types import TokenizedText

_LONG_FORM = 6  # words after a capital within which the bracket with its abbreviation opens
RUN = 0.5  # what going on with the next word of the source is worth, in shares of a word's copying
_FINAL_SIGMA = re.compile(r"(?<=\w)σ(?!\w)")
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
_VOWEL = re.compile(r"(?!eu|ew|one(?![a-z])|once)[aeio]|(?-i:[FHLMNRSX][B-DF-HJ-NP-TV-XZ]*(?![A-Za-z]))", re.IGNORECASE)
_SUBJECTS, _ARTICLES = frozenset(("that", "which", "it", "who")), frozenset(("a", "an", "the", "another"))
_BEFORE_OBJECT = frozenset(("a", "an", "the", "its", "their", "your", "this", "these", "all", "any", "some", "other"))
_PLURAL_BEFORE = frozenset(("the", "of", "these", "those", "all", "some", "many", "several", "or", "with", "for"))
_IN_NAMES = frozenset(".:!?")  # which may begin one: .NET, :symbol
_NEVER_AFTER_SPACE, _NEVER_BEFORE_SPACE = frozenset(".,;:!?)]}…"), frozenset("([{")
_ORDINARY_LETTERS = re.compile(r"[^\W\d_]+(?:[-‐‑'’][^\W\d_]+)*")


@dataclass(frozen=True, slots=True)
class Draft:
    """What the model wrote: T tokens, S source tokens.

    ``copying`` (T, S) is how strongly each source place was copied (or attended to) when the token was written;
    ``share`` (T,) how much of the token's probability was copied.
    """

    tokens: Sequence[str]
    unknown: Sequence[bool]
    copying: np.ndarray
    share: np.ndarray


@dataclass(frozen=True, slots=True)
class Surfaced:
    """The text; ``kept`` tokens of the draft, the span of each in the text, and which of them form a word."""

    text: str
    kept: list[int]
    spans: list[tuple[int, int]]
    groups: list[list[int]]


class SourceText:
    """The words of a document as the model read them, and how the document writes them."""

    def __init__(self, document: str, encoding: TokenizedText, tokenizer: Tokenizer) -> None:
        self.document = document
        self.tokens: list[tuple[int, int]] = []  # first and last token of each word
        self.keys: list[str] = []
        self.spans: list[tuple[int, int]] = []
        self.by_key: dict[str, list[int]] = {}
        unknown_marks = getattr(tokenizer.config, "unknown_marks", ())
        for group in tokenizer.word_groups(encoding.tokens):
            start, end = encoding.offsets[group[0]][0], encoding.offsets[group[-1]][1]
            if end <= start or document[start:end] in unknown_marks:
                continue
            key = tokenizer.word_key(encoding.tokens[group[0] : group[-1] + 1], document[start:end])
            self.by_key.setdefault(key, []).append(len(self.keys))
            self.keys.append(key)
            self.spans.append((start, end))
            self.tokens.append((group[0], group[-1]))

    def form(self, word: int) -> str:
        """The word as the document writes it."""
        return _INVISIBLE.sub("", self.document[slice(*self.spans[word])])

    def unmarked(self, word: int, text: str = "") -> str:
        """The word (in ``text`` as it is written) without the signs of `markup`: ``fn`` of ``_fn_``."""
        start, end = self.spans[word]
        text = (text or self.form(word))[: end - start]
        return "".join(one for at, one in enumerate(text, start) if at not in self._marked) if self._marked else text

    @cached_property
    def _marked(self) -> frozenset[int]:
        read = self.document[: self.spans[-1][1] + 250]  # characters in which what a sign begins has its end
        return frozenset(place for span in markup(read) for place in range(*span))

    def small(self, key: str) -> str:
        """The word in lower case: tokenizers know no final sigma."""
        return _FINAL_SIGMA.sub("ς", key.replace("i\u0307", "i"))

    def gap(self, word: int) -> str | None:
        """What stands in front of the word: a blank or nothing; ``None`` where other words stand there too."""
        gap = self.document[self.spans[word - 1][1] : self.spans[word][0]]
        if any(map(str.isalnum, gap)):
            return None
        return " " if any(map(str.isspace, gap)) and not WRAPPED.match(self.document, self.spans[word - 1][1]) else ""

    def holds(self, keys: Sequence[str]) -> bool:
        """Does the document say these words one after the other?"""
        return bool(self._places(keys))

    def names(self, keys: Sequence[str]) -> bool:
        """Does the document use these words as a name, with a capital or digit that is not only that of a sentence or
        a heading, or come back to them? Where it has no capitals at all, any of its words may be a name."""
        places = self._places(keys)
        if not self._has_capitals or len(places) > 1:
            return bool(places)
        words = {word for place in places for word in range(place, place + len(keys))}
        return any(
            (self._has_capital(word) and self.telling(word)) or any(map(str.isdigit, self.form(word))) for word in words
        )

    def _places(self, keys: Sequence[str]) -> list[int]:
        """Where these words stand one after the other: the first of them."""
        size = len(keys)
        return [at for at in self.by_key.get(keys[0], ()) if self.keys[at : at + size] == list(keys)]

    def ends_sentence(self, word: int) -> bool:
        """Does a sentence of the document end behind the word?"""
        return word + 1 == len(self.keys) or self.keys[word + 1] in ENDS

    def says_of_something(self, verb: int) -> bool:
        """Does the word stand where a verb in the third person does: behind "that" or "it", behind the first word of a
        sentence (a name, which may have signs in it), or behind such a verb and "and"? A word that stands behind "the"
        or "of" elsewhere is a noun."""
        subject = verb - 1
        others = (at for at in self.by_key[self.keys[verb]] if at and at != verb)
        if any(self.keys[at - 1] in _PLURAL_BEFORE for at in others):
            return False
        if subject > 0 and self.keys[subject] == "and":
            return self.says_of_something(subject - 1)
        if subject >= 0 and self.keys[subject] not in _SUBJECTS:
            while subject and self.gap(subject) == "":
                subject -= 1
            return begins(self.document, self.spans[subject][0])
        return subject >= 0

    def telling(self, word: int) -> bool:
        """Does the case of the word at this place say anything? Not at the beginning of a sentence, in Title Case or
        ALL CAPS, nor in a document without capitals."""
        form = self.form(word)
        if form == form.lower():
            return self._has_capitals
        titled, shouted = self._headings[self._segment(word)]
        if shouted:
            return False
        return not (capitalised(form) and (titled or begins(self.document, self.spans[word][0])))

    def phrase(self, word: int) -> range:
        """The words with capitals around a word, itself among them: a name, or a term in capitals."""
        first, last = word, word + 1
        while first and self._has_capital(first - 1):
            first -= 1
        while last < len(self.keys) and self._has_capital(last):
            last += 1
        return range(first, last)

    def is_part(self, word: int) -> bool:
        """Does it go on with a name behind a colon, as in Net::Server?"""
        return word > 1 and set(self.keys[word - 1]) == {":"} and self.gap(word) == self.gap(word - 1) == ""

    def explains(self, words: range) -> bool:
        """Do these words belong to the long form of an abbreviation, as in "Large language Models (LLMs)"?"""
        for bracket in range(words.stop, min(words.stop + _LONG_FORM, len(self.keys) - 1)):
            if self.keys[bracket] == "(":
                short, initials = self.form(bracket + 1).removesuffix("s").lower(), ""
                for word in range(bracket - 1, max(-1, words.start - _LONG_FORM), -1):
                    initials = "".join(p[0] for p in parts_of(self.keys[word]) if p[:1].isalpha()) + initials
                    if initials == short:
                        return word <= words.start
                return False
        return False

    def stays_lower(self, key: str) -> bool:
        """Does the document begin a sentence with the word in lower case, as with the name of a command? No article
        follows it."""
        places = [place for place in self.by_key.get(key, ()) if self.form(place) == key]
        starts = [self.spans[at][0] for at in places if not _ARTICLES.issuperset(self.keys[at + 1 : at + 2])]
        before = [self.document[max(0, start - 12) : start].rstrip() for start in starts]
        return self._has_capitals and (0 in starts or any(text[-1:] in ENDS for text in before))

    def _has_capital(self, word: int) -> bool:
        form = self.form(word)
        return form[:1].isalnum() and form != form.lower()

    def told(self, key: str) -> Counter[str]:
        """The forms of a word at the places where its case says something."""
        return Counter(self.form(word) for word in self.by_key.get(key, ()) if self.telling(word))

    @cached_property
    def _has_capitals(self) -> bool:
        return self.document != self.document.lower()

    @cached_property
    def _starts(self) -> list[int]:
        return [start for start, _ in segments(self.document)]

    def _segment(self, word: int) -> int:
        return bisect_right(self._starts, self.spans[word][0]) - 1

    @cached_property
    def _headings(self) -> list[tuple[bool, bool]]:
        """Of each segment: is it in Title Case, in capitals?"""
        words: list[list[str]] = [[] for _ in self._starts]
        for word, key in enumerate(self.keys):
            if key[:1].isalnum():
                words[self._segment(word)].append(self.form(word))
        return [(is_titled(found), is_shouted(found)) for found in words]

    def align(self, keys: Sequence[str], copying: np.ndarray) -> list[int | None]:
        """The source word that each written word is: the same word, by the share of its copying (W, words of the
        source) and by how far written words follow each other as those of the source do (Viterbi)."""
        steps: list[dict[int | None, tuple[float, int | None]]] = []
        before: dict[int | None, tuple[float, int | None]] = {None: (0.0, None)}
        for row, key in enumerate(keys):
            origin, (reached, _) = max(before.items(), key=lambda item: item[1][0])
            now: dict[int | None, tuple[float, int | None]] = {}
            for place in self.by_key.get(key, ()):
                score, source = reached, origin
                if place - 1 in before and before[place - 1][0] + RUN > score:
                    score, source = before[place - 1][0] + RUN, place - 1
                now[place] = (score + float(copying[row, place]), source)
            steps.append(now or {None: (reached, origin)})
            before = steps[-1]
        chosen: list[int | None] = []
        last = max(before, key=lambda place: before[place][0])
        for step in reversed(steps):
            chosen.append(last)
            last = step[last][1]
        return chosen[::-1]

    def by_word(self, weights: np.ndarray) -> np.ndarray:
        """Weights over source tokens (T, S) as shares over source words (T, words)."""
        summed = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights, axis=1)], axis=1)
        first, last = np.array(self.tokens).T
        found = summed.take(last + 1, axis=1) - summed.take(first, axis=1)
        totals = found.sum(1, keepdims=True)
        return np.divide(found, totals, out=np.zeros_like(found), where=totals > 0)


@dataclass(slots=True, kw_only=True)
class _Word(DraftWord):
    """A word of the summary on its way: ``tokens`` are places in the draft, ``place`` is its source word."""

    tokens: list[int]
    place: int | None
    copied: bool
    text: str = ""
    raw: tuple[int, int] = (0, 0)
    gap: str = ""  # in front of it


def surfaced(draft: Draft, source: SourceText, tokenizer: Tokenizer, *, clean: bool, capitals: str) -> Surfaced:
    """The text of a draft. ``capitals`` is ``learnt`` (the style of the training summaries) or names a style."""
    words = _placed(draft, source, tokenizer)
    english = clean and is_english(source.keys)
    if clean:
        singles = english and tokenizer.guesses_spaces
        words = [word for word in words if word.place is None or source.unmarked(word.place)] or words
        words = [words[index] for index in mended(words, source.holds, source.names, english, singles)]
        words = words[:-1] if ends_in_stop(words) and not tokenizer.casing.stops else words
    text, spans = tokenizer.detokenize([draft.tokens[token] for word in words for token in word.tokens])
    at = 0
    for word in words:
        mine = spans[at : at + len(word.tokens)]
        word.raw = bounds(text, mine[0][0], max(end for _, end in mine))
        word.text = text[slice(*word.raw)]
        at += len(word.tokens)
    _join(words, text, source, follow=tokenizer.guesses_spaces)
    if tokenizer.lowercases:
        _Letters(source, tokenizer, capitals).restore(words)
    for word in words if clean else ():
        if word.place is not None and word.text.lower() == source.form(word.place).lower():
            word.text = source.unmarked(word.place, word.text) or word.text
    if english:
        _agree(words, source)
    return _written(words, spans, text)


def _placed(draft: Draft, source: SourceText, tokenizer: Tokenizer) -> list[_Word]:
    groups = tokenizer.word_groups(draft.tokens)
    raw, spans = tokenizer.detokenize(draft.tokens)
    ends = [(group[0], group[-1]) for group in groups]
    keys = [tokenizer.word_key(draft.tokens[a : b + 1], raw[spans[a][0] : spans[b][1]]) for a, b in ends]
    single = len(groups) == len(draft.tokens)  # words are tokens: there is no mean to take
    places: list[int | None] = [None] * len(keys)
    if source.keys:
        shares = source.by_word(draft.copying)
        places = source.align(keys, shares if single else np.array([shares[group].mean(0) for group in groups]))
    words: list[_Word] = []
    for group, key, place in zip(groups, keys, places, strict=True):
        share = draft.share[group[0]] if single else draft.share[group].mean()
        word = _Word(key, tokens=group, place=place, copied=bool(share > 0.5))
        word.unknown = all(draft.unknown[token] for token in group)
        word.follows = bool(words) and _follows(words[-1], word)
        word.rests = place is not None and source.ends_sentence(place)
        word.glued = word.follows and place is not None and source.gap(place) == ""
        words.append(word)
    return words


def _follows(before: _Word, word: _Word) -> bool:
    """Do two words stand next to each other in the draft and in the source?"""
    return before.tokens[-1] + 1 == word.tokens[0] and before.place is not None and word.place == before.place + 1


def _join(words: list[_Word], text: str, source: SourceText, *, follow: bool) -> None:
    """Decide what stands in front of each word: what the tokenizer puts there or, with ``follow``, what the source has
    where two words follow each other."""
    end = 0
    for index, word in enumerate(words):
        word.gap = text[end : word.raw[0]]
        end = word.raw[1]
        if not index or not word.text:
            continue
        before = words[index - 1]
        dropped = before.tokens[-1] + 1 != word.tokens[0]
        if dropped and not word.gap and before.text[-1:].isalnum() and word.text[0].isalnum():
            word.gap = "" if is_unspaced(before.text[-1]) or is_unspaced(word.text[0]) else " "
        if not (follow and _follows(before, word)) or word.place is None:
            if follow and index > 1 and before.text in ("'", '"') and not before.gap and word.text[0].isalnum():
                word.gap = " " if words[index - 2].text[-1:].isalnum() else word.gap  # the quotation ended there
            elif follow and index > 1 and (before.text == "\\" or _binds(words, index)):
                word.gap = ""
            continue
        after = words[index + 1] if index + 1 < len(words) else None
        if word.text in _NEVER_BEFORE_SPACE and not (after and _follows(word, after)):
            continue  # it opens something else than in the source
        gap = source.gap(word.place)
        begins_name = word.text in _IN_NAMES and after is not None and after.glued and after.text[:1].isalnum()
        if gap is not None and not (gap and not word.gap and not begins_name and _closes_up(before.text, word.text)):
            word.gap = gap


def _binds(words: Sequence[_Word], index: int) -> bool:
    """Does the sign in front bind the words on both sides (Rack-compliant, Test::Builder, 3.x)? Not in "pre- and"."""
    first = index - 1 - (words[index - 1].text == words[index - 2].text == ":")
    sign, before, after = "".join(word.text for word in words[first:index]), words[first - 1].text, words[index].text
    if not first or any(word.gap for word in words[first:index]) or not (before[-1:].isalnum() and after[0].isalnum()):
        return False
    version = sign == "." and before.isdigit() and after == "x"
    return version or (sign in ("-", "::") and after not in ("and", "or", "to"))


def _agree(words: Sequence[_Word], source: SourceText) -> None:
    """An article agrees with the sound behind it (LLM is read by its letters; u is as often a consonant), a capital A
    within a sentence being a letter; a verb with its object is an infinitive behind "to", if the source has an s."""
    for index, (word, after) in enumerate(pairwise(words)):
        opens = index == 0 or words[index - 1].text in ENDS | {":"}
        if (word.text == "a" or (opens and word.text == "A")) and after.gap and _VOWEL.match(after.text):
            word.text += "" if _follows(word, after) else "n"
        elif word.key == "to" and after.place is not None and not _follows(word, after) and index + 2 < len(words):
            thing = words[index + 2]
            has_object = _follows(after, thing) and thing.key not in FUNCTION_WORDS - _BEFORE_OBJECT
            has_object = has_object and not thing.key.endswith(("ing", "ed", "ten"))  # services running in a cluster
            if has_object and source.says_of_something(after.place):
                after.text = infinitive(after.text)


def _closes_up(before: str, word: str) -> bool:
    """Is there no blank between two words, whatever a tokenized source has there?"""
    if word[0] in _NEVER_AFTER_SPACE or before[-1:] in _NEVER_BEFORE_SPACE or CLITIC.match(word):
        return True
    return is_unspaced(before[-1:]) and is_unspaced(word[0])


class _Letters:
    """The case of words that a lower-casing tokenizer wrote."""

    def __init__(self, source: SourceText, tokenizer: Tokenizer, capitals: str) -> None:
        self.source, self.tokenizer, self.casing = source, tokenizer, tokenizer.casing
        self.style = self.casing.capitals if capitals == "learnt" else capitals
        self.copied: set[int | None] = set()  # the source words that the summary has
        self.goes_on = False  # does a colon stand in front of the word, without a blank?

    def restore(self, words: list[_Word]) -> None:
        """Give every word its form, then sentences their beginnings."""
        self.copied = {word.place for word in words}
        for index, word in enumerate(words):
            in_run = (index > 0 and _follows(words[index - 1], word)) or (
                index + 1 < len(words) and _follows(word, words[index + 1])
            )
            self.goes_on = index > 0 and words[index - 1].text == ":" and not word.gap
            if word.text != word.key:  # the tokenizer writes it in its own way (-lrb-)
                continue
            if word.key[:1].isalpha() or word.key[-1:].isalpha() or (word.copied and word.key.strip("#0") == ""):
                form = self.form(word.key, word.place, copied=word.copied or in_run)
                word.text = form or self.source.small(word.key)
            elif in_run and word.place is not None and (word.copied or len(word.key) > 1):
                word.text = self.source.form(word.place)  # signs and numbers of a copied run
        if self.style != "lower":
            self._capitalise(words)

    def form(self, key: str, place: int | None, *, copied: bool) -> str | None:
        """How a word is written; ``None``: as it is.

        In this order: its form at the place it was copied from; the form that the document uses elsewhere (the only
        one, or of a copied word the most frequent); that of the training texts. Of a word that stands only where case
        says nothing, an ordinary word is lower-cased and one that the vocabulary lacks keeps the source's form.
        """
        if copied and place is not None and self.source.telling(place) and self._is_whole(place):
            return self.source.form(place)
        told = self.source.told(key)
        if told and (copied or len(told) == 1):
            form = told.most_common(1)[0][0]
            alike = [at for at in self.source.by_key[key] if self.source.form(at) == form]
            if not capitalised(form) or any(map(self._is_whole, alike)):
                return form
        places = self.source.by_key.get(key, ())
        own = self.source.form(places[0] if place is None else place) if places else key
        if (known := self.casing.form(key) or self.casing.form(key.rstrip("."))) is not None:
            small = not capitalised(known) and all(capitalised(self.source.form(at)) for at in places)
            return own if small and places else known + key[len(known) :]
        if told:
            return None
        parts, own_parts = parts_of(key), parts_of(own)
        if len(parts) > 1 and len(parts) == len(own_parts):
            return "".join(self._part(part, mine) for part, mine in zip(parts, own_parts, strict=True))
        return None if self._is_ordinary(key) else own

    def _is_whole(self, place: int) -> bool:
        """Is a capitalised word here for its name's sake? An ordinary word (the Models of Large Language Models) only
        if the summary has the whole name, and the name is more than the long form of an abbreviation."""
        form = self.source.form(place)
        if not capitalised(form) or not self._is_ordinary(form.lower()) or self.casing.form(form.lower()):
            return True
        if self.source.is_part(place):
            return self.goes_on
        phrase = self.source.phrase(place)
        return self.copied.issuperset(phrase) and not self.source.explains(phrase)

    def _part(self, key: str, own: str) -> str:
        """A part of a hyphenated word, or the sign between; ``own`` is how the source writes it."""
        if not key.isalnum():
            return own
        return self.form(key, None, copied=False) or (key if self._is_ordinary(key) else own)

    def _is_ordinary(self, key: str) -> bool:
        """Is it a word of the vocabulary? Names among those are in the table."""
        return any(self.tokenizer.token_id(token) not in (None, self.tokenizer.unk_id) for token in (key, f"▁{key}"))

    def _capitalise(self, words: list[_Word]) -> None:
        fresh = True  # at the beginning of a sentence
        for index, word in enumerate(words):
            fresh = fresh or "\n" in word.gap
            if not word.text or word.text in frozenset("([{\"'“‘«`"):
                continue
            fresh = fresh and not (index and words[index - 1].text == ":" and not word.gap)  # std::vector
            begin = fresh and not self.source.stays_lower(word.key)
            if begin or (self.style == "title" and word.gap and word.key not in SMALL_WORDS):
                word.text = self._capital(word.text, every_part=self.style == "title")
            if word.text == ":":
                fresh = self.casing.after_colon
            else:
                letters = index > 0 and len(words[index - 1].text) == 1
                fresh = word.text in ENDS and not letters  # not after e.g. in pieces

    def _capital(self, word: str, *, every_part: bool) -> str:
        """The word with a capital, if it is all lower-case letters (``libc6`` and ``iPhone`` stay); in Title Case each
        part that is."""
        if every_part and len(parts := parts_of(word)) > 1:
            return "".join(
                part if index and part in SMALL_WORDS else self._capital(part, every_part=False)
                for index, part in enumerate(parts)
            )
        ordinary = word == word.lower() and _ORDINARY_LETTERS.fullmatch(word)
        return word[0].upper() + word[1:] if ordinary else word


def _written(words: list[_Word], raw: list[tuple[int, int]], text: str) -> Surfaced:
    shown = ""
    kept: list[int] = []
    spans: list[tuple[int, int]] = []
    groups: list[list[int]] = []
    for word in words:
        shown += word.gap if shown else word.gap.lstrip()
        start, end = len(shown), len(shown) + len(word.text)
        shown += word.text
        groups.append(list(range(len(kept), len(kept) + len(word.tokens))))
        for token in word.tokens:
            low, high = (min(max(at - word.raw[0], 0), end - start) for at in raw[len(kept)])
            spans.append((start + low, end if token == word.tokens[-1] else start + high))
            kept.append(token)
    return Surfaced(shown + (text[words[-1].raw[1] :] if words else ""), kept, spans, groups)
