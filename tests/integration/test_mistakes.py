"""What a newcomer does wrong, and the one sentence that leads on; never a traceback, never exit code 0."""

from __future__ import annotations

import gzip
import io
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

import catchline
from catchline.cli.main import main
from catchline.errors import DataError
from commands import run

TRAIN = "train headline_writer --size tiny --out out --data"
STRICT = f"{TRAIN} good.jsonl --set data.min_supported=1"
ONE = "compare lead-1 longest-1 --data good.jsonl --max-records 1"
COARSE = "train coarse_to_fine --row c2f --size tiny --all-pairs --data good.jsonl --out out"
EVALUATE = "evaluate --data good.jsonl"
COMPARE = "compare --data good.jsonl"
PAGE = "<html><body><script>a()</script><article><p>The river rose in the night.</p></article></body></html>"

FILES: dict[str, bytes] = {
    "good.jsonl": b'{"document": "The river rose in the night and the bridge was closed.", "summary": "river rose"}\n'
    * 3,
    "empty.jsonl": b"",
    "latin.csv": "document,summary\nCafé au lait is a drink.,café\n".encode("latin-1"),
    "utf16.csv": "document,summary\nA text.,short\n".encode("utf-16"),
    "tickets.xlsx": b"PK\x03\x04" + bytes(500),
    "packed.csv": gzip.compress(b"document,summary\na text,text\n"),
    "paper.pdf": b"%PDF-1.4\n" + bytes(range(256)),
    "columns.csv": b"ticket,answer\nThe printer does not print any more.,new toner\n",
    "no_line.csv": b"document,summary\na text,short\nanother text,\n",
    "array.jsonl": b'[{"document": "a b c", "summary": "a"}]\n',
    "broken.jsonl": b'{"document": "a b c", "summary": "a"}\n{"document": "x\n',
    "blank.txt": b"  \n\n ",
    "binary.txt": b"a\0b\0",
    "no_recipe.yaml": b"name: x\n",
    "script.html": b"<html><body><script>write()</script></body></html>",
    "text.txt": b"The river rose in the night. Nobody slept.\n",
    "renamed.jsonl.gz": b"no gzip",
    "tab.yaml": b"extends: headline_writer\nbase:\n\ttraining: {}\n",
    "twice.yaml": b"extends: headline_writer\nbase:\n  training: {max_epochs: 1}\n  training: {max_epochs: 2}\n",
    "one.txt": b"one\n",
    "other.jsonl": b'{"id": "1", "document": "A text.", "summary": "A"}\n',
    "deep.jsonl": b"[" * 100_000 + b"\n",
    "tests/test.jsonl": b'{"document": "a b", "summary": "a"}\n',
    "runs/log.jsonl": b"{}\n",
    "runs/recipe.yaml": b"name: x\n",
}

