"""Rush et al.'s preparation of Gigaword and DUC, on made-up text."""

from __future__ import annotations

from pathlib import Path

import pytest

from laconic.data.prepare import Refused, Words, duc_input, duc_records, gigaword_pair
from laconic.errors import DataError
from laconic.types import Record

RULES, BLANKS = Words(), Words(tokenized=True)
SENTENCE = "The Council (of 12 towns) approved a 3.5 percent rise in water prices on Tuesday ."


def pair(document: str, title: str, **options: bool) -> tuple[str, str] | str:
    made = gigaword_pair(Record(document, title), BLANKS, **options)
    return made.reason if isinstance(made, Refused) else (made.document, made.summary)


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


def test_without_a_full_stop_the_first_line_stands() -> None:
    assert pair("a b\nc d .", "t u v w", filtered=False) == ("a b", "t u v w")


@pytest.mark.parametrize(
    ("document", "title", "reason"),
    [
        ("w " * 10 + "prices .", "prices rise once more", None),
        ("w " * 8 + "prices .", "prices rise once more", "11 to 99"),  # ten tokens
        ("w " * 97 + "prices .", "prices rise once more", None),
        ("w " * 98 + "prices .", "prices rise once more", "11 to 99"),  # a hundred
        ("w " * 10 + "prices", "prices rise once more", "full stop"),
        ("w " * 10 + "prices .", "prices rise now", "4 to 49"),
        ("w " * 10 + "prices .", "prices " * 49, None),
        ("w " * 10 + "prices .", "prices " * 50, "4 to 49"),
        ("w " * 10 + "price .", "prices rise once more", "in common"),
        ("w " * 10 + "the .", "the rise once more", "in common"),  # three letters do not count
        ("w " * 10 + "prices .", "prices rise in Japan", "blacklist"),  # "ap" stands in it
        ("w " * 10 + "prices .", "CORRECTS prices rise once", "blacklist"),
        ("w " * 10 + "prices .", "prices - rise once", "blacklist"),
        ("w " * 10 + "prices .", "prices rise once ?", "blacklist"),
        ("w " * 10 + "prices .", "adv11 prices rise once", "blacklist"),  # after digits have become #
    ],
)
def test_the_filter(document: str, title: str, reason: str | None) -> None:
    found = pair(document, title)
    if reason is None:
        assert isinstance(found, tuple)
    else:
        assert isinstance(found, str)
        assert reason in found
        assert isinstance(pair(document, title, filtered=False), tuple)


def test_a_short_first_sentence_takes_the_second() -> None:
    assert duc_input("Rain fell in Oslo today. Nobody came.\nThird one.", RULES) == (
        "rain fell in oslo today , nobody came ."
    )
    long = "Rain fell " + "and fell " * 15 + "in Oslo."
    assert len(long) >= 130
    assert duc_input(long + " Nobody came.", RULES).endswith("in oslo .")
    just_short = "R" + "a" * 127 + "."  # 129 characters
    assert duc_input(just_short + " Nobody came.", RULES).endswith(" , nobody came .")
    assert not duc_input("Ra" + just_short[1:] + " Nobody came.", RULES).endswith("came .")
    assert duc_input("Only one.", RULES) == "only one ."
    assert duc_input(" ", RULES) == ""


def test_datelines_go_only_with_a_bracket() -> None:
    assert duc_input("OSLO (AP) -- Rain fell.", RULES) == "rain fell ."
    assert duc_input("OSLO (AP) _ Rain fell - hard.", RULES) == "rain fell - hard ."  # the first one only
    assert duc_input("OSLO, Norway -- Rain fell.", RULES) == "oslo , norway -- rain fell ."
    assert duc_input("Rain (in Oslo) fell.", RULES) == "rain -lrb- in oslo -rrb- fell ."
    assert duc_input("OSLO _ Rain &AMP; fell 12 times.", RULES) == "oslo , rain fell 12 times ."  # digits stay


def distribution(root: Path, authors: str = "ABCD") -> tuple[Path, Path]:
    documents, references = root / "docs", root / "models"
    references.mkdir(parents=True)
    for group, name in (("d30001t", "APW1.01"), ("d30002t", "NYT2.02")):
        (documents / group).mkdir(parents=True)
        text = (
            f"<DOC>\n<DOCNO> {name} </DOCNO>\n<TEXT>\n<P>\nRain fell in {group}. Then\nsnow.\n</P>\n</TEXT>\n</DOC>\n"
        )
        (documents / group / name).write_text(text)
        for author in authors:
            (references / f"{group[:-1].upper()}.P.10.T.{author}.{name}").write_text(f" Rain by\n{author} \n")
    return documents, references


def test_the_distribution_of_duc(tmp_path: Path) -> None:
    documents, references = distribution(tmp_path)
    records = list(duc_records(documents, references))
    assert [record.id for record in records] == ["d30001t/APW1.01", "d30002t/NYT2.02"]
    assert [record.document for record in records] == [
        f"rain fell in {g} , then snow ." for g in ("d30001t", "d30002t")
    ]
    assert records[0].references == ("Rain by A", "Rain by B", "Rain by C", "Rain by D")
    assert records[0].summary == "Rain by A"


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no folders of documents"):
        list(duc_records(tmp_path / "none", tmp_path))
    documents, references = distribution(tmp_path)
    for path in references.glob("D30002*"):
        path.unlink()
    with pytest.raises(DataError, match=r"no reference named D30002\*NYT2.02"):
        list(duc_records(documents, references))
