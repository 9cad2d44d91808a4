"""Encoded data sets, and collation against a plain reference."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.config.schema import TextConfig
from catchline.data.collate import Collator
from catchline.data.dataset import EncodedDataset, Example, encode, encode_documents, record_gaps
from catchline.errors import ConfigError, DataError
from catchline.jobs import batches
from catchline.text.tokenizer import BpeTokenizer, CharacterTokenizer, WordTokenizer
from catchline.text.unknown import extended
from catchline.training.data import pairs_of
from catchline.types import Record, TrainingBatch

TOKENIZER = WordTokenizer(WordTokenizer.Config(min_frequency=1))
TOKENIZER.train(["the cat sat on a mat ."])
V, PAD, UNK, BOS, EOS = TOKENIZER.vocab_size, 0, 1, 2, 3
WORDS = st.lists(st.sampled_from(["the", "cat", "sat", "on", "xx", "yy", "zz", "ww"]), min_size=1, max_size=10)


def dataset(pairs: list[tuple[str, str]], **options: object) -> EncodedDataset:
    records = [Record(document, summary, str(number)) for number, (document, summary) in enumerate(pairs)]
    return EncodedDataset.build(records, TOKENIZER, TextConfig(**options))  # type: ignore[arg-type]


def reference(source: list[str], target: list[str], config: TextConfig) -> tuple[list[int], list[int], list[str]]:
    """One example by the rules of `docs/legend.md`, list by list."""
    room = config.max_source_tokens - {False: 0, "end": 1, True: 2}[config.source_specials]
    seen: list[str] = []
    ids = []
    for word in source[:room]:
        known = TOKENIZER.token_id(word)
        if known is None and config.oov_copy == "unk":
            known = UNK
        if known is None:
            if word not in seen:
                seen.append(word)
            known = V + seen.index(word)
        ids.append(known)
    if config.source_specials:
        ids = [*([BOS] if config.source_specials is True else []), *ids, EOS]
    out = []
    for word in target:
        known = TOKENIZER.token_id(word)
        out.append(known if known is not None else V + seen.index(word) if word in seen else UNK)
    if len(out) + 1 <= config.max_target_tokens:
        out = [*out, EOS]
    elif config.eos_on_truncation:
        out = [*out[: config.max_target_tokens - 1], EOS]
    else:
        out = out[: config.max_target_tokens]
    return ids, out, seen


@given(
    pairs=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4),
    limits=st.tuples(st.integers(3, 12), st.integers(1, 12)),
    narrower=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    specials=st.sampled_from([False, True, "end"]),
    eos=st.booleans(),
    copying=st.sampled_from(["extended", "unk"]),
)
@settings(max_examples=60)
def test_batches_equal_the_reference(pairs, limits, narrower, specials, eos, copying) -> None:
    options = {"source_specials": specials, "eos_on_truncation": eos, "oov_copy": copying}
    built = dataset(
        [(" ".join(source), " ".join(target)) for source, target in pairs],
        max_source_tokens=limits[0] + narrower[0],
        max_target_tokens=limits[1] + narrower[1],
        **options,
    ).limits(*limits)
    config = TextConfig(max_source_tokens=limits[0], max_target_tokens=limits[1], **options)
    wanted = [reference(source, target, config) for source, target in pairs]
    batch = pairs_of(Collator(TOKENIZER), [built[index] for index in range(len(pairs))])
    width = max(len(source) for source, _, _ in wanted)
    steps = max(len(target) for _, target, _ in wanted)
    assert batch.source_ids.shape == (len(pairs), width)
    assert batch.target_ids.shape == (len(pairs), steps)
    assert batch.extended_vocab_size == V + max(len(words) for _, _, words in wanted)
    for row, (source, target, words) in enumerate(wanted):
        pad = [PAD] * (width - len(source))
        assert batch.source_extended_ids[row].tolist() == source + pad
        assert batch.source_ids[row].tolist() == [UNK if i >= V else i for i in source] + pad
        assert batch.source_mask[row].tolist() == [True] * len(source) + [False] * len(pad)
        pad = [PAD] * (steps - len(target))
        assert batch.target_ids[row].tolist() == target + pad
        assert batch.target_input_ids[row].tolist() == [BOS] + [UNK if i >= V else i for i in target[:-1]] + pad
        assert batch.target_mask[row].tolist() == [True] * len(target) + [False] * len(pad)
        assert batch.oov_words[row] == words
    assert built.source_lengths.tolist() == [len(source) for source, _, _ in wanted]
    assert built.target_lengths.tolist() == [len(target) for _, target, _ in wanted]


def test_dtypes_and_bookkeeping() -> None:
    batch = Collator(TOKENIZER)([dataset([("the cat", "cat"), ("a mat .", "mat")])[i] for i in (1, 0)])
    assert batch.source_ids.dtype == batch.source_extended_ids.dtype == np.int64
    assert batch.source_mask.dtype == bool
    assert (batch.record_ids, batch.indices) == (["1", "0"], [1, 0])


def test_without_summaries_there_are_no_targets() -> None:
    batch = Collator(TOKENIZER)([dataset([("the cat", ""), ("a mat", "x")])[i] for i in (0, 1)])
    assert not isinstance(batch, TrainingBatch)
    examples, texts = encode_documents(["The zyxt sat", "a cat"], TOKENIZER, TextConfig(max_source_tokens=2))
    assert Collator(TOKENIZER)(examples).oov_words == [["zyxt"], []]
    assert texts[0].offsets == ((0, 3), (4, 8))
    assert texts[0].truncated


def test_empty_texts_never_reach_a_batch() -> None:
    record = Record("\u200b", "x", origin="f.jsonl:3")
    with pytest.raises(DataError, match=r"f\.jsonl:3: the document holds no token"):
        EncodedDataset.build([record], TOKENIZER, TextConfig())
    with pytest.raises(DataError, match=r"f:9: the summary holds no token"):
        EncodedDataset.build([Record("x", "\u200b", origin="f:9")], TOKENIZER, TextConfig())
    with pytest.raises(DataError, match="no records"):
        EncodedDataset.build([], TOKENIZER, TextConfig())
    with pytest.raises(DataError, match="Document 2 is empty"):
        encode_documents(["x", " "], TOKENIZER, TextConfig())
    with pytest.raises(DataError, match="empty source"):
        Collator(TOKENIZER)([Example(np.zeros(0, dtype=np.int32), [])])


def test_limits_are_a_view_and_only_narrow() -> None:
    data = dataset([("the xx cat yy", "yy xx")], max_source_tokens=4, max_target_tokens=5)
    narrow = data.limits(2)
    assert narrow[0].oov_words == ["xx"]
    assert narrow[0].target_extended_ids.tolist() == [UNK, V, EOS]
    assert data[0].oov_words == ["xx", "yy"]
    with pytest.raises(ConfigError, match="encoded again"):
        data.limits(5)
    with pytest.raises(ConfigError, match="no room"):
        dataset([("a", "b")], max_source_tokens=2, source_specials=True)


PARTS = [*"aB1.,'’-/é½カ각\u0301\u0600\u200b\n ", "n't", "the ", "cat ", "u.s.", "xx ", "Yy, "]


@pytest.mark.parametrize(
    ("tokenizer", "separator"),
    [
        (WordTokenizer(WordTokenizer.Config(max_vocabulary=25)), None),
        (WordTokenizer(WordTokenizer.Config(max_vocabulary=25)), "<EOS>"),
        (WordTokenizer(WordTokenizer.Config(max_vocabulary=25, unknown_marks=("cat",), lowercase=False)), None),
        (BpeTokenizer(BpeTokenizer.Config(vocab_size=30)), None),
        (CharacterTokenizer(CharacterTokenizer.Config(max_vocabulary=15)), None),
    ],
    ids=["word", "separated", "marks", "bpe", "character"],
)
def test_many_records_are_encoded_as_each_alone(
    tokenizer: Any, separator: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids, their extension by unknown words, totals and words are those of the texts one by one."""
    monkeypatch.setattr("catchline.text.tokenizer.MOST_CHUNKS", 60)
    chosen = random.Random(5)
    texts = ["a " + "".join(chosen.choices(PARTS, k=chosen.randint(1, 30))) for _ in range(100)]
    tokenizer.use_separator(separator)
    tokenizer.train(texts[::9])
    records = [Record(f"{text} {other}", other) for text, other in pairwise(texts)]
    config = TextConfig(max_source_tokens=12, max_target_tokens=6, sentence_separator=separator)
    for some in batches(records, 16):
        for record, (example, *totals) in zip(some, encode(some, tokenizer, config), strict=True):
            gaps = record_gaps(record, separator) if separator else [None, None]
            source, target = (
                next(tokenizer.encode_stream([text], max_tokens=most, gaps=None if own is None else [own]))
                for text, most, own in zip((record.document, record.summary), (12, 6), gaps, strict=True)
            )
            ids, words = extended(source, tokenizer.vocab_size, tokenizer.unk_id)
            wanted, _ = extended(target, tokenizer.vocab_size, tokenizer.unk_id, words)
            assert example.source_extended_ids.tolist() == ids.tolist(), record
            assert example.target_extended_ids.tolist() == wanted.tolist(), record
            assert (example.oov_words, totals) == (words, [source.total, target.total])