MISTAKES = [
    (f"{TRAIN} good.json", 3, "Did you mean 'good.jsonl'?"),
    (f"{TRAIN} empty.jsonl", 3, "has no record"),
    (f"{TRAIN} latin.csv", 3, "latin.csv:2: not UTF-8: byte 0xE9; save the file as UTF-8."),
    (f"{TRAIN} no_line.csv", 3, "remove the record. To leave such records out: --skip-bad (skip_bad=True)."),
    (f"{TRAIN} array.jsonl", 3, "is a JSON array, not JSON lines; name the file .json, or read it with --format json"),
    (f"{TRAIN} utf16.csv", 3, "is UTF-16 or UTF-32: save it as UTF-8"),
    ("export oneline --out new --check columns.csv", 3, "--document-column"),
    (f"{TRAIN} tickets.xlsx", 3, "tickets.xlsx is a spreadsheet: save it as CSV (UTF-8)"),
    (f"{TRAIN} packed.csv", 3, "packed.csv is compressed: unpack it; pairs may stay packed as .gz or .zst."),
    (f"{TRAIN} columns.csv", 3, "name it with document_column (--document-column). Columns: "),
    (f"{TRAIN} broken.jsonl", 3, "broken.jsonl:2: broken JSON"),
    (f"{TRAIN} good.jsonl --set training.batch_size=-4", 2, "'training.batch_size': input should be greater than"),
    (f"{TRAIN} good.jsonl --set training.optimizer=adamw", 2, "is a section with its own keys, such as"),
    ("train good.jsonl", 2, "is data, not a recipe: `catchline train oneline --data good.jsonl`"),
    ("train no_recipe.yaml --data good.jsonl", 2, "begins with a line such as `extends: headline_writer`"),
    ("train headline_writer", 2, "Which pairs? Give --data"),
    ("train headline_writer --size tiny --data good.jsonl --out good.jsonl", 2, "is a file; name a folder."),
    ("resume good", 5, "Start one with `catchline train`"),
    ("summarize lead mising.txt", 3, "There is no file mising.txt."),
    ("summarize lead text.txt good.jsonl", 2, "either text files or files of records"),
    ("summarize lead blank.txt", 3, "is empty; there is nothing to summarize"),
    ("summarize lead paper.pdf", 3, "paper.pdf cannot be read as .pdf"),
    ("summarize lead binary.txt", 3, "is not text: it holds NUL bytes"),
    ("summarize lead script.html", 3, "script.html has no text"),
    ("summarize rusn text.txt", 4, "Did you mean 'runs'?"),
    ("summarize 'The text itself.'", 2, "echo 'Your text.' | catchline summarize"),
    ("summarize lead good.jsonl --output runs", 2, "is a folder; --output names a file"),
    ("summarize lead --sentences -1 good.jsonl", 2, "greater than or equal to 1"),
    ("evaluate lead-1 --data columns.csv", 3, "--document-column"),
    ("evaluate lead-1 runs/mine --data good.jsonl --output scores", 4, "There is no model folder runs/mine"),
    (f"{ONE} --test bootstrap --out scores", 3, "--test bootstrap needs at least two documents, and here is one"),
    ("evaluate lead-1", 2, "Missing option '--data'"),
    # arguments in another place, options of other programs
    ("summarize oneline text.txt --device tpu", 2, "There is no device 'tpu' here; use cpu, or auto"),
    ("data split good.jsonl", 2, "No such command 'split'. Known: check, columns"),
    ("serve --port 99999", 2, "less than or equal to 65535"),
    # a file of one kind where another is wanted
    (f"{TRAIN} good.jsonl --from lexrank", 4, "has no weights; name a model such as oneline"),
    (f"{TRAIN} renamed.jsonl.gz", 3, "the compressed data is damaged"),
    (f"{TRAIN} tests", 2, "tests has no training file (only test); name it train.jsonl"),
    ("train tab.yaml --data good.jsonl", 2, "is not valid YAML at line 3: found character '\\t'"),
    ("train twice.yaml --data good.jsonl", 2, "line 4: the key 'training' stands there twice"),
    ("evaluate lead-1 --data text.txt", 3, "files of pairs end in .jsonl, .csv or .tsv"),
    ("rouge one.txt text.txt one.txt --profile rouge", 2, "Did you mean 'rouge155'?"),
    ("summarize lead good.jsonl --output lines.csv", 2, "results are JSON lines; name it lines.jsonl."),
    ("explain lead text.txt --html runs", 1, "Cannot use runs: is a directory; name a file."),
    # what would be lost, or stand for something else
    ("summarize lead good.jsonl --output good.jsonl", 2, "is what this command reads; --output names another file."),
    ("explain lead text.txt --heatmap text.txt", 2, "Unknown picture format '.txt'"),
    ("summarize lead good.jsonl --output other.jsonl", 3, "is not a result of catchline"),
    ("summarize lead - --format csv", 2, "Standard input is a text or JSON lines, not csv"),
    ("serve =oneline", 2, "cannot be called"),
    ("evaluate a/b a/b. --data good.jsonl --output out", 2, "of a/b and a/b. would be one file"),
    ("summarize oneline text.txt --set search.beam_size=2 --set beam_sise=3", 2, "Did you mean 'beam_size'?"),
    ("rouge deep.jsonl", 3, "deep.jsonl, line 1: this is not JSON"),
    # settings that leave nothing
    (f"{STRICT} --set text.max_source_tokens=1 --all-pairs", 3, "data.min_supported=0 (--set) learns from all"),
    (f"summarize '{'A text. ' * 99}'", 2, "A text comes from a file or through standard input"),
    ("summarize '' text.txt", 2, "An argument is empty"),
    ("recipes show --rwo x", 2, "--row"),
    (f"{COARSE} --set model.chunking=sentence --set text.sentence_separator=null", 2, "text.sentence_separator"),
    (f"{COARSE} --set model.encode=sometimes", 2, "model.encode"),
    (f"{COARSE} --set model.position_size=4 --set model.chunks=null", 2, "model.position_rows"),
    (f"{COARSE} --set model.head.type=pointer", 2, "Unknown key 'model.head'"),
    (f"{COARSE} --set model.coarse.type=rnn", 2, "coarse encoder"),
    # systems and measures
    ("evaluate --data absent.jsonl lead-1", 3, "does not exist"),
    (EVALUATE, 2, "Name a model or an extractive method"),
    (f"{EVALUATE} lead-1 --profile duc", 2, "Did you mean 'duc2004'?"),
    (f"{EVALUATE} lead-1 --profile perl", 2, "Unknown ROUGE profile"),
    (f"{EVALUATE} lexrnk", 4, "Did you mean 'lexrank'?"),
    (f"{EVALUATE} lead:sentnces=1", 2, "Did you mean 'sentences'?"),
    ("evaluate lead-1 --data tests --split train", 3, "has no 'train' split"),
    (f"{EVALUATE} lead-1 --set beam_size=3", 2, "none of these systems is a model"),
    (f"{EVALUATE} lead-1 --document-column dokument", 3, "Did you mean 'document'?"),
    (f"{COMPARE} headlinewriter", 4, "neither a recipe, a model nor an extractive method. Did you mean 'headline_w"),
    (f"{COMPARE} headlinewriter --size tiny", 2, "Did you mean 'headline_writer'?"),
    (f"{COMPARE} extractive --rows lexrnk", 2, "Did you mean 'lexrank'?"),
    (f"{COMPARE} extractive --test bootstap", 2, "Did you mean 'bootstrap'?"),
    (f"{COMPARE} extractive --baseline lead", 2, "Unknown baseline 'lead'"),
    (f"{COMPARE} extractive headline_writer", 2, "one recipe at a time"),
    (f"{COMPARE} lead-1 lexrank-1 --seeds 3", 2, "--seeds belongs to a recipe"),
    (f"{COMPARE} headline_writer --size tny", 2, "Did you mean 'tiny'?"),
    (f"{COMPARE} absent.yaml", 2, "no recipe file absent.yaml"),
    ("compare extractive", 3, "Which records?"),
    ("compare headline_writer", 2, "Which pairs?"),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("line", "code", "said"), MISTAKES, ids=[line for line, _, _ in MISTAKES])
