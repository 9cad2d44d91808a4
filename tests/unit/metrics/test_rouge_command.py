"""``catchline rouge``: what it reads, prints and refuses."""

from __future__ import annotations

import io
import json

import pytest

from catchline.cli.main import main


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hyp.txt").write_bytes("the cat sat\r\n\nbetter dogs\r😀\n".encode())
    (tmp_path / "ref.txt").write_text("the cats sat down\nfoo\ngood dog\nbar\n")
    (tmp_path / "other.txt").write_text("a cat\nfoo\nwell dogs\nbar\n")
    return tmp_path


def run(capsys, *arguments):
    code = main(["rouge", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_table_and_warnings(files, capsys):
    code, out, err = run(capsys, "hyp.txt", "ref.txt")
    assert code == 0
    assert out.splitlines()[0].split() == ["ROUGE", "P", "R", "F"]
    assert out.splitlines()[-1].startswith("rouge:rouge155|n:4|stem:porter+wordnet2.0|")
    assert "2 of 4 hypotheses have no word" in err
    assert "profile unicode" not in err


def test_json_with_documents_and_flags(files, capsys):
    arguments = "hyp.txt ref.txt other.txt --json -d -f B --kinds 1,Lsum --interval"
    code, out, _ = run(capsys, *arguments.split())
    record = json.loads(out)
    assert code == 0
    assert list(record["scores"]) == ["1", "Lsum"]
    assert len(record["per_document"]) == 4
    assert record["counts"]["documents"] == 4
    assert "refs:best" in record["signature"]
    assert set(record["intervals"]["1"]) == {"low", "high"}


def test_json_lines_hold_both_sides(files, capsys, monkeypatch):
    lines = '{"summary": "a b", "references": ["a b", "c"]}\n{"summary": "x", "reference": "x"}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    code, out, _ = run(capsys, "-", "--json", "-f", "max", "--no-stem", "--kinds", "1")
    assert code == 0
    assert json.loads(out)["scores"]["1"]["f"] == 1.0
    (files / "p.jsonl").write_text('"a b"\n"x"\n')
    (files / "r.jsonl").write_text('{"references": ["a b"]}\n{"summary": "x"}\n')
    code, out, _ = run(capsys, "p.jsonl", "r.jsonl", "--json", "--kinds", "1")
    assert json.loads(out)["scores"]["1"]["f"] == 1.0


def test_separator_makes_sentences(files, capsys):
    (files / "a.txt").write_text("c d<n>a b\n")
    (files / "b.txt").write_text("a b<n>c d\n")
    _, out, _ = run(capsys, "a.txt", "b.txt", "--separator", "<n>", "--kinds", "Lsum,L", "--json")
    scores = json.loads(out)["scores"]
    assert (scores["Lsum"]["f"], scores["L"]["f"]) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["hyp.txt", "short.txt"], 3, "hyp.txt has 4 lines but short.txt has 1"),
        (["hyp.txt"], 3, "name a file of references"),
        (["-", "-"], 2, "can be read only once; save it, and name that file"),
        (["empty.txt", "empty.txt"], 3, "empty.txt is empty"),
        (["binary.txt", "short.txt"], 3, "binary.txt, line 2: not UTF-8"),
        (["keys.jsonl", "short.txt"], 3, "there is no field hypothesis or"),
        (["list.jsonl", "short.txt"], 3, "list.jsonl, line 1: a system writes one text, not a list of 2"),
    ],
)
def test_bad_input_is_one_clear_sentence(files, capsys, arguments, code, says):
    (files / "short.txt").write_text("a\n")
    (files / "empty.txt").write_text("")
    (files / "binary.txt").write_bytes(b"a\n\xff\n")
    (files / "list.jsonl").write_text('{"summary": ["a", "b"]}\n')
    (files / "keys.jsonl").write_text('{"id": 3}\n')
    got, out, err = run(capsys, *arguments)
    assert (got, out) == (code, "")
    assert says in err
    assert err.startswith("catchline: ")
    assert err.count("\n") == 1
