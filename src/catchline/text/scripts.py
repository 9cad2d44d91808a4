"""Which characters other scripts than the Latin one ask to be treated in their own way, for patterns of `re`.

Python's ``\\w`` holds no vowel sign: by itself it cuts हिन्दी into six pieces. And it runs through what is written
without blanks: C18色谱柱 would be one word, a Chinese clause another.
"""

from __future__ import annotations

import re
import unicodedata

# For a character class. Scripts written without blanks between words: Thai, Lao, Burmese, Khmer, Han, kana.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
# For a character class. What belongs to the letter before it: accents, vowel signs, joiners, variants.
MARKS = (
    "".join(sign for sign in map(chr, range(0x300, 0x3100)) if unicodedata.category(sign)[0] == "M")
    + "\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef"
)
# A word: one character of an unspaced script, or a run of other letters, digits and underscores.
SCRIPT_WORD = rf"(?=\w)[{UNSPACED}][{MARKS}]*|[^\W{UNSPACED}]+(?:[{MARKS}]+[^\W{UNSPACED}]*)*"
# What stands between blanks, and each character of an unspaced script, with its vowel signs.
UNIT = re.compile(rf"[{UNSPACED}][{MARKS}]*|[^\s{UNSPACED}]+")
# For `str.translate`: soft hyphens, joiners, byte order marks and marks of direction are no part of a word.
INVISIBLE = dict.fromkeys((0xAD, 0x61C, *range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF))
