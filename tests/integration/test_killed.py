"""Runs and jobs that are killed end in the same bits and bytes; two jobs never share a folder."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from catchline.cli.main import main
from catchline.files import only_here, only_writer
from commands import Capture, Patch, refused, run
from json_lines import write_lines
from killing import FAMILIES, survive
from own_process import in_own_process, needs_ray
from tiny_models import save_tiny_model

KILLS = 15  # of each family, in one process and in two: 210 together


def test_a_killed_run_ends_in_the_same_bits(tmp_path: Path) -> None:
    survive(tmp_path, "headline writer", world=1, kills=1, seed=1, further=False)


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("family", ["headline writer", "two stages", *FAMILIES])
def test_every_family_survives(tmp_path: Path, family: str, world: int) -> None:
    survive(tmp_path, family, world=world, kills=KILLS, seed=world)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    pair = {"document": "One two three. Four five six. Seven eight.", "summary": "Four five."}
    return write_lines(tmp_path / "validation.jsonl", [pair] * 3)


@pytest.mark.parametrize(
    "command",
    [
        "compare lead lexrank --data {pairs} --out {out}",
        "evaluate lead-1 --data {pairs} --output {out}",
        "train headline_writer --size tiny --data {pairs} --out {out} --force",
    ],
)
def test_the_second_one_is_told(command: str, pairs: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    arguments = command.format(pairs=pairs, out=out).split()
    with only_here(out):
        refused(capsys, 1, f"catchline: {out} is in use by process ", *arguments)
        assert [path.name for path in out.iterdir()] == [".lock"]
    assert not out.exists()


def test_one_process_writes_a_file(pairs: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    arguments = ["summarize", "lead-1", pairs, "--output", out / "a.jsonl"]
    with only_writer(out / "a.jsonl"):
        refused(capsys, 1, "a.jsonl is in use by process ", *arguments)
        assert [path.name for path in out.iterdir()] == [".a.jsonl.lock"]
    run(capsys, *arguments)
    assert not list(out.glob(".*"))


WORDS = ["cat", "dog", "fox", "bird", "sat", "ran", "slept", "sang", "mat", "hill", "tree", "old", "young", "quick"]


def write_corpus(path: Path, count: int) -> Path:
    draw, rows = random.Random(5), []
    for number in range(count):
        sentences = [" ".join(draw.choices(WORDS, k=draw.randint(3, 12))) for _ in range(draw.randint(2, 9))]
        document = " ".join(f"{sentence.capitalize()}." for sentence in sentences)
        rows.append({"id": f"r{number}", "document": document, "summary": "Old cat."})
    return write_lines(path, rows)


def summarized(out: Path, *arguments: object) -> bytes:
    assert main(["--quiet", "summarize", *map(str, arguments), "--output", str(out)]) == 0
    return out.read_bytes()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "documents.jsonl", 30)


# ------------------------------------------------------------------------------ going on to the same bytes


def test_records_without_ids_keep_their_numbers(tmp_path: Path, monkeypatch: Patch) -> None:
    lines = "".join(json.dumps({"document": f"Text {number}. More."}) + "\n" for number in range(60))

    def from_stdin(out: Path) -> bytes:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode("utf-8-sig"))))
        return summarized(out, "lead", "-", "--jsonl", "--batch-size", "2")  # windows of 16

    whole = from_stdin(tmp_path / "whole.jsonl")
    assert [json.loads(line)["id"] for line in whole.splitlines()] == [str(number) for number in range(1, 61)]
    (tmp_path / "out.jsonl.partial").write_bytes(b"".join(whole.splitlines(keepends=True)[:37]))
    assert from_stdin(tmp_path / "out.jsonl") == whole


@pytest.mark.parametrize(("lines", "cut"), [(0, 0), (1, 9), (23, 0), (24, 3), (30, 0)])
def test_an_interrupted_output_is_completed(lines: int, cut: int, corpus: Path, tmp_path: Path) -> None:
    arguments = ["lead", corpus, "--batch-size", "3"]
    whole = summarized(tmp_path / "whole.jsonl", *arguments)
    every, partial = whole.splitlines(keepends=True), tmp_path / "out.jsonl.partial"
    partial.write_bytes(b"".join(every[:lines]) + (every[lines][:cut] if cut else b""))
    assert summarized(tmp_path / "out.jsonl", *arguments) == whole
    assert not partial.exists()


@pytest.mark.parametrize(
    ("old", "new"), [('"id": "r4"', '"id": "q4"'), ('"r4", "document": "', '"r4", "document": "x')]
)
def test_results_of_other_records_are_not_kept(
    old: str, new: str, corpus: Path, tmp_path: Path, capsys: Capture
) -> None:
    before = summarized(tmp_path / "whole.jsonl", "lead", corpus)
    partial = tmp_path / "out.jsonl.partial"
    partial.write_bytes(before)
    corpus.write_text(corpus.read_text().replace(old, new))
    refused(capsys, 3, "line 5, has another record", "summarize", "lead", corpus, "--output", tmp_path / "out.jsonl")
    assert partial.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes with a name")
@pytest.mark.parametrize(("kind", "lines"), [("pipe", 30), ("device", 0), ("link", 30)])
def test_links_devices_and_pipes_keep_their_place(kind: str, lines: int, corpus: Path, tmp_path: Path) -> None:
    out, behind = tmp_path / "out.jsonl", tmp_path / "behind.jsonl"
    if kind == "pipe":
        os.mkfifo(out)
    else:
        out.symlink_to(os.devnull if kind == "device" else behind)
        behind.touch()
    reader = os.open(out, os.O_RDONLY | os.O_NONBLOCK)
    assert main(["--quiet", "summarize", "lead", str(corpus), "--output", str(out)]) == 0
    written = behind.read_bytes() if kind == "link" else os.read(reader, 1 << 16)
    os.close(reader)
    assert written.count(b"\n") == lines
    assert out.is_fifo() if kind == "pipe" else out.is_symlink()
    assert {path.name for path in tmp_path.iterdir()} <= {"out.jsonl", "behind.jsonl", corpus.name}


def started(out: Path, *arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "catchline.cli.main", "--quiet", "summarize", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, "--output", str(out)], stderr=subprocess.PIPE, env=environment)


def status_of(process: object) -> list[str]:
    """A process's state and its parent, from /proc; nothing of one that is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return []


