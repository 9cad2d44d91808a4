"""Records as lines, and what counts as a token."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from catchline.data.checks import CheckOptions, check
from catchline.data.readers import read_records
from catchline.data.subset import counter_of, supported_share, write_records
from catchline.errors import ConfigError
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Record


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
        ("Die Kran\u00adken\u00adkasse zahlt", "Krankenkasse", 1, 1.0),
    ],
)
def test_words_of_other_scripts(document: str, summary: str, words: int, share: float) -> None:
    record = Record(document, summary)
    assert supported_share(record) == pytest.approx(share)
    assert counter_of("words")(record)[1] == words
