"""Characters: what a line is, invisible and control characters, scripts; the normalisation and rules of tokenizers.

Python's ``\\w`` holds no vowel sign: by itself it cuts हिन्दी into six pieces. And it runs through what is written
without blanks: C18色谱柱 would be one word. `MARKS` and `UNSPACED` are for character classes of `re`.

The patterns of tokens, in Oniguruma's syntax, run on normalised text, which may be lower-cased: no rule looks at case.
Every repetition that can fail after a long match starts at a word character and is bounded: time is linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from tokenizers import Regex, normalizers

from catchline.config.base import ConfigBase

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


def is_content(word: str) -> bool:
    """Is the lower-cased word more than a function word, a sign, a number or a letter or two?"""
    return len(word) > 2 and word[0].isalnum() and may_not_repeat(word) and word not in FUNCTION_WORDS


SPACE_MARK = "▁"  # the space before a word, as the subword and character tokenizers write it
UNKNOWN_WORD = "unk"
_BLANK = r"\s\p{Cc}\x{200B}\x{FEFF}"
_SURROGATES = re.compile("[\ud800-\udfff]")
# What the rules see across a blank: separators that are blanks to Python alone, signs that join to what follows them
# (Unicode's Prepend), and halves of characters.
_ACROSS_BLANKS = re.compile(
    "[\x1c-\x1f\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U00011000-\U00011fff\ud800-\udfff]"
)


def across_blanks(text: str) -> bool:
    """Is the text more than its stretches between blanks, one by one?"""
    plain = text.isascii() and not ("\x1c" in text or "\x1d" in text or "\x1e" in text or "\x1f" in text)
    return not plain and bool(_ACROSS_BLANKS.search(text))  # the common case first, for speed


class NormalizationConfig(ConfigBase):
    """The steps behind Unicode's NFC and straight quotes. ``unknown_marks`` are what the data writes for words it lost
    (``<unk>`` and ``UNK`` in copies of Gigaword); between blanks they become the word ``unk``, not in references."""

    lowercase: bool = False
    unknown_marks: tuple[Annotated[str, Field(pattern=r"^\S+$")], ...] = ()
    digits_to_hash: bool = False


def build_normalizer(config: NormalizationConfig, marks: bool) -> normalizers.Normalizer:
    """Make the library's normalizer. With ``marks`` runs of white space become ``▁``, and one stands before the first
    word too, so that a word is the same token wherever it stands."""

    def replaced(pattern: str, content: str) -> normalizers.Normalizer:
        return normalizers.Replace(Regex(pattern), content)

    # soft hyphens and word joiners go
    steps = [normalizers.NFC(), replaced(r"[\x{00AD}\x{2060}]", ""), replaced("[‘’‛]", "'"), replaced("[“”„‟]", '"')]
    if config.unknown_marks:
        unknown = "|".join(map(re.escape, config.unknown_marks))
        steps.append(replaced(rf"(?<!\S)(?:{unknown})(?!\S)", UNKNOWN_WORD))
    if config.lowercase:
        steps.append(normalizers.Lowercase())
    if config.digits_to_hash:
        steps.append(replaced(r"\p{Nd}", "#"))
    if marks:
        steps += [replaced(rf"[{_BLANK}{SPACE_MARK}]+", SPACE_MARK), replaced(rf"{SPACE_MARK}\z", "")]
        steps.append(replaced(rf"\A(?!{SPACE_MARK})", SPACE_MARK))
    return normalizers.Sequence(steps)


def whole_marks(text: str, offsets: list[tuple[int, int]], marks: Sequence[str]) -> None:
    """Widen, in place, the spans of unknown words' marks: the library traces a replaced one to its last character."""
    matches = (match for mark in marks for match in re.finditer(rf"(?<!\S){re.escape(mark)}(?!\S)", text))
    starts = {match.end(): match.start() for match in matches}
    for index, (start, end) in enumerate(offsets):
        offsets[index] = (min(start, starts.get(end, start)), end)


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


