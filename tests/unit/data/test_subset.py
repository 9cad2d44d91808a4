"""Parts of a data set by length, samples, and what counts as a token."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.data.checks import CheckOptions, check
from catchline.data.readers import read_records
from catchline.data.subset import SubsetOptions, choose, counter_of, supported_share, write_records
from catchline.errors import ConfigError, DataError
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Record

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=25)


@given(lengths=LENGTHS, mean=st.floats(1, 60))
@settings(max_examples=60)
def test_shortest_documents_by_mean(lengths: list[int], mean: float) -> None:
    """By the definition: of all prefixes of the sorted list the longest whose mean is within the bound."""
    order = sorted(range(len(lengths)), key=lambda place: (lengths[place], place))
    fitting = [n for n in range(1, len(order) + 1) if sum(lengths[i] for i in order[:n]) <= mean * n]
    if not fitting:
        with pytest.raises(DataError, match="Even the shortest"):
            choose(lengths, SubsetOptions(shortest_mean=mean))
        return
    assert choose(lengths, SubsetOptions(shortest_mean=mean)) == sorted(order[: max(fitting)])


@given(lengths=LENGTHS, mean=st.floats(1, 30), window=st.floats(1, 60))
@settings(max_examples=60)
def test_as_many_documents_of_another_mean(lengths: list[int], mean: float, window: float) -> None:
    order = sorted(range(len(lengths)), key=lambda place: (lengths[place], place))
    count = max((n for n in range(1, len(order) + 1) if sum(lengths[i] for i in order[:n]) <= mean * n), default=0)
    options = SubsetOptions(shortest_mean=mean, window_mean=window)
    if not count or 2 * count > len(order):
        with pytest.raises(DataError):
            choose(lengths, options)
        return
    windows = [order[start : start + count] for start in range(count, len(order) - count + 1)]
    best = min(windows, key=lambda places: abs(sum(lengths[i] for i in places) / count - window))
    chosen = choose(lengths, options)
    assert chosen == sorted(best)
    assert not set(chosen) & set(order[:count])


def test_bounds_and_samples() -> None:
    lengths = [5, 1, 9, 5, 7]
    assert choose(lengths, SubsetOptions(min_tokens=5, max_tokens=7)) == [0, 3, 4]
    with pytest.raises(DataError, match="within the bounds"):
        choose(lengths, SubsetOptions(min_tokens=10))
    assert choose(lengths, SubsetOptions(last=2)) == [3, 4]
    assert choose(lengths, SubsetOptions(last=2, max_tokens=5)) == [1, 3]
    many = list(range(1, 200))
    one, again = (choose(many, SubsetOptions(sample=20, seed=3)) for _ in range(2))
    assert one == again == sorted(set(one))
    assert len(one) == 20
    assert choose(many, SubsetOptions(sample=20, seed=4)) != one
    assert choose(many, SubsetOptions(sample=5, max_tokens=5)) == [0, 1, 2, 3, 4]
    with pytest.raises(DataError, match="6 documents"):
        choose(lengths, SubsetOptions(sample=6))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    records = [
        Record("a b.\nc d.", "x", "1", sentences=("a b.", "c d.")),
        Record("é \u2028 z", "one", "2", references=("one", "two", "one")),
    ]
    path = tmp_path / "deep" / "out.jsonl"
    assert write_records(path, records) == 2
    back = list(read_records(path))
    for mine, theirs in zip(back, records, strict=True):
        for name in ("document", "summary", "id", "references", "sentences"):
            assert getattr(mine, name) == getattr(theirs, name), name
    assert [p.name for p in path.parent.iterdir()] == ["out.jsonl"]


TEXT = Record("Doctor Who isn't here (yet). Nobody came, 10.5 times.", "Who?\nNobody.")


def test_ways_of_counting(tmp_path: Path) -> None:
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train([TEXT.document])
    own = len(tokenizer.encode(TEXT.document).ids)
    assert counter_of("blanks")(TEXT) == (9, 2)
    assert counter_of("word-tokenizer")(TEXT) == (own, 4)
    assert counter_of("words")(TEXT)[1] == 4
    assert counter_of("character-tokenizer")(Record("我们 是", ""))[0] == 4
    tokenizer.save(tmp_path / "run" / "tokenizer")
    assert counter_of(str(tmp_path / "run"))(TEXT) == (own, 4)
    with pytest.raises(ConfigError, match="neither words, blanks"):
        counter_of("bytes")
    with pytest.raises(ConfigError, match="leave out"):
        counter_of(str(tmp_path / "run"), "<EOS>")


@pytest.mark.parametrize("spec", ["words", "blanks", "word-tokenizer", "character-tokenizer"])
def test_separators_count(spec: str) -> None:
    plain, marked = counter_of(spec)(TEXT), counter_of(spec, "<EOS>")(TEXT)
    blank = 1 if spec == "character-tokenizer" else 0  # the blank between the sentences is in the separator's place
    assert marked == (plain[0] + 1 - blank, plain[1] + 1 - blank)
    spelled = Record("Nobody <EOS> came", "x")
    assert counter_of("blanks", "<EOS>")(spelled) == counter_of("blanks")(spelled) == (3, 1)


def test_statistics_in_tokens_beside_words(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    rng = np.random.default_rng(0)
    texts = [" ".join(["ab,"] * int(n)) for n in rng.integers(1, 20, 30)]
    write_records(path, [Record(text, "a b", str(number)) for number, text in enumerate(texts)])
    options = CheckOptions(duplicates=False, count=counter_of("blanks"))
    split = check({"train": path}, options).as_dict()["splits"]["train"]
    blanks = [len(text.split()) for text in texts]
    assert split["document_tokens"]["mean"] == pytest.approx(sum(blanks) / 30, abs=0.05)
    assert split["document_words"]["mean"] == pytest.approx(2 * sum(blanks) / 30, abs=0.05)
    assert split["summary_tokens"]["mean"] == 2
    assert "document_tokens" not in check({"train": path}, CheckOptions()).as_dict()["splits"]["train"]


@pytest.mark.parametrize(
    ("document", "summary", "words", "share"),
    [
        ("采用HPLC法。色谱柱为C18柱，效果好。", "HPLC色谱法", 4, 1.0),  # a clause was one word: none was supported
        ("大阪の橋は約9週間閉鎖。", "大阪の橋、9週間閉鎖", 10, 1.0),
        ("यह हिन्दी भाषा है।", "हिन्दी कम", 2, 0.5),  # vowel signs parted words
        ("ปิดสะพาน", "สะพานใหญ่", 8, 5 / 8),
        ("Das Mu\u0308nchner Haus", "Mu\u0308nchner", 1, 1.0),
        ("این کتاب می\u200cشود", "می\u200cشود", 1, 1.0),
    ],
)
def test_words_of_other_scripts(document: str, summary: str, words: int, share: float) -> None:
    record = Record(document, summary)
    assert supported_share(record) == pytest.approx(share)
    assert counter_of("words")(record)[1] == words


def test_equal_lengths_stand_in_the_order_of_the_file() -> None:
    for lengths in itertools.permutations([2, 2, 3, 3]):
        chosen = choose(lengths, SubsetOptions(shortest_mean=2.4))
        assert chosen == sorted([*(i for i in range(4) if lengths[i] == 2), lengths.index(3)])
        assert choose(lengths, SubsetOptions(shortest_mean=2.4, last=2)) == chosen[-2:]  # of the file, not the longest
