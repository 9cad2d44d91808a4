"""Haystacks: many documents behind the first sentence of one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from catchline.data.records import write_records
from catchline.evaluation.run import read_lines as rows
from catchline.types import Record
from catchline_study.corpora.subset import build_haystacks
from commands import refused, run

RECORDS = [
    Record(f"Kite {n} is of paper. It flew over hill {n}. The wind was from the north of {n}.", f"kite {n}", id=f"k{n}")
    for n in range(6)
] + [Record("Too short for a needle.", "short", id="s")]


def test_the_needle_is_where_the_record_says_without_its_first_sentence(tmp_path: Path) -> None:
    words = build_haystacks(tmp_path / "hay.jsonl", RECORDS, documents=4, count=12, seed=3)
    made = rows(tmp_path / "hay.jsonl")
    assert len(made) == 12
    assert words == round(sum(len(row["document"].split()) for row in made) / 12)
    for row in made:
        needle = next(record for record in RECORDS if record.id == row["needle"])
        first, rest = needle.document.split(" It flew", 1)
        question, *others = row["document"].split("\n\n")
        assert question == first
        assert len(others) == 4
        assert row["document"].count(first) == 1
        start, end = row["place"]
        assert row["document"][start:end] == "It flew" + rest
        assert row["summary"] == needle.summary
        assert len(set(others)) == 4
    assert len({row["document"].split("\n\n").index(row["document"][slice(*row["place"])]) for row in made}) > 1


def test_each_is_a_needle_before_one_is_again_and_the_seed_decides(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        build_haystacks(tmp_path / name, RECORDS, documents=2, count=12, seed=seed)
    needles = [row["needle"] for row in rows(tmp_path / "a")]
    assert sorted(needles[:6]) == sorted(needles[6:]) == [f"k{n}" for n in range(6)]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "pairs.jsonl", tmp_path / "hay.jsonl"
    write_records(source, RECORDS)
    made = run(capsys, "data", "haystack", source, out, "--documents", "3", "--count", "5")
    assert "5 haystacks of 3 documents" in made
    refused(capsys, 2, "same file", "data", "haystack", source, source)
    refused(capsys, 3, "too few for haystacks of 50", "data", "haystack", source, out, "--documents", "50")
    assert len(rows(out)) == 5
