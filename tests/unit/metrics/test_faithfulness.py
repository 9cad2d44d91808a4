"""What a summary states that its source does not: a table of cases, places in both texts, other scripts, long texts."""

from __future__ import annotations

import csv
import unicodedata
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.metrics.faithfulness import SourceFacts, check_support
from catchline.metrics.words import is_character, lowered, stem, words

CASES = Path(__file__).parent / "support_cases.tsv"
BEYOND = {"He visits China", "500,000 march", "flight for Jeffrey", "meeting at 4:30 am", "jackson met us"}


def cases() -> list[dict[str, str]]:
    with CASES.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["summary"][:40])
def test_what_a_person_would_flag(case: dict[str, str]) -> None:
    """But for what is beyond these rules. What is copied is supported, whatever the case."""
    source, summary = case["source"], case["summary"]
    report = check_support(summary, source)
    right = "; ".join(claim.text for claim in report.unsupported) == (case["not supported"] or "")
    assert right == (summary not in BEYOND)
    for claim in report.claims:
        assert summary[claim.start : claim.end] == claim.text
        assert claim.source is None or source[slice(*claim.source)].strip()
    assert all(one.end <= other.start for one, other in zip(report.claims, report.claims[1:], strict=False))
    for text in (source, source.lower()):
        assert check_support(text, text).unsupported == ()
        assert check_support(text, source).unsupported == ()


PLACES: list[tuple[str, str, str, str | None]] = [
    # summary, source, claim, where the source has it
    ("due May 14, 2001", "In 2001 it was", "May 14, 2001", None),
    ("due May 14, 2001", "It was 2001, on 5/14", "May 14, 2001", "5/14"),
    ("due 2001-05-14", "on 5/14/01", "2001-05-14", "5/14/01"),
    ("met on Tue.", "on Tuesday", "Tue", "Tuesday"),
    ("a price of 3.50", "It costs 3.5", "3.50", "3.5"),
    ("plan for 2019-20", "plan for 2019-2020", "20", "2019-2020"),
    ("plan for 2019-20", "plan for 2019", "20", None),
    ("two hundred and five men", "205 men", "two hundred and five", "205"),
    ("$2.5 million paid", "2,500,000 dollars", "2.5 million", "2,500,000"),
    ("needs 30k", "needs 30,000", "30k", "30,000"),
    ("meeting at 16:30", "at 4:30 pm", "16:30", "4:30 pm"),
    ("meet Ann Lee", "they said Bob Lee saw Ann, and then Ann, Lee", "Ann Lee", "Ann, Lee"),
    ("we see HewlettPackard today", "Hewlett-Packard came", "HewlettPackard", "Hewlett-Packard"),
    ("the IMF meets", "The International Monetary Fund met", "IMF", "International Monetary F"),
    ("U.S. sends aid", "They told us of aid", "U.S.", None),
    ("the United States sends aid", "The U.S. sent aid", "United States", "U.S"),
    ("Kowalski resigns", "The mayor resigned", "Kowalski", None),
    ("visit Iranian towns", "in Iran", "Iranian", "Iran"),
    ("the login page", "to log in there", "login", "log in"),
]


@pytest.mark.parametrize(("summary", "source", "text", "place"), PLACES)
def test_where_the_source_has_it(summary: str, source: str, text: str, place: str | None) -> None:
    (claim,) = (claim for claim in check_support(summary, source).claims if claim.text == text)
    assert (claim.source and source[slice(*claim.source)]) == place


def test_kinds() -> None:
    source = SourceFacts("On Tuesday, Ann Miller paid 3 million dollars in Oslo. Staff wrote.")
    report = check_support("Ann Miller paid one man $3m in Bergen on Tue. gladly, staff writes", source)
    assert [(claim.kind, claim.text, claim.source is None) for claim in report.claims] == [
        ("name", "Ann Miller", False),
        ("word", "paid", False),
        ("word", "man", True),
        ("number", "3m", False),
        ("name", "Bergen", True),
        ("date", "Tue", False),
        ("word", "gladly", True),
        ("word", "staff", False),
        ("word", "writes", False),
    ]
    assert [claim.text for claim in report.unsupported] == ["Bergen"]
    assert stem("wrote") == stem("writes")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents_may_be_signs_of_their_own(form: Literal["NFC", "NFD"]) -> None:
    summary = unicodedata.normalize(form, "Zoë's résumé")
    other = unicodedata.normalize("NFC" if form == "NFD" else "NFD", summary)
    assert len(words(summary)) == 2
    assert all(claim.source for claim in check_support(summary, other).claims)


@settings(max_examples=100)
@given(
    st.text(alphabet="aAbB0159 .,:/-$%'’İßſ中é\n\tthsmay", max_size=60),
    st.text(alphabet="aAbB0159 .,:/-$%'’İßſ中é\n\tthsmay", max_size=80),
)
def test_any_text_has_a_verdict(summary: str, source: str) -> None:
    assert len(lowered(source)) == len(source)
    for claim in check_support(summary, source).claims:
        assert summary[claim.start : claim.end] == claim.text
        assert claim.source is None or 0 <= claim.source[0] < claim.source[1] <= len(source)


NONSENSE = ["9" * 5000, "1," * 3000, "1/" * 3000, "a-1" * 2000, "one and " * 2000, "A. " * 3000, "A" * 20_000 + "b Bob"]


@pytest.mark.parametrize("text", NONSENSE)
def test_long_nonsense_ends(text: str) -> None:
    check_support(text, text)
    check_support(text, "It rained.")


@pytest.mark.parametrize(
    ("summary", "source", "missing"),
    [
        ("서울 인구 증가", "서울 인구 증가가 계속된다.", []),
        ("中国经济衰增长", "2023年中国的GDP经济增长了。", ["衰"]),
        ("iPhone手机销量", "苹果iPhone手机的销量增长。", []),
        ("हिन्दी भाषा कम", "यह हिन्दी भाषा है", ["कम"]),
        ("İstanbul and Istanbul grow", "The city of İstanbul grew.", []),
        ("Die Straße ist lang", "DIE STRASSE IST LANG.", []),
        ("0 deaths", "The two soldiers stayed in their quarters; 3 deaths.", ["0"]),
        ("经济增长5.2%", "中国的经济增长了5.2%。", []),
        ("共有300人", "共有5名300多30人。", []),
        ("2024年", "2023年", ["2024"]),
        ("のため8週間", "のため約9週間", ["8"]),
        ("于2023-05-04", "于2023-05-03", ["2023-05-04"]),
        ("Vertrag über 30 Jahre", "Der Vertrag wurde gestern über Jahre unterzeichnet.", ["30"]),
        ("<unk> [UNK] met", "The council met.", []),
    ],
)
def test_what_the_source_lacks_in_other_scripts_and_of_numbers(summary: str, source: str, missing: list[str]) -> None:
    assert [claim.text for claim in check_support(summary, source).claims if claim.source is None] == missing


def test_words_of_other_scripts() -> None:
    assert words("हिन्दी भाषा, தமிழ் x中y d’é") == ["हिन्दी", "भाषा", "தமிழ்", "x", "中", "y", "d’é"]
    assert words("ปิดที่ 3ปี। x々") == ["ปิ", "ด", "ที่", "3", "ปี", "x", "々"]
    assert [is_character(text) for text in ("中", "글", "ที่", "中国", "x", "")] == [True] * 3 + [False] * 3
