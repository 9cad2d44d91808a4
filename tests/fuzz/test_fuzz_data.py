"""Damaged data files of every format: records that can be used or one sentence, in time, the same from every command.

2,750 files: 250 of each of eleven kinds.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hostile import MANY, Findings, assert_a_sentence, damage_bytes, damage_values, in_time, said_by
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.data.records import SkipCounter, read_records
from catchline.errors import DataError

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("FUZZ", 250))
DOCUMENTS = [
    "The river rose in the night. Crews carried forty people out of their houses.",
    "Schools stay closed until Thursday, the council said. “Nobody” was hurt — 3.5 % were away.",
    "Ein kleiner Vogel saß im Baum. Er sang.\nDann flog er fort.",
    "河水在夜里上涨。学校停课。",
    "It was late. 👩‍👧 The café closed.",
]
SUMMARIES = ["River rises; forty rescued", "Schools closed", "Vogel sang", "学校停课", "Café closed 🦊"]
ROWS = [
    {"id": f"n{number}", "document": document, "summary": summary}
    for number, (document, summary) in enumerate(zip(DOCUMENTS, SUMMARIES, strict=True))
]


def lines(texts: list[str]) -> str:
    return "".join(text.replace("\n", " ") + "\n" for text in texts)


def write_csv(path: Path) -> None:
    mark = "\t" if path.suffix == ".tsv" else ","
    cells = [[row[name].replace('"', '""') for name in row] for row in ROWS]
    text = "\n".join([mark.join(ROWS[0]), *(mark.join(f'"{cell}"' for cell in row) for row in cells)]) + "\n"
    path.write_text(text, encoding="utf-8")


def make(kind: str, home: Path) -> Path:
    """A sound data set; the place to read."""
    json_lines = "".join(json.dumps(row, ensure_ascii=number % 2 == 0) + "\n" for number, row in enumerate(ROWS))
    path = home / f"pairs.{kind}"
    if kind == "jsonl":
        path.write_text(json_lines, encoding="utf-8")
    elif kind == "jsonl.gz":
        path.write_bytes(gzip.compress(json_lines.encode()))
    elif kind == "json":
        path.write_text(json.dumps(ROWS, ensure_ascii=False, indent=1), encoding="utf-8")
    elif kind == "references.jsonl":
        rows = [row | {"summary": [row["summary"], "Another"], "sentences": ["One.", "Two."]} for row in ROWS]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif kind in ("csv", "tsv"):
        write_csv(path)
    elif kind == "pair":
        path = home / "pairs.source"
        path.write_text(lines(DOCUMENTS), encoding="utf-8")
        (home / "pairs.target").write_text(lines(SUMMARIES), encoding="utf-8")
    elif kind == "duc":
        path = home / "input.txt"
        path.write_text(lines(DOCUMENTS), encoding="utf-8")
        for number in range(2):
            (home / f"task1_ref{number}.txt").write_text(lines(SUMMARIES), encoding="utf-8")
    elif kind == "story":
        path = home / "stories"
        path.mkdir()
        for number, row in enumerate(ROWS[:3]):
            text = f"{row['document']}\n\n@highlight\n\n{row['summary']}\n"
            (path / f"{number}.story").write_text(text, encoding="utf-8")
    elif kind == "lcsts.txt":
        blocks = [
            f"<doc id={row['id']}>\n<human_label>{number % 5 + 1}</human_label>\n"
            f"<summary>\n{row['summary']}\n</summary>\n<short_text>\n{row['document']}\n</short_text>\n</doc>\n"
            for number, row in enumerate(ROWS)
        ]
        path.write_text("".join(blocks), encoding="utf-8")
    else:
        parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        parquet.write_table(arrow.Table.from_pylist(ROWS), path)
    return path


KINDS = ["jsonl", "jsonl.gz", "json", "references.jsonl", "csv", "tsv", "pair", "duc", "story", "lcsts.txt"]
KINDS += ["parquet"] if importlib.util.find_spec("pyarrow") else []


def damage(place: Path, draw: Any, whole: bool) -> str:
    """Do something to one file; values are changed only in one that is ``whole``."""
    files = sorted(path for path in place.parent.rglob("*") if path.is_file())
    path = draw(st.sampled_from(files))
    if whole and path.suffix == ".json" and draw(st.booleans()):
        return damage_values(path, draw)
    if whole and path.name.endswith(".jsonl") and draw(st.booleans()):
        rows = path.read_text(encoding="utf-8").splitlines()
        index = draw(st.integers(0, len(rows) - 1))
        one = path.with_name("one.json")
        one.write_text(rows[index])
        said = damage_values(one, draw)
        rows[index] = one.read_text()
        one.unlink()
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")
        return f"line {index + 1}: {said}"
    return damage_bytes(path, draw)


def usable(text: str) -> bool:
    return bool(text.strip()) and "\0" not in text and text.encode("utf-8").decode("utf-8") == text


def read(place: Path, **options: Any) -> list[Any] | None:
    """The records; none where they are refused in a sentence."""
    try:
        return list(read_records(place, **options))
    except DataError as error:
        assert_a_sentence(error)
        return None


@pytest.mark.parametrize("kind", KINDS)
def test_data_files(kind: str) -> None:
    outcomes, findings = {"read": 0, "refused": 0, "commands": 0}, Findings()

    @given(data=st.data())
    @settings(max_examples=EXAMPLES, **MANY)
    def check(data: Any) -> None:
        with tempfile.TemporaryDirectory() as home, findings.of(done := []):
            place = make(kind, Path(home))
            times = data.draw(st.integers(1, 3))
            done.extend(damage(place, data.draw, number == 0) for number in range(times))
            skipped = SkipCounter()
            with in_time():
                strict = read(place)
                lenient = read(place, skip_bad=True, on_skip=skipped)
            for record in [*(strict or ()), *(lenient or ())]:
                assert usable(record.document)
                assert all(map(usable, (record.summary, *record.references)))
                assert record.id.encode()
            if strict is not None:
                assert lenient is not None
                assert skipped.total == 0
                assert [vars_of(record) for record in strict] == [vars_of(record) for record in lenient]
            outcomes["refused" if strict is None else "read"] += 1
            if data.draw(st.integers(0, 10**6)) % 25 == 7:
                outcomes["commands"] += 1
                commands_agree(place, strict is not None, Path(home) / "page.html")

    check()
    findings.none()
    assert min(outcomes["read"], outcomes["refused"]) > 0, outcomes
    print(kind, outcomes)


def vars_of(record: Any) -> tuple[Any, ...]:
    return (record.document, record.summary, record.id, record.references, record.sentences, record.origin)


def commands_agree(place: Path, good: bool, page: Path) -> None:
    for command in (
        ["data", "check", str(place)],
        ["evaluate", "lead", "--data", str(place)],
        ["summarize", "lead", str(place)],
        ["explain", "lead", str(place), "--html", str(page)],
    ):
        code, out, err = said_by(["--quiet", *command])
        if command[0] == "evaluate":
            assert code == (0 if good else 3), (command, code, err[-500:])
        elif command[0] == "data":
            assert good or code == 3, (command, code, out[-500:])
