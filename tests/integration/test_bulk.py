"""Bulk summarization: killed jobs go on to the same bytes, and processes and Ray write what one process writes."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from catchline import jobs
from catchline.cli.main import main
from commands import refused
from own_process import in_own_process, needs_ray
from tiny_models import save_tiny_model

WORDS = ["cat", "dog", "fox", "bird", "sat", "ran", "slept", "sang", "mat", "hill", "tree", "old", "young", "quick"]


def write_corpus(path: Path, count: int, *, with_ids: bool = True) -> Path:
    generator = random.Random(5)
    with path.open("w") as file:
        for number in range(count):
            sentences = [
                " ".join(generator.choices(WORDS, k=generator.randint(3, 12))).capitalize() + "."
                for _ in range(generator.randint(2, 9))
            ]
            row = {"id": f"r{number}"} if with_ids else {}
            file.write(json.dumps(row | {"document": " ".join(sentences)}) + "\n")
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("data") / "documents.jsonl", 90)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("models") / "tiny"
    return str(save_tiny_model(place, [" ".join(WORDS) + " ."], max_source_tokens=60))


def summarized(out: Path, *arguments: str) -> bytes:
    assert main(["--quiet", "summarize", *arguments, "--output", str(out)]) == 0
    return out.read_bytes()


# ------------------------------------------------------------------------------ going on to the same bytes


def test_all_lines_are_on_the_disk_before_the_file_gets_its_name(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, flushed = tmp_path / "out.jsonl", []
    monkeypatch.setattr(
        "catchline.cli.summarize.flush", lambda path: flushed.append((path.name, path.read_bytes(), out.exists()))
    )
    written = summarized(out, "lead", str(corpus))
    assert flushed == [("out.jsonl.partial", written, False)]


def test_records_without_ids_keep_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "".join(json.dumps({"document": f"Text {number}. More."}) + "\n" for number in range(60))
    arguments = ["lead", "-", "--jsonl", "--batch-size", "2"]  # windows of 16

    def from_stdin(out: Path) -> bytes:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
        return summarized(out, *arguments)

    whole = from_stdin(tmp_path / "whole.jsonl")
    assert [json.loads(line)["id"] for line in whole.splitlines()] == [str(number) for number in range(1, 61)]
    (tmp_path / "out.jsonl.partial").write_bytes(b"".join(whole.splitlines(keepends=True)[:37]))
    assert from_stdin(tmp_path / "out.jsonl") == whole


def test_an_interrupted_output_is_completed(tmp_path: Path) -> None:
    arguments = ["lead", str(write_corpus(tmp_path / "documents.jsonl", 30)), "--batch-size", "3"]
    whole = summarized(tmp_path / "whole.jsonl", *arguments)
    lines = whole.splitlines(keepends=True)
    for kept, cut in ((0, 0), (1, 9), (23, 0), (24, 3), (30, 0)):
        partial = tmp_path / "out.jsonl.partial"
        partial.write_bytes(b"".join(lines[:kept]) + (lines[kept][:cut] if cut else b""))
        assert summarized(tmp_path / "out.jsonl", *arguments) == whole, (kept, cut)
        assert not partial.exists()


@pytest.mark.parametrize(
    ("old", "new"), [('"id": "r4"', '"id": "q4"'), ('"r4", "document": "', '"r4", "document": "x')]
)
def test_results_of_other_records_are_not_kept(
    old: str, new: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path / "documents.jsonl", 6)
    partial = tmp_path / "out.jsonl.partial"
    partial.write_bytes(summarized(tmp_path / "whole.jsonl", "lead", str(corpus)))
    before = partial.read_bytes()
    corpus.write_text(corpus.read_text().replace(old, new))
    refused(capsys, 3, "line 5, is of another record", "summarize", "lead", corpus, "--output", tmp_path / "out.jsonl")
    assert partial.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes with a name")
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_devices_and_pipes_keep_their_place(kind: str, tmp_path: Path) -> None:
    out, corpus = tmp_path / kind, str(write_corpus(tmp_path / "six.jsonl", 6))
    if kind == "pipe":
        os.mkfifo(out)
        reader = os.open(out, os.O_RDONLY | os.O_NONBLOCK)
    else:
        out.symlink_to(os.devnull)
        reader = os.open(out, os.O_RDONLY)
    assert main(["--quiet", "summarize", "lead", corpus, "--output", str(out)]) == 0
    assert os.read(reader, 1 << 16).count(b"\n") == (6 if kind == "pipe" else 0)
    os.close(reader)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([kind, "six.jsonl"])
    assert out.is_fifo() == (kind == "pipe")


def started(out: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "catchline.cli.main", "--quiet", "summarize", *arguments, "--output", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)


def children_of(process: int) -> set[int]:
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == process:
            found.add(int(status.parent.name))
    return found


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill_and_go_on(out: Path, *arguments: str, kills: int) -> int:
    """Kill -9 as soon as some more lines are there, ``kills`` times, then let it finish. Returns kills that hit."""
    partial = out.with_name(out.name + ".partial")
    hit = 0
    for number in range(kills):
        wanted = 5 + 20 * number
        process = started(out, *arguments)
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if partial.exists() and partial.read_bytes().count(b"\n") >= wanted:
                workers = children_of(process.pid)
                process.send_signal(signal.SIGKILL)
                process.wait()
                hit += 1
                end = time.monotonic() + 20
                while any(map(alive, workers)) and time.monotonic() < end:
                    time.sleep(0.05)
                assert not any(map(alive, workers)), "workers outlive the process that started them"
                break
            time.sleep(0.001)
        else:
            process.wait()
        assert process.stderr is not None
        process.stderr.close()
        if out.exists():
            break
    process = started(out, *arguments)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said.decode()
    return hit


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="counts processes in /proc")
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_and_started_again_the_file_has_the_same_bytes(tmp_path: Path, jobs: int) -> None:
    corpus = write_corpus(tmp_path / "documents.jsonl", 400)
    arguments = ["textrank", str(corpus), "--batch-size", "1"]
    whole = summarized(tmp_path / "whole.jsonl", *arguments)
    out = tmp_path / "out.jsonl"
    assert kill_and_go_on(out, *arguments, "--jobs", str(jobs), kills=jobs) >= 1
    assert out.read_bytes() == whole


# ----------------------------------------------------------------------------------- several processes


def test_two_processes_write_what_one_writes(corpus: Path, tmp_path: Path) -> None:
    arguments = ["lexrank", str(corpus), "--batch-size", "2", "--sentences", "2", "--explain"]
    alone = summarized(tmp_path / "alone.jsonl", *arguments)
    assert summarized(tmp_path / "together.jsonl", *arguments, "--jobs", "2") == alone
    assert [json.loads(line)["id"] for line in alone.splitlines()] == [f"r{i}" for i in range(90)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [["--jobs", "2"], pytest.param(["--ray", "--jobs", "2"], marks=needs_ray)], ids=["processes", "ray"]
)
def test_a_models_summaries_are_the_same_from_several_workers(
    corpus: Path, model: str, tmp_path: Path, more: list[str]
) -> None:
    arguments = [model, str(corpus), "--batch-size", "2", "--set", "length_normalisation=average"]
    alone = summarized(tmp_path / "alone.jsonl", *arguments)
    together = in_own_process(summarized, tmp_path / "together.jsonl", *arguments, *more)
    rows = [[json.loads(line) for line in raw.splitlines()] for raw in (alone, together)]
    for first, second in zip(*rows, strict=True):  # another number of threads may change a score's last digit
        assert abs(first.pop("score") - second.pop("score")) < 1e-4
        assert abs(first.pop("log_prob") - second.pop("log_prob")) < 1e-4
        first.pop("terms", None), second.pop("terms", None)
        assert first == second


def test_bad_records_in_several_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_corpus(tmp_path / "documents.jsonl", 20)
    lines = path.read_text().splitlines()
    lines[12] = json.dumps({"id": "empty", "document": "  "})
    path.write_text("\n".join(lines) + "\n")
    arguments = ["summarize", "lead", str(path), "--batch-size", "1", "--jobs", "2"]
    refused(capsys, 3, f"{path}:13", *arguments, "--output", tmp_path / "out.jsonl")
    # what was read before the bad record's window is done
    assert len((tmp_path / "out.jsonl.partial").read_text().splitlines()) == 8
    assert main(["--quiet", *arguments, "--skip-bad", "--output", str(tmp_path / "two.jsonl")]) == 0
    assert "1 record skipped" in capsys.readouterr().err
    assert len((tmp_path / "two.jsonl").read_text().splitlines()) == 19


@pytest.mark.slow
def test_errors_of_workers_are_the_users_errors(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    arguments = ["--jobs", "2", "--output", str(out)]
    refused(capsys, 4, "There is no model folder", "summarize", "/absent/model", corpus, *arguments)
    refused(capsys, 2, "sentnces", "summarize", "lead", corpus, "--set", "sentnces=2", *arguments)
    text = tmp_path / "a.txt"
    text.write_text("One. Two.")
    refused(capsys, 2, "for files of records", "summarize", "lead", text, "--jobs", "2")


def test_a_worker_that_dies_is_told_and_the_rest_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_corpus(tmp_path / "documents.jsonl", 200)
    submit = jobs.ProcessPoolExecutor.submit
    seen: list[int] = []

    def submitted(self: jobs.ProcessPoolExecutor, work: Any, chunk: Any) -> Any:
        handle = submit(self, work, chunk)
        seen.append(chunk[0])
        if len(seen) == 12:
            for process in jobs.multiprocessing.active_children():
                process.kill()
        return handle

    monkeypatch.setattr(jobs.ProcessPoolExecutor, "submit", submitted)
    out = tmp_path / "out.jsonl"
    arguments = ["lead", corpus, "--batch-size", 1, "--jobs", 2]
    refused(capsys, 1, "A worker process died", "summarize", *arguments, "--output", out)
    assert len((tmp_path / "out.jsonl.partial").read_text().splitlines()) > 8
    alone = ["lead", str(corpus), "--batch-size", "1"]
    assert summarized(out, *alone) == summarized(tmp_path / "whole.jsonl", *alone)
