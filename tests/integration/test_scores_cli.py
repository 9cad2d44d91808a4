"""``catchline evaluate`` and ``catchline compare`` from end to end: tables, files, resuming, failures, mistakes."""

from __future__ import annotations

import csv
import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest

from catchline.cli.io import aligned
from catchline.cli.main import main
from catchline.config.loading import load_recipe
from catchline.data.records import data_changes
from catchline.evaluation.table import Row, measure_column
from catchline.summarizer import Summarizer
from catchline.training import loop
from catchline.training import run as training_run
from commands import Capture, Patch, refused, run
from json_lines import write_lines
from watching import watch


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    cat = {"document": "The cat sat on the mat. It rained.", "summary": "cat on mat", "references": ["mat", "rain"]}
    dogs = {"document": "Dogs bark at night. Nobody sleeps.", "summary": "barking dogs"}
    return write_lines(tmp_path / "data" / "validation.jsonl", [cat, dogs]).parent


def test_table(pairs: Path, capsys: Capture) -> None:
    again = "lead:sentences=1"  # is there already
    systems = ["lead-1", "oracle-1", "first_words:words=2", again]
    changed = ["--profile", "gigaword", "--no-stem", "--restore-numbers"]
    shown = run(capsys, "evaluate", *systems, "--data", pairs, *changed)
    rows = [line.split()[0] for line in shown.splitlines() if line]
    assert (rows[0], rows[2:5]) == ("system", systems[:3])
    assert "changed: stem=False" in shown


def test_a_folder_of_parts_is_checked_and_scored(data: Path, tmp_path: Path, capsys: Capture) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    for number in range(2):
        (parts / f"train-0000{number}.jsonl").write_bytes((data / "train.jsonl").read_bytes())
    assert json.loads(run(capsys, "data", "check", parts, "--json"))["splits"]["parts"]["records"] == 48
    assert "48" in run(capsys, "evaluate", "lead-1", "--data", parts)
    assert data_changes(parts)["data"]["train"] == str(parts)
    once = ["compare", "headline_writer", "--size", "tiny", "--data", parts, "--rows", "lstm"]
    refused(capsys, 2, "would train and score", *once)
    (parts / "train-00000.jsonl").rename(parts / "train-00003.jsonl")
    refused(capsys, 3, "number 2 is missing", "data", "check", parts)


