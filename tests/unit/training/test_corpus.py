"""Encoded pairs that are kept: the same as encoded anew, made again when anything they depend on changed."""

from __future__ import annotations

import errno
import marshal
import multiprocessing
import os
import time
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from catchline.config.names import trusting
from catchline.config.schema import DataConfig, TextConfig
from catchline.data.dataset import COLUMNS, FACTS, EncodedDataset, Encoder
from catchline.data.pieces import read_in_pieces
from catchline.errors import DataError
from catchline.files import digest_of
from catchline.text.tokenizer import WordTokenizer
from catchline.training import corpus as corpus_module
from catchline.training.corpus import CACHE, OFF, UNUSED_DAYS, Corpus, WrittenPairs, kept, known_digest
from catchline.types import Record


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def examples(data: EncodedDataset) -> list[Any]:
    found = [data[index] for index in range(len(data))]
    return [(e.source_extended_ids.tolist(), e.oov_words, e.target_extended_ids.tolist(), e.record_id) for e in found]


def test_what_is_kept_is_what_is_encoded_anew(make_trainer: Any, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"text.tokenizer.max_vocabulary": 12, "data.min_supported": 0.2, "data.max_document_tokens": 8}
    first = make_trainer(**settings).parts
    assert sorted(path.name.split("-")[0] for path in cache.iterdir()) == ["encoded", "encoded", "tokenizer"]
    with monkeypatch.context() as patched:
        patched.setattr(Encoder, "parts", lambda *_: pytest.fail("encoded again"))
        patched.setattr(WordTokenizer, "train", lambda *_: pytest.fail("trained again"))
        again = make_trainer(**settings).parts
    monkeypatch.setenv(CACHE, OFF)
    anew = make_trainer(**settings).parts
    for parts in (again, anew):
        assert examples(parts.train_set) == examples(first.train_set)
        assert (parts.notes, parts.identity) == (first.notes, first.identity)
        assert parts.validation_set.references(0) == first.validation_set.references(0) != []
    assert isinstance(first.train_set._sources.flat.base, np.memmap)


