"""What happens to the characters before tokenization, with the way back to the user's text.

The steps are those of the `tokenizers` library, which keeps for every character of the result the
characters it came from.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

from pydantic import model_validator
from tokenizers import Regex, normalizers

from laconic.config.section import Section
from laconic.text.rules import SPACE_MARK

UNKNOWN_WORD = "unk"
_SURROGATES = re.compile("[\ud800-\udfff]")
_INVISIBLE = "[\\x{00AD}\\x{2060}]"  # soft hyphen, word joiner


class NormalizationConfig(Section):
    """The steps, in this order: Unicode form, straight quotes, marks of unknown words, lower case, digits.

    ``unknown_marks`` are what the data has in place of words it lost (``<unk>`` and ``UNK`` in copies of Gigaword);
    where they stand between blanks they all become the word ``unk``. Only what the model reads and learns changes,
    references do not.
    """

    lowercase: bool = False
    unicode_form: Literal["none", "NFC", "NFKC"] = "NFC"
    straight_quotes: bool = True
    unknown_marks: tuple[str, ...] = ()
    digits_to_zero: bool = False
    digits_to_hash: bool = False

    @model_validator(mode="after")
    def _one_digit(self) -> NormalizationConfig:
        if self.digits_to_zero and self.digits_to_hash:
            raise ValueError("digits_to_zero and digits_to_hash exclude each other; choose one")
        return self


def build_normalizer(
    config: NormalizationConfig, *, spaces_to_marks: bool = False, mark_in_front: bool = True
) -> normalizers.Normalizer:
    """Make the library's normalizer.

    ``spaces_to_marks`` turns runs of white space into ``▁`` and, with ``mark_in_front``, puts one before the
    first word too, so that a word is the same token wherever it stands.
    """
    steps: list[normalizers.Normalizer] = []
    if config.unicode_form == "NFC":
        steps.append(normalizers.NFC())
    elif config.unicode_form == "NFKC":
        steps.append(normalizers.NFKC())
    steps.append(normalizers.Replace(Regex(_INVISIBLE), ""))
    if config.straight_quotes:
        steps.append(normalizers.Replace(Regex("[‘’‛]"), "'"))
        steps.append(normalizers.Replace(Regex("[“”„‟]"), '"'))
    if config.unknown_marks:
        marks = "|".join(map(re.escape, config.unknown_marks))
        steps.append(normalizers.Replace(Regex(rf"(?<!\S)(?:{marks})(?!\S)"), UNKNOWN_WORD))
    if config.lowercase:
        steps.append(normalizers.Lowercase())
    if config.digits_to_zero:
        steps.append(normalizers.Replace(Regex(r"\p{Nd}"), "0"))
    if config.digits_to_hash:
        steps.append(normalizers.Replace(Regex(r"\p{Nd}"), "#"))
    if spaces_to_marks:
        steps.append(normalizers.Replace(Regex(rf"[\s\p{{Cc}}\x{{200B}}\x{{FEFF}}{SPACE_MARK}]+"), SPACE_MARK))
        edge = rf"{SPACE_MARK}\z" if mark_in_front else rf"\A{SPACE_MARK}|{SPACE_MARK}\z"
        steps.append(normalizers.Replace(Regex(edge), ""))
    if spaces_to_marks and mark_in_front:
        steps.append(normalizers.Replace(Regex(rf"\A(?!{SPACE_MARK})"), SPACE_MARK))
    return normalizers.Sequence(steps)


def whole_marks(text: str, offsets: list[tuple[int, int]], marks: Sequence[str]) -> None:
    """Widen, in place, the spans of unknown words' marks: the library traces a replaced one to its last character."""
    ends: dict[int, int] = {}
    for mark in marks:
        for found in re.finditer(rf"(?<!\S){re.escape(mark)}(?!\S)", text) if mark in text else ():
            ends[found.end()] = found.start()
    for index, (start, end) in enumerate(offsets) if ends else ():
        offsets[index] = (min(start, ends.get(end, start)), end)


def encodable(text: str) -> str:
    """Return ``text`` with lone surrogates (from broken JSON escapes) replaced one for one, so positions stay."""
    if text.isascii():
        return text
    return _SURROGATES.sub("\ufffd", text)


def extend_over_marks(text: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Give a token the combining characters behind it that composition swallowed.

    Composing ``e`` and an accent (or Hangul letters) into one character leaves the accent outside every
    span; here it goes to the token before it, so that ``text[start:end]`` is the whole character.
    """
    result = []
    for index, (start, end) in enumerate(offsets):
        limit = offsets[index + 1][0] if index + 1 < len(offsets) else len(text)
        while start < end < limit and _joins(text[end]):
            end += 1
        result.append((start, end))
    return result


def _joins(character: str) -> bool:
    return unicodedata.category(character)[0] == "M" or "\u1160" <= character <= "\u11ff"
