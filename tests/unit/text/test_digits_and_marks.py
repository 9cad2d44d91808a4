"""Digits as ``#``, marks of unknown words, characters without blanks."""

from __future__ import annotations

import pytest

from laconic.config.section import validate
from laconic.errors import ConfigError
from laconic.text.tokenizer import BpeTokenizer, CharacterTokenizer, WordTokenizer


def words(text: str, **options: object) -> list[str]:
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1, **options))  # type: ignore[arg-type]
    tokenizer.train(["x"])
    return list(tokenizer.encode(text).tokens)


def test_hashed_digits_make_the_words_of_gigaword() -> None:
    text = "The 10-year-old paid 3.5 percent, $1,234.50 in the 1990s; an f-16, g20, 7."
    expected = "the ##-year-old paid #.# percent , $ #,###.## in the ####s ; an f-## , g## , # ."
    assert words(text, digits_to_hash=True) == expected.split()
    # text that is hashed already is cut in the same way, and numbers are the same words as without hashes
    assert words(expected, digits_to_hash=True) == expected.split()
    assert ["#" * 2 if w.isdigit() and len(w) == 2 else w for w in words("10 of 20")] == ["##", "of", "##"]


def test_without_the_option_nothing_changes() -> None:
    assert words("##.# and #1") == ["##", ".", "#", "and", "#", "1"]
    assert words("10.5", digits_to_zero=True) == ["00.0"]


def test_one_digit_sign_only() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        validate(WordTokenizer.Config, {"digits_to_zero": True, "digits_to_hash": True}, where="tokenizer")


@pytest.mark.parametrize("cls", [WordTokenizer, BpeTokenizer])
def test_marks_of_unknown_words_become_one_word(cls) -> None:
    text = "<unk> saw UNK and UNKNOWN <unk>."
    tokenizer = cls(cls.Config(min_frequency=1, lowercase=True, unknown_marks=("<unk>", "UNK")))
    tokenizer.train(["unk saw unk and"] * 3)
    encoding = tokenizer.encode(text)
    shown = [
        (token.strip("▁"), text[start:end])
        for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True)
    ]
    assert shown[:3] == [("unk", "<unk>"), ("saw", "saw"), ("unk", "UNK")]
    assert "".join(token for token, _ in shown[4:]).startswith("unknown")  # a longer word is left alone
    assert tokenizer.unk_id not in encoding.ids[:3]  # an ordinary word
    other = cls(cls.Config(min_frequency=1, lowercase=True))
    other.train(["unk saw unk and"] * 3)
    assert other.encode("<unk>").tokens != encoding.tokens[:1]


def test_an_unknown_mark_outside_the_vocabulary_is_its_word() -> None:
    assert words("UNK fell", unknown_marks=("UNK",), lowercase=False) == ["unk", "fell"]


def test_characters_without_blanks() -> None:
    tokenizer = CharacterTokenizer(CharacterTokenizer.Config(keep_spaces=False))
    tokenizer.train(["我们是 GPT2 。"])
    plain, spaced = tokenizer.encode("我们是GPT2。"), tokenizer.encode("我 们 是\tG P T 2 \n 。")
    assert plain.tokens == spaced.tokens == ("我", "们", "是", "G", "P", "T", "2", "。")
    assert plain.ids == spaced.ids
    assert spaced.offsets[:3] == ((0, 1), (2, 3), (4, 5))
    assert tokenizer.decode(spaced.ids) == "我们是GPT2。"
    kept = CharacterTokenizer(CharacterTokenizer.Config())
    kept.train(["我 们"])
    assert kept.encode("我 们").tokens == ("我", "▁", "们")
