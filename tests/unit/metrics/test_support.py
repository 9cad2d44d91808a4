"""What a summary states that its source does not: a table of cases, places in both texts, and human subject lines."""

from __future__ import annotations

import csv
import json
import random
import re
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.metrics.support import SourceFacts, _related, check_support, verdicts
from catchline.metrics.words import (
    is_character,
    is_ordinary,
    lowered,
    ordinary_stems,
    smart_stop_words,
    stem,
    words,
    younger_words,
)

CASES = Path(__file__).parent / "support_cases.tsv"
PAGE = Path(__file__).parents[3] / "docs/faithfulness.md"
AESLC = Path(__file__).parents[4] / "shared/data/aeslc/validation.jsonl"


def cases() -> list[dict[str, str]]:
    with CASES.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def is_right(case: dict[str, str]) -> bool:
    """The pieces that are flagged are exactly those that a person would flag."""
    found = check_support(case["summary"], case["source"]).unsupported
    return "; ".join(claim.text for claim in found) == (case["not supported"] or "")


def test_the_table_of_cases() -> None:
    listed = cases()
    right = sum(map(is_right, listed))
    assert len(listed) >= 120
    assert right >= 0.95 * len(listed)
    assert f"{right} of {len(listed)}" in PAGE.read_text(encoding="utf-8")
    wrong = {case["summary"] for case in listed if not is_right(case)}
    assert all(f"| {summary} |" in PAGE.read_text(encoding="utf-8") for summary in wrong)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["summary"][:40])
def test_places_and_copies(case: dict[str, str]) -> None:
    source, summary = case["source"], case["summary"]
    report = check_support(summary, source)
    for claim in report.claims:
        assert summary[claim.start : claim.end] == claim.text
        assert claim.source is None or source[slice(*claim.source)].strip()
    assert all(one.end <= other.start for one, other in zip(report.claims, report.claims[1:], strict=False))
    for text in (source, source.lower(), source.upper()):  # what is copied is supported, whatever the case
        assert check_support(text, text).unsupported == ()
        assert check_support(text, source).unsupported == ()


def test_kinds_and_places() -> None:
    source = "On Tuesday, Ann Miller paid 3 million dollars in Oslo."
    summary = "ann miller paid $3m in Bergen on Tue. gladly"
    report = check_support(summary, source)
    found = [(claim.kind, claim.text, claim.source and source[slice(*claim.source)]) for claim in report.claims]
    assert found == [
        ("name", "ann miller", "Ann Miller"),
        ("word", "paid", "paid"),
        ("number", "$3m", "3 million dollars"),
        ("name", "Bergen", None),
        ("date", "Tue.", "Tuesday"),
        ("word", "gladly", None),
    ]
    assert report.checked == {"number": 1, "date": 1, "name": 2, "word": 2}
    assert report.rate == pytest.approx(3 / 4)
    assert [claim.text for claim in report.new_words] == ["gladly"]


def test_nothing_to_compare_is_no_full_support() -> None:
    assert check_support("nothing happened", "It was late.").rate is None
    assert check_support("", "").claims == check_support("x y z", "a").claims == ()


@pytest.mark.parametrize("summary", ["bergen", "BERGEN", "Bergen", "The Bergen Plan", "Ask people for bergen"])
def test_a_name_is_seen_in_any_case(summary: str) -> None:
    assert [claim.kind for claim in check_support(summary, "We are in Oslo for the plan.").unsupported] == ["name"]


@pytest.mark.parametrize(("opening", "kind"), [("no, ", "name"), ("no. ", "word"), ('"', "word"), ("", "word")])
def test_a_capital_tells_a_name_within_a_sentence(opening: str, kind: str) -> None:
    claims = check_support(f"{opening}Apple meets the staff", "The board meets the staff today.").claims
    assert [claim.kind for claim in claims] == [kind, "word", "word"]


