"""Rendering, the last step before a text is shown: from tokens to text as people write it, with the span of each token.

`join_words` and its kin join tokens by rule. `rendered` knows the source as well: a copied word has its form, and its
blanks in a copied run; other words have their usual form in the training texts. The clean-up adds no token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from catchline.text.normalization import (
    DANGLING,
    SPACE_MARK,
    is_english,
    is_unspaced,
    may_not_repeat,
    without_invisible,
)
from catchline.text.sentences import RULER, WRAPPED, bounds
from catchline.text.truecase import CLITIC, begins, capital, capitalised
from catchline.types import TokenizedText

if TYPE_CHECKING:
    from catchline.text.base import Tokenizer

Detokenized = tuple[str, list[tuple[int, int]]]

LONGEST_PHRASE = 8  # words, of a doubled one
ENDS = frozenset((".", "!", "?", "…", "..."))  # of sentences
_CJK_CLOSING, _CJK_OPENING = "。，、；：！？）】》」』〉", "（【《「『〈"
_NO_SPACE_BEFORE = {*".,;:!?)]}%'’…”»™®°", *_CJK_CLOSING, "..", "...", "....", "''"}
_NO_SPACE_AFTER = {*"([{#$£€¥“«", *_CJK_OPENING, *_CJK_CLOSING, "``"}
_BRACKETS = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"}
_PAIRS = {"(": ")", "[": "]", "{": "}", "``": "''", "-lrb-": "-rrb-", "-lsb-": "-rsb-", "-lcb-": "-rcb-"}
_CLOSING = {closing: opening for opening, closing in _PAIRS.items()}
_PAUSES = frozenset((",", ";", ":"))
_STOPS = _PAUSES | ENDS
_NOT_FIRST = _STOPS | frozenset(")]}#*•>-–—/=")
_NOT_LAST = frozenset(("(", "[", "{", "-", "–", "—", "/", "=", "+", "``"))
_NEAR = 10  # characters around a word that tell whether it stands in capitals as all others


def _joined(pieces: Iterable[tuple[str, str]]) -> Detokenized:
    """The text of pieces, each with the blank in front of it, and their spans."""
    text = ""
    spans: list[tuple[int, int]] = []
    for gap, piece in pieces:
        text += gap if text else ""
        spans.append((len(text), len(text) + len(piece)))
        text += piece
    return text, spans


def join_words(tokens: Sequence[str]) -> Detokenized:
    """Join word tokens: punctuation and clitics close up, quotation marks alternate, Han and Thai get no spaces."""
    pieces: list[tuple[str, str]] = []
    close_up = True
    open_quotes: set[str] = set()
    for previous, token in pairwise(["", *tokens]):
        written = _BRACKETS.get(token.lower(), token)
        closes_up, close_up_next = _glue(written, previous, open_quotes)
        unspaced = is_unspaced(previous[-1:]) and is_unspaced(written[:1])
        pieces.append(("" if closes_up or close_up or unspaced else " ", written))
        close_up = close_up_next
    return _joined(pieces)


def _glue(token: str, previous: str, open_quotes: set[str]) -> tuple[bool, bool]:
    """Does ``token`` close up to the token before it, and does the next one close up to it?"""
    if token == '"' or (token == "'" and not (previous.endswith("s") and "'" not in open_quotes)):
        closes = token in open_quotes
        open_quotes ^= {token}
        return closes, not closes
    if token == "/":
        return True, True
    return token in _NO_SPACE_BEFORE or bool(CLITIC.match(token)), token in _NO_SPACE_AFTER


def spaced(tokens: Sequence[str], separator: str | None) -> Detokenized:
    """Tokens with a blank between any two; the separator between sentences is left out."""
    return _joined(("", "") if token == separator else (" ", token) for token in tokens)


def join_marked(tokens: Sequence[str]) -> Detokenized:
    """Join tokens that carry their space as ``▁``. Spans leave the space out."""
    text, spans = "", list[tuple[int, int]]()
    for token in tokens:
        text += " " if token.startswith(SPACE_MARK) and text and text[-1] != " " else ""
        piece = token.lstrip(SPACE_MARK).replace(SPACE_MARK, " ")
        spans.append((len(text), len(text) + len(piece)))
        text += piece
    text = text.rstrip()
    return text, [(min(start, len(text)), min(end, len(text))) for start, end in spans]


def join_with(decode: Callable[[list[str]], str], tokens: Sequence[str]) -> Detokenized:
    """Join tokens by a library's decoder; the span of a token is what it adds to the text before it. Of a character in
    several tokens (byte-level) it is the last's."""
    text = decode(list(tokens))
    lengths = (len(decode(list(tokens[:count])).rstrip("\ufffd")) for count in range(1, len(tokens) + 1))
    ends = [min(end, len(text)) for end in accumulate(lengths, max, initial=0)]
    return text, [bounds(text, start, end) for start, end in pairwise(ends)]