def test_one_sentence_that_leads_on(
    line: str, code: int, said: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


@pytest.mark.parametrize("name", ["no_line.csv", "array.jsonl"])
def test_a_message_names_options_of_its_command_only(
    name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--quiet", "data", "check", name]) == 3
    shown = capsys.readouterr()
    assert "--skip-bad" not in (shown.out + shown.err).replace("`catchline train --skip-bad`", "")
    assert main(["--quiet", "summarize", "lead", name, "--skip-bad"]) == (0 if name == "no_line.csv" else 3)


@pytest.mark.parametrize(("name", "how"), [("no_line.csv", "(skip_bad=True)"), ("array.jsonl", "(format='json')")])
def test_from_python_the_message_names_the_keyword(name: str, how: str, place: Path) -> None:
    with pytest.raises(DataError, match=re.escape(how)):
        catchline.evaluate(["lead-1"], name)
    with pytest.raises(DataError, match=re.escape(how)):
        catchline.train("headline_writer", name, place / "run", size="tiny")
    assert list(catchline.read_records(place / name, **({"skip_bad": True} if "line" in name else {"format": "json"})))


def test_a_page_is_read_as_text(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = place / "a page.html"
    page.write_text(PAGE)
    for name in (str(page), page.as_uri()):
        assert run(capsys, "summarize", "lead", name) == "The river rose in the night.\n"
    page.write_bytes(
        PAGE.replace("<body>", '<meta charset="latin-1"><body>').replace("river", "Fluß").encode("latin-1")
    )
    assert "Fluß" in run(capsys, "summarize", "lead", page)


@pytest.mark.parametrize("name", ["x.tab", "x.jsonl.zst", "x.jsonl.gz", "-", "semicolon.csv"])
def test_tables_by_all_their_names(
    name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a byte order mark, Windows' line ends, and a semicolon between the fields."""
    line = b'{"document": "The river rose. Nobody slept.", "summary": "river rose"}\n'
    raw = {
        "x.tab": b"article\tsummary\nThe river rose. Nobody slept.\triver rose\n",
        "x.jsonl.zst": pytest.importorskip("zstandard").compress(line),
        "x.jsonl.gz": gzip.compress(line),
        "-": b"\xef\xbb\xbf" + line,
        "semicolon.csv": b'\xef\xbb\xbf"document";"summary"\r\n"The river rose. Nobody, none slept.";"river rose"\r\n',
    }[name]
    (place / name).write_bytes(raw)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    line_of = run(capsys, "summarize", "lead-1", name, *(["--jsonl"] if name == "-" else []))
    assert json.loads(line_of)["summary"] == "The river rose."
    assert main(["--quiet", "summarize", f"missing{name.removeprefix('x')}"]) == (4 if name == "-" else 3)
