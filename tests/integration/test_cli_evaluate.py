"""The command that scores systems: tables, JSON, several references, and what it says about mistakes."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from catchline.cli.io import aligned
from catchline.cli.main import main
from catchline.evaluation.table import Row, measure_column
from catchline.summarizer import Summarizer
from catchline.types import Summary
from commands import refused, run
from json_lines import write_lines


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    lines = [
        {
            "document": "The cat sat on the mat. It rained.",
            "summary": "cat on mat",
            "references": ["cat on mat", "rain"],
        },
        {"document": "Dogs bark at night. Nobody sleeps.", "summary": "barking dogs"},
    ]
    write_lines(folder / "validation.jsonl", lines)
    return folder


def test_table(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = "lead:sentences=1"  # is there already
    assert main(["evaluate", "lead-1", "oracle-1", "first_words:words=2", again, "--data", str(data)]) == 0
    captured = capsys.readouterr()
    rows = [line.split()[0] for line in captured.out.splitlines() if line]
    assert rows[0] == "system"
    assert rows[2:5] == ["lead-1", "oracle-1", "first_words:words=2"]
    assert "rouge155" in captured.out
    assert "Evaluating" in captured.err


def test_a_method_from_outside_stands_in_the_tables(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "picks_of_hers.py").write_text("from catchline.extractive.baselines import Lead as Ends\n")
    monkeypatch.chdir(tmp_path)
    for command in (["evaluate"], ["compare", "--out", "comparison"]):
        table = run(capsys, *command, "lead-1", "picks_of_hers:Ends-1", "--data", str(data), "--json")
        found = [one["rouge"]["1"]["f"] for one in json.loads(table)["rows" if "compare" in command else "systems"]]
        assert found[0] == found[1] > 0
    refused(capsys, 2, "'picks_of_hers:End' could not be loaded", "evaluate", "picks_of_hers:End", "--data", str(data))


def test_a_system_that_was_done_is_not_decoded_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    summarize = Summarizer.summarize

    def stopped(self: Summarizer, *given: Any, **how: Any) -> list[Summary]:
        asked.append(self.name)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return summarize(self, *given, **how)

    monkeypatch.setattr(Summarizer, "summarize", stopped)
    command = ["evaluate", "lead-1", "lead-2", "--data", str(data), "--output", str(tmp_path / "scores")]
    assert [main(command), main(command)] == [130, 0]
    assert asked == ["lead-1", "lead-2", "lead-2"]
    assert not list((tmp_path / "scores").glob("*.partial"))


def test_json_and_files(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "scores"
    arguments = ["evaluate", "lead-1", "lexrank-1", "--data", str(data), "--output", str(out), "--json"]
    assert main(["--quiet", *arguments, "--profile", "google"]) == 0
    captured = capsys.readouterr()
    assert not captured.err
    printed = json.loads(captured.out)
    assert printed == json.loads((out / "scores.json").read_text())
    rows = list(csv.DictReader((out / "scores.csv").open(encoding="utf-8")))
    assert [float(row["rouge1_f"]) for row in rows] == [one["rouge"]["1"]["f"] for one in printed["systems"]]
    tex = (out / "scores.tex").read_text()
    assert tex.count(r" \\") == tex.count(r"\begin{tabular}") * (1 + len(rows)) > 1 + len(rows)
    assert "% rouge:google|" in tex
    assert r"unfaithful \%" in tex
    assert [entry["system"] for entry in printed["systems"]] == ["lead-1", "lexrank-1"]
    assert "difference" in printed["systems"][1]
    assert "google" in printed["systems"][0]["signature"]
    assert len((out / "lead-1.predictions.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "Name a model or an extractive method"),
        (["lead-1", "--profile", "duc"], 2, "Did you mean 'duc2004'?"),
        (["lexrnk"], 4, "Did you mean 'lexrank'?"),
        (["lead-1", "lead:sentnces=1"], 2, "Did you mean 'sentences'?"),
        (["lead-1", "--split", "test"], 3, "has no 'test' split"),
        (["lead-1", "--set", "beam_size=3"], 2, "none of these systems is a model"),
        (["oneline", "--set", "beam_sise=3"], 2, "Did you mean 'beam_size'?"),
        (["lead-1", "--profile", "perl"], 2, "Unknown ROUGE profile"),
        (["lead-1", "--document-column", "dokument"], 3, "Did you mean 'document'?"),
    ],
)
def test_mistakes(arguments: list[str], code: int, said: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, code, said, "evaluate", *arguments, "--data", data)


def test_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, 3, "does not exist", "evaluate", "lead-1", "--data", tmp_path / "absent.jsonl")
    (tmp_path / "empty.jsonl").touch()
    refused(capsys, 3, "", "evaluate", "lead-1", "--data", tmp_path / "empty.jsonl")


def test_a_broken_line_is_skipped_on_request(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data / "validation.jsonl"
    path.write_text(path.read_text() + "{broken\n")
    refused(capsys, 3, "validation.jsonl:3", "evaluate", "lead-1", "--data", data)
    assert main(["evaluate", "lead-1", "--data", str(data), "--skip-bad"]) == 0
    assert "1 record skipped" in capsys.readouterr().err


def test_a_table_wider_than_the_terminal_goes_on_below() -> None:
    header, rows = ["system", "ROUGE-1", "ROUGE-2", "words"], [["lead-1", "23.7", "9.1", "20"], ["m", "1", "2", "3"]]
    whole = aligned(header, rows)
    assert whole.splitlines()[0] == "system  ROUGE-1  ROUGE-2  words"
    assert aligned(header, rows, width=31) == whole
    narrow = aligned(header, rows, width=30).splitlines()
    assert narrow == [
        "system  ROUGE-1  ROUGE-2",
        "------  -------  -------",
        "lead-1     23.7      9.1",
        "m             1        2",
        "",
        "system  words",
        "------  -----",
        "lead-1     20",
        "m           3",
    ]
    assert aligned(header, rows, width=1).count("system") == 3, "a column at least"


def test_a_table_of_characters_that_take_two_places() -> None:
    table = aligned(["word", "n"], [["\u6771\u4eac", "1"], ["a", "\u516b"]]).splitlines()
    assert table[1:] == ["----  --", "\u6771\u4eac   1", "a     \u516b"]


def test_a_figure_of_three_hundred_digits_is_short() -> None:
    shown = measure_column("perplexity", "ppl", digits=2).cell
    found = [shown(Row("m", "m", losses={"ppl": value})) for value in (31.6049, -2.0, 1e300, math.inf)]
    assert found == ["31.60", "-2.00", "1e+300", "inf"]
