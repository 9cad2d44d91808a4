"""Where sentences begin and end: English by syntok, other languages by sentencex, each with a few rules of ours.

A separator may stand between sentences, an ordinary word of the vocabulary that belongs to no characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import sentencex

from catchline.text.normalization import FUNCTION_WORDS, encodable, is_english, is_unspaced, with_line_feeds

Span = tuple[int, int]
ENGLISH = "en"
PIECE, AHEAD = 10_000, 2_000  # characters that sentencex sees at once, the last may hold the end of a quotation
WRAPPED = re.compile(  # between the parts of a word that the end of a line divides
    r"(?<=[a-z][-‐])[^\S\n]*+\n\s*+(?!(?:and|or|to|und|oder)\b)(?=[a-z])"
)
RULER = re.compile(r"([-=~*#_+^])\1{3,}")  # under a heading, or between parts

_LOOKED_AT = 2_000  # characters at the beginning of a text, which tell its language
_LETTERS = re.compile(r"[^\W\d_]+")
_FREQUENT = {  # words that English does not have
    "de": "der das und ist nicht den von mit dem ein eine einer auf für sich zu im sie er es wurde wird am vom zum",
    "fr": "le les des est une dans du qui pour sur il elle avec au et la de",
    "es": "el los las y una del por se su que con la en un de",
    "it": "il di che della gli un per sono dal nel alla con nei dei la",
    "pt": "os uma com em da dos na do para não que de",
    "pl": "w z i się nie jest od po że na do",
    "tr": "bir ve bu için ile",
    "nl": "het een van dat niet de en",
    "sv": "och det som av på",
    "da": "og det som af på",
}
_LANGUAGES = {language: frozenset(words.split()) for language, words in _FREQUENT.items()}
_SCRIPTS = {"ja": "ぁ-ヿ", "ko": "가-힣", "zh": "一-鿿", "th": "ก-๿", "ru": "Ѐ-ӿ", "hi": "ऀ-ॿ", "ar": "؀-ۿ"}
_FEWEST, _SHARE = 4, 0.2  # of such words, or words with a letter that English has not, in a text of another language


@lru_cache(8)
def language_of(text: str) -> str:
    """The language of a text as an ISO code, by its first 2,000 characters; ``en`` unless it is certainly another."""
    head = text[:_LOOKED_AT].lower()
    if head.isascii() and sum(map(head.count, (" the ", " of ", " and ", " to "))) > 0.06 * head.count(" "):
        return ENGLISH  # the common case, for speed
    letters = sum(map(str.isalpha, head))
    for language, script in _SCRIPTS.items():
        if 3 * len(re.findall(f"[{script}]", head)) > letters:
            return language
    words = _LETTERS.findall(head)
    counts = {language: sum(word in frequent for word in words) for language, frequent in _LANGUAGES.items()}
    foreign = sum(not word.isascii() or any(word in frequent for frequent in _LANGUAGES.values()) for word in words)
    if foreign < max(_FEWEST, _SHARE * len(words)) or is_english(words):
        return ENGLISH
    return max(counts, key=lambda language: counts[language])


def _short_forms(kind: str) -> frozenset[str]:
    lines = (Path(__file__).parent / "data/short_forms.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(form for first, *forms in map(str.split, lines) if first == kind for form in forms)


_ALWAYS, _NAMES, _NUMBERED, _OTHERS = map(_short_forms, ("always", "name", "number", "other"))
_MORE_OPENERS = "her finally additionally however moreover furthermore nobody thus since one two three each until"
_OPENERS = FUNCTION_WORDS.union(_MORE_OPENERS.split()) - {"a", "i", "no", "will", "may", "can", "who", "so"}
_OPENER = "|".join(sorted(word.capitalize() for word in _OPENERS if word.isalpha()))
_SHORT = re.compile(r"(?:^|[\s'’(\[\"])([^\s'’(\[\"]+)\.\s*\Z")
_LABEL = re.compile(  # a number in front of an item: 1. 2.1. II. Q1. Step 1.
    rf"\W*(?:(?:{'|'.join(sorted(_short_forms('label')))})[. ]\s?|[QA])?"
    r"(?:(?:\d{1,4}\.\s*)+|(?:[IVXLC]+|[A-Za-z])\.)\s*"
)
_UNREAD = re.compile(r"(?:\A|(?<!\d)\s|\s(?=\w+\.\s*\D))[^\W\d_aeiouy]{2,}\.\s*\S\Z")  # mtg. 5, not 5 km. 300
_SMILEY = re.compile(r"[:;]-?[()DP](?!\w)")
_ORDINAL = re.compile(r"(?i)\b(?:de[rmns]|die|das|[ai]m|vom|zu[mr]|beim|und|bis)\s\d{1,2}\.\s*\Z")  # of German
_MISSED = re.compile(  # ends that syntok does not see
    r"(?:\b(?:etc\.\)?|[ap]\.m\.)|\w\.[a-z]{2,5}\.|\w\w\.[a-z]\.|\d\.|\d\s?[a-zA-Z]{2,5}\.)\s+(?=[A-Z][a-z]+\b(?!\.))"
    r"|(?:\.[?!]|[:;]-?[()DP])\s+(?=[A-Z])|(?<=\w\)\.)\s+(?=[A-Z][a-z])"
    rf"|(?<=[^\W_][.!?])[\"”’)\]]?\s+(?=(?:{_OPENER})\b)"
    r"|(?<=[a-z]{5}\.)\s+(?=[a-z])|(?<=[a-z]{3}[.!?])\s+(?=\d{3})|(?<=[.!?;])\s+(?=(?:(?:\d{1,2}\.)+|[a-z][.)])\s+[A-Z])"
)
_GLUED = re.compile(r"(?<![\w.@/:-])(\w+(?:\.\w+)*)([.!?])([\"”’)]?)(?=([A-Z][a-z]*)\s+([a-z]+)\b)")  # no blank behind
_CODE = re.compile(r"[`_(){}<>=]|\w\.[a-z]|[a-z]\.[A-Z]\w*\.[A-Z]")


def _without_blanks(text: str) -> set[int]:
    """The ends of English sentences behind which the blank was forgotten; names (ASP.NET, io.Reader) have none."""
    likely, words, ends, prose, quotes, seen = set[int](), set[str](), set[int](), False, 0, 0
    for match in _GLUED.finditer(text):
        word, sign, quote, opener, following = match.groups()
        quotes, seen = quotes + text.count('"', seen, match.end()), match.end()
        end = seen - (quote == '"' and quotes % 2)  # one that opens a quotation
        if sign != "." or word.isdigit() or opener.lower() in _OPENERS:
            ends.add(end)
        elif len(word) > 2 and "." not in word:
            likely.add(end)
            if following not in FUNCTION_WORDS:
                words.add(word)
                before = re.split(r"[.!?]\s", text[max(0, match.start() - 200) : match.start()])[-1]
                prose = prose or len(before.split()) > 4
    return ends | likely if len(words) > 1 or (prose and not _CODE.search(text)) else ends


def _continues(text: str, first: int, last: int, language: str) -> bool:
    """Does the sentence that begins at ``first`` continue behind the end that a library sees at ``last``?"""
    before, behind = text[max(first, last - 60) : last], text[last : last + 40].lstrip()
    if not behind or _SMILEY.match(behind) or (last - first < 30 and _LABEL.fullmatch(before)):
        return bool(behind)
    short, next_word = _SHORT.search(before[-20:]), _LETTERS.match(behind)
    form = short[1] if short else ""
    if language == ENGLISH:
        opens = next_word is not None and behind[0].isupper() and next_word[0].lower() in _OPENERS
        numbered = not behind[0].isupper() or (next_word is not None and len(next_word[0]) == 1)
        known = form in _NAMES or (
            numbered and (form.lower() in _NUMBERED or _UNREAD.search(before[-20:] + behind[0]) is not None)
        )
        return form.lower() in _ALWAYS or (known and not opens)
    begun = _LETTERS.search(text, first, last)
    if behind.lstrip("—–- ")[:1].islower() and begun is not None and begun[0][0].isupper():
        return True
    initial = form[-1:].isupper() and len(re.split(r"[.\-]", form)[-1]) == 1 and not behind[0].isdigit()
    return initial or form.lower() in _OTHERS or bool(language == "de" and _ORDINAL.search(before))


def split_sentences(text: str, language: str | None = None) -> list[Span]:
    return list(sentence_spans(text, language))


def sentence_spans(text: str, language: str | None = None) -> Iterator[Span]:
    """The spans of the sentences of ``text``, in order, with white space between them. Without a ``language`` (an ISO
    code) the text tells it. A blank line ends a sentence, and so does a line that nobody wrapped."""
    language = language or language_of(text)
    text = with_line_feeds(encodable(text))
    for start, end in pairwise([0, *_line_ends(text), len(text)]):
        block, first = text[start:end], 0
        for last in _ends(block, language):
            if last == len(block) or not _continues(block, first, last, language):
                span = bounds(text, start + first, start + last)
                first = last
                if span[0] < span[1]:
                    yield span


def _ends(block: str, language: str) -> Iterable[int]:
    """Where sentences may end in a block, its own end among them."""
    small = block.lower() == block and (language == ENGLISH or language in _LANGUAGES)
    if language != ENGLISH or small:  # else a small letter begins no sentence
        return sorted({*_sentencex_ends(block, ENGLISH if small else language), len(block)})
    glued = _without_blanks(block)
    ends = {*glued, *(match.end() for match in _MISSED.finditer(block)), len(block)}
    tokenize, segment = _syntok()
    for sentence in segment(tokenize(block)):
        last = sentence[-1].offset + len(sentence[-1].value)
        stopped = block[max(0, last - 9) : last].rstrip("\"')]}”’»")[-1:] in (".", "!", "?", "…")
        named = block[last - 1] == "." and not block[last : last + 1].isspace()
        if stopped and not (named and not is_unspaced(block[last : last + 1])):
            ends.add(last)
    return sorted(ends)


@cache
def _syntok() -> tuple[Callable[[str], Any], Callable[[Any], Any]]:
    """What makes tokens of a text, and sentences of tokens; most summaries are made without them."""
    from syntok import segmenter
    from syntok.tokenizer import Tokenizer

    return Tokenizer(replace_not_contraction=False).tokenize, segmenter.segment


def _sentencex_ends(text: str, language: str) -> Iterator[int]:
    """Where sentences end to sentencex, which may take the square of what it sees: a long text is seen in pieces. A
    blank beyond ASCII before a full stop makes it panic."""
    text, start = re.sub(r"[^\S\n]", " ", text), 0
    while start < len(text):
        piece = text[start : start + PIECE]
        ends = [start + boundary["end_index"] for boundary in sentencex.get_sentence_boundaries(language, piece)]
        if start + PIECE < len(text):  # what may continue behind the piece is seen again
            ends = [end for end in ends[:-1] if end <= start + PIECE - AHEAD]
        yield from ends
        start = ends[-1] if ends else start + PIECE


_AHEAD = ("a", "an", "the", "of", "and", "or", "from", "with", "its", "their", "our", "your", "my", "his")
_BULLETS = ("*", "-", "•", "–")
NARROWEST = 60  # characters: no prose is taken to be wrapped at less


def _line_ends(text: str) -> Iterator[int]:
    """The ends of lines that were ended on purpose, as in lists, minutes and mails: the next line is blank, or its
    first word would have fitted in and does not begin in lower case, nor does the line end in "of" or the like; or it
    is an underlined heading. The longest line tells the width of prose that was wrapped."""
    lines = text.split("\n")
    width, place = max(NARROWEST, *map(len, lines)), 0
    for line, following in pairwise(lines):
        place += len(line) + 1
        line, word = line.rstrip(), next(iter(following.split(maxsplit=1)), "")
        fitted = not word[:1].islower() and len(line) + 1 + len(word) <= width
        fitted = fitted and line.rpartition(" ")[2].strip("(").lower() not in _AHEAD
        if not word or fitted or word in _BULLETS or RULER.fullmatch(word) or RULER.fullmatch(line.strip()):
            yield place


def sentence_strings(text: str, language: str | None = None) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text, language)]


def bounds(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without the blanks at its ends, which some tokenizers count to a word."""
    stripped = text[start:end].lstrip()
    return end - len(stripped), end - len(stripped) + len(stripped.rstrip())