def test_a_change_is_encoded_anew(make_trainer: Any, pairs: Path, cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text((pairs / "train.jsonl").read_text())
    before = os.stat(file)
    first = make_trainer(**{"data.train": str(file)}).parts.train_set
    file.write_text(file.read_text().replace("word1 ", "word2 "))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # the content counts, not the clock
    assert examples(make_trainer(**{"data.train": str(file)}).parts.train_set) != examples(first)
    count = len(list(cache.iterdir()))
    make_trainer(**{"data.train": str(file), "text.max_source_tokens": 4})
    assert len(list(cache.iterdir())) > count


def test_changed_code_of_a_tokenizer_encodes_anew(
    make_trainer: Any, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "words_of_mine.py"
    code.write_text(
        "from catchline.text.tokenizer import WordTokenizer\n"
        "class Words(WordTokenizer):\n    name = 'words_of_mine:Words'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for more, kept_folders in (("", 2), ("", 2), ("# changed\n", 4)):
        code.write_text(code.read_text() + more)
        with trusting({"words_of_mine:Words"}):
            make_trainer(**{"text.tokenizer": {"type": "words_of_mine:Words", "min_frequency": 1}})
        assert len(list(cache.iterdir())) == kept_folders


def test_pairs_that_the_disk_has_no_room_for_are_in_memory(
    make_trainer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small(FileIO):
        """A file on a disk with room for half of a piece."""

        def write(self, data: Any) -> int:
            if self.tell() + len(data) <= 500:
                return super().write(data)
            if self.tell() == 500:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data[: 500 - self.tell()])

    first = make_trainer().parts
    monkeypatch.setenv(CACHE, OFF)
    monkeypatch.setattr("catchline.training.corpus._nameless", lambda _: Small(tmp_path / "file", "w+"))
    parts = make_trainer().parts
    assert (tmp_path / "file").stat().st_size == 500
    assert examples(parts.train_set) == examples(first.train_set)
    assert parts.identity == first.identity
    pairs = WrittenPairs()
    texts = ["a" * 100, "b" * 1000, "c"]
    for text in texts:
        pairs.add(1, len(text), marshal.dumps([(text,)]))
    assert [pairs.read(piece) for piece in pairs.pieces] == [[(text,)] for text in texts]


@pytest.mark.parametrize("harm", ["cut", "no folder"])
def test_without_a_usable_cache_pairs_are_in_memory(make_trainer: Any, cache: Path, harm: str) -> None:
    first = make_trainer().parts
    wanted = examples(first.train_set)
    if harm == "cut":
        for file in cache.glob("encoded-*/source"):
            file.write_bytes(file.read_bytes()[:-4])
    else:
        os.environ[CACHE] = str(next(cache.glob(f"encoded-*/{FACTS}")))  # a file; the fixture puts it back
    parts = make_trainer().parts
    assert examples(parts.train_set) == wanted
    assert parts.identity == first.identity
    assert any("kept in memory only" in note for note in parts.notes)


def test_processes_make_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catchline.data.dataset.RECORDS", 7)
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train(["a b c d"])
    records = [Record(f"a b new{number} x c", f"new{number} d", str(number)) for number in range(40)]
    encoder = Encoder(tokenizer, TextConfig(), references=True)
    alone, together = (list(encoder.parts(records, workers)) for workers in (1, 2))
    for name in COLUMNS:
        assert np.array_equal(*(np.concatenate([part.columns[name] for part in parts]) for parts in (alone, together)))
    data = EncodedDataset.of(encoder, together)
    assert data[39].oov_words == ["new39", "x"]
    assert data.references(39) == ["new39 d"]
    with pytest.raises(DataError, match="record 21: the summary holds no token"):
        list(encoder.parts([*records[:20], Record("a", "\u200b")], 2))


def test_what_nobody_uses_goes(cache: Path) -> None:
    old, new = kept("encoded", "a" * 40, lambda place: None), kept("encoded", "b" * 40, lambda place: None)
    draft, photos = cache / f".{old.name}.12345678.partial", cache / "my-photos"  # of the user
    for place in (draft, photos):
        place.mkdir()
    long_ago = old.stat().st_mtime - (UNUSED_DAYS + 1) * 86_400
    for place in (old, draft, photos):
        os.utime(place, (long_ago, long_ago))
    kept("encoded", "c" * 40, lambda place: None)
    assert sorted(path.name[:9] for path in cache.iterdir()) == ["encoded-b", "encoded-c", "my-photos"]
    assert new.exists()


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pairs.jsonl")
    with pytest.raises(DataError, match="is a pipe or device"):
        _ = Corpus(DataConfig(train=str(tmp_path / "pairs.jsonl")), "train").content


def test_two_processes_make_the_same_folder(cache: Path) -> None:
    """Both find it whole, and one that dies while it writes leaves nothing that is taken for it."""

    def make(place: Path) -> None:
        (place / "a").write_text("1" * 1000)
        time.sleep(0.05)
        (place / "b").write_text("2")

    def child(kill: bool) -> None:
        kept("encoded", "d" * 40, lambda place: (make(place), os._exit(9)) if kill else make(place))

    context = multiprocessing.get_context("fork")
    first = context.Process(target=child, args=(True,))
    first.start()
    first.join()
    assert [path.name.endswith(".partial") for path in cache.iterdir()] == [True]
    pair = [context.Process(target=child, args=(False,)) for _ in range(2)]
    for process in pair:
        process.start()
    for process in pair:
        process.join()
        assert process.exitcode == 0
    place = kept("encoded", "d" * 40, lambda _: pytest.fail("made again"))
    assert {path.name: path.stat().st_size for path in place.iterdir()} == {"a": 1000, "b": 1}
    assert list(cache.iterdir()) == [place]


def test_pairs_are_read_once(make_trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vocabulary, names and ids come from what was read and judged once; a second start reads none."""
    read = []
    monkeypatch.setattr(
        "catchline.training.corpus.read_in_pieces",
        lambda path, *rest, **more: read.append(path) or read_in_pieces(path, *rest, **more),
    )
    make_trainer()
    assert len(read) == 2  # training and validation
    make_trainer()
    assert len(read) == 2


def test_a_large_file_is_digested_once_as_long_as_it_stays_as_it_is(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = tmp_path / "pairs.jsonl", list[Path]()
    file.write_text("one\n")
    monkeypatch.setattr(corpus_module, "WORTH_KNOWING", 1)
    monkeypatch.setattr(corpus_module, "digest_of", lambda path: (read.append(path), digest_of(path))[1])
    assert known_digest(file) == known_digest(file) == digest_of(file)
    assert len(read) == 2, "just written: it may be written again within what the file system takes for the same moment"
    monkeypatch.setattr(corpus_module, "SETTLED_SECONDS", -1.0)
    assert known_digest(file) == known_digest(file) == digest_of(file)
    assert len(read) == 3
    file.write_text("two\n")
    assert known_digest(file) == digest_of(file)
    os.utime(file, (1e9, 1e9))  # an older time is another one
    assert known_digest(file) == digest_of(file)
    assert len(read) == 5
    for kept_digest in cache.glob("digest-*/*"):
        kept_digest.write_text("{")
    assert known_digest(file) == digest_of(file), "what is damaged is not believed"
    monkeypatch.setenv(CACHE, OFF)
    assert known_digest(file) == digest_of(file)