# A summary, a source, the claim and where the source has it.
PLACES = [
    ("we met Muller in town", "The Müller report was read.", "Muller", "Müller"),
    ("we met Müller in town", "The Muller report was read.", "Müller", "Muller"),
    ("we discuss the Writing today", "They wrote it.", "Writing", "wrote"),
    ("we met Jonson at work", "Johnson was there.", "Jonson", None),
    ("we met Jonhson at work", "Johnson was there.", "Jonhson", "Johnson"),
    ("we met Skiling at work", "Skilling was there.", "Skiling", "Skilling"),
    ("we went to New Yrok today", "to New York", "Yrok", None),
    ("we sched the meeting", "schedule the meeting", "sched", "schedule"),
    ("we met at Ford's today", "Ford was there", "Ford's", "Ford"),
    ("French are here and we go", "France was there", "French", "France"),
    ("the IBM is here", "in international business machines we trust", "IBM", "international business machines"),
    ("the IBM is", "it began moving. The international business machines", "IBM", "international business machines"),
    ("the IMF plan", "the International Monetary Fund plan", "IMF", "International Monetary Fund"),
    ("the IMF is", "the International Monetary Fund Board met", "IMF", "International Monetary Fund Board"),
    ("the MIT plan", "the Massachusetts Institute of Technology plan", "MIT", "Massachusetts Institute of Technology"),
    ("the EOL is here", "Enron Online was there", "EOL", None),
    ("the ABC plan", "Alpha Bravo Foo Charlie", "ABC", None),
    ("we use the Pacific Gas and Electric", "PG&E was there", "Pacific", "PG&E"),
    ("we see HewlettPackard today", "Hewlett-Packard came", "HewlettPackard", "Hewlett-Packard"),
    ("we see Hewlett Packard today", "HewlettPackard came", "Hewlett Packard", "HewlettPackard"),
    ("meet Smith-Jones", "Smith Jones came", "Smith-Jones", "Smith Jones"),
    ("meet Ann Lee", "they said Bob Lee saw Ann, and then Ann, Lee", "Ann Lee", "Ann, Lee"),
    ("meet Ann Lee", "they said Bob Lee left and saw Ann", "Ann Lee", "Ann"),
    ("the F-16 is here", "an F 16 flew", "F-16", "F 16"),
    ("eSource rises", "nothing there", "eSource", None),
    ("due May 14, 2001", "In 2001 it was", "May 14, 2001", None),
    ("due May 14, 2001", "On May 14 it was", "May 14, 2001", None),
    ("due May 14, 2001", "It was 2001, on 5/14", "May 14, 2001", "5/14"),
    ("visit Companies today", "a company came", "Companies", "company"),
    ("the login page", "to log in there", "login", "log in"),
    ("we went atop it", "we sat at opera", "atop", None),
    ("we see website today", "the web site came", "website", "web site"),
]


@pytest.mark.parametrize(("summary", "source", "text", "place"), PLACES)
def test_where_the_source_has_it(summary: str, source: str, text: str, place: str | None) -> None:
    (claim,) = (claim for claim in check_support(summary, source).claims if claim.text == text)
    assert (claim.source and source[slice(*claim.source)]) == place
    assert claim.supported == (place is not None)


@pytest.mark.parametrize(
    ("name", "forms", "others"),
    [
        ("kennedy", {"kennedys", "kennedies", "kenned"}, {"kenne"}),
        ("kennedies", {"kennedy", "kennedie"}, {"kennedi"}),
        ("french", {"france", "frenchs"}, {"frenchies"}),
        ("france", {"french"}, {"francies", "franc"}),
        ("swedish", {"sweden", "swed"}, {"swedi"}),
        ("irans", {"iran", "iranss", "iransian"}, {"ira"}),
        ("iran", {"iranian", "iranians", "irani"}, {"ira"}),
        ("perus", {"peru"}, {"per"}),
    ],
)
def test_forms_of_a_name(name: str, forms: set[str], others: set[str]) -> None:
    found = set(_related(name))
    assert forms <= found
    assert found.isdisjoint(others)


def test_words_stand_by_themselves_and_dates_beside_one_another() -> None:
    source = SourceFacts("Oslos, nOslo, New Oslo, Oslo, New, Bergen")
    assert source.find(["oslo"]) == (18, 22)
    assert source.find(["oslo", "new"]) == (24, 33)
    assert source.find(["bergen", "new"]) == (35, 41)
    assert source.find(["paris"]) is None
    eight = "Alpha Bravo Charlie Delta Echo Foxtrot Golf Hotel"
    assert (SourceFacts(eight).initials.get("cde"), SourceFacts(f"{eight} India").initials) == ((0, len(eight)), {})
    claims = check_support("on Mon.Tue at 5/6", "Monday, Tuesday, 5/6").claims
    assert [(claim.kind, claim.text) for claim in claims] == [("date", "Mon."), ("date", "Tue"), ("date", "5/6")]


