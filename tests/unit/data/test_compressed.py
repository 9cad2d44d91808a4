"""Files compressed with zstd, and folders of numbered files, through the readers of all data."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from catchline.data.lines import raw_lines, read_text
from catchline.data.readers import find_splits, read_records
from catchline.errors import DataError


@pytest.fixture
def compressed() -> Callable[[bytes], bytes]:
    library = pytest.importorskip("zstandard", reason="zstandard is not installed (pip install 'catchline[zstd]')")
    return library.ZstdCompressor().compress  # type: ignore[no-any-return]


@pytest.fixture
def squeezed(tmp_path: Path, compressed: Callable[[bytes], bytes]) -> Path:
    """100,000 lines in two frames."""
    halves = ("".join(f"{number}\n" for number in range(start, start + 50_000)) for start in (0, 50_000))
    path = tmp_path / "numbers.txt.zst"
    path.write_bytes(b"".join(compressed(half.encode()) for half in halves))
    return path


def test_zstd_is_read_line_by_line(squeezed: Path) -> None:
    lines = [line for _, line in raw_lines(squeezed)]
    assert len(lines) == 100_000
    assert lines[49_999:50_002] == [b"49999\n", b"50000\n", b"50001\n"]


def test_zstd_that_was_cut_short_is_told(squeezed: Path) -> None:
    """The package's own reader would end without a word."""
    content = squeezed.read_bytes()
    squeezed.write_bytes(content[: len(content) * 3 // 4])
    with pytest.raises(DataError, match=r"the zstd data is damaged after line \d+ \(the file ends within a frame\)"):
        read_text(squeezed)
    squeezed.write_bytes(b"no zstd at all")
    with pytest.raises(DataError, match="the zstd data is damaged after line 0"):
        read_text(squeezed)


def test_zstd_without_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "a.jsonl.zst").write_bytes(b"x")
    with pytest.raises(DataError, match=r"pip install 'catchline\[zstd\]', or compress the file with gzip"):
        list(read_records(tmp_path / "a.jsonl.zst"))


def test_records_of_every_reader_may_be_zstd(tmp_path: Path, compressed: Callable[[bytes], bytes]) -> None:
    line = json.dumps({"document": "a b", "summary": "a"}).encode()
    (tmp_path / "train.jsonl.zst").write_bytes(compressed(line))
    assert [record.summary for record in read_records(find_splits(tmp_path)["train"])] == ["a"]


def write(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(json.dumps({"document": f"the text of {name}", "summary": "x"}) + "\n")
    return folder


def test_numbered_files_are_one_data_set_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = [f"part-{number}.jsonl" for number in range(11)]
    folder = write(tmp_path / "train", *names[9:], *names[:9])
    notes: list[str] = []
    found = [record.document for record in read_records(folder, on_choice=notes.append)]
    assert found == [f"the text of {name}" for name in names]
    assert len(notes) == 1
    assert find_splits(tmp_path) == {"train": folder}
    names = [f"t-0000{number}-of-00002.jsonl" for number in range(2)]
    found = [record.document for record in read_records(write(tmp_path / "of", *reversed(names)))]
    assert found == [f"the text of {name}" for name in names]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["part-0.jsonl", "part-2.jsonl"], "number 1 is missing"),
        (["part-1.jsonl", "part-999999999999999.jsonl"], "number 2 is missing"),
        (["t-00000-of-00003.jsonl", "t-00001-of-00003.jsonl"], "number 2 is missing"),
        *((["a-0.jsonl", name], "is a folder with 2 data files") for name in ("b-1.jsonl", "a-1.csv", "a-00.jsonl")),
        (["2019.jsonl", "2020.jsonl"], "is a folder with 2 data files"),
    ],
)
def test_folders_that_are_not(tmp_path: Path, names: list[str], words: str) -> None:
    with pytest.raises(DataError, match=words):
        list(read_records(write(tmp_path / "in", *names)))
