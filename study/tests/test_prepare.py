"""Gigaword and DUC as Rush et al. prepared them, dialogues and news as papers' models read them, on made-up text."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from catchline.data.records import read_records, write_records
from catchline.types import Record, references_of
from catchline_study.corpora.prepare import dialogue, duc_input, duc_records, gigaword_pair, news, words_by
from commands import refused, run
from json_lines import write_lines

RULES, BLANKS = words_by(), words_by(tokenized=True)
SENTENCE = "The Council (of 12 towns) approved a 3.5 percent rise in water prices on Tuesday ."


def pair(document: str, title: str, **options: bool) -> tuple[str, str] | str:
    made = gigaword_pair(Record(document, title), BLANKS, **options)
    return made if isinstance(made, str) else (made.document, made.summary)


def test_the_first_sentence_and_the_title() -> None:
    document = "The Council ( of 12 towns ) approved a 3.5 percent rise in water prices . It rained ."
    assert pair(document, "Council's `` vote '' : water prices rise 3.5 % , again !", filtered=False) == (
        "the council -lrb- of ## towns -rrb- approved a #.# percent rise in water prices .",
        "council's vote : water prices rise #.# % again",
    )
    # with our own rules for text that is not tokenized
    made = gigaword_pair(Record(SENTENCE + " More.", 'Council doesn\'t "explain" prices?'), RULES, filtered=False)
    assert isinstance(made, Record)
    assert made.document.startswith("the council -lrb- of ## towns -rrb- approved a #.# percent")
    assert made.document.endswith("on tuesday .")
    assert made.summary == "council does n't explain prices"


def test_the_filter() -> None:
    for document, title, reason in (
        ("w " * 10 + "prices .", "prices rise once more", None),
        ("w " * 8 + "prices .", "prices rise once more", "11 to 99"),  # ten tokens
        ("w " * 98 + "prices .", "prices rise once more", "11 to 99"),  # a hundred
        ("w " * 10 + "prices", "prices rise once more", "full stop"),
        ("w " * 10 + "prices .", "prices rise now", "4 to 49"),
        ("w " * 10 + "prices .", "prices " * 50, "4 to 49"),
        ("w " * 10 + "price .", "prices rise once more", "in common"),
        ("w " * 10 + "the .", "the rise once more", "in common"),  # three letters do not count
        ("w " * 10 + "prices .", "prices rise in Japan", "blacklist"),  # "ap" stands in it
        ("w " * 10 + "prices .", "prices rise once ?", "blacklist"),
        ("w " * 10 + "prices .", "adv11 prices rise once", "blacklist"),  # after digits have become #
    ):
        found = pair(document, title)
        assert isinstance(found, tuple) if reason is None else reason in found
        assert isinstance(pair(document, title, filtered=False), tuple)


def test_a_short_first_sentence_takes_the_second() -> None:
    just_short = "R" + "a" * 127 + "."  # 129 characters
    for text, end in (
        ("Rain fell in Oslo today. Nobody came.\nThird one.", "rain fell in oslo today , nobody came ."),
        ("Rain fell " + "and fell " * 15 + "in Oslo. Nobody came.", "in oslo ."),
        (just_short + " Nobody came.", " , nobody came ."),
        ("Ra" + just_short[1:] + " Nobody came.", "aaa ."),
    ):
        assert duc_input(text, RULES).endswith(end)


def test_the_distribution_of_duc(tmp_path: Path) -> None:
    documents, references = tmp_path / "docs", tmp_path / "models"
    references.mkdir()
    for group, name in (("d30001t", "APW1.01"), ("d30002t", "NYT2.02")):
        (documents / group).mkdir(parents=True)
        text = (
            f"<DOC>\n<DOCNO> {name} </DOCNO>\n<TEXT>\n<P>\nRain fell in {group}. Then\nsnow.\n</P>\n</TEXT>\n</DOC>\n"
        )
        (documents / group / name).write_text(text)
        for author in "ABCD":
            (references / f"{group[:-1].upper()}.P.10.T.{author}.{name}").write_text(f" Rain by\n{author} \n")
    records = list(duc_records(documents, references))
    assert [(record.id, record.document) for record in records] == [
        ("d30001t/APW1.01", "rain fell in d30001t , then snow ."),
        ("d30002t/NYT2.02", "rain fell in d30002t , then snow ."),
    ]
    assert records[0].references == ("Rain by A", "Rain by B", "Rain by C", "Rain by D")
    assert records[0].summary == "Rain by A"


TURNS = ["Ann: hello there", "Bob: I lost my keys | really", "Ann: oh no, where did you put them now?", "Bob: here"]
TALK = "Ann:  hello there\r\n\r\n" + "\n".join(TURNS[1:])


def test_turns_are_joined_by_bars_and_names_stay() -> None:
    made = dialogue(Record(TALK, " Bob lost\nhis keys. "))
    assert made.document == " | ".join(TURNS)
    assert made.sentences == tuple(TURNS)
    assert made.summary == "Bob lost his keys."
    assert dialogue(Record("Ann: hi | Bob: bye", "x")).sentences == ("Ann: hi", "Bob: bye")
    assert dialogue(Record("Ann: hi", "x")).document == "Ann: hi"


def test_highlights_are_joined_to_learn_and_apart_to_score(tmp_path: Path) -> None:
    made = news(Record("(CNN) Rain fell.\n\n It  was wet.", "Rain fell .\nNobody came .", "n1"))
    assert made.document == "(CNN) Rain fell. It was wet."
    assert (made.summary, made.references) == ("Rain fell . Nobody came .", ("Rain fell .\nNobody came .",))
    path = tmp_path / "news.jsonl"
    write_records(path, [made, news(Record("Sun.", "One highlight."))])
    first, second = read_records(path)
    assert (first.summary, references_of(first)) == (made.summary, made.references)
    assert (second.summary, second.references) == ("One highlight.", ())


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "samsum.csv", tmp_path / "talk.jsonl"
    with source.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "dialogue", "summary"], ["7", TALK, "Bob lost his keys."]])
    assert json.loads(run(capsys, "data", "prepare", "samsum", source, out, "--json"))["records"] == 1
    assert json.loads(out.read_text())["document"] == " | ".join(TURNS)
    told = json.loads(run(capsys, "evaluate", "longest-3", "lead-3", "--data", out, "--profile", "samsum", "--json"))
    assert "a sentence a line on both sides" in told["systems"][0]["flags"]
    article = write_lines(
        tmp_path / "cnndm.jsonl", [{"article": "Rain fell.\nIt was wet.", "highlights": "Rain .\nWet ."}]
    )
    run(capsys, "data", "prepare", "cnndm", article, out)
    (record,) = read_records(out)
    assert (record.summary, record.references) == ("Rain . Wet .", ("Rain .\nWet .",))
    run(capsys, "data", "prepare", "cnndm", article, out, "--first-highlight")
    (record,) = read_records(out)
    assert (record.summary, references_of(record)) == ("Rain .", ("Rain .", "Wet ."))
    told = json.loads(run(capsys, "evaluate", "lead-1", "--data", out, "--profile", "cnndm-first", "--json"))
    assert "-f B" in told["systems"][0]["flags"]
    refused(capsys, 2, "same file", "data", "prepare", "cnndm", out, out)
