"""Characters: what a line is, invisible and control characters, scripts, words of English.

Python's ``\\w`` holds no vowel sign: by itself it cuts हिन्दी into six pieces. And it runs through what is written
without blanks: C18色谱柱 would be one word. `MARKS` and `UNSPACED` are for character classes of `re`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

# Scripts written without blanks between words: Thai, Lao, Burmese, Khmer, Han, kana.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
# What belongs to the letter before it: accents, vowel signs, joiners, variants.
MARKS = (
    "".join(sign for sign in map(chr, range(0x300, 0x3100)) if unicodedata.category(sign)[0] == "M")
    + "\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef"
)
# A word: one character of an unspaced script, or a run of other letters, digits and underscores.
SCRIPT_WORD = rf"(?=\w)[{UNSPACED}][{MARKS}]*|[^\W{UNSPACED}]+(?:[{MARKS}]+[^\W{UNSPACED}]*)*"
# What stands between blanks, and each character of an unspaced script, with its vowel signs.
UNIT = re.compile(rf"[{UNSPACED}][{MARKS}]*|[^\s{UNSPACED}]+")
_UNSPACED_CHARACTER = re.compile(f"[{UNSPACED}]")

TAGS = re.compile(  # HTML in what is no page
    r"&(?:#\d+|#x[0-9a-f]+|[a-z]{2,8});|</?(?:br|p|b|i|em|strong|div|span|a|li|ul|td|tr|s)\b[^<>]*>", re.I
)
_LINE_ENDS = str.maketrans(dict.fromkeys("\r\v\f\x85\u2028\u2029", "\n"))
_JOINED = "\u0600-\u109f\u1780-\u18af\ufb50-\ufdff\ufe70-\ufefc"  # letters of scripts with joiners: Arabic to Mongolian
# Soft hyphens, word joiners, marks of direction, byte order marks; joiners that do not stand between such letters.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
    f"|(?<![{_JOINED}])[\u200c\u200d]+|[\u200c\u200d]+(?![{_JOINED}])"
)


def with_line_feeds(text: str) -> str:
    """``text`` with a line feed for each end of a line, of equal length: what a line is, everywhere. Lines end at LF,
    CR LF (here a blank and a line feed), CR, VT, FF, NEL, U+2028 and U+2029."""
    return text.replace("\r\n", " \n").translate(_LINE_ENDS)


def split_lines(text: str) -> list[str]:
    """The lines of a text, without their ends."""
    lines = text.replace("\r\n", "\n").translate(_LINE_ENDS).split("\n")
    return lines if lines[-1] else lines[:-1]


def without_invisible(text: str) -> str:
    """``text`` as its words are counted: without invisible characters that divide nothing. Joiners stay between letters
    of scripts in which they tell words apart (Arabic, Persian, those of India)."""
    return text if text.isascii() else _UNSEEN.sub("", text)


def located(text: str) -> tuple[str, Sequence[int]]:
    """`without_invisible`, and where each of its characters is in ``text``."""
    hidden = {place for match in _UNSEEN.finditer(text) for place in range(*match.span())} if not text.isascii() else ()
    places = [place for place in range(len(text)) if place not in hidden] if hidden else range(len(text))
    return "".join(map(text.__getitem__, places)) if hidden else text, places


def is_unspaced(character: str) -> bool:
    """Is the character of a script that is written without spaces?"""
    return bool(_UNSPACED_CHARACTER.match(character))


_ENDS_NO_LINE = (  # words that an English line does not end with
    "a an the of and or but nor with for from into onto between among amongst than as at by via per to in on upon & "
    "its their our your my his which whose whether while during without within toward towards against across"
)
_OTHERS = (
    "is are was were be been being has have had do does did no not can could will would should may might must it this "
    "that these those there you we i he she they me us him them who what when where how why if then so such more most "
    "n't less least all any both each some other over under up down out off through about before after again also "
    "only very"
)
DANGLING = frozenset(_ENDS_NO_LINE.split())
FUNCTION_WORDS = DANGLING | frozenset(_OTHERS.split())
_SURELY_ENGLISH = frozenset(("the", "and", "of", "to", "for", "with", "is", "are", "that", "this"))
_ENGLISH_SHARE = 0.05  # of the words of a text in English, at least


def is_english(words: Sequence[str]) -> bool:
    """Are enough of these words and signs of a document frequent words of English?"""
    lowered = [word.lower() for word in words if any(map(str.isalnum, word))]
    return sum(word in _SURELY_ENGLISH for word in lowered) >= max(1.0, _ENGLISH_SHARE * len(lowered))


def may_not_repeat(word: str) -> bool:
    """A word of letters; digits may stand twice in a line, and so may the characters of Chinese, Japanese, Thai, ..."""
    return any(map(str.isalpha, word)) and not is_unspaced(word[0])


SPACE_MARK = "▁"  # the space before a word, as the subword and character tokenizers write it
_SURROGATES = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """Return ``text`` with lone surrogates (from broken JSON escapes) replaced one for one, so positions stay."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def extend_over_marks(text: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Give a token the combining characters behind it (accents, Hangul letters) that composition left outside."""
    result = []
    for index, (start, end) in enumerate(offsets):
        limit = offsets[index + 1][0] if index + 1 < len(offsets) else len(text)
        while start < end < limit and (unicodedata.category(text[end])[0] == "M" or "\u1160" <= text[end] <= "\u11ff"):
            end += 1
        result.append((start, end))
    return result