class SourceText:
    """The words of a document as the model read them, and how the document writes them."""

    def __init__(self, document: str, encoding: TokenizedText, tokenizer: Tokenizer) -> None:
        self.document = document
        self.keys: list[str] = []
        self.spans: list[tuple[int, int]] = []
        self._tokens: list[tuple[int, int]] = []  # the first token of each word, and the first behind it
        self._by_key: dict[str, list[int]] = {}
        self._has_capitals = document != document.lower()
        unknown_marks = getattr(tokenizer.config, "unknown_marks", ())
        for group in tokenizer.word_groups(encoding.tokens):
            first, last = group[0], group[-1] + 1
            start, end = encoding.offsets[first][0], encoding.offsets[last - 1][1]
            if start < end and document[start:end] not in unknown_marks:
                key = tokenizer.word_key(encoding.tokens[first:last], document[start:end])
                self._by_key.setdefault(key, []).append(len(self.keys))
                self.keys.append(key)
                self.spans.append((start, end))
                self._tokens.append((first, last))

    def place(self, key: str, weights: np.ndarray, before: int | None) -> int | None:
        """The source word that a written word is: an equal one, behind ``before``, that of the word before, if it was
        copied from there too, else where it was copied most; ``weights`` (S,) over source tokens."""
        shares = {place: weights[slice(*self._tokens[place])].sum() for place in self._by_key.get(key, ())}
        following = -1 if before is None else before + 1
        return following if shares.get(following) else max(shares, key=lambda place: shares[place], default=None)

    def form(self, word: int) -> str:
        """The word as the document writes it."""
        return without_invisible(self.document[slice(*self.spans[word])])

    def gap(self, word: int) -> str | None:
        """A blank or nothing in front of the word; ``None`` where other words stand there, or there is no such word."""
        if word == len(self.keys):
            return None
        end = self.spans[word - 1][1]
        gap = self.document[end : self.spans[word][0]]
        blank = any(map(str.isspace, gap)) and not WRAPPED.match(self.document, end)
        return None if any(map(str.isalnum, gap)) else " " if blank else ""

    def holds(self, keys: Sequence[str]) -> bool:
        """Does the document have these words one after the other?"""
        return any(self.keys[at : at + len(keys)] == list(keys) for at in self._by_key.get(keys[0], ()))

    def shows_case(self, word: int) -> bool:
        """Does the case of a word say anything? Not at the beginning of a sentence, nor among ALL CAPS or none."""
        form, (start, end) = self.form(word), self.spans[word]
        if form == form.lower():
            return self._has_capitals
        shouted = self.document[max(0, start - _NEAR) : end + _NEAR].isupper()
        return not (shouted or (capitalised(form) and begins(self.document, start)))

    def cased(self, key: str, place: int | None, tokenizer: Tokenizer) -> str:
        """How a lower-cased word is written: in its form at the ``place`` it was copied from, its most frequent form in
        the document, that of the training texts, in lower case; one that the vocabulary lacks keeps the source's."""
        if place is not None and self.shows_case(place):
            return self.form(place)
        places = self._by_key.get(key, ())
        forms = Counter(self.form(word) for word in places if self.shows_case(word))
        if forms and (place is not None or len(forms) == 1):
            return forms.most_common(1)[0][0]
        if known := tokenizer.casing.forms.get(key):
            return known[0]
        ids = [tokenizer.token_id(token) for token in (key, f"{SPACE_MARK}{key}")]
        if forms or not places or any(id not in (None, tokenizer.unk_id) for id in ids):
            return key
        return self.form(places[0] if place is None else place)


