"""Correct n-grams and over-copied words: cases worked out by hand, the tables that show them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from catchline.evaluation.measures import measure
from commands import run
from json_lines import write_lines

DOCUMENT = "Anna has crashed into a red Honda. She is not hurt."
SUMMARY = "Anna crashed into a red Honda and she is sad"
REFERENCE = "Anna crashed into a red car"


TOM = (
    ["Tom paid 3 million dollars to Anna on Monday.", "The red car stopped.", "Nothing happened in Oslo."],
    ["tom pays 3 billion dollars on tue", "a red bicycle stopped", ""],
)


@pytest.mark.parametrize(
    ("documents", "summaries", "references", "expected"),
    [
        # copied: a-b is in the document, b-x and x-a are not; repeated: a-b, twice among four
        ("a b c d", "a b x a b", "p q", {"copy_rate": 4 / 5, "novel_2": 2 / 3, "repetition": 1 / 4}),
        ("a b c d", "a b x a b", "p q", {"words": 5}),
        ("a b", "a [UNK] b [UNK]", "a b", {"unk_rate": 0.5, "words": 2, "copy_rate": 1.0}),  # they are no words
        ("unk red", "[UNK] red", "red", {"correct_1": 1.0}),
        (["a b", "c d"], ["", "c"], "a", {"empty": 0.5, "copy_rate": 1.0}),
        ("A red car.", "", "A car.", {"correct_1": 0, "over_copied": 0}),
        ("x", "a b a b a b", "x", {"repetition_1": 4 / 6, "repetition": 3 / 5, "repetition_3": 2 / 4}),
        ("x", "a b a b a b", "x", {"repetition_4": 1 / 3}),
        ("x", "a b", "x", {"repetition_3": 0}),  # too short to say
        (["x", "x"], ["a a", "a b c"], "x", {"repetition_3": 0, "repetition_1": 0.25}),
        # the document has 'crashed into a red' in a row, but "has" between "anna" and "crashed", and no 'car'
        (
            DOCUMENT,
            SUMMARY,
            REFERENCE,
            {"correct_1": 5 / 10, "correct_2": 3 / 9, "correct_3": 2 / 8, "correct_4": 1 / 7},
        ),
        (DOCUMENT, SUMMARY, REFERENCE, {"over_copied": 3, "over_copied_content": 1}),  # honda, she, is
        # any reference counts, and no n-gram spans two: "red car" does not
        ("the red car stopped", "red car stopped", ["a red", "car stopped now"], {"correct_1": 1, "correct_2": 1 / 2}),
        ("the red car stopped", "red car stopped", ["a red", "car stopped now"], {"over_copied": 0}),
        (*TOM, "x", {"unfaithful": 1 / 3, "unsupported_name": None, "unsupported_number": 1, "unsupported_date": 1}),
        (*TOM, "x", {"unsupported_word": 1 / 6}),  # bicycle; of tom a name is not to be seen
        ("The car stopped.", "the car stopped", "x", {"unfaithful": 0, "unsupported_name": None}),  # no name is there
    ],
)
def test_by_hand(
    documents: str | list[str], summaries: str | list[str], references: str | list[str], expected: dict[str, float]
) -> None:
    texts, made, every = ([given] if isinstance(given, str) else given for given in (documents, summaries, references))
    found = measure(texts, made, [every] * len(texts), unk_text="[UNK]")
    assert {name: found.get(name) for name in expected} == pytest.approx(expected)


def test_evaluate_and_compare_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = tmp_path / "validation.jsonl", tmp_path / "out"
    rows = [{"document": f"{DOCUMENT} It was {n}.", "summary": " ".join(REFERENCE.split()[:n])} for n in (2, 3, 5)]
    write_lines(data, rows)
    one = run(capsys, "evaluate", "lead-1", "--data", data, "--copying")
    other = run(capsys, "compare", "lead-1", "--data", data, "--out", out)
    assert all("over-copied words" in text for text in (one, other))
    intervals = [re.findall(r"\d+\.\d\d ±\d+\.\d\d|rouge:.*ci:95%r1000.*", text) for text in (one, other)]
    assert intervals[0] == intervals[1]
    assert len(intervals[0]) == 4
    assert "±0.00" not in intervals[0][0]
    values = json.loads(run(capsys, "evaluate", "lead-1", "--data", data, "--json"))["systems"][0]["measures"]
    table = json.loads((out / "compare.json").read_text())["rows"][0]["measures"]
    assert (table["correct_1"], table["over_copied"]) == (values["correct_1"], values["over_copied"])
    assert "## Copying" in (out / "compare.md").read_text()
    assert "correct_1" in (out / "compare.csv").read_text()
