"""What a newcomer does wrong, and the one sentence that leads on; never a traceback, never exit code 0."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import catchline
from catchline.cli.main import main
from catchline.errors import DataError
from commands import Capture, Patch, run

TRAIN = "train headline_writer --size tiny --out out --data"
STRICT = f"{TRAIN} good.jsonl --set data.min_supported=1"
ONE = "compare lead-1 longest-1 --data good.jsonl --max-records 1"
COARSE = "train coarse_to_fine --row c2f --size tiny --all-pairs --data good.jsonl --out out"
EVALUATE = "evaluate --data good.jsonl"
COMPARE = "compare --data good.jsonl"
PAGE = '<html><meta charset="latin-1"><body><p>The Fluß rose in the night.</p><script>a()</script></body></html>'

FILES: dict[str, bytes] = {
    "good.jsonl": b'{"document": "The river rose in the night and the bridge was closed.", "summary": "river rose"}\n'
    * 3,
    "latin.csv": "document,summary\nCafé au lait is a drink.,café\n".encode("latin-1"),
    "utf16.csv": "document,summary\nA text.,short\n".encode("utf-16"),
    "tickets.xlsx": b"PK\x03\x04" + bytes(500),
    "paper.pdf": b"%PDF-1.4\n" + bytes(range(256)),
    "columns.csv": b"ticket,answer\nThe printer does not print any more.,new toner\n",
    "no_line.csv": b"document,summary\na text,short\nanother text,\n",
    "array.jsonl": b'[{"document": "a b c", "summary": "a"}]\n',
    "broken.jsonl": b'{"document": "a b c", "summary": "a"}\n{"document": "x\n',
    "blank.txt": b"  \n\n ",
    "kept/one/recipe.yaml": b"name: a\n",
    "text.txt": b"The river rose in the night. Nobody slept.\n",
    "twice.yaml": b"extends: headline_writer\nbase:\n  training: {max_epochs: 1}\n  training: {max_epochs: 2}\n",
    "other.jsonl": b'{"id": "1", "document": "A text.", "summary": "A"}\n',
    "deep.jsonl": b"[" * 100_000 + b"\n",
    "tests/test.jsonl": b'{"document": "a b", "summary": "a"}\n',
    "runs/log.jsonl": b"{}\n",
    "runs/recipe.yaml": b"name: x\n",
}

MISTAKES = [
    (f"{TRAIN} good.json", 3, "Did you mean 'good.jsonl'?"),
    (f"{TRAIN} latin.csv", 3, "latin.csv:2: not UTF-8: byte 0xE9; save the file as UTF-8."),
    (f"{TRAIN} no_line.csv", 3, "remove the record. To leave such records out: --skip-bad (skip_bad=True)."),
    (f"{TRAIN} array.jsonl", 3, "is a JSON array, not JSON lines; name the file .json, or read it with --format json"),
    (f"{TRAIN} utf16.csv", 3, "is UTF-16 or UTF-32: save it as UTF-8"),
    ("export oneline --out new --check columns.csv", 3, "--document-column"),
    (f"{TRAIN} tickets.xlsx", 3, "tickets.xlsx is a spreadsheet: save it as CSV (UTF-8)"),
    (f"{TRAIN} columns.csv", 3, "choose one with document_column (--document-column). Columns: "),
    (f"{TRAIN} good.jsonl --set training.optimizer=adamw", 2, "is a section with its own keys, such as"),
    ("train good.jsonl", 2, "is data, not a recipe: `catchline train oneline --data good.jsonl`"),
    ("train headline_writer --size tiny --data good.jsonl --out good.jsonl", 2, "is a file; name a folder."),
    ("summarize lead mising.txt", 3, "There is no file mising.txt."),
    ("summarize lead text.txt good.jsonl", 2, "either text files or files of records"),
    ("summarize lead blank.txt", 3, "is empty; there is nothing to summarize"),
    ("summarize lead paper.pdf", 3, "paper.pdf cannot be read as .pdf"),
    ("summarize rusn text.txt", 4, "Did you mean 'runs'?"),
    ("summarize 'The text itself.'", 2, "echo 'Your text.' | catchline summarize"),
    ("summarize lead good.jsonl --output runs", 2, "is a folder; --output names a file"),
    ("evaluate lead-1 --data columns.csv", 3, "--document-column"),
    ("evaluate lead-1 runs/mine --data good.jsonl --output scores", 4, "There is no model folder runs/mine"),
    (f"{ONE} --test bootstrap --out scores", 3, "--test bootstrap needs at least two documents, and there is one"),
    # arguments in another place, options of other programs
    ("summarize oneline text.txt --device tpu", 2, "There is no device 'tpu' here; use cpu, or auto"),
    ("check -", 2, "name its document too"),
    ("evaluate openai:tiny --data good.jsonl", 2, "write openai:MODEL@http://host/v1"),
    ("data split good.jsonl", 2, "No such command 'split'. Known: check, columns"),
    # a file of one kind where another is wanted
    (f"{TRAIN} good.jsonl --from lexrank", 4, "has no weights; name a model such as oneline"),
    (f"{TRAIN} tests", 2, "tests has no training file (only test); name it train.jsonl"),
    ("train twice.yaml --data good.jsonl", 2, "line 4: the key 'training' occurs twice"),
    ("summarize lead good.jsonl --output lines.xlsx", 2, "results are JSON lines; name it lines.jsonl."),
    # what would be lost, or stand for something else
    ("summarize lead good.jsonl --output good.jsonl", 2, "is an input of this command; give --output another file."),
    ("explain lead text.txt --heatmap text.txt", 2, "Unknown picture format '.txt'"),
    ("summarize lead good.jsonl --output other.jsonl", 3, "is not a result of catchline"),
    ("evaluate a/b a/b. --data good.jsonl --output out", 2, "of a/b and a/b. would go to one file"),
    ("summarize oneline text.txt --set search.beam_size=2 --set beam_sise=3", 2, "Did you mean 'beam_size'?"),
    ("rouge deep.jsonl", 3, "deep.jsonl, line 1: this is not JSON"),
    # settings that leave nothing
    (f"{STRICT} --set text.max_source_tokens=1 --all-pairs", 3, "data.min_supported=0 (--set) learns from all"),
    (f"summarize '{'A text. ' * 99}'", 2, "Give a text as a file or on standard input"),
    ("summarize '' text.txt", 2, "An argument is empty"),
    ("train headline_writer --row pointer --data good.jsonl", 2, "row 'pointer'. Did you mean 'pointer-generator'?"),
    # places that are not there, and folders with the names of files
    ("explain lead-1 text.txt --html gone/why.html", 2, "There is no folder gone for why.html"),
    ("summarize lead-1 good.jsonl --output gone/a.jsonl", 2, "There is no folder gone for a.jsonl"),
    ("export oneline --out mine.onnx", 2, "name it mine."),
    ("train oneline --data good.jsonl --out mine.pt", 2, "name it mine."),
    (f"{EVALUATE} lead-1 --output mine.csv", 2, "name it mine."),
    (f"{COMPARE} lead-1 --out mine.json", 2, "name it mine."),
    ("resume kept", 5, "In it are runs: kept/one."),
    (f"{COARSE} --set model.chunking=sentence --set text.sentence_separator=null", 2, "text.sentence_separator"),
    (f"{COARSE} --set model.position_size=4 --set model.chunks=null", 2, "model.position_rows"),
    # systems and measures
    (EVALUATE, 2, "Name a model or an extractive method"),
    (f"{EVALUATE} lead-1 --profile duc", 2, "Did you mean 'duc2004'?"),
    (f"{EVALUATE} lexrnk", 4, "Did you mean 'lexrank'?"),
    (f"{EVALUATE} lead-1 --set beam_size=3", 2, "none of these systems is a model"),
    (f"{COMPARE} headlinewriter", 4, "neither a recipe, a model nor an extractive method. Did you mean 'headline_w"),
    (f"{COMPARE} extractive --rows lexrnk", 2, "Did you mean 'lexrank'?"),
    (f"{COMPARE} extractive --baseline lead", 2, "Unknown baseline 'lead'"),
    (f"{COMPARE} extractive headline_writer", 2, "Compare one recipe"),
    (f"{COMPARE} headline_writer --size tny", 2, "Did you mean 'tiny'?"),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: Patch) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("line", "code", "said"), MISTAKES, ids=[line for line, _, _ in MISTAKES])
def test_one_sentence_that_leads_on(line: str, code: int, said: str, place: Path, capsys: Capture) -> None:
    before = {path: path.stat().st_size for path in place.rglob("*") if path.is_file()}
    assert main(["--quiet", *shlex.split(line)]) == code
    shown = capsys.readouterr()
    assert said in shown.err
    assert not shown.out
    told = shown.err.splitlines()
    assert len(told) == 1, told
    assert told[0].startswith("catchline: ")
    assert told[0][-1] in ".?`" or "| catchline summarize" in told[0]
    after = {path: path.stat().st_size for path in place.rglob("*") if path.is_file()}
    assert not (place / "scores").exists(), "nothing was decoded before the mistake was told"
    assert {path: after.get(path) for path in before} == before  # nothing of the user's is moved or changed


@pytest.mark.parametrize(("name", "how"), [("no_line.csv", "(skip_bad=True)"), ("array.jsonl", "(format='json')")])
def test_from_python_the_message_names_the_keyword(name: str, how: str, place: Path) -> None:
    with pytest.raises(DataError, match=re.escape(how)):
        catchline.evaluate(["lead-1"], name)
    with pytest.raises(DataError, match=re.escape(how)):
        catchline.train("headline_writer", name, place / "run", size="tiny")
    assert list(catchline.read_records(place / name, **({"skip_bad": True} if "line" in name else {"format": "json"})))


def test_a_page_is_read_as_text(place: Path, capsys: Capture) -> None:
    page = place / "a page.html"
    page.write_bytes(PAGE.encode("latin-1"))
    for name in (str(page), page.as_uri()):
        assert run(capsys, "summarize", "lead", name) == "The Fluß rose in the night.\n"