class Rendered(NamedTuple):
    """The text; ``kept`` tokens of those written, the span of each in the text, and which of them form a word."""

    text: str
    kept: list[int]
    spans: list[tuple[int, int]]
    groups: list[list[int]]


@dataclass(slots=True)
class _Word:
    """A word or sign of a summary: ``tokens`` are positions of those written, ``place`` is its word of the source."""

    key: str
    tokens: list[int]
    text: str
    gap: str  # in front of it
    starts: list[int]  # of its tokens, within it
    copied: bool
    place: int | None

    def follows(self, before: _Word) -> bool:
        """Do two words stand next to each other as written and in the source?"""
        adjacent = before.tokens[-1] + 1 == self.tokens[0]
        return adjacent and before.place is not None and self.place == before.place + 1


def rendered(
    tokens: Sequence[str],
    unknown: Sequence[bool],
    copying: np.ndarray,
    share: np.ndarray,
    source: SourceText,
    tokenizer: Tokenizer,
    *,
    clean: bool,
    capitals: str,
) -> Rendered:
    """The text of T tokens over S source tokens, and which of them are UNK. ``copying`` (T, S) is how strongly each
    source position was copied (or attended to), ``share`` (T,) how much of the token's probability was copied.
    ``capitals`` is ``learnt`` (the style of the training summaries) or names a style."""
    text, spans = tokenizer.detokenize(tokens)
    words: list[_Word] = []
    behind, place = 0, None
    for group in tokenizer.word_groups(tokens):
        start, end = bounds(text, spans[group[0]][0], max(spans[token][1] for token in group))
        key = tokenizer.word_key(tokens[group[0] : group[-1] + 1], text[spans[group[0]][0] : spans[group[-1]][1]])
        starts, copied = [max(spans[token][0] - start, 0) for token in group], bool(share[group].mean() > 0.5)
        place = source.place(key, copying[group].mean(0), place)
        words.append(_Word(key, group, text[start:end], text[behind:start], starts, copied, place))
        behind = end
    if tokenizer.guesses_spaces:
        _set_gaps(words, source)
    if clean:
        words = _cleaned(words, unknown, source)
        stops = [at for at, word in enumerate(words) if word.key in ENDS]
        if len(words) > 1 and stops == [len(words) - 1] and words[-1].key == "." and not tokenizer.casing.stops:
            words.pop()
    if tokenizer.lowercases:
        _set_case(words, source, tokenizer, tokenizer.casing.capitals if capitals == "learnt" else capitals)
    shown, of_words = _joined((word.gap, word.text) for word in words)
    of_tokens, groups = list[tuple[int, int]](), list[list[int]]()
    for word, (start, end) in zip(words, of_words, strict=True):
        groups.append(list(range(len(of_tokens), len(of_tokens) + len(word.tokens))))
        of_tokens += pairwise([*(min(start + first, end) for first in word.starts), end])
    return Rendered(shown, [token for word in words for token in word.tokens], of_tokens, groups)


def _set_gaps(words: list[_Word], source: SourceText) -> None:
    """Put in front of each word what the source has where two words follow each other."""
    for before, word in pairwise(words):
        if word.place is None or not word.follows(before) or (gap := source.gap(word.place)) is None:
            continue
        if before.text and word.text:
            closes_up = word.text[0] in ".,;:!?)]}…" or before.text[-1] in "([{" or CLITIC.match(word.text)
            tokenized = closes_up and not word.gap and source.gap(word.place + 1) != ""  # "a , b", but not "a .b"
            word.gap = "" if tokenized else gap