def sentence_gaps(text: str, separator: str, sentences: Sequence[str] = (), *, by_line: bool = False) -> list[Span]:
    """The stretches between the sentences of ``text`` where ``separator`` belongs: where it stands already, between
    blanks; else ``sentences`` where they all stand in the text, with ``by_line`` its lines, or `split_sentences`."""
    if separator in text:
        mark = re.escape(separator)
        pattern = rf"(?<!\s)\s*(?<!\S){mark}(?!\S)(?:\s+{mark}(?!\S))*\s*"
        return [match.span() for match in re.finditer(pattern, text)]
    lines = with_line_feeds(text) if by_line else ""
    matches = re.finditer(r"\S(?:[^\n]*\S)?", lines if "\n" in lines.strip() else "")
    spans = _located(text, sentences) or [match.span() for match in matches] or split_sentences(text, ENGLISH)
    return [(before[1], after[0]) for before, after in pairwise(spans)]


def between(text: str, gaps: Sequence[Span]) -> list[tuple[int, str]]:
    """What stands in front of the gaps, between them and behind them, each with its position."""
    edges = [0, *(edge for gap in gaps for edge in gap), len(text)]
    return [(start, text[start:end]) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _located(text: str, sentences: Sequence[str]) -> list[Span]:
    spans, end = [], 0
    for sentence in filter(None, map(str.strip, sentences)):
        if (start := text.find(sentence, end)) < 0:
            return []
        spans.append((start, end := start + len(sentence)))
    return spans