def test_a_source_serves_several_summaries() -> None:
    source = SourceFacts("Ann went to Oslo on 5/14.")
    for summary in ("Ann in Oslo", "May 14", "Bob"):
        assert check_support(summary, source) == check_support(summary, source.text)


def test_other_forms_of_a_word_support_it() -> None:
    report = check_support("staff wrote and met children", "The child meets staffing needs and writes.")
    assert report.new_words == ()
    assert stem("wrote") == stem("writes")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents_may_be_signs_of_their_own(form: Literal["NFC", "NFD"]) -> None:
    summary = unicodedata.normalize(form, "Zoë's résumé")
    assert len(words(summary)) == 2
    assert check_support(summary, unicodedata.normalize("NFC" if form == "NFD" else "NFD", summary)).new_words == ()


def test_ordinary_words() -> None:
    assert all(map(is_ordinary, ["meeting", "wrote", "recalculated", "the", "email", "won't", "change"]))
    assert not any(map(is_ordinary, ["oslo", "enron", "china", "berlin", "smith"]))
    names = [word[1:] for word in ordinary_stems() if word.startswith("-")]
    assert len(names) > 100
    assert not any(map(is_ordinary, set(names) - younger_words() - smart_stop_words()))


@settings(max_examples=100)
@given(
    st.text(alphabet="aAbB0159 .,:/-$%'’İßſ中é\n\tthsmay", max_size=60),
    st.text(alphabet="aAbB0159 .,:/-$%'’İßſ中é\n\tthsmay", max_size=80),
)
def test_any_text_has_a_verdict(summary: str, source: str) -> None:
    assert len(lowered(source)) == len(source)
    for claim in check_support(summary, source).claims:
        assert summary[claim.start : claim.end] == claim.text
        if claim.source is not None:
            start, end = claim.source
            assert 0 <= start < end <= len(source)


@pytest.mark.parametrize("summary", ["U.S. Army meets him", "The U.S. office", "He met U.S. staff in Waterford, N.Y."])
def test_an_abbreviation_with_full_stops_is_found_as_it_is_written(summary: str) -> None:
    there, elsewhere = (
        "He met staff of the U.S. Army office in Waterford, N.Y. today.",
        "He met staff of an Army office.",
    )
    assert all(claim.source for claim in check_support(summary, there).claims)
    assert not all(claim.source for claim in check_support(summary, elsewhere).claims)


@pytest.mark.parametrize("summary", ["U.S. sends aid", "The U.S. Army sends aid", "In May the U.S. sends aid"])
def test_the_pronoun_us_is_not_the_us(summary: str) -> None:
    for source, supported in (
        ("They told us the Army sends aid in May.", False),
        ("They told us the US Army sends aid in May.", True),
    ):
        for facts in (SourceFacts(source), SourceFacts(source, places=False)):
            found = [claim for claim in check_support(summary, facts).claims if claim.text.startswith("U.S.")]
            assert [claim.supported for claim in found] == [supported]
            if supported and facts.with_places:
                assert source[slice(*found[0].source)].startswith("US")


SIGNED = ["U.S.", "Ann's", "rock'n", "roll,", "e.g.", "'tis", "F-16", "May.", "met-Bo", "I.B.M."]
PLAIN = ["Oslo", "us", "3", "the", "é", "x"]


def judged(summary: str, source: str) -> list[tuple[str, int, int, bool]]:
    """What is said where nobody asks for places."""
    found = verdicts(summary, SourceFacts(source, places=False))
    return sorted((kind, start, end, place is not None) for kind, start, end, place in found)


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from(SIGNED + PLAIN)),
    st.tuples(st.integers(0, 60), st.integers(0, 60)),
    st.sampled_from([" ", "'", "\n", "-", "x"]),
)
def test_who_asks_for_no_places_is_told_the_same(words: list[str], ends: tuple[int, int], sign: str) -> None:
    """Also of a piece of the document, which is not looked for word by word."""
    document = sign.join((" ".join(words), "Ann met us", " ".join(words[::2])))
    for summary in (document[min(ends) : max(ends)], document.split(sign)[0], "Ann met Bo in the US"):
        claims = check_support(summary, document).claims
        assert judged(summary, document) == sorted((c.kind, c.start, c.end, c.supported) for c in claims)


