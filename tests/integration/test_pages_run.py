"""Programs, commands and examples of the pages run, and give what the pages show."""

from __future__ import annotations

import ast
import csv
import io
import json
import random
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from catchline import Summarizer, read_records
from catchline.cli.main import main
from commands import Capture, Patch, run
from json_lines import write_lines
from office_files import MAKERS, PROSE
from serving import running

ROOT = Path(__file__).parents[2]
DOCS = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))]
SETTINGS = ("max_updates=2", "batch_size=4", "validation.decode_records=2")
QUICK = [word for setting in SETTINGS for word in ("--set", f"training.{setting}")]
THINGS, PLACES = ("printer", "heating", "lift", "door", "lamp", "phone"), ("kitchen", "hall", "office", "cellar", "lab")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, language: str = "") -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL)
    return [text for kind, text in found if kind == language]


# ------------------------------------------------------------------------------------- README and decoding


def test_the_bundled_model_writes_what_the_readme_shows() -> None:
    rows = re.findall(r"^\| ([^|]{100,}) \| ([^|]+) \|$", page("README.md"), re.MULTILINE)
    assert len(rows) == 6
    texts, lines = [text for text, _ in rows], [line.rpartition(":* ")[2] for _, line in rows]
    summaries = Summarizer().summarize(texts)
    assert [summary.text for summary in summaries] == lines
    assert [bool(summary.extracted) for summary in summaries] == ["declined" in line for _, line in rows]
    (command,) = [line for block in blocks("README.md") for line in block.splitlines() if line.startswith("echo")]
    assert f"`{Summarizer().summarize(shlex.split(command)[1])}`" in page("README.md").replace("\n", " ")


def test_the_scorer_of_the_decoding_page(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "shorter.py").write_text(blocks("docs/decoding.md", "python")[0], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "Tidepool is a small monitor for home weather stations. It draws charts in the browser."
    long, short = (
        Summarizer.from_pretrained("oneline", trust_code=True).summarize(
            text, always_write=True, scorers=[{"type": "mine.shorter:Shorter", "bonus": bonus}]
        )
        for bonus in (0, 10)
    )
    assert len(short.text) < len(long.text)


# ------------------------------------------------------------------------------------------- the tutorial


def tickets(count: int) -> Iterator[tuple[str, str]]:
    draw = random.Random(3)
    for number in range(count):
        thing, place = draw.choice(THINGS), draw.choice(PLACES)
        extra = " ".join(draw.sample(["noise", "smell", "light", "water", "smoke", "dust", "heat", "wind"], 4))
        text = f"Since day {number} the {thing} in the {place} is broken. There was {extra}, and nobody could use it."
        yield text, f"{thing} in the {place} is broken"


def test_the_commands_of_the_tutorial_run(tmp_path: Path, capsys: Capture) -> None:
    for name, count in (("tickets.csv", 220), ("new_tickets.csv", 3)):
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "title"), *tickets(count)])
    (tmp_path / "ticket.txt").write_text(next(tickets(1))[0])
    lines = [line for block in blocks("docs/tutorial.md") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("catchline ")]
    assert len(commands) > 8
    served = [arguments for arguments in commands if arguments[0] == "serve"]
    for arguments in (one for one in commands if one not in served):
        extra = QUICK if arguments[0] == "train" else ["--max-records", "4"] if arguments[0] == "evaluate" else []
        assert main([*arguments, *extra]) == 0, (arguments, capsys.readouterr().err)
    assert "Starting from oneline, the bundled model; --from scratch starts afresh." in capsys.readouterr().err
    for name in ("scores/scores.tex", "scores/scores.csv", "curves.png", "why.html", "titles.jsonl"):
        assert (tmp_path / name).stat().st_size, name
    card = (tmp_path / "runs/tickets/model/README.md").read_text()
    assert "base_model: oneline" in card
    assert "| the model |" in card
    ((_, *arguments),) = served
    (request,) = [shlex.split(line) for line in lines if line.startswith("curl ")]
    with running(tmp_path, *arguments) as server, server.client() as client:
        headers = {"Content-Type": "application/json"}
        answer = client.post(request[1].split("8000")[1], content=request[-1], headers=headers)
    assert answer.status_code == 200
    assert answer.json()["summaries"][0]["summary"]