def test_a_method_from_outside_stands_in_the_tables(
    pairs: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    (tmp_path / "picks_of_hers.py").write_text("from catchline.extractive.baselines import Lead as Ends\n")
    monkeypatch.chdir(tmp_path)
    for command in (["evaluate"], ["compare", "--out", "comparison"]):
        table = run(capsys, *command, "lead-1", "picks_of_hers:Ends-1", "--data", str(pairs), "--json")
        found = [one["rouge"]["1"]["f"] for one in json.loads(table)["rows" if "compare" in command else "systems"]]
        assert found[0] == found[1] > 0
    refused(capsys, 2, "'picks_of_hers:End' could not be loaded", "evaluate", "picks_of_hers:End", "--data", str(pairs))


def test_json_and_files(pairs: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "scores"
    arguments = ["lead-1", "lexrank-1", "--data", pairs, "--output", out, "--json", "--profile", "google"]
    printed = json.loads(run(capsys, "evaluate", *arguments))
    assert printed == json.loads((out / "scores.json").read_text())
    rows = list(csv.DictReader((out / "scores.csv").open(encoding="utf-8")))
    assert [float(row["rouge1_f"]) for row in rows] == [one["rouge"]["1"]["f"] for one in printed["systems"]]
    tex = (out / "scores.tex").read_text()
    assert tex.count(r" \\") == 1 + len(rows)
    assert "% rouge:google|" in tex
    assert r"unfaithful \%" in tex
    first, second = printed["systems"]
    assert (first["system"], second["system"], "difference" in second) == ("lead-1", "lexrank-1", True)
    assert "google" in first["signature"]
    assert len((out / "lead-1.predictions.jsonl").read_text().splitlines()) == 2


def test_a_table_wider_than_the_terminal_goes_on_below() -> None:
    header, rows = ["system", "ROUGE-1", "\u6771\u4eac"], [["lead-1", "23.7", "20"], ["m", "1", "\u516b"]]
    whole = aligned(header, rows)
    assert whole.splitlines()[0] == "system  ROUGE-1  \u6771\u4eac"  # characters that take two places
    assert aligned(header, rows, width=21) == whole
    narrow = aligned(header, rows, width=20).splitlines()
    assert narrow[:5] == ["system  ROUGE-1", "------  -------", "lead-1     23.7", "m             1", ""]
    assert narrow[5:] == ["system  \u6771\u4eac", "------  ----", "lead-1    20", "m         \u516b"]
    assert aligned(header, rows, width=1).count("system") == 2, "a column at least"


def test_a_figure_of_three_hundred_digits_is_short() -> None:
    shown = measure_column("perplexity", "ppl", digits=2).cell
    found = [shown(Row("m", "m", losses={"ppl": value})) for value in (31.6049, -2.0, 1e300, math.inf)]
    assert found == ["31.60", "-2.00", "1e+300", "inf"]


WORDS = [f"{name}{end}" for name in ("storm", "river", "plan", "vote", "city") for end in ("", "ed", "ing")]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Documents of three sentences whose summary is the first words of the second."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split, count in (("train", 24), ("validation", 10)):
        lines = []
        for index in range(count):
            words = [WORDS[(index * 7 + place * (1 + index % 4)) % len(WORDS)] for place in range(15)]
            document = " ".join(f"{' '.join(words[start : start + 5]).capitalize()}." for start in (0, 5, 10))
            lines.append({"id": f"{split}-{index}", "document": document, "summary": " ".join(words[5:8])})
        write_lines(folder / f"{split}.jsonl", lines)
    return folder


def read(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / "compare.json").read_text())
    return values


def test_extractive_rows_with_no_training(data: Path, tmp_path: Path, capsys: Capture) -> None:
    out, recipe = tmp_path / "out", load_recipe("extractive")
    assert main(["compare", "extractive", "--data", str(data), "--out", str(out)]) == 0
    captured = capsys.readouterr()
    shown = ["Lead-1 (baseline)", "rouge155", *(row.label for row in recipe.rows.values())]
    assert all(part in captured.out for part in shown)
    assert "lexrank: scoring" in captured.err
    values = read(out)
    assert [row["row"] for row in values["rows"]] == list(recipe.rows)
    assert values["records"] == 10
    scores = {row["row"]: row["rouge"] for row in values["rows"]}
    assert scores["oracle"]["1"]["f"] == max(score["1"]["f"] for score in scores.values())
    rows = {row["row"]: row for row in csv.DictReader((out / "compare.csv").read_text().splitlines())}
    assert float(rows["kl"]["rouge2_f"]) == scores["kl"]["2"]["f"]
    assert "LexRank" in (out / "compare.md").read_text()


def test_words_of_other_scripts_count_and_that_is_said(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "test.jsonl").write_text(json.dumps({"document": "лифт сломан. да.", "summary": "лифт сломан"}) + "\n")
    said = run(capsys, "compare", "lead-1", "longest-1", "--data", tmp_path / "test.jsonl", "--out", tmp_path / "out")
    assert said.count("\nprofile unicode, because most references are of another script than Latin\n") == 1


def test_nothing_is_scored_twice(data: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    arguments = ["compare", "extractive", "--data", data, "--out", tmp_path / "out", "--rows"]
    run(capsys, *arguments, "lead-1,lexrank")
    run(capsys, *arguments, "lead-1,lexrank", "--rows", "kl")  # nothing is lost
    first = read(tmp_path / "out")
    assert [row["row"] for row in first["rows"]] == ["lead-1", "lexrank", "kl"]
    monkeypatch.setattr(Summarizer, "summarize", lambda *_, **__: pytest.fail("scored twice"))
    run(capsys, *arguments, "lead-1,lexrank,kl")
    assert read(tmp_path / "out") == first


def test_rows_are_trained_and_resumed(data: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    """Interrupted in the middle of the second row, the command continues there and ends as if nothing had happened."""
    update = loop.Trainer._update

    def update_and_stop(trainer: Any, stop: Any) -> None:
        if trainer.run.row == "gru":
            monkeypatch.setattr(loop.Trainer, "_update", update)
            signal.raise_signal(signal.SIGTERM)
        update(trainer, stop)

    trained = watch(monkeypatch, training_run, "train", lambda run, _, *, resume, **__: (run.row, resume))
    monkeypatch.setattr(loop.Trainer, "_update", update_and_stop)
    arguments = ["compare", "headline_writer", "--size", "tiny", "--data", str(data), "--rows", "lead-1,lstm,gru"]
    out = tmp_path / "out"
    assert main([*arguments, "--out", str(out)]) == 130
    assert "The same command continues" in capsys.readouterr().err
    printed = run(capsys, *arguments, "--out", out)
    assert trained == [("lstm", False), ("gru", False), ("gru", True)]
    assert "LSTM (baseline)" in printed
    assert "7.005" in printed  # published validation loss
    lead, lstm, gru = read(out)["rows"]
    assert lead["losses"] == {}
    assert lstm["losses"]["val_loss_free"] > 0
    assert gru["rouge"]["1"]["p_holm"] is not None
    run(capsys, *arguments[:-1], "gru", "--out", tmp_path / "straight")
    straight = read(tmp_path / "straight")["rows"][0]
    assert (straight["measures"], straight["losses"]) == (gru["measures"], gru["losses"])

    # the runs that now exist, as systems; on a file, which need not be that of their training
    other = tmp_path / "other.jsonl"
    other.write_text("".join((data / "validation.jsonl").read_text().splitlines(keepends=True)[:3]))
    given = ["--data", data, "--set", f"data.validation={other}", "--out", tmp_path / "on-other"]
    runs = [out / "runs" / f"{row}-seed-1" for row in ("lstm", "gru")]
    run(capsys, "compare", runs[1], "oneline", "lead-1", *given)
    assert read(tmp_path / "on-other")["records"] == 3
    listed = json.loads(run(capsys, "compare", *runs, "lead-1", "--out", tmp_path / "systems", "--json"))
    assert listed == read(tmp_path / "systems")
    assert [row["rouge"]["1"]["f"] for row in listed["rows"][:2]] == [r["rouge"]["1"]["f"] for r in (lstm, gru)]
    assert listed["rows"][0]["losses"] == lstm["losses"]


def test_one_file_is_not_trained_and_scored_on(data: Path, capsys: Capture) -> None:
    command = ["compare", "headline_writer", "--size", "tiny", "--data", data / "train.jsonl", "--out", data / "out"]
    refused(capsys, 2, f"catchline data subset {data / 'train.jsonl'} DIR/validation.jsonl --sample 500", *command)
    run(capsys, *command, "--rows", "lead-1")  # which trains nothing
    assert read(data / "out")["records"] == 24
