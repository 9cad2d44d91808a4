"""Scores by document length."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catchline.data.records import write_records
from catchline.metrics.rouge import rouge
from catchline.types import Record
from catchline_study.commands.breakdown import buckets
from commands import refused, run


def record(length: int, number: int = 0) -> Record:
    return Record(" ".join(["word"] * length) + " .", "word", str(number))


RECORDS = [record(length, number) for number, length in enumerate([9, 2, 5, 2, 30, 7, 1])]


def test_buckets_of_equal_size() -> None:
    found = buckets(RECORDS, 3)
    # lengths in order: 1 2 2 | 5 7 | 9 30 (seven documents, cut at 2.33 and 4.67)
    assert [bucket.positions for bucket in found] == [(1, 6), (2, 3, 5), (0, 4)]
    assert [(bucket.low, bucket.high) for bucket in found] == [(1, 2), (2, 7), (9, 30)]
    assert found[2].mean == 19.5
    assert [len(bucket.positions) for bucket in buckets(RECORDS, 7)] == [1] * 7
    assert buckets(RECORDS, 1)[0].positions == tuple(range(7))


def test_scores_of_a_bucket_are_those_of_its_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        Record("One two three four five six. Eggs.", "one two three"),
        Record("One two. Yes.", "one zero"),
        Record("One two three. Zoo.", "two"),
    ]
    write_records(tmp_path / "pairs.jsonl", records)
    arguments = ["breakdown", "lead-1", "--data", tmp_path / "pairs.jsonl", "--by-length", "2"]
    made = json.loads(run(capsys, *arguments, "--json"))
    assert [entry["positions"] for entry in made["by_length"]] == [[1, 2], [0]]  # half of three is rounded to even
    alone = made["by_length"][1]["systems"][0]
    assert alone["rouge"]["1"]["f"] == pytest.approx(
        rouge(["one two three four five six"], ["one two three"]).mean["1"].f
    )
    assert "3 to 4 (mean 3.5)" in run(capsys, *arguments)
    refused(capsys, 2, "there are 3 documents", *arguments[:-1], "99")