# Scripts written without spaces: Han, Hiragana, Thai, ... one grapheme a token; Katakana in runs.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー"
_LETTER = rf"[\p{{L}}\p{{M}}\x{{200C}}\x{{200D}}&&[^{_UNSPACED}]]"
_APOSTROPHE = "['’]"
_ABBREVIATION = (
    "mr|mrs|ms|dr|prof|vs|inc|ltd|corp|jr|sr|gov|sen|rep|gen|rev|lt|col|sgt|capt|st|cf|fig|eq|approx|dept|etc|al|vol"
)


def word_pattern(hash_digits: bool = False) -> str:
    """The rules of words, in order; the first that matches at a position wins. With ``hash_digits`` the sign ``#`` is a
    digit (Gigaword writes 3.5 as ``#.#`` and 10-year-old as ``##-year-old``)."""
    mark = "#" if hash_digits else ""
    word = rf"[\p{{L}}\p{{M}}\p{{N}}_{mark}\x{{200C}}\x{{200D}}&&[^{_UNSPACED}]]"
    digit = r"[\p{Nd}#]" if hash_digits else r"\p{Nd}"
    clitic = rf"(?i:s|re|ve|ll|d|m)(?!{word})"
    rules = (
        # the common case first, for speed: no other rule would say otherwise
        r"(?>[a-zA-Z]+)(?=[ ,;)\n]|\z)",
        # addresses: never split, trailing sentence punctuation left out
        rf"(?:(?:https?|ftp)://|www\.)[^{_BLANK}<>\"]*[^{_BLANK}<>\"'.,;:!?)\]}}]",
        r"\w[\w.+\-]{0,63}@\w[\w\-]{0,63}(?:\.\w[\w\-]{0,63})+",
        # placeholders and tags: #Person1#, #topic, @user, -lrb-, c++, c#
        r"(?<!\w)#\w+#|(?<!\w)[#@](?=[\p{L}_])\w+",
        r"-(?i:[lr][rsc]b)-",
        r"(?<!\w)(?:[cC]\+\+|[cCfFjJ]\#)(?!\w)",
        # u.s., e.g.: the full stop belongs to the token; so it does in mr. and dr.
        r"(?<!\w)(?:\p{L}\.){2,}(?!\w)",
        rf"(?<!\w)(?i:{_ABBREVIATION})\.",
        # 1,234.5  10/12/2001  10:30am  3.5mm, but not the 10 of 10-year
        rf"(?<!{word})(?>{digit}+(?:[.,:/\-]{digit}+)*)(?:{_LETTER}{{1,3}})?(?![\-‐‑]?{word})",
        # do|n't, he|'ll, john|'s; also where the text comes already split (Gigaword, CNN/DailyMail)
        rf"{_LETTER}+?(?=(?i:n){_APOSTROPHE}(?i:t)(?!{word}))",
        rf"(?i:n){_APOSTROPHE}(?i:t)(?!{word})",
        rf"(?<={word}){_APOSTROPHE}{clitic}|(?<![^\s]){_APOSTROPHE}{clitic}(?=\s|\z)",
        # words with inner hyphens, apostrophes, full stops: state-of-the-art, o'clock, np.ndarray, snake_case, at&t
        rf"{word}+(?:(?:[\-‐‑.&]|{_APOSTROPHE}(?!{clitic})){word}+)*",
        r"[\p{Katakana}ー]+",
        # runs that mean one thing
        r"\.{2,}|-{2,}|={2,}|\*{2,}|#{2,}|~{2,}|!{2,}|\?{2,}|\+{2,}|<{2,}|>{2,}|`{2}|'{2}",
        # anything else a reader sees as one character, emoji sequences included
        rf"(?![{_BLANK}])\X",
    )
    return "|".join(rules)


# On text whose white space has become SPACE_MARK: a word or number or a run of signs with the mark before it.
SUBWORD_PATTERN = (
    rf"{SPACE_MARK}?[\p{{L}}\p{{M}}]+|{SPACE_MARK}?\p{{N}}{{1,4}}|{SPACE_MARK}?[^{SPACE_MARK}\p{{L}}\p{{M}}\p{{N}}]{{1,8}}"
    rf"|{SPACE_MARK}+"
)

# One token for each character a reader sees, blanks aside.
VISIBLE_CHARACTER_PATTERN = rf"(?![{_BLANK}])\X"
