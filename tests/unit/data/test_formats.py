"""DUC's layout with several files of references, and LCSTS's parts with ratings by people."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from catchline.config.schema import DataConfig
from catchline.data.readers import ReadOptions, find_splits, is_one_data_set, read_records, read_with
from catchline.errors import DataError
from catchline.types import references_of


def zstd(data: bytes) -> bytes:
    return pytest.importorskip("zstandard").ZstdCompressor().compress(data)


def duc(folder: Path, references: str = ".") -> Path:
    (folder / references).mkdir(parents=True, exist_ok=True)
    (folder / "input.txt").write_text("first document .\nsecond document .\n")
    for number, lines in {0: "One\nTwo\n", 1: "Uno\n\n", 10: "Ichi\nNi\n", 2: "Un\nDeux\n"}.items():
        (folder / references / f"task1_ref{number}.txt").write_text(lines)
    return folder


@pytest.mark.parametrize("references", [".", "references"])
def test_input_with_files_of_references(tmp_path: Path, references: str) -> None:
    folder = duc(tmp_path / "DUC2004", references)
    said: list[str] = []
    for place in (folder, folder / "input.txt"):
        records = list(read_records(place, on_choice=said.append))
        assert [record.document for record in records] == ["first document .", "second document ."]
        # in the order of the numbers; an empty line is no reference
        assert records[0].references == ("One", "Uno", "Un", "Ichi")
        assert records[1].references == ("Two", "Deux", "Ni")
        assert [record.summary for record in records] == ["One", "Two"]
        assert records[1].origin.endswith("input.txt:2")
    assert "4 references a document" in said[0]
    assert is_one_data_set(folder)


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_references_of_another_task_and_packed_copies(tmp_path: Path, ending: str) -> None:
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstd}[ending]
    for name, text in {"input": b"first\n", "task1_ref0": b"One\n", "task2_ref0": b"Other\n"}.items():
        (tmp_path / f"{name}.txt{ending}").write_bytes(pack(text))
    assert [references_of(record) for record in read_records(tmp_path)] == [("One",)]
    (tmp_path / "task1_ref0.txt").write_bytes(b"Plain\n")
    assert [references_of(record) for record in read_records(tmp_path)] == [("Plain",)]
    for name, text in {"q.source": b"first\n", "q.target": b"One\n"}.items():
        (tmp_path / f"{name}{ending}").write_bytes(pack(text))
    assert [record.summary for record in read_records(tmp_path / "q")] == ["One"]


def test_stories_are_known_by_their_ending(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"document": "a b", "summary": "a"}\n')
    (tmp_path / "notes.storyboard.txt").write_text("x")
    assert not is_one_data_set(tmp_path)
    assert [record.document for record in read_records(tmp_path)] == ["a b"]
    (tmp_path / "a.story.gz").write_bytes(gzip.compress(b"Body.\n\n@highlight\n\nHigh\n"))
    (tmp_path / "._a.story").write_bytes(b"\0\5\xff")
    assert is_one_data_set(tmp_path)
    assert [record.summary for record in read_records(tmp_path)] == ["High"]


def test_references_must_be_as_long_as_the_input(tmp_path: Path) -> None:
    folder = duc(tmp_path)
    (folder / "task1_ref2.txt").write_text("Un\n")
    with pytest.raises(DataError, match=r"input.txt has 2 lines but task1_ref2.txt has 1"):
        list(read_records(folder))
    for path in folder.glob("task1*"):
        path.unlink()
    with pytest.raises(DataError, match=r"expected input.txt with task1_ref0.txt"):
        list(read_records(folder / "input.txt", format="duc"))


def part(label: str, scores: list[int | None]) -> str:
    blocks = []
    for number, score in enumerate(scores):
        human = "" if score is None else f"  <human_label>{score}</human_label>\n"
        blocks.append(
            f"<doc id={number}>\n{human}  <summary>\n{label}{number}\n</summary>\n"
            f"  <short_text>\n文{number}\n</short_text>\n</doc>\n"
        )
    return "".join(blocks)


def test_pairs_that_people_rated_low_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "PART_III.txt"
    path.write_text(part("三", [5, 2, 3, None, 1]), encoding="utf-8")
    said: list[str] = []
    options = ReadOptions(min_human_score=3)
    kept = [record.id for record in read_with(path, options, on_choice=said.append)]
    assert kept == ["0", "2", "3"]  # what nobody rated stays
    assert any("2 of 4 rated pairs left out" in line and "below 3" in line for line in said)
    assert len(list(read_records(path))) == 5
    assert len(list(read_with(path, ReadOptions.of(DataConfig(min_human_score=4))))) == 2
    path.write_text(part("三", [1]), encoding="utf-8")
    with pytest.raises(DataError, match="no record"):
        list(read_with(path, options))


def test_blocks_of_lcsts_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "PART_I.txt"
    path.write_text(part("一", [5, None, 2]).replace("\n", " ").replace("<doc id=2", "\n<doc id=2"), encoding="utf-8")
    assert [(record.id, record.summary) for record in read_records(path)] == [("0", "一0"), ("1", "一1"), ("2", "一2")]
    blocks = [block.encode() for block in path.read_text("utf-8").replace(" <doc", "\n<doc").splitlines()]
    for bad in range(3):  # a line that is not UTF-8 costs its own block alone
        path.write_bytes(b"\n".join([*blocks[:bad], b"<doc id=9> \xff </doc>", *blocks[bad + 1 :]]))
        found = [record.id for record in read_records(path, skip_bad=True)]
        assert found == [str(place) for place in range(3) if place != bad]


def test_the_parts_of_lcsts_are_splits(tmp_path: Path) -> None:
    for name in ("PART_I", "PART_II", "PART_III"):
        (tmp_path / f"{name}.txt").write_text(part(name, [3]), encoding="utf-8")
    found = find_splits(tmp_path)
    assert {split: path.stem for split, path in found.items()} == {
        "train": "PART_I", "validation": "PART_II", "test": "PART_III",
    }  # fmt: skip