def test_a_piece_of_a_document_stands_there_between_blanks() -> None:
    facts = SourceFacts("Ann's cat\nmet Bo é.")
    assert [facts.has_whole(text) for text in ("Ann's cat", "met Bo", "cat\nmet")] == [True] * 3
    assert [facts.has_whole(text) for text in ("Ann", "at", "s cat", "Bo é.", "met Ann")] == [False] * 5


@pytest.mark.parametrize("text", ["9" * 5000, "1," * 3000, "1/" * 3000, "a-1" * 2000, "one and " * 2000, "A. " * 3000])
def test_long_nonsense_ends(text: str) -> None:
    check_support(text, text)


# ------------------------------------------------------------------------------- human subject lines


def subjects() -> Iterator[tuple[str, str, str]]:
    """Each human subject line with its own e-mail and with another."""
    if not AESLC.is_file():
        pytest.skip("needs ../shared/data/aeslc")
    records = [json.loads(line) for line in AESLC.read_text(encoding="utf-8").splitlines()]
    for place, record in enumerate(records):
        yield record["summary"], record["document"], records[(place + 977) % len(records)]["document"]


def stands_there(claim: str, document: str) -> bool:
    """Independently of the measure: do the claim's words and numbers all stand in the document as they are written?"""
    there = document.lower()
    return all(re.search(rf"\b{re.escape(word)}", there) for word in re.findall(r"[^\W_]+", claim.lower()))


@pytest.mark.slow
def test_human_subject_lines_of_other_emails_are_flagged() -> None:
    """Where a line holds a name, date or number; lines whose every claim happens to stand in the other e-mail aside."""
    flagged = silent = 0
    for summary, _, other in subjects():
        report = check_support(summary, other)
        claims = [claim for claim in report.claims if claim.kind != "word"]
        if report.unsupported:
            flagged += 1
        elif claims and not all(stands_there(claim.text, other) for claim in claims):
            silent += 1
    assert flagged > 1000
    assert flagged / (flagged + silent) >= 0.95


@pytest.mark.slow
def test_human_subject_lines_in_lower_case_are_flagged_as_well() -> None:
    listed = list(subjects())
    cased = sum(bool(check_support(summary, other).unsupported) for summary, _, other in listed)
    small = sum(bool(check_support(summary.lower(), other).unsupported) for summary, _, other in listed)
    assert small >= 0.93 * cased  # names that are ordinary words ("Lay") and short abbreviations lose their mark


@pytest.mark.slow
def test_what_is_copied_from_an_email_is_not_flagged() -> None:
    generator = random.Random(5)
    flagged = 0
    for _, document, _ in subjects():
        listed = document.split()
        start = generator.randrange(len(listed))
        piece = " ".join(listed[start : start + 6])
        flagged += bool(check_support(piece.lower(), document).unsupported)
    assert flagged <= 0.01 * 1960


@pytest.mark.parametrize(
    ("summary", "source", "missing"),
    [
        ("서울 인구 증가", "서울 인구 증가가 계속된다.", []),
        ("中国经济衰增长", "2023年中国的GDP经济增长了。", ["衰"]),
        ("iPhone手机销量", "苹果iPhone手机的销量增长。", []),
        ("हिन्दी भाषा कम", "यह हिन्दी भाषा है", ["कम"]),
        ("a caf\u00e9 opened", "A cafe\u0301 opened.", []),
        ("a cafe\u0301 opened", "A caf\u00e9 opened.", []),
        ("İstanbul and Istanbul grow", "The city of İstanbul grew.", []),
        ("Die Straße ist lang", "DIE STRASSE IST LANG.", []),
        ("die STRASSE gesperrt", "Die Straße ist gesperrt.", []),
        ("0 deaths", "The two soldiers stayed in their quarters; 3 deaths.", ["0"]),
        ("lost two quarters", "It lost 2 quarters.", []),
        ("lost 2 quarters", "It lost two quarters.", []),
        ("lost 2 quarters", "It lost 3 of four quarters.", ["2"]),
        ("Sold 1,234.50 shares", "It sold 1234.5 shares.", []),
        ("Python 3.10", "Python 3.1", ["3.10"]),
        ("by 9 a.m. and noon", "It is by 9 a.m. or noon.", []),
        # within scripts without blanks
        ("经济增长5.2%", "中国的经济增长了5.2%。", []),  # was a name "经济增长5.2" that the source lacks
        ("经济下降6.2%", "中国的经济下降了5.2%。", ["6.2%"]),
        ("共有30人", "共有人，30人。", []),
        ("共有300人", "共有5名300多30人。", []),
        ("2024年", "2023年", ["2024"]),
        ("のため9週間", "のため約9週間", []),
        ("のため8週間", "のため約9週間", ["8"]),
        ("ปิด33", "ปิด34", ["33"]),
        ("약9주", "약 9주", []),
        ("于2023-05-03用LSTM5", "在2023-05-03用了于LSTM5", []),
        ("于2023-05-04", "于2023-05-03", ["2023-05-04"]),
    ],
)
def test_what_the_source_lacks_in_other_scripts_and_of_numbers(summary: str, source: str, missing: list[str]) -> None:
    assert [claim.text for claim in check_support(summary, source).claims if claim.source is None] == missing