def _cleaned(words: list[_Word], unknown: Sequence[bool], source: SourceText) -> list[_Word]:
    """The words without UNK, rulers (====), doubled phrases and signs, signs that hang at either end, brackets and
    quotation marks without their other half, and in English a function word at the end."""
    known = [word for word in words if not (all(unknown[at] for at in word.tokens) or RULER.fullmatch(word.key))]
    kept, english = known, is_english(source.keys)
    while kept:
        keys = [word.key.lower() for word in kept]
        last = len(keys) - (2 if keys[-1] in ENDS and len(keys) > 1 else 1)
        drop = _doubled(keys, source) or _unpaired(keys, [bool(word.gap) for word in kept])
        hangs = keys[last] in _PAUSES or (keys[last] in _NOT_LAST and kept[last].gap)
        if not drop and keys[0] in _NOT_FIRST and (len(kept) == 1 or kept[1].gap):
            drop = {0}
        elif not drop and (hangs or (english and keys[last] in DANGLING and keys[-1] != "?")):
            drop = {last}
        if not drop:
            break
        kept = [word for at, word in enumerate(kept) if at not in drop]
    for before, word in pairwise(kept):
        edges = before.text[-1:] + word.text[:1]
        if before.tokens[-1] + 1 != word.tokens[0] and edges.isalnum() and not any(map(is_unspaced, edges)):
            word.gap = word.gap or " "
    return kept if any(any(map(str.isalnum, word.key)) for word in kept) else known


def _doubled(keys: Sequence[str], source: SourceText) -> set[int]:
    """The second of two equal phrases side by side that the source does not have so, the longest first."""
    for size in range(min(LONGEST_PHRASE, len(keys) // 2), 0, -1):
        for at in range(size, len(keys) - size + 1):
            phrase = keys[at : at + size]
            doubled = keys[at - size : at] == phrase and any(may_not_repeat(key) or key in _STOPS for key in phrase)
            if doubled and not source.holds(keys[at - size : at + size]):
                return set(range(at, at + size))
    return set()


def _unpaired(keys: Sequence[str], gaps: Sequence[bool]) -> set[int]:
    """Brackets without their other half or with nothing between them (of a call they may have), and an odd quotation
    mark; ``gaps`` tells a single one from an apostrophe."""
    opened: list[int] = []
    for at, key in enumerate(keys):
        if key in _PAIRS:
            opened.append(at)
        elif key in _CLOSING:
            if not opened or keys[opened[-1]] != _CLOSING[key]:
                return {at}
            if opened.pop() == at - 1 and gaps[at - 1]:
                return {at - 1, at}
    for mark in ('"', "'"):
        quotes = [at for at, key in enumerate(keys) if key == mark]
        if len(quotes) % 2 and (mark == '"' or gaps[quotes[-1]]):
            opened.append(quotes[-1])
    return set(opened)


def _set_case(words: list[_Word], source: SourceText, tokenizer: Tokenizer, style: str) -> None:
    """Give each word of a lower-casing tokenizer its form, then sentences their beginnings."""
    fresh = True  # at the beginning of a sentence
    for index, word in enumerate(words):
        run = index > 0 and word.follows(words[index - 1])
        run = run or (index + 1 < len(words) and words[index + 1].follows(word))
        if word.text == word.key:  # else the tokenizer writes it in its own way (-lrb-)
            if word.key[:1].isalpha() or word.key[-1:].isalpha():
                word.text = source.cased(word.key, word.place if word.copied or run else None, tokenizer)
            elif run and word.place is not None:
                word.text = source.form(word.place)  # signs and numbers of a copied run
        if any(map(str.isalnum, word.text)):
            joined = index > 0 and not word.gap and words[index - 1].text in _STOPS  # e.g., std::vector
            word.text = capital(word.text, style, begins=not joined and (fresh or "\n" in word.gap))
            fresh = False
        elif word.text not in ("(", "[", "{", '"', "'", "“", "‘", "«", "`", "``"):
            letter = index > 0 and len(words[index - 1].text) == 1  # of e.g. in pieces
            fresh = tokenizer.casing.after_colon if word.text == ":" else word.text in ENDS and not letter
