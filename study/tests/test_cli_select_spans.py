"""``catchline data select-spans`` from the shell: killed and gone on with, in JSON, and what it says when it cannot."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from catchline.cli.main import main
from commands import refused, run

SMALL = ["--tokenizer", "words", "--input-length", "8", "--output-length", "4", "--chunk", "40"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = random.Random(2)
    words = ["".join(generator.choices("abcdefgh", k=generator.randint(1, 5))) for _ in range(60)]
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(12):
        texts = (" ".join(generator.choices(words, k=generator.randint(10, 300))) for _ in range(40))
        (folder / f"part-{number:02d}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return folder


def written(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def selected(*arguments: str) -> int:
    return main(["--quiet", "data", "select-spans", *SMALL, *arguments])


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_killed_job_goes_on_to_the_same_bytes(corpus: Path, tmp_path: Path, workers: int) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    arguments = ["--input", str(corpus), "--k", "300", "--validation", "10", "--records-per-file", "100"]
    assert selected(*arguments, "--out", str(whole)) == 0
    command = [sys.executable, "-m", "catchline.cli.main", "--quiet", "data", "select-spans", *arguments, *SMALL]
    command += ["--out", str(killed), "--workers", str(workers)]
    scans = killed / ".selection"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None and len(list(scans.glob("0*.json"))) < 2:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "manifest.json").exists(), "the job was over before it could be killed"
    before = {path.name: path.stat().st_mtime_ns for path in scans.glob("0*.json")}
    assert before
    time.sleep(0.5)  # its workers end by themselves
    (scans / "00011.bin.partial").write_bytes(b"half")
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert written(killed) == written(whole)
    assert "300" in finished.stdout


def test_the_manifest_as_json_and_in_words(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = [str(corpus / "part-00.jsonl"), "--input", str(corpus / "part-0[12].jsonl"), "--k", "20", "--out"]
    assert selected(*arguments, str(out), "--json") == 0
    manifest = json.loads(capsys.readouterr().out)
    assert manifest == json.loads((out / "manifest.json").read_text())
    assert [file[0] for file in manifest["asked"]["files"]] == [f"part-0{number}.jsonl" for number in range(3)]
    assert manifest["records"] == 20
    assert selected(*arguments, str(out)) == 0
    printed = capsys.readouterr().out
    assert "complete already; nothing was done" in printed
    assert "chosen                                   20" in printed


def test_what_is_selected_can_be_checked_as_data(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["--k", "50", "--validation", "5", "--records-per-file", "20", "--weights", "0,0,1", "--out", str(out)]
    assert selected(str(corpus / "part-00.jsonl"), *arguments) == 0
    report = json.loads(run(capsys, "data", "check", out, "--json"))
    counts = {name: split["records"] for name, split in report["splits"].items()}
    assert counts == {"train": 45, "validation": 5}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--k", "5"], 2, "Nothing to read"),
        (["{corpus}", "--k", "5", "--weights", "1,1"], 2, "one each for R-1"),
        (["{corpus}/none.txt", "--k", "5"], 3, "holds no file to read"),
        (["{corpus}", "--k", "5", "--output-length", "65"], 2, "'--output-length': Input should be "),
    ],
    ids=lambda value: str(value)[:40],
)
def test_errors_are_one_sentence(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    filled = [argument.format(corpus=corpus) for argument in arguments]
    refused(capsys, code, words, "data", "select-spans", *SMALL, *filled, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
