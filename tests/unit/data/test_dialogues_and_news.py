"""Dialogues and news as papers' models read them, how they come back, and the share of words that reappears."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from laconic.cli.main import main
from laconic.data.checks import CheckOptions, check, reappearing_share
from laconic.data.prepare import dialogue, news
from laconic.data.readers import read_records
from laconic.data.subset import write_records
from laconic.extractive.base import Extractor
from laconic.extractive.baselines import Lead, Longest
from laconic.types import Record, references_of

TALK = "Ann:  hello there\r\n\r\nBob: I lost my keys | really\nAnn: oh no, where did you put them now?\nBob: here"
TURNS = [
    "Ann: hello there",
    "Bob: I lost my keys | really",
    "Ann: oh no, where did you put them now?",
    "Bob: here",
]


def test_turns_are_joined_by_bars_and_names_stay() -> None:
    made = dialogue(Record(TALK, " Bob lost\nhis keys. "))
    assert made.document == " | ".join(TURNS)
    assert made.sentences == tuple(TURNS)
    assert made.summary == "Bob lost his keys."
    assert dialogue(Record("Ann: hi | Bob: bye", "x")).sentences == ("Ann: hi", "Bob: bye")
    assert dialogue(Record("Ann: hi", "x")).document == "Ann: hi"


@pytest.mark.parametrize(("method", "picked"), [(Longest, [1, 2, 0]), (Lead, [0, 1, 2])])
def test_methods_pick_turns_in_the_order_of_the_dialogue(
    method: type[Extractor], picked: list[int], tmp_path: Path
) -> None:
    """The longest three by words: 9, 7 and 3 of them, the last against 2."""
    path = tmp_path / "talk.jsonl"
    write_records(path, [dialogue(Record(TALK, "Bob lost his keys.", "7"))])
    record = next(read_records(path))
    assert record.sentences == tuple(TURNS)
    text = method(method.Config(sentences=3)).text(list(record.sentences))
    assert text == " ".join(TURNS[place] for place in sorted(picked))
    only = Longest(Longest.Config(sentences=1)).text(list(record.sentences))
    assert only == TURNS[2]


def test_highlights_are_joined_to_learn_and_apart_to_score(tmp_path: Path) -> None:
    made = news(Record("(CNN) Rain fell.\n\n It  was wet.", "Rain fell .\nNobody came .", "n1"))
    assert made.document == "(CNN) Rain fell. It was wet."
    assert made.summary == "Rain fell . Nobody came ."
    assert made.references == ("Rain fell .\nNobody came .",)
    path = tmp_path / "news.jsonl"
    write_records(path, [made, news(Record("Sun.", "One highlight."))])
    first, second = read_records(path)
    assert (first.summary, references_of(first)) == (made.summary, made.references)
    assert (second.summary, second.references) == ("One highlight.", ())
    assert "references" not in json.loads(path.read_text().splitlines()[1])


def test_a_list_of_references_holds_the_summary_once(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    row = {"document": "d", "summary": "a b", "references": ["x", "a\nb", "a b", "a b"]}
    path.write_text(json.dumps(row) + "\n")
    record = next(read_records(path))
    assert record.summary == "a b"
    assert record.references == ("a b", "x", "a\nb", "a b")  # the same to the letter goes before the same words
    path.write_text(json.dumps(row | {"references": ["x", "a\nb"]}) + "\n")
    assert next(read_records(path)).references == ("a\nb", "x")


def test_the_share_of_words_that_reappears(tmp_path: Path) -> None:
    assert reappearing_share({"rain", "fell", "in", "oslo", "."}, {"rain", ".", "snow"}) == 1 / 4
    assert reappearing_share({"."}, {"."}) == 0.0
    path = tmp_path / "train.jsonl"
    rows = [("Rain fell. Rain, rain fell in Oslo.", "Rain in Bergen."), ("Sun shone", "sun")]
    path.write_text("".join(json.dumps({"document": d, "summary": s}) + "\n" for d, s in rows))
    report = check({"train": path}, CheckOptions(duplicates=False)).as_dict()
    assert report["splits"]["train"]["document_words_in_summary"] == pytest.approx((2 / 4 + 1 / 2) / 2)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["--quiet", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "samsum.csv", tmp_path / "talk.jsonl"
    with source.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "dialogue", "summary"], ["7", TALK, "Bob lost his keys."]])
    assert json.loads(run(capsys, "data", "prepare", "samsum", source, out, "--json"))["records"] == 1
    assert json.loads(out.read_text())["document"] == " | ".join(TURNS)
    told = json.loads(run(capsys, "evaluate", "longest-3", "lead-3", "--data", out, "--profile", "samsum", "--json"))
    assert "a sentence a line on both sides" in told["systems"][0]["flags"]
    text = run(capsys, "data", "stats", out)
    assert "distinct document words in the summary" in text
    article = tmp_path / "cnndm.jsonl"
    article.write_text(json.dumps({"article": "Rain fell.\nIt was wet.", "highlights": "Rain .\nWet ."}) + "\n")
    run(capsys, "data", "prepare", "cnndm", article, out)
    assert json.loads(out.read_text())["summary"] == "Rain . Wet ."
    assert json.loads(out.read_text())["references"] == ["Rain .\nWet ."]
    story = tmp_path / "a.story"
    story.write_text(
        "Rain fell.\n\nIt was wet.\n\n@highlight\n\nRain\n\n@highlight\n\nWet town\n\n@highlight\n\nRain\n"
    )
    for source in (article, story):
        run(capsys, "data", "prepare", "cnndm", source, out, "--first-highlight")
        (record,) = read_records(str(out))
        expected = ["Rain .", "Wet ."] if source == article else ["Rain", "Wet town"]
        assert (record.summary, list(references_of(record))) == (expected[0], expected)
    told = json.loads(run(capsys, "evaluate", "lead-1", "--data", out, "--profile", "cnndm-first", "--json"))
    assert "-f B" in told["systems"][0]["flags"]
    assert main(["--quiet", "data", "prepare", "cnndm", str(out), str(out)]) == 2
    assert "same file" in capsys.readouterr().err
