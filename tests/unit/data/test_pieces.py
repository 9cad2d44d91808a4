"""Reading in pieces, by several processes: what reading one by one finds, in its order, with its errors."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from catchline.data.pieces import read_in_pieces
from catchline.data.readers import ReadOptions, SkipCounter, read_with
from catchline.errors import DataError
from catchline.types import Record

GOOD = [{"id": f"n{number}", "document": f"text {number} é", "summary": f"s {number}"} for number in range(40)]
BAD = [b"{broken\n", b'{"document": "x"}\n', b"\n", b'{"document": "\xff", "summary": "y"}\n', b"[1]\n"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catchline.data.pieces.BYTES", 200)
    monkeypatch.setattr("catchline.data.pieces.RECORDS", 7)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")


def lines() -> list[bytes]:
    return [json.dumps(row).encode() + b"\n" for row in GOOD]


def both(path: Path, options: ReadOptions, most: int | None = None) -> tuple[Any, Any]:
    """Records, choices, skipped records and the error of the two ways."""
    found = []
    for pieces in (False, True):
        records, choices, skipped, error = list[Record](), list[str](), SkipCounter(), ""
        try:
            if pieces:
                told = {"on_skip": skipped, "on_choice": choices.append}
                for part in read_in_pieces(path, options, list, most=most, **told):
                    records += part
            else:
                for record in read_with(path, options, on_skip=skipped, on_choice=choices.append):
                    if len(records) == most:
                        break
                    records.append(record)
        except DataError as problem:
            error = f"{problem} {getattr(problem, 'option', None)}"
        if error:  # what was found before it, and the choice of columns, may have got further
            records, choices = [], []
        found.append((records, choices, skipped.counts, skipped.examples, error))
    return found[0], found[1]


@pytest.mark.parametrize(
    ("bad", "skip"),
    [
        ((), False),
        pytest.param((0,), True, marks=pytest.mark.slow),
        ((3, 17, 30), False),
        ((3, 17, 30), True),
        (range(40), True),
    ],
)
@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.csv"])
def test_pieces_hold_what_the_file_holds(tmp_path: Path, name: str, bad: Any, skip: bool) -> None:
    path = tmp_path / name
    rows = lines()
    for place, line in zip(bad, BAD * 8, strict=False):
        rows[place] = line
    data = b"".join(rows)
    if name.endswith("csv"):
        data = b"document,summary\n" + b"".join(b"x\n" if place in bad else b"a b,c\n" for place in range(40))
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    one, other = both(path, ReadOptions(skip_bad=skip))
    assert one == other
    assert len(one[0]) == 40 or bad
    assert bool(one[-1]) == bool(bad and (not skip or len(bad) == 40))


def test_a_number_of_records_and_parts_of_a_folder(tmp_path: Path) -> None:
    for number, some in enumerate((lines()[:15], lines()[15:])):
        (tmp_path / f"train-{number}.jsonl").write_bytes(b"".join(some))
    one, other = both(tmp_path, ReadOptions())
    assert one == other
    assert len(one[0]) == 40
    one, other = both(tmp_path, ReadOptions(), most=18)
    assert one == other
    assert len(one[0]) == 18


def test_the_first_record_chooses_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    rows = [{"text": "a", "title": "b"}, *({"title": "c", "text": "d", "headline": "e"} for _ in range(20))]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    one, other = both(path, ReadOptions())
    assert one == other
    assert [record.summary for record in one[0]][-1] == "c"
    path.write_text("".join(json.dumps({"nothing": "x"}) + "\n" for _ in range(20)))
    one, other = both(path, ReadOptions(skip_bad=True))
    assert one == other
    assert one[-1]