def test_words_of_other_languages_are_no_names() -> None:
    document = "Der Vertrag wurde gestern in der Hauptstadt von beiden Seiten feierlich unterzeichnet."
    assert check_support("vertrag bleibt ungültig", document).unsupported == ()
    assert [c.text for c in check_support("Vertrag über 30 Jahre", document).unsupported] == ["30"]
    assert [c.text for c in check_support("合同 30", "昨天签署了合同 20。").unsupported] == ["30"]


def test_words_of_other_scripts() -> None:
    assert words("हिन्दी भाषा, தமிழ் x中y d’é") == ["हिन्दी", "भाषा", "தமிழ்", "x", "中", "y", "d’é"]
    assert words("ปิดที่ 3ปี။ x々") == ["ปิ", "ด", "ที่", "3", "ปี", "x", "々"]


def test_characters_that_are_words_are_no_names() -> None:
    assert [is_character(text) for text in ("中", "글", "ที่", "中国", "x", "")] == [True] * 3 + [False] * 3
    assert {claim.kind for claim in check_support("中国 서울", "中国和 서울").claims} == {"word"}


def test_words_are_the_same_in_ascii_and_beyond() -> None:
    generator = random.Random(2)
    for _ in range(300):
        text = "".join(generator.choice("ab1_'- .é’Z") for _ in range(20))
        plain = text.replace("é", "e").replace("’", "'")
        assert words(plain) == [word.replace("é", "e").replace("’", "'") for word in words(plain + " é")[:-1]]


@pytest.mark.parametrize("mark", ["<unk>", "[UNK]"])
def test_a_mark_of_an_unknown_word_is_no_name_and_no_word(mark: str) -> None:
    source = "The council of Leeds met on Friday and Leeds closed two bridges over the river."
    assert check_support(f"{mark} {mark}", source).claims == ()
    (claim,) = check_support(f"{mark} Kowalski met", source).unsupported
    assert (claim.text, claim.start) == ("Kowalski", len(mark) + 1)


@pytest.mark.parametrize("aside", ["e.g.", "i.e.", "cf.", "vs.", "etc.", "e. g.", "at 9 a.m."])
def test_asides_are_no_part_of_a_name(aside: str) -> None:
    source = f"Moulds of the kitchen ({aside} P. roqueforti, P. camemberti) ripen the cheese, and nobody minds."
    for text in (source, source.lower(), source.upper()):
        assert check_support(text, source).unsupported == ()
    found = check_support(f"Moulds ({aside} J. Zweistein) ripen the cheese", source).unsupported
    assert [claim.text for claim in found] == ["Zweistein"]
    found = check_support(f"Moulds ({aside} I.M.F. moulds) ripen the cheese", source).unsupported
    assert "I.M.F." in [claim.text for claim in found]


def test_of_two_words_that_differ_in_accents_the_same_one_is_meant_in_every_process() -> None:
    accents = ("José", "Jose", "Josè", "Jősé", "Josê")
    for names in (accents, accents[::-1]):
        assert SourceFacts(" and ".join(names)).accented("jose") == "jősé"


def test_a_long_word_in_capitals_takes_no_square_of_its_length() -> None:
    before = time.process_time()
    long = "A" * 20_000 + "Bob left, and xIbm Big Foot too"
    assert SourceFacts(long).initials["ibf"] == (20_015, 20_027)
    assert check_support(long, SourceFacts("It rained.")).unsupported
    assert time.process_time() - before < 5, "where it is quadratic, half a minute"
