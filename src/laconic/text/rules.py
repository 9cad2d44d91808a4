"""Where tokens begin and end: the patterns of the word, subword and character tokenizers.

The patterns are in Oniguruma's syntax (what the `tokenizers` library runs) and match tokens; what they do
not match (white space, control characters) separates tokens. They run on normalised text, which may be
lower-cased, so no rule looks at case.

Every repetition that can fail after a long match starts at a word character and is bounded, so that a text
of 200,000 odd characters still takes linear time.
"""

from __future__ import annotations

SPACE_MARK = "▁"  # the space before a word, as the subword and character tokenizers write it

# Scripts written without spaces: Han, Hiragana, Thai, ... one grapheme a token; Katakana in runs.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー"
_LETTER = rf"[\p{{L}}\p{{M}}\x{{200C}}\x{{200D}}&&[^{_UNSPACED}]]"
_APOSTROPHE = "['’]"
_ABBREVIATION = (
    "mr|mrs|ms|dr|prof|vs|inc|ltd|corp|jr|sr|gov|sen|rep|gen|rev|lt|col|sgt|capt|st|cf|fig|eq|approx|dept|etc|al|vol"
)
_BLANK = r"\s\p{Cc}\x{200B}\x{FEFF}"


def word_pattern(hash_digits: bool = False) -> str:
    """The rules of words, in order; the first that matches at a position wins.

    With ``hash_digits`` the sign ``#`` is a digit (Gigaword writes 3.5 as ``#.#`` and 10-year-old as ``##-year-old``).
    """
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


WORD_PATTERN = word_pattern()

# On text whose white space has become SPACE_MARK: a word or number or a run of signs with the mark before it.
SUBWORD_PATTERN = (
    rf"{SPACE_MARK}?[\p{{L}}\p{{M}}]+|{SPACE_MARK}?\p{{N}}{{1,4}}|{SPACE_MARK}?[^{SPACE_MARK}\p{{L}}\p{{M}}\p{{N}}]{{1,8}}"
    rf"|{SPACE_MARK}+"
)

# One token for each character a reader sees; a run of white space is one SPACE_MARK, or nothing.
CHARACTER_PATTERN = r"\X"
VISIBLE_CHARACTER_PATTERN = rf"(?![{_BLANK}])\X"
