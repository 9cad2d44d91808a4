"""From the command line: subsets and preparation of data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import refused, run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(8):
            text = " ".join(f"Word{number} stands here {place}." for place in range(number + 1))
            pair = {"id": str(number), "document": text, "summary": f"word{number} ## 0", "references": ["x", "here"]}
            file.write(json.dumps(pair) + "\n")
    return path


def ids(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def test_subsets(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short, long, rest = (tmp_path / f"{name}.jsonl" for name in ("short", "long", "rest"))
    # the documents have 5, 10, ..., 40 words and signs
    content = json.loads(run(capsys, "data", "subset", data, short, "--shortest-mean", 10, "--rest", rest, "--json"))
    assert ids(short) == ["0", "1", "2"]
    assert ids(rest) == ["3", "4", "5", "6", "7"]
    run(capsys, "data", "subset", data, tmp_path / "all.jsonl", "--last", 8, "--rest", rest)
    assert ids(rest) == []  # what an earlier call left there stands in the other file now
    assert content[str(short)] == {"records": 3, "document_tokens": 10.0, "summary_tokens": 4.0}
    assert content[str(data)]["records"] == 8
    text = run(capsys, "data", "subset", data, long, "--shortest-mean", 10, "--window-mean", 31)
    assert ids(long) == ["4", "5", "6"]  # 25, 30, 35: mean 30 is nearest
    assert "30.0" in text
    first = json.loads(short.read_text().splitlines()[0])
    assert first["references"] == ["word0 ## 0", "x", "here"]
    run(capsys, "data", "subset", data, short, "--sample", 3, "--seed", 5)
    sampled = short.read_bytes()
    run(capsys, "data", "subset", data, short, "--sample", 3, "--seed", 5)
    assert short.read_bytes() == sampled
    run(capsys, "data", "subset", data, short, "--min-tokens", 8, "--max-tokens", 12)
    assert ids(short) == ["1"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["subset", "DATA", "OUT"], 2, "Say which part"),
        (["subset", "DATA", "OUT", "--window-mean", "5"], 2, "--shortest-mean"),
        (["subset", "DATA", "DATA", "--sample", "2"], 2, "same file"),
        (["subset", "DATA", "OUT", "--sample", "9"], 3, "there are 8"),
        (["subset", "DATA", "OUT", "--shortest-mean", "2"], 3, "Even the shortest document has 5"),
        (["prepare", "duc2004", "NONE", "OUT", "--references", "NONE"], 3, "holds no folders"),
    ],
)
def test_mistakes_with_data(
    arguments: list[str], code: int, said: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"DATA": str(data), "OUT": str(tmp_path / "out.jsonl"), "NONE": str(tmp_path / "none")}
    refused(capsys, code, said, "data", *(places.get(argument, argument) for argument in arguments))
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["subset", "q.source", "q.target", "--last", "1"], "same file (q.target)"),
        (["subset", "q", "new.jsonl", "--last", "1", "--rest", "q.target"], "same file (q.target)"),
        (["subset", "one", "one/new.jsonl", "--last", "1"], "one/new.jsonl would lie in"),
        (["subset", "link.jsonl", "one/x.jsonl", "--last", "1"], "same file (one/x.jsonl)"),
        (["prepare", "duc2004", "one", "q/../one/x.jsonl", "--references", "two"], "would lie in"),
    ],
)
def test_nothing_is_written_over_what_is_read(
    arguments: list[str],
    said: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.source").write_text("A text of words.\nAnother text.\n")
    Path("q.target").write_text("Text\nOther\n")
    Path("one").mkdir()
    data.rename("one/x.jsonl")
    Path("link.jsonl").symlink_to("one/x.jsonl")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    refused(capsys, 2, said, "data", *arguments)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_prepared_gigaword(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "news.jsonl", tmp_path / "out.jsonl"
    good = {"document": "The council of 12 towns approved a rise in water prices on Tuesday. More.",
            "summary": "Council votes for water prices"}  # fmt: skip
    bad = {"document": "Too short.", "summary": "Council votes for water prices"}
    source.write_text(json.dumps(good) + "\n" + json.dumps(bad) + "\n")
    text = run(capsys, "data", "prepare", "gigaword", source, out)
    assert ": 1 record\n" in text
    assert "1 left out: 1 sentence not of 11 to 99 tokens" in text
    record = json.loads(out.read_text())
    assert record["document"] == "the council of ## towns approved a rise in water prices on tuesday ."
    assert record["summary"] == "council votes for water prices"
    content = json.loads(run(capsys, "data", "prepare", "gigaword", source, out, "--keep-all", "--json"))
    assert content["records"] == 2


def test_prepared_duc_can_be_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents, references, out = tmp_path / "docs", tmp_path / "models", tmp_path / "duc.jsonl"
    (documents / "d1t").mkdir(parents=True)
    references.mkdir()
    (documents / "d1t" / "AP1").write_text("<DOC>\n<TEXT>\nRain fell in Oslo. Nobody came.\n</TEXT>\n</DOC>\n")
    for author in "ABCD":
        (references / f"D1.P.10.T.{author}.AP1").write_text(f"Oslo rain {author}\n")
    text = run(capsys, "data", "prepare", "duc2004", documents, out, "--references", references)
    assert "1 record (1 with 4 references)" in text
    assert json.loads(out.read_text())["document"] == "rain fell in oslo , nobody came ."
    text = run(capsys, "evaluate", "first_words:words=4", "--data", out, "--profile", "duc2004")
    # rain and oslo in each of four references of three words, "rain fell in oslo"
    assert "66.67" in text
