"""The extended vocabulary of one example; numbers of the document in the place of ``##``."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.text.base import extended, restore_numbers
from catchline.text.tokenizer import WordTokenizer

TOKENIZER = WordTokenizer(WordTokenizer.Config(min_frequency=1))
TOKENIZER.train(["the cat sat on the mat"])
V = TOKENIZER.vocab_size


def reference(source: list[str], target: list[str]) -> tuple[list[int], list[str], list[int]]:
    """The definition, word by word."""
    words: list[str] = []
    extended = []
    for word in source:
        known = TOKENIZER.token_id(word)
        if known is None and word not in words:
            words.append(word)
        extended.append(V + words.index(word) if known is None else known)
    out = []
    for word in target:
        known = TOKENIZER.token_id(word)
        out.append(known if known is not None else V + words.index(word) if word in words else 1)
    return extended, words, out


WORDS = st.lists(st.sampled_from(["the", "cat", "sat", "xx", "yy", "zz", "qq"]), max_size=12)


@given(source=WORDS, target=WORDS)
@settings(max_examples=50)
def test_extended_ids_equal_the_reference(source: list[str], target: list[str]) -> None:
    ids, words = extended(TOKENIZER.encode(" ".join(source)), V, TOKENIZER.unk_id)
    wanted = reference(source, target)
    assert (ids.tolist(), words) == wanted[:2]
    ids, _ = extended(TOKENIZER.encode(" ".join(target)), V, TOKENIZER.unk_id, words)
    assert ids.tolist() == wanted[2]


def test_words_behind_the_truncation_cannot_be_copied() -> None:
    _, words = extended(TOKENIZER.encode("the xx sat yy", max_tokens=3), V, 1)
    assert words == ["xx"]
    ids, _ = extended(TOKENIZER.encode("yy xx"), V, 1, words)
    assert ids.tolist() == [1, V]


DOCUMENT = "On 12 May 1998, 3.5 percent of 77 towns and a 10-year-old boy paid $1,250."


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("## towns", "77 towns"),  # the last number of that length
        ("#### now", "1998 now"),
        ("#.# percent", "3.5 percent"),
        ("a ##-year-old", "a 10-year-old"),
        ("paid $#,###.", "paid $1,250."),
        ("##,", "77,"),
        ("###### and #", "###### and #"),  # no number of that length
        ("no sign", "no sign"),
        ("c## ab#", "c## ab#"),  # within a word
    ],
)
def test_numbers_are_restored_by_length(written: str, expected: str) -> None:
    assert restore_numbers(written, DOCUMENT) == expected
    assert restore_numbers("## and ##", "no number, ## only") == "## and ##"