# ---------------------------------------------------------------------------------- programs of other pages


def printed_by(name: str, heading: str, capsys: Capture) -> str:
    """What the first program below a heading prints."""
    section = page(name).partition(f"## {heading}")[2]
    program = re.search(r"```python\n(.*?)```", section, re.S)
    assert program is not None
    capsys.readouterr()
    exec(compile(program[1], name, "exec"), {})
    return capsys.readouterr().out


def test_programs_that_need_no_data(tmp_path: Path, capsys: Capture) -> None:
    assert "{'rouge1': 0.6667, 'rougeL': 0.6667}" in printed_by("docs/evaluate.md", "ROUGE in your own program", capsys)
    assert "monitor from 20 27 monitor" in printed_by("docs/explain.md", "Where the words came from", capsys)
    assert "None" in printed_by("docs/explain.md", "Faithfulness", capsys)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "1.txt").write_bytes(MAKERS[".docx"]())  # known by its content
    (tmp_path / "folder" / "1.sum").write_text("The river rises")
    assert not printed_by("docs/data.md", "Formats", capsys)
    [pair] = read_records("pairs.jsonl")
    assert (pair.id, pair.document, pair.summary) == ("1", PROSE, "The river rises")


def test_commands_print_what_the_pages_show(monkeypatch: Patch, capsys: Capture) -> None:
    """A line with ``$`` is typed, and what follows up to the next one is printed."""
    Path("article.txt").write_text("Tom paid 3 million dollars to Anna on Monday.")
    typed = [block for path in DOCS for block in blocks(path) if block.startswith("$ ")]
    assert typed
    for command, _, shown in (one.partition("\n") for block in typed for one in block[2:].split("\n$ ")):
        given, _, arguments = command.rpartition(" | ")
        stdin = io.TextIOWrapper(io.BytesIO(shlex.split(given or "echo ''")[1].encode()))
        monkeypatch.setattr(sys, "stdin", stdin)
        assert run(capsys, *shlex.split(arguments)[1:]).strip() == shown.strip(), command


def test_a_model_trained_by_hand(capsys: Capture) -> None:
    pairs = [{"id": str(n), "document": f"the cat number {n} sat on a mat", "summary": f"cat {n}"} for n in range(20)]
    write_lines(Path("pairs.jsonl"), pairs)
    printed = printed_by("docs/python.md", "Below the summarizer", capsys).splitlines()
    assert [line.split()[0] for line in printed] == ["16", "17", "18", "19"], "the last batch"
    assert Summarizer.from_pretrained("models/by-hand").summarize("the cat sat").tokens_read == 3


def test_a_measure_of_ones_own(capsys: Capture) -> None:
    pairs = [{"id": str(n), "document": f"Cat {n} sat. It slept.", "summary": f"cat {n} sat."} for n in range(9)]
    write_lines(Path("validation.jsonl"), pairs)
    run(capsys, "compare", "lead-1", "lead-2", "--data", "validation.jsonl", "--out", "runs/table")
    printed = printed_by("docs/evaluate.md", "A measure of your own", capsys)
    assert printed.startswith("lead-2-")
    assert "'difference': -1.0" in printed


# ------------------------------------------------------------------------------------------- notebooks

NOTEBOOK_SETTINGS = f"""
from pathlib import Path

ROOTS = [Path({str(Path(np.__file__).parent)!r})]
STANDARD_LIBRARY = False
SETTINGS = {{"training.max_updates": 2, "training.batch_size": 4, "training.validation.decode_records": 4}}
RECORDS = 4
"""


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_cells_of_notebooks_run(path: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    """In this process, with few updates; what the last line of a cell is, a notebook shows. Outputs are not stored."""
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert not [cell for cell in cells if cell["outputs"] or cell["execution_count"]]
    names, frames = {"__name__": "__main__"}, 0
    for cell in cells:
        is_settings = "settings" in cell["metadata"].get("tags", ())
        *body, last = ast.parse(NOTEBOOK_SETTINGS if is_settings else "".join(cell["source"])).body
        is_value = isinstance(last, ast.Expr)
        exec(compile(ast.Module([*body, *[last] * (not is_value)], []), path.name, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
            frames += hasattr(value, "_repr_html_") and "<iframe" in value._repr_html_()
    assert frames == 1  # the summary with its sources
