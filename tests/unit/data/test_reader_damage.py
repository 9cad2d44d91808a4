"""Files that are damaged or strange: the readers, and every command that reads, say the same of them."""

from __future__ import annotations

import gzip
import json
import os
import random
import sqlite3
import threading
from pathlib import Path

import pytest

from catchline.cli.main import main
from catchline.data.columns import TableOptions
from catchline.data.lines import what_it_is
from catchline.data.readers import ReadOptions, SkipCounter, read_json_lines, read_records
from catchline.data.tables import read_sqlite
from catchline.errors import DataError

PAIR = {"document": "The river rose in the night. Schools are closed.", "summary": "River rose"}
MAC = {
    "x.csv": "document,summary\rThe river rose.,River rose\rA cat sat.,Cat sat\r",
    "x.jsonl": f"{json.dumps(PAIR)}\r{json.dumps(PAIR)}\r",
    "x.json": f"[\r{json.dumps(PAIR)},\r{json.dumps(PAIR)}]",
    "x.story": "The river rose.\r\r@highlight\r\rRiver rose\r",
    "x.txt": "<doc id=0>\r<summary>\rRiver rose\r</summary>\r<short_text>\rThe river rose.\r</short_text>\r</doc>\r",
}


@pytest.mark.parametrize("name", MAC)
def test_line_ends_of_a_classic_mac(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(MAC[name].encode())
    (tmp_path / f"u{name}").write_bytes(MAC[name].replace("\r", "\n").encode())
    found, expected = list(read_records(tmp_path / name)), list(read_records(tmp_path / f"u{name}"))
    assert [(r.document, r.references) for r in found] == [(r.document, r.references) for r in expected]
    assert len(found) == (1 if name in ("x.story", "x.txt") else 2)
    (tmp_path / "y.source").write_bytes(b"The river rose.\rA cat sat.\r")
    (tmp_path / "y.target").write_bytes(b"River rose\nCat sat\n")
    assert [record.summary for record in read_records(tmp_path / "y.source")] == ["River rose", "Cat sat"]


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl"])
def test_marks_within_files_that_were_put_together(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(MAC[name].replace("\r", "\n\ufeff").removesuffix("\ufeff"), encoding="utf-8")
    found = list(read_records(tmp_path / name))
    assert len(found) == 2
    assert all(record.document.startswith(("The", "A")) for record in found)


@pytest.mark.parametrize("indent", [None, 1])
def test_json_that_comes_through_a_pipe(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "x.json"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(json.dumps([PAIR, PAIR], indent=indent),), daemon=True)
    writer.start()
    assert len(list(read_records(path))) == 2
    writer.join()


RIVER = "The river rose.,River rose\n"
NO_RECORDS = (
    "[" * 100_000,
    '{"a":' * 100_000,
    "5",
    "null",
    '"text"',
    "[1" + "0" * 9999 + "]",
    "[[[]]]",
    "{}",
    "[]",
    "nan",
)
REFUSED: list[tuple[str, str | bytes, str]] = [
    ("x.csv", f"document,summary\rx\n{RIVER}", r"x\.csv:1: broken CSV"),
    ("x.csv", f'document,summary\n{RIVER}A cat sat.,"Cat\nIt fell.,Fell\n', r"x\.csv:3: a quotation that does not end"),
    ("x.csv", f'document,"summary\n{RIVER}', "header line opens a quotation"),
    ("x.csv", b"r\xe9sum\xe9,text\nx,y\n", r"x\.csv:1: not UTF-8: byte 0xE9.*iconv -f windows-1252"),
    ("empty.db", "", r"empty\.db: 0 tables \(none\) where one was expected\.$"),
    # Without mtime the header holds the time, and two processes of pytest-xdist collect different tests.
    *[
        ("train.txt.gz", raw, r"train\.txt\.gz: the gzip data is damaged")
        for raw in (gzip.compress(random.Random(1).randbytes(5000), mtime=0)[:30], b"no gzip")
    ],
    *[(name, text, name.replace(".", r"\.")) for name in ("x.json", "x.jsonl") for text in NO_RECORDS],
]


@pytest.mark.parametrize(("name", "content", "said"), REFUSED, ids=lambda value: str(value)[:20])
def test_what_cannot_be_read(tmp_path: Path, name: str, content: str | bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    for place in (path, tmp_path) if name.startswith("train") else (path,):
        with pytest.raises(DataError, match=said):
            list(read_records(place))
    if "does not end" in said:
        assert [record.summary for record in read_records(path, skip_bad=True)] == ["River rose"]
    if name.startswith("train"):
        assert main(["--quiet", "data", "check", str(tmp_path)]) == 3


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").symlink_to("x.jsonl")
    with pytest.raises(DataError, match="is a link that leads to no file"):
        list(read_records(tmp_path / "x.jsonl"))
    with pytest.raises(DataError, match=r"could not be read as SQLite \(unable to open"):
        list(read_sqlite(tmp_path / "missing.db", TableOptions()))
    assert what_it_is("doc") == what_it_is(f"{tmp_path}/doc") == ""  # a text that is called so
    assert "a Word document" in what_it_is("old.DOC")


@pytest.mark.parametrize("indent", [None, 1])
def test_an_object_with_one_array_and_more(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"version": "1.0", "data": [PAIR, PAIR]}, indent=indent))
    assert [record.summary for record in read_records(path)] == [PAIR["summary"]] * 2
    for lines in ([PAIR | {"tags": [{"a": 1}]}] * 2, [PAIR | {"tags": ["a"]}]):  # records, one a line
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert len(list(read_records(path))) == len(lines)


@pytest.mark.parametrize(("kept", "advised"), [("Мир", False), ("World", True)])
def test_a_damaged_file_is_not_taken_for_one_of_a_code_page(
    tmp_path: Path, kept: str, advised: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    path, text = tmp_path / "x.csv", tmp_path / "x.txt"
    path.write_bytes(f"document,summary\nThe text.,{kept}\nA cat sat".encode() + b"\xd0,Cat sat\n")
    with pytest.raises(DataError, match=r"x\.csv:3: not UTF-8: byte 0xD0") as raised:
        list(read_records(path))
    text.write_bytes(f"{kept}\nA cat sat ".encode() + b"\xd0")
    assert main(["--quiet", "summarize", "lead", str(text)]) == DataError.exit_code
    for said in (str(raised.value), capsys.readouterr().err):
        assert ("iconv -f windows-1252" in said, "or the file was cut within a character" in said) == (
            advised,
            not advised,
        )
    path.write_bytes(b"document,summary\ncaf\xe9,x\n")  # the same name, another file
    with pytest.raises(DataError, match="iconv -f windows-1252"):
        list(read_records(path))


def test_a_cell_without_a_value_is_missing_however_it_is_spelled(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    values = ("NaN", "Infinity", "-Infinity", "null", '{"a": [1]}')
    path.write_text("".join(f'{{"id": {value}, "document": "A cat sat.", "summary": null}}\n' for value in values))
    records = list(read_records(path, need_summary=False))
    assert [(record.id, record.summary) for record in records] == [(str(number), "") for number in range(1, 6)]
    for value in values[:4]:
        path.write_text(f'{{"document": "A cat sat.", "summary": {value}}}\n')
        with pytest.raises(DataError, match="empty summary"):
            list(read_records(path))


@pytest.mark.parametrize("side", ["document", "summary", "id"])
def test_half_characters(tmp_path: Path, side: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(PAIR | {side: "half \ud83d of it. More."}) + "\n" + json.dumps(PAIR) + "\n")
    with pytest.raises(DataError, match=r"x\.jsonl:1: half a character \(\\ud83d\)"):
        list(read_records(path))
    skipped = SkipCounter()
    assert len(list(read_records(path, skip_bad=True, on_skip=skipped))) == 1
    assert skipped.counts == {"half a character": 1}
    page = str(tmp_path / "page.html")
    for command in (
        ["data", "check", str(path)],
        ["evaluate", "lead", "--data", str(path)],
        ["summarize", "lead", str(path)],
        ["explain", "lead", str(path), "--html", page],
    ):
        assert main(command) == 3, command
        said = capsys.readouterr()
        assert "half a character" in said.out + said.err
        assert "Traceback" not in said.err


def test_names_in_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as connection:
        connection.execute('CREATE TABLE "a""b" (document TEXT, summary TEXT)')
        connection.execute("INSERT INTO \"a\"\"b\" VALUES ('The river rose.', 'River rose')")
    assert len(list(read_records(path))) == 1


@pytest.mark.parametrize(
    "line",
    [b'{"document": "half \\ud83d"}', b"[" * 100_000, b'{"document": "\xff"}', b'{"document": 1' + b"0" * 9999 + b"}"],
)
def test_standard_input(line: bytes) -> None:
    lines = [b"\n"] * 6 + [line]
    with pytest.raises(DataError, match="standard input:7"):
        list(read_json_lines(lines, "standard input", ReadOptions(need_summary=False)))


@pytest.mark.parametrize(
    "changes",
    [
        {"summary": 5},
        {"score": float("inf")},
        {"words": [{"text": "x", "start": 0, "end": 99}]},
        {"words": [{"text": 5, "start": 0, "end": 1}]},
        {"document": "\ud800"},
        {"tokens_read": float("inf")},
        {"terms": {"a": "b"}},
        {"alternatives": 5},
    ],
)
def test_stored_summaries(tmp_path: Path, changes: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"summary": "the river", "document": "the river rose"} | changes) + "\n")
    assert main(["explain", "stored", str(path), "--html", str(tmp_path / "x.html")]) == 3
    assert f"{path}:1" in capsys.readouterr().err
