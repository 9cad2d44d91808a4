"""Examples, batches and their order; vectors of words."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.config.schema import TextConfig
from catchline.data.dataset import (
    Collator,
    EncodedDataset,
    bucketed,
    by_length,
    cut_by_number,
    cut_by_tokens,
    encode_documents,
    part_of_rank,
    shuffled,
)
from catchline.data.embeddings import load_glove
from catchline.errors import ConfigError, DataError
from catchline.text.tokenizer import WordTokenizer
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
    """One example by the rules of CONTRIBUTING.md, list by list."""
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


def test_without_summaries_there_are_no_targets() -> None:
    batch = Collator(TOKENIZER)([dataset([("the cat", ""), ("a mat", "x")])[i] for i in (1, 0)])
    assert not isinstance(batch, TrainingBatch)
    assert batch.source_ids.dtype == batch.source_extended_ids.dtype == np.int64
    assert (batch.source_mask.dtype, batch.record_ids, batch.indices) == (bool, ["1", "0"], [1, 0])
    examples, texts = encode_documents(["The zyxt sat", "a cat"], TOKENIZER, TextConfig(max_source_tokens=2))
    assert Collator(TOKENIZER)(examples).oov_words == [["zyxt"], []]
    assert texts[0].offsets == ((0, 3), (4, 8))
    assert texts[0].truncated


def test_empty_texts_never_reach_a_batch() -> None:
    for records, words in (
        ([Record("\u200b", "x", origin="f.jsonl:3")], r"f\.jsonl:3: the document has no token"),
        ([Record("x", "\u200b", origin="f:9")], "f:9: the summary has no token"),
        ([], "no records"),
    ):
        with pytest.raises(DataError, match=words):
            EncodedDataset.build(records, TOKENIZER, TextConfig())
    with pytest.raises(DataError, match="Document 2 is empty"):
        encode_documents(["x", " "], TOKENIZER, TextConfig())


def test_limits_are_a_view_and_only_narrow() -> None:
    data = dataset([("the xx cat yy", "yy xx")], max_source_tokens=4, max_target_tokens=5)
    narrow = data.limits(2)
    assert narrow[0].oov_words == ["xx"]
    assert narrow[0].target_extended_ids.tolist() == [UNK, V, EOS]
    assert data[0].oov_words == ["xx", "yy"]
    with pytest.raises(ConfigError, match="can read less, not more"):
        data.limits(5)
    with pytest.raises(ConfigError, match="no room"):
        dataset([("a", "b")], max_source_tokens=2, source_specials=True)


RANDOM = np.random.default_rng(0)
SOURCES, TARGETS = RANDOM.integers(1, 60, 503), RANDOM.integers(1, 80, 503)
LONGER, TOKENS = np.maximum(SOURCES, TARGETS), 400
Make = Callable[..., list[list[int]]]


def lists(batches: list[np.ndarray]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def in_pools(epoch: int, seed: int = 5) -> list[list[int]]:
    return lists(bucketed(SOURCES, 16, seed, epoch, pool=10))


def by_number(epoch: int, seed: int = 5) -> list[list[int]]:
    return lists(shuffled(cut_by_number(by_length(SOURCES, seed), 16), seed, epoch))


def by_tokens(epoch: int, seed: int = 5, ranks: int = 1) -> list[list[int]]:
    return lists(shuffled(cut_by_tokens(by_length(SOURCES, seed), LONGER, TOKENS, ranks), seed, epoch))


ALL = pytest.mark.parametrize("make", [in_pools, by_number, by_tokens])


@ALL
def test_every_example_once_an_epoch_in_an_order_of_seed_and_epoch_alone(make: Make) -> None:
    batches = make(0)
    assert sorted(index for batch in batches for index in batch) == list(range(503))
    assert make(0) == batches != make(1)
    assert make(0, seed=6) != batches
    if make is not in_pools:
        assert sorted(make(1)) == sorted(batches)  # which examples are together stays
        spans = sorted((min(SOURCES[i] for i in batch), max(SOURCES[i] for i in batch)) for batch in batches)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    if make is not by_tokens:
        assert sorted(map(len, batches)) == [503 % 16] + [16] * 31


@ALL
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_each_batch_and_none_waits_for_another(make: Make, ranks: int) -> None:
    longest = []
    for batch in make(2, **({"ranks": ranks} if make is by_tokens else {})):
        parts = [part_of_rank(np.array(batch), rank, ranks) for rank in range(ranks)]
        again = batch[: max(0, ranks - len(batch))]
        assert parts == [[*batch, *again][rank::ranks] for rank in range(ranks)]
        longest.append([max(SOURCES[part]) for part in parts])
    assert np.max(longest, 1).mean() < 1.03 * np.mean(longest)
    few = bucketed(np.array([5, 1, 3]), 4, 0, 0)
    assert [[part_of_rank(batch, rank, 4) for batch in few] for rank in range(4)] == [[[1]], [[2]], [[0]], [[1]]]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_by_tokens_no_rank_has_more_than_fits(ranks: int) -> None:
    def part(batch: list[int]) -> int:
        return -(-len(batch) // ranks) * max(LONGER[i] for i in batch)

    batches = lists(cut_by_tokens(by_length(SOURCES, 5), LONGER, TOKENS, ranks))
    assert all(part(batch) <= TOKENS for batch in batches)
    assert [i for batch in batches for i in batch] == by_length(SOURCES, 5).tolist()
    # none could have taken one example more
    assert all(part([*batch, following[0]]) > TOKENS for batch, following in itertools.pairwise(batches))


def test_an_example_that_is_too_long_is_alone_and_each_rank_has_one() -> None:
    lengths = np.array([3, 9, 2, 50, 4, 60])
    order = by_length(lengths, 0)
    assert sorted(map(sorted, lists(cut_by_tokens(order, lengths, 12)))) == [[0, 2, 4], [1], [3], [5]]
    parts = [[part_of_rank(batch, rank, 2) for rank in range(2)] for batch in cut_by_tokens(order, lengths, 12, 2)]
    assert sorted(parts) == [[[1], [3]], [[2, 4], [0]], [[5], [5]]]


def test_one_process_has_the_batches_that_it_always_had() -> None:
    """Digests of the batches when the first runs were stored, which are resumed to the bit."""
    made = [in_pools(0), in_pools(3), by_number(1), by_tokens(1)]
    digests = [hashlib.sha256(json.dumps(batches).encode()).hexdigest()[:16] for batches in made]
    assert digests == ["0c83d31a2103d0a1", "84c51107979b0de6", "2a9cc36e205847fe", "6826211804e67844"]


VECTORS_OF = WordTokenizer(WordTokenizer.Config(min_frequency=1))
VECTORS_OF.train(["the cat sat"])


def glove(folder: Path, text: str, tokenizer: Any = VECTORS_OF, **options: int) -> tuple[np.ndarray, float]:
    path = folder / "vectors.gz"
    path.write_bytes(gzip.compress(text.encode()))
    return load_glove(path, tokenizer, **options)


def test_vectors_coverage_and_padding(tmp_path: Path) -> None:
    the, cat, sat = map(VECTORS_OF.token_id, ("the", "cat", "sat"))
    matrix, coverage = glove(tmp_path, "the 1 2 3\n. . 7 8 9\nCat 4 5 6\ncat 1 1 1\nThe 0 0 0\n")
    assert (matrix.shape, matrix.dtype) == ((VECTORS_OF.vocab_size, 3), np.float32)
    assert matrix[[the, cat, 0]].tolist() == [[1, 2, 3], [1, 1, 1], [0, 0, 0]]
    assert coverage == pytest.approx(2 / 3)
    assert np.any(matrix[sat])
    headed, _ = glove(tmp_path, "2 3\nthe 1 2 3\ncat 4 5 6 \n")  # with the header of word2vec
    assert headed[cat].tolist() == [4, 5, 6]


def test_missing_words(tmp_path: Path) -> None:
    values = np.array([[number % 7 - 3, number % 5 - 2, 1] for number in range(200)] + [[1, 2, 3]])
    text = "".join(f"{'the' if n == 200 else f'w{n}'} {a} {b} {c}\n" for n, (a, b, c) in enumerate(values))
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train(["the " + " ".join(f"z{number}" for number in range(3000))])
    drawn, again, other = (glove(tmp_path, text, tokenizer, seed=seed)[0] for seed in (3, 3, 4))
    assert drawn[5:].std() == pytest.approx(values.std(), rel=0.05)
    assert np.array_equal(drawn, again)
    assert not np.array_equal(drawn, other)


def test_bad_files(tmp_path: Path) -> None:
    numbers = ":2: expected a word and 3 finite numbers"
    for text, message in (
        *((f"the 1 2 3\ncat 4 {rest}\n", numbers) for rest in ("5", "x 6", "nan 6")),
        *((text, "expected a word and its vector") for text in ("hello\n", "")),
        ("zz 1 2\nyy 3 4\n", "none of the vocabulary's 3 words"),
    ):
        with pytest.raises(DataError, match=message):
            glove(tmp_path, text)
