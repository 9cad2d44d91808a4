"""A model knows when not to answer: facts, calibration, ranges, and what the summarizer makes of them."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from catchline.config.shipped import place_of
from catchline.errors import ModelError
from catchline.evaluation.confidence import accepted, word_ratios
from catchline.metrics.confidence import (
    CHOOSING,
    FEATURES,
    SENTENCE,
    Calibration,
    DocumentWords,
    Ranges,
    facts_of,
    mean_ratio,
    packed,
    telling_sentences,
    told_sentences,
    unpacked,
    word_ids,
)
from catchline.metrics.faithfulness import SourceFacts
from catchline.summarizer.revision import faults
from catchline.summarizer.summarize import or_decline
from catchline.text.sources import lines_of
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Hypothesis, Record, Summary, TokenizedText

DOCUMENT = "The river rose by two metres in the night. The bridge was closed. Nobody was hurt when the river rose."


RANGES = Ranges(least_tokens=5, most_unknown=0.3, least_common=0.1)


KNOWN = {"source_tokens": 20.0, "source_unknown": 0.1, "source_common": 0.4, "source_ratio": 0.0}


def calibration(threshold: float = 0.5) -> Calibration:
    """The more likely the words, the surer."""
    size = len(FEATURES)
    weight = tuple(1.0 if name == "mean_log_prob" else 0.0 for name in FEATURES)
    return Calibration((0.0,) * size, (1.0,) * size, weight, bias=1.0, threshold=threshold, ranges=RANGES)


def facts_with(**values: float) -> dict[str, float]:
    return dict.fromkeys(FEATURES, 0.0) | KNOWN | values


def answer(document: str, line: str = "rivers", **more: Any) -> str:
    """What is given where the model is not sure of the line that it wrote."""
    return or_decline(Summary(line, document=document, confidence=0.1, **more), calibration()).text


def test_facts_of_a_summary_counted_by_hand() -> None:
    source = TokenizedText(
        ids=(4, 1, 104, 1, 9), tokens=("the", "zebra", "ran", "xylo", "."), offsets=((0, 1),) * 5, total=8
    )
    hypothesis = Hypothesis([4, 300, 301, 77], 0.0, -6.0, [-1.0, -2.0, -0.5, -2.0, -0.5], finished=True)
    wording = DocumentWords("").facts("")
    found = facts_of(hypothesis, [4, 300, 104, 301, 9], source, unk_id=1, reserved=4, wording=wording)
    assert found["mean_log_prob"] == pytest.approx(-6.0 / 5)
    assert found["least_log_prob"] == -2.0
    assert found["tokens"] == 4
    assert found["new_words"] == pytest.approx(1 / 4)  # 77 is the only word that the source lacks
    assert found["source_unknown"] == pytest.approx(2 / 4)  # the full stop is no word
    assert found["source_common"] == pytest.approx(1 / 4)
    assert found["source_tokens"] == 8
    assert found["log_source_tokens"] == pytest.approx(math.log(8))
    assert found["last_log_prob"] == -0.5
    assert found["said_often"] == 0.0
    assert found["source_ratio"] == 0.0  # a calibration without word ratios
    assert found.keys() == {*FEATURES, "source_common", "source_tokens", "source_ratio"}
    ratios = np.zeros(300)
    ratios[[1, 4, 104, 9]] = 6.0, 1.25, -0.5, 3.0
    of_words = facts_of(hypothesis, [], source, unk_id=1, reserved=4, word_ratios=packed(ratios), wording=wording)
    assert of_words["source_ratio"] == pytest.approx((1.25 - 0.5) / 2)  # neither the unknown words nor the full stop


def test_confidence_is_the_logistic_of_the_standardised_facts() -> None:
    one = calibration()
    one = replace(one, mean=(2.0, *one.mean[1:]), deviation=(0.5, *one.deviation[1:]))
    assert one.confidence(facts_with(mean_log_prob=3.0)) == pytest.approx(1 / (1 + math.exp(-3.0)))
    assert 0 < one.confidence(facts_with(mean_log_prob=-1e9)) < 1e-9


def test_what_is_unlike_the_training_data_is_named() -> None:
    assert RANGES.unlike(facts_with()) == ()
    assert "shorter" in RANGES.unlike(facts_with(source_tokens=4.0))[0]
    assert "40% of its words" in RANGES.unlike(facts_with(source_unknown=0.4))[0]
    strange = RANGES.unlike(facts_with(source_unknown=0.9, source_common=0.0))
    assert len(strange) == 1
    assert "language" in strange[0]
    assert RANGES.unlike(facts_with(source_ratio=9.0)) == ()
    assert "another kind" in replace(RANGES, most_ratio=0.1).unlike(facts_with(source_ratio=0.11))[0]


def drawn(words: str, count: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(words.split(), 30)) for _ in range(count)]


def test_word_ratios_tell_texts_of_another_kind() -> None:
    software = "library parses files the of model and parser returns a server for protocol data"
    people = "the of and she said he was yesterday a please thanks my mother you never"
    own = drawn(software, 200, 1)
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train([*own, people])

    def ids(texts: list[str]) -> list[list[int]]:
        return [word_ids(tokenizer.encode(text)) for text in texts]

    reserved = len(tokenizer.special_ids)
    ratios, most = word_ratios(tokenizer, ids(own))
    assert all(mean_ratio(one, ratios, reserved) > most for one in ids(drawn(people, 20, 3)))
    assert np.mean([mean_ratio(one, ratios, reserved) > most for one in ids(drawn(software, 200, 4))]) < 0.05
    place = tokenizer.encode("she").ids[0]
    # 6,000 words without "she", with a prior of 2,000 that holds its share: a quarter of what English has
    assert ratios[place] == pytest.approx(math.log(4), abs=1e-3)
    np.testing.assert_allclose(unpacked(packed(ratios)), ratios, atol=0.026)


def test_what_a_summarys_wording_shows_beside_the_documents() -> None:
    of = DocumentWords(DOCUMENT)
    # "river" counts, and "rises", since the document says "rose" twice; not "bridge", said once, nor "the"
    found = of.facts("The river rises, the river, bridge")
    assert found["said_often"] == pytest.approx(2 / 6)
    assert found["joins"] == 2  # of river-rise, rise-river and river-bridge the document says the first alone
    assert found["opening"] == 2  # the bridge is in the second sentence
    assert found["longest_run"] == 3
    assert of.facts("Bridge was closed when nobody")["longest_run"] == 3
    assert of.facts("the night nobody hurt, the bridge closed")["joins"] == 2  # night-hurt and hurt-bridge
    assert set(of.facts("").values()) == {0.0}
    assert set(DocumentWords("").facts("A river rises").values()) == {0.0, 1.0}


def test_texts_made_to_be_slow_to_look_at_are_not() -> None:
    """One of a request that a service answers may have 200,000 characters, and nothing else runs meanwhile."""
    before = time.process_time()
    assert len(telling_sentences(">" * 40_000)) == 1  # a line without a word
    tables = "  a\n" * 3 + "\n" * 100_000, "a,b,c\n" * 3 + "!,,\n" * 50_000, ("   a" * 100 + "\n") * 1_000
    for text in (*tables, "ingredients\n" * 20_000, "1. Where are we?\n" * 20_000):
        lines_of(text)
    found = DocumentWords("a " * 40_000).facts("a " * 20_000)  # what stands there without blanks may be copied
    assert found["longest_run"] == 500
    assert faults("http://a!" * 3_000, SourceFacts("b"))[1] == 1  # it repeats itself
    assert time.process_time() - before < 10, "where it is quadratic, half a minute and more"


def test_hypotheses_stand_in_the_order_of_the_points_expected_of_them() -> None:
    points = {"agreement": 10.0, "tokens": -1.0}
    one = replace(calibration(), choosing=tuple(points.get(name, 0.0) for name in CHOOSING))
    found = [(0.2, 3.0), (0.9, 4.0), (0.9, 5.0), (0.1, 2.0)]  # -1, 5, 4 and -1 points
    facts = [facts_with(agreement=agreement, tokens=tokens) for agreement, tokens in found]
    assert one.order(facts) == [1, 2, 0, 3]


@pytest.mark.parametrize(
    ("confidence", "unlike", "said"),
    [(0.2, (), "not sure"), (0.7, ("it is in another language",), "another language")],
)
def test_the_answer_is_a_sentence_of_the_document_where_the_model_had_better_not_answer(
    confidence: float, unlike: tuple[str, ...], said: str
) -> None:
    written = Summary("river river", document=DOCUMENT, id="7", model="m", confidence=confidence, unlike=unlike)
    found = or_decline(written, calibration(threshold=0.5))
    assert said in found.declined
    assert found.text in DOCUMENT
    assert found.alternatives[0].text == "river river"
    assert (found.id, found.model, found.confidence) == ("7", "m", confidence)
    for word in found.words:
        assert DOCUMENT[word.sources[0].start : word.sources[0].end] == word.text


NEWS = "The river rose two metres. Ship, ho! The port closed on Monday. The river fell again later."


@pytest.mark.parametrize(
    ("line", "document", "said"),
    [
        # the nearest sentence, and of equals the first; a short one where there is no other
        *((line, NEWS, "The river rose two metres.") for line in ("Rivers of the north", "lakes", "")),
        *((line, NEWS, "The port closed on Monday.") for line in ("A port, closed", "Bridges were closed in a port")),
        ("ships", "Hi Anna. Ships left.", "Ships left."),
        ("machines", "Abstract machines are used here.", "Abstract machines are used here."),  # no heading
        # neither a salutation nor direct speech nor a lead elsewhere
        ("a summer", "Dear Sir or Madam,\n\nthe bill is wrong.", "The bill is wrong."),
        ("a summer", '"We were lucky," said Ann. Her boat lost its mast.', "Her boat lost its mast."),
        ("a summer", "\u201cYou are late!\u201d She had run to the river.", "She had run to the river."),
        ("a summer", "Visit the river's website for more pictures. It rained all day.", "It rained all day."),
        ("a summer", "See also the next part for rivers. It rained all day.", "It rained all day."),
        ("a summer", "Visit the rivers of a map one by one. It rained.", "Visit the rivers of a map one by one."),
        ("a summer", '"Foo" is what rivers run on. It rained all day.', '"Foo" is what rivers run on.'),  # a name
        # without its subject it begins with a capital; a name stays as it is
        ("long rivers", "Foo is a tool for long rivers.", "Tool for long rivers."),
        ("long rivers", "> Foo lets you\nmeasure long rivers:", "Measure long rivers"),
        ("long rivers", "foo - measure long rivers", "Measure long rivers"),
        ("long rivers", "We propose a one-shot view of long rivers.", "One-shot view of long rivers."),
        ("long rivers", "Foo is a filter, and a view of long rivers.", "Filter, and a view of long rivers."),
        ("long rivers", "Foo is an iOS app for long rivers.", "iOS app for long rivers."),
        ("long rivers", "Foo is a \ufb01le of long rivers.", "\ufb01le of long rivers."),
        ("long rivers", "Foo is a libfoo2 for long rivers.", "libfoo2 for long rivers."),
        ("long rivers", "libfoo measures long rivers.", "libfoo measures long rivers."),
        ("long rivers", "Rivers rose\n\nlibfoo measures long rivers", "libfoo measures long rivers"),
        ("long rivers", "- libfoo measures long rivers", "libfoo measures long rivers"),
        ("long rivers", "[09:02] anna: measure long rivers", "Measure long rivers"),
        ("long rivers", "12/03/23, 9:02:17 PM - Anna F: measure long rivers", "Measure long rivers"),
        ("long rivers", "2. Long rivers rose.", "Long rivers rose."),
        ("long rivers", "[ ] Measure long rivers", "Measure long rivers"),
        ("long rivers", "Hello Anna,\nthe long rivers rose.", "The long rivers rose."),
        ("long rivers", "Anna  9:41 AM\nthe long rivers rose", "The long rivers rose"),
        ("long rivers", "AIMS: To measure long rivers. RESULTS: None.", "To measure long rivers."),
        ("long rivers", "How long rivers rise\nanna83 \u2022 May 14 \u2022 23 replies", "How long rivers rise"),
        ("long rivers", "How long rivers rise\nanna83 | May 14, 2025", "How long rivers rise"),
        ("long rivers", "12.1 The long rivers rose.", "The long rivers rose."),
        ("long rivers", "2.4 GHz is of long rivers.", "2.4 GHz is of long rivers."),
        ("long rivers", "Q: Do long rivers rise?", "Do long rivers rise?"),
        ("long rivers", "this morning the long rivers rose", "This morning the long rivers rose"),
        (
            "long rivers",
            "Dear Anna,\n\ntown's old bridge crossed long rivers.",
            "Town's old bridge crossed long rivers.",
        ),
        ("long rivers", "measure the long rivers of a town.", "Measure the long rivers of a town."),
        ("long rivers", "hug measures long rivers.", "hug measures long rivers."),  # what does something may be a name
        ("long rivers", "hug is for long rivers.", "hug is for long rivers."),
        ("long rivers", "hug: for long rivers.", "hug: for long rivers."),
        ("long rivers", "libfoo for long rivers.", "libfoo for long rivers."),
        ("long rivers", "npm install long-rivers", "npm install long-rivers"),
        ("long rivers", "git config --long rivers", "git config --long rivers"),
        ("long rivers", "micromark view of long rivers", "micromark view of long rivers"),
        ("long rivers", "iPhone covers of long rivers", "iPhone covers of long rivers"),
    ],
)
def test_which_sentence_answers_and_how_it_begins(line: str, document: str, said: str) -> None:
    found = or_decline(Summary(line, document=document, confidence=0.1), calibration())
    assert found.text == said == " ".join(word.text for word in found.words)
    first = found.words[0].sources[0]
    assert document[first.start : first.end].lower() == found.words[0].text.replace("İ", "I").lower()
    if line == "a summer":
        elsewhere = or_decline(Summary("See the site for more.", document=document, confidence=0.9), calibration())
        assert elsewhere.text == said, "nor does a line that leads elsewhere"


@pytest.mark.parametrize(
    "entry",
    [
        *("FOO(1) User Commands FOO(1)", "From: Anna Foo <anna@foo.org>", "-a foo of bars", "Next: Foo, Up: Bar bar"),
        *("foo (1.2-3) unstable; urgency=medium", "Mar 1 12:00 host foo[12]: started <bar>", "x = foo(1, bar, baz)"),
        *("Bar report of foo Page 3 of 42", "Anna Foo, Unstable User and Lars Bar", "Present here: A. Foo, B. Bar"),
        *("Department of Foo, University of Bar", "{anna,foo}@bar.edu is to foo", "Foo 12.3 14.1 19.0."),
        *("Foo of the bar ..... 3", "Keywords: foo, bar, the baz.", "Foo  of bars  in baz", "Foo of    bars"),
        *("Pay: 12 an hour and the bars", "Foo starter: the foo Start date: May 3"),
        *("% a foo of the bars.", "\\section{A foo of the bars.}", "Received 3 May 2019; accepted 4 May."),
    ],
)
def test_an_entry_answers_only_where_there_is_no_sentence(entry: str) -> None:
    line = "foo user commands unstable started"
    for sentence in ("The bars were closed", "Bars were quickly closed", "\u6865(1)\u6cb3\u5173\u95ed\u3002"):
        assert answer(f"{entry}\n\n{sentence}", line) == sentence
    assert answer(f"{entry}\n\n{entry}", line) == " ".join(entry.split())


def test_a_title_and_how_a_command_is_used_may_answer() -> None:
    line = "foo user commands unstable started"
    title, usage = "Show bars: A foo that started the user commands", "Usage: foo [user] command..."
    assert answer(f"{title}\n\nBars were closed", line) == title
    assert answer(f"{usage}\n\nThe bars were closed.", line) == usage
    for document in ("THE FOO OF BARS", "THE FOO OF BARS\n\nThe port was closed on Monday."):
        assert answer(document, "foo of bars") == "THE FOO OF BARS"


@pytest.mark.parametrize(
    "page",
    [
        "Bulletin of foo and bars here\n\n{}\n\n" * 2 + "Bulletin of foo and bars here",
        "{}\n\nReferences\nFoo of bars in baz.",
        "Foo of bars 2019, No 1\n\n{}\n\nFoo of bars 2019, No 2",
        "Figure 2-1: Foo of bars.\nIt has bars of foo.\n\n{}",
        "THE FOO OF BARS\n\nPage 1 of 2\n\n{}\n\nPage 2 of 2",
        "[1] A. Foo and B. Bar. A foo of bars\n\n{}",
        *("Abstract\u2014{}", "Summary: {}", "THE FOO OF ALL BARS IS FOR US.\n\n{}"),
        "Anna: Thank you for contacting the Foo of Bars.\n\n{}",
        "Text is available under a Creative Commons licence of foo and bars.\n\n{}",
        "Issued by the foo of bars at 10:15 on Friday\n\n{}",
        "Last updated on 3 May by the foo of bars\n\n{}",
        "All notable changes to foo of bars are here.\n\n{}",
        "The chair of foo called the meeting to order.\n\n{}",
    ],
)
def test_what_pages_have_beside_their_text_does_not_answer(page: str) -> None:
    sentence = "The port was closed on Monday."
    assert answer(page.replace("{}", sentence), "foo of bars") == sentence


def test_the_hyphen_of_a_word_that_a_line_divides_is_left_out() -> None:
    """It stays where its parts are words and the whole is none, or a line divides none."""
    document = "Swit-\nzerland has mea-\nsures, foobar, foo-\nbar and well-\nknown re-runs there."
    found = or_decline(Summary("measures", document=document, confidence=0.1), calibration())
    assert found.text == "Switzerland has measures, foobar, foobar and well-known re-runs there."
    assert [document[one.start : one.end] for one in found.words[0].sources] == ["Swit-\nzerland"]


def test_a_place_costs_what_five_sentences_cost_and_no_more() -> None:
    front = [f"Nothing of note was said {word}." for word in ("here", "there", "then", "now", "again", "at all")]
    document = " ".join([*front * 4, "The river rose two metres in one night."])
    assert "river" in answer(document, "a river")
    # one word of four is worth less than the place costs
    assert "river" not in answer(document, "a river of mountains, valleys and meadows")


def test_of_sentences_that_say_as_much_the_one_about_the_whole_answers() -> None:
    front = "Rivers rise quite fast."
    for whole in (
        *("We propose a model of", "This package provides a view of", "Foo is a tool for"),
        "This policy explains the use of",
    ):
        assert answer(f"{front} {whole} rivers. It rained all day.") != front
    aside = "See https://foo for the licence and the installation of rivers."
    assert answer(f"The river is new. {aside} It rained all day.") == "The river is new."


def test_the_background_of_a_paper_does_not_answer() -> None:
    """What stands before the authors say what they do, if that is near the beginning; not before what "we" may do."""
    line, front, behind = "a gauge of rivers that flood", "Rivers flood quite often.", "It rained all day."
    for said in (
        *("We test a gauge of rivers.", "We therefore test a gauge of rivers."),
        *("This short paper holds a gauge against rivers.", "A gauge of rivers is told of in this work."),
    ):
        assert answer(f"{front} {said} {behind}", line) == said
    for said in ("We can test a gauge of rivers.", "We have a gauge of rivers.", "Does this work for rivers?"):
        assert answer(f"{front} {said} {behind}", line) == front
    assert answer(" ".join([front, *[behind] * 11, "We test a gauge of rivers."]), line) == front
    told = told_sentences(f"{front} We test it now.", line)
    assert [facts["background"] for _, facts in told] == [1, 0]
    box = Calibration.load(place_of("oneline"))
    assert box is not None
    facts = told[0][1] | {"confidence": 0.3}
    assert box.sentence_confidence(facts) < 0.1 * box.sentence_confidence(facts | {"background": 0.0})


CODE = "/**\n * Copyright by Foo.\n *\n * Opens all bars.\n */\nfunction foo(bars) {\n  bars.open();\n}\n"


@pytest.mark.parametrize(
    ("kind", "document", "answer"),
    [
        ("log", "".join(f"2024-01-01 08:00:01 {level} foo: bars\n" for level in ("INFO", "ERROR", "INFO")), "ERROR"),
        *(
            ("log", "".join(f"Mar 1 08:00:01 a foo[1]: {said}\n" for said in ("bars", telling, "baz")), telling)
            for telling in ("Out of memory: Killed bars", '"GET /foo HTTP/1.1" 500 12')
        ),
        ("log", '{"ts":"08:00:01","level":"info"}\n{"ts":"08:00:02","level":"error"}\n{"ts":"08:00:03"}', "error"),
        ("stack trace", 'Traceback (most recent call last):\n  File "a", 1\n    foo()\nFooError: no bars', "Foo"),
        ("stack trace", "FooException: no bars\n\tat foo.Bar(Bar.java:1)\n\tat foo.Baz(Baz.java:2)\n", "FooExc"),
        ("table", "foo,bars,date\r\n1,2,3\r\n4,5,6", "foo,bars,date"),
        ("program code", "a = 1\r\nimport foo;\r\nfoo.open(a);\r\n", "foo.open(a);"),
        ("table", "+---+---+\n| foo | bars |\n+---+---+\n| 1 | 2 |\n+---+---+", "| foo | bars |"),
        ("table", "Bars of foo\n\n     Q1     Q2\nA    1.0    2.0\nB    3.0    4.0\nC    5.0    6.0", "Bars of foo"),
        ("program code", CODE, "Opens all bars."),
        ("program code", "import foo\n\ndef bars(a):\n    b = foo.foo(a)\n    return b[0]\n", "def bars(a):"),
        (
            "settings or data",
            '{\n  "name": "foo",\n  "description": "Opens all bars.",\n  "main": "foo"\n}\n',
            "Opens all",
        ),
        ("settings or data", "[foo]\na = 1\ndescription = 'Opens bars'\n", "Opens bars"),
        ("settings or data", "foo: 1\ninfo:\n  title: Bars of foo\n  note: it has many bars\nbars: 2\n", "Bars of foo"),
        ("settings or data", "on: push\nname: Nightly bars\nfoo:\n  - run: open all bars\n", "Nightly bars"),
        (
            "settings or data",
            'version: "3"\nfoo:\n  bars:\n    image: foo:1\n    bars: all\n',
            "foo: bars: image: foo:1",
        ),
        ("settings or data", "apiVersion: 1\nkind: Foo\nmetadata:\n  name: bars\n", "kind: Foo metadata: name: bars"),
        ("settings or data", "; bars of foo\n[foo]\nbars = 0.0\nfoos = 40\n", "Bars of foo"),
        ("program code", "-- Bars of each foo.\nSELECT bars\nFROM foo\nWHERE bars > 1;\n", "Bars of each foo."),
        ("program code", "//! A foo of bars\n\nuse foo::bars;\nlet a = bars(1);\n", "A foo of bars"),
        ("program code", 'import foo\n\ndef bars(a):\n    """Open all bars."""\n    return a\n', "Open all bars."),
        ("recipe", f"Bars of oat\n\nIngredients\n2 eggs\n\nMethod\n1. Beat the eggs.\n{NEWS}", "Bars of oat"),
        *(
            ("list of questions", f"{title}What is a foo?\nIt is of bars.\n\nWhere is it?\n{NEWS}\nWho has it?", said)
            for title, said in (("1. ", "What is a foo?"), ("Q: ", "What is a foo?"), ("Foo FAQ\n\n", "Foo FAQ"))
        ),
        (
            "settings or data",
            "---\n- name: Start all bars\n  hosts: foo\n  foo:\n    - name: Open bars\n",
            "Start all bars",
        ),
        ("settings or data", '{\n  "version": "1",\n  "name": "foo",\n  "main": "bars"\n}\n', "foo"),
        ("settings or data", "FOO_URL=foo://bars\nBARS=12\nFOO=12\n", "FOO_URL=foo://bars"),
        ("program code", "/* Looks of foo. */\n@page { bars: 2cm; }\nfoo { bars: 11pt; }\n", "Looks of foo."),
        ("list of references", "@book{foo,\n  author = {Foo},\n  title={Foo bars},\n  year = 2021\n}\n", "Foo bars"),
        ("", "Who of you was here?\nWhy?\nWho did it?\nDoes anybody know of it?\n", "Who of you was here?"),
        ("", "The foo of bars was closed.\nWhy?\nWho did it?\nDoes anybody know of it?", "The foo"),
        ("", "\\documentclass{foo}\n\\title{Bars}\n\\author{Foo}\nWe have bars of foo.", "We have bars of foo."),
        ("", "badge [foo]: http://a.b;\n" * 3 + "This line of bars is " + "very " * 40 + "long.", "This line"),
        ("change of code", "diff --git a/foo b/foo\n--- a/foo\n+++ b/foo\n@@ -1 +1 @@\n-bars\n+baz", "b/foo"),
        ("", f"Can anybody tell me why this does not open all of my bars?\n\n{CODE}", "Can anybody"),
        ("", "The package of foo has these:\n* bars of foo;\n* foo of bars;\n* a baz;", "foo"),
        ("", "".join(f"[12/03/24, 18:22:1{n}] Anna: are the bars open\n" for n in range(4)), "Are the bars open"),
    ],
)
def test_of_lines_that_are_no_sentences_the_telling_one_answers(kind: str, document: str, answer: str) -> None:
    written = Summary("foo bars", document=document, confidence=0.1, unlike=("it is in another language",))
    found = or_decline(written, calibration())
    assert answer in found.text
    assert found.text.strip('*/"-#!, ') == found.text
    assert "\n" not in found.text
    assert f"{kind}, not sentences" in found.declined or not kind
    assert ("not sentences" in found.declined) == bool(kind)
    assert or_decline(replace(written, confidence=0.9, unlike=()), calibration()).text == "foo bars"


def test_of_a_text_of_another_kind_a_short_sentence_seldom_answers() -> None:
    document = "Can I help you there? I would like to change my seat for the flight to Rome. That can be done for you."
    assert answer(document, "a summer") == "Can I help you there?"
    strange = answer(document, "a summer", unlike=("it is of another kind",))
    assert strange == "I would like to change my seat for the flight to Rome."


def test_facts_of_a_sentence_counted_by_hand() -> None:
    def told(place: int, *sentences: str, summary: str = "") -> dict[str, float]:
        facts = told_sentences(" ".join(sentences), summary)[place][1]
        assert facts.keys() == {*SENTENCE} - {"confidence"}
        return {name: value for name, value in facts.items() if value}

    seven = ["The sea is calm here."] * 7
    line = "The river rises, lakes and a river"
    found = told(7, *seven, "It says that rivers rose.", "The fish swam off.", summary=line)
    assert found == {"says": 2 / 4, "hangs": 1, "place": 5}, "'river' is there once"
    assert told(1, "Ships were sold now.", "This " + "word " * 27 + "now.") == {"long": 4, "place": 1, "last": 1}
    assert told(0, "- The sea is calm.") == {"first": 1, "alone": 1}, "a mark is no subject"
    assert told(0, "Here, we study how long rivers rose.") == {"first": 1, "alone": 1, "presents": 1, "asides": 1}
    assert told(0, "We propose a model of rivers.", "It works very well.") == {"first": 1, "states": 1, "presents": 1}
    provides = "This package provides version 2 of the headers, see https://foo."
    assert told(0, provides, "It works very well.") == {"first": 1, "states": 1, "packages": 1, "asides": 3}


def test_a_sentence_that_is_likelier_to_do_is_given() -> None:
    """Of 0.73 for one that says all of the line, of 0.5 for half of it, of 0.12 with a sentence before it."""
    weights = dict.fromkeys(SENTENCE, 0.0) | {"says": 2.0, "place": -3.0}
    one = replace(calibration(threshold=0.2), sentence=(*weights.values(), -1.0))
    written = Summary("Bridge closed", document="The bridge was closed. A port was shut.", confidence=0.6)
    found = or_decline(written, one)
    assert (found.text, found.confidence) == ("The bridge was closed.", 0.6)
    assert "0.73 against 0.60" in found.declined
    assert found.alternatives[0] == written
    for better in ({"confidence": 0.74}, {"text": "Bridge jammed"}, {"text": "Port shut"}):
        assert or_decline(replace(written, **better), one) == replace(written, **better)
    same = replace(written, text="The bridge was closed", confidence=0.1)  # the sentence itself, which is likely to do
    assert or_decline(same, one) == replace(same, confidence=pytest.approx(1 / (1 + math.exp(-1))))
    assert "not sure" in or_decline(same, replace(one, sentence=())).declined
    assert or_decline(written, replace(one, sentence=())) == written
    assert "another kind" in or_decline(replace(written, unlike=("it is of another kind",)), one).declined
    assert "not sure" in or_decline(replace(written, confidence=0.1), one).declined


@pytest.mark.parametrize("document", ["QUJD" * 2000, "\n" * 2000 + "苹果香蕉橙子葡萄" * 1000])
def test_of_a_text_without_blanks_so_many_characters_are_given(document: str) -> None:
    found = or_decline(Summary("river", document=document, confidence=0.1), calibration())
    assert found.text == document.strip()[:1000]
    assert (found.document, found.truncated) == (document, False)


def test_a_model_that_is_sure_or_has_no_calibration_answers(tmp_path: Path) -> None:
    written = Summary("river river", document=DOCUMENT)
    assert or_decline(written, None) == written
    assert or_decline(written, calibration()) == written  # no confidence: an extractive method's
    sure = replace(written, confidence=0.7)
    assert or_decline(sure, calibration(threshold=0.5)) == sure
    assert Calibration.load(tmp_path) is None


def test_a_calibration_comes_back_from_its_folder(tmp_path: Path) -> None:
    choosing = tuple(float(place) for place in range(len(CHOOSING)))
    one = replace(calibration(), word_ratios=packed(np.linspace(-4, 4, 301)), choosing=choosing)
    one.save(tmp_path)
    assert Calibration.load(tmp_path) == one


def test_a_calibration_from_before_the_last_facts_were_added_says_what_it_said(tmp_path: Path) -> None:
    calibration().save(tmp_path)
    path = tmp_path / "calibration.json"
    older = json.loads(path.read_text())
    del older["choosing"]
    older |= {name: older[name][:6] for name in ("mean", "deviation", "weight")}
    path.write_text(json.dumps(older | {"sentence": [4.0, -0.5, -3.0, -0.25, 2.0, -1.5]}))
    found = Calibration.load(tmp_path)
    facts = facts_with(mean_log_prob=-0.7, last_log_prob=-3.0, said_often=0.5, joins=3.0)
    assert found is not None
    assert found.confidence(facts) == calibration().confidence(facts)
    assert found.choosing == ()
    told = dict.fromkeys(SENTENCE, 1.0) | {"says": 0.5, "long": 2.0}
    assert found.sentence_confidence(told) == pytest.approx(1 / (1 + math.exp(1.75)))
    path.write_text(json.dumps(older | {"choosing": [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]}))
    found = Calibration.load(tmp_path)
    assert found is not None
    by_length = [dict.fromkeys(CHOOSING, 0.0) | {"tokens": n, "opening": 9 - n} for n in (3.0, 5.0, 4.0)]
    assert found.order(by_length) == [1, 2, 0]


@pytest.mark.parametrize(
    "change",
    [
        *({"weight": [1.0] * (len(FEATURES) + 1)}, {"deviation": [0.0] * len(FEATURES)}, {"bias": float("nan")}),
        *({"choosing": [1.0] * (len(CHOOSING) + 1)}, {"sentence": [1.0] * (len(SENTENCE) + 2)}, {"threshold": 7}),
        *({"ranges": {"least_tokens": "x", "most_unknown": 1, "least_common": 0}}, {"ranges": 5}),
        {"word_ratios": "AAA"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_damaged_calibration_is_refused_in_a_sentence(tmp_path: Path, change: dict) -> None:
    calibration().save(tmp_path)
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError, match="catchline calibrate"):
        Calibration.load(tmp_path)


def test_what_counts_as_accepted() -> None:
    records = [Record(DOCUMENT, "River rises by two metres", id=str(n)) for n in range(4)]
    texts = [
        "river rises by two metres",
        "river rises river rises by two metres",  # words twice
        "river rises by nine metres",  # a number of its own
        "bridge closed",
    ]
    assert accepted(texts, records, accept=0.4) == [True, False, False, False]
    text = "Река поднялась на два метра. Мост закрыт."
    records = [Record(text, "Река поднялась на два метра"), Record(text, "Мост закрыт")]
    assert accepted(["Река поднялась на два метра"] * 2, records, accept=0.4) == [True, False]
