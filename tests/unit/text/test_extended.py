"""The extended vocabulary of one example, and sentences."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.text.extended import extend_source, extend_target
from laconic.text.sentences import sentence_strings, split_sentences
from laconic.text.tokenizer import WordTokenizer

TOKENIZER = WordTokenizer(WordTokenizer.Config(min_frequency=1))
TOKENIZER.train(["the cat sat on the mat"])
V = TOKENIZER.vocab_size


def reference(source: list[str], target: list[str]) -> tuple[list[int], list[str], list[int]]:
    """Specification headline-writer a.5, word by word."""
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
@settings(max_examples=100, deadline=None)
def test_extended_ids_equal_the_reference(source: list[str], target: list[str]) -> None:
    encoded = TOKENIZER.encode(" ".join(source))
    extended, words = extend_source(encoded, V, TOKENIZER.unk_id)
    wanted = reference(source, target)
    assert (extended, words) == wanted[:2]
    assert extend_target(TOKENIZER.encode(" ".join(target)), words, V, TOKENIZER.unk_id) == wanted[2]


def test_words_behind_the_truncation_cannot_be_copied() -> None:
    _, words = extend_source(TOKENIZER.encode("the xx sat yy", max_tokens=3), V, 1)
    assert words == ["xx"]
    assert extend_target(TOKENIZER.encode("yy xx"), words, V, 1) == [1, V]


def test_sentence_spans_point_into_the_text() -> None:
    text = "  Dr. Smith went home. 👍 It rained!\n\nWhat now? "
    assert sentence_strings(text) == ["Dr. Smith went home.", "👍 It rained!", "What now?"]
    assert [text[a:b] for a, b in split_sentences(text)] == sentence_strings(text)
    assert split_sentences(" \n ") == []


@given(st.text(max_size=60))
@settings(max_examples=100, deadline=None)
def test_sentences_cover_everything_but_white_space(text: str) -> None:
    spans = split_sentences(text)
    left = list(text)
    last = 0
    for start, end in spans:
        assert last <= start < end <= len(text)
        last = end
        left[start:end] = " " * (end - start)
    assert not "".join(left).strip()