def killed_job(out: Path, *arguments: object, lines: int) -> bool:
    """Kill -9 as soon as so many lines are there; did it come before the end?"""
    process, partial = started(out, *arguments), out.with_name(out.name + ".partial")
    while process.poll() is None and not (partial.exists() and partial.read_bytes().count(b"\n") >= lines):
        time.sleep(0.001)
    numbers = [path.name for path in Path("/proc").glob("[0-9]*")]
    workers = [number for number in numbers if status_of(number)[1:] == [str(process.pid)]]
    hit = process.poll() is None
    process.kill()
    process.communicate()
    end = time.monotonic() + 20
    while running := [number for number in workers if status_of(number)[:1] not in ([], ["Z"])]:
        assert time.monotonic() < end, f"workers outlive the process that started them: {running}"
        time.sleep(0.05)
    return hit


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="counts processes in /proc")
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_and_started_again_the_file_has_the_same_bytes(tmp_path: Path, workers: int) -> None:
    arguments = ["textrank", write_corpus(tmp_path / "documents.jsonl", 400), "--batch-size", "1"]
    whole, out = summarized(tmp_path / "whole.jsonl", *arguments), tmp_path / "out.jsonl"
    assert killed_job(out, *arguments, "--jobs", workers, lines=5)
    _, said = started(out, *arguments, "--jobs", workers).communicate(timeout=300)
    assert out.read_bytes() == whole, said.decode()


# ----------------------------------------------------------------------------------- several processes


def test_two_processes_write_what_one_writes_and_skip_bad_records(tmp_path: Path, capsys: Capture) -> None:
    path = write_corpus(tmp_path / "documents.jsonl", 20)
    arguments = ["lexrank", path, "--batch-size", "1", "--sentences", "2", "--explain"]
    alone = summarized(tmp_path / "alone.jsonl", *arguments)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:12], json.dumps({"id": "empty", "document": "  "}), *lines[12:]]))
    out = tmp_path / "out.jsonl"
    refused(capsys, 3, f"{path}:13", "summarize", *arguments, "--jobs", 2, "--output", out)
    # what was read before the bad record's window is done
    assert len((tmp_path / "out.jsonl.partial").read_text().splitlines()) == 8
    assert summarized(out, *arguments, "--jobs", 2, "--skip-bad") == alone
    assert "1 record skipped" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [["--jobs", "2"], pytest.param(["--ray", "--jobs", "2"], marks=needs_ray)], ids=["processes", "ray"]
)
def test_a_models_summaries_are_the_same_from_several_workers(corpus: Path, tmp_path: Path, more: list[str]) -> None:
    model = save_tiny_model(tmp_path / "tiny", [" ".join(WORDS) + " ."], max_source_tokens=60)
    arguments = [model, corpus, "--batch-size", "2", "--set", "length_normalisation=average"]
    alone = summarized(tmp_path / "alone.jsonl", *arguments)
    together = in_own_process(summarized, tmp_path / "together.jsonl", *arguments, *more)
    for first, second in zip(*(map(json.loads, raw.splitlines()) for raw in (alone, together)), strict=True):
        for name in ("score", "log_prob"):  # another number of threads may change a score's last digit
            assert abs(first.pop(name) - second.pop(name)) < 1e-4
        assert first | {"terms": 0} == second | {"terms": 0}


def test_a_spreadsheet_keeps_its_columns(tmp_path: Path, capsys: Capture) -> None:
    """Rows that are skipped stay, with an empty cell; an interrupted command continues; others have two columns."""
    source, lines, half = (tmp_path / name for name in ("in.csv", "lines.tsv", "half.jsonl"))
    source.write_text('text,no,summary\n"A cat, ""old"". It slept.",7,x\n,8,y\nA dog sat. Two ran.,9,\n')
    command = ("summarize", "lead-1", source, "--skip-bad", "--output")
    run(capsys, *command, half)
    (tmp_path / "lines.tsv.partial").write_text(half.read_text().splitlines(keepends=True)[0])
    run(capsys, *command, lines)
    with source.open(newline="") as given, lines.open(newline="") as file:
        written, rows = list(csv.reader(file, delimiter="\t")), list(csv.reader(given))
    new = ["summary_written", 'A cat, "old".', "", "A dog sat."]
    assert written == [[*row, cell] for row, cell in zip(rows, new, strict=True)]
    refused(capsys, 3, "exists", *command, lines)
    run(capsys, "summarize", "lead-1", write_corpus(tmp_path / "c.jsonl", 2), "--output", f"{lines}.csv")
    assert Path(f"{lines}.csv").read_text().splitlines()[0] == "id,summary"
