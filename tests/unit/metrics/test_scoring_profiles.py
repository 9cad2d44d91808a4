"""How data sets are scored: each profile against its rules written out again (distraction e, contrastive f)."""

from __future__ import annotations

from typing import Any

import pytest

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.schema import EvaluationConfig
from catchline.errors import ConfigError
from catchline.metrics.rouge import rouge
from catchline.metrics.scoring import PROFILES, Scoring, score_as, scoring, sentence_lines, suited


def scores(profile: str, hypotheses: list[str], references: list[Any], **changes: Any):
    way = scoring(profile, changes)
    return rouge(hypotheses, references, kinds=("1", "2", "L"), **way.rouge)


def test_number_signs_and_lone_hyphens_vanish() -> None:
    found = scores("gigaword", ["### rose ##.# % - on #### -lrb- UNK -rrb-"], ["lrb unk rrb rose on"])
    assert found.per_document["1"][0] == (1.0, 1.0, 1.0)
    assert scores("gigaword", ["###"], ["###"]).mean["1"].f == 0.0
    assert scores("gigaword", ["well-known"], ["well known"]).mean["2"].f == 1.0


def test_an_unknown_mark_is_one_character() -> None:
    assert scores("lcsts", ["我<unk>们"], ["我们"]).mean["1"].precision == pytest.approx(2 / 3, abs=1e-5)


def test_the_release_of_distraction_counts_words_as_they_stand() -> None:
    """Whole lines for the LCS, whatever line breaks there are; too short for an order is 0."""
    found = scores("cnn-plain", ["The ran, ran, cat's ."], [["the ran, cat's", "ran, ran, ."]]).mean["1"]
    assert (found.precision, found.recall) == pytest.approx((3 / 5, 3 / 3), abs=1e-5)  # of the nearest
    broken, whole = (scores("cnn-plain", [a], [b]) for a, b in (("a b\nc d", "c d\na b"), ("a b c d", "c d a b")))
    assert broken.mean == whole.mean
    assert scores("cnn-plain", ["a"], ["a b"]).mean["2"].f == 0.0
    assert scores("cnn-plain", ["The"], ["the"]).mean["1"].f == 0.0


def test_names() -> None:
    assert set(PROFILES) == {"gigaword", "duc2004", "lcsts", "cnn-plain", "cnndm", "cnndm-first", "samsum"}
    assert all(way.flags for way in PROFILES.values())
    assert all(f"``{name}``" in str(EvaluationConfig.__doc__) for name in PROFILES)
    assert scoring().rouge == {}
    assert scoring("google").rouge == {"profile": "google"}
    changed = scoring("gigaword", {"stem": False})
    assert changed.rouge["stem"] is False
    assert changed.flags.endswith("changed: stem=False")
    assert PROFILES["gigaword"].rouge["stem"] is True
    with pytest.raises(ConfigError, match="Did you mean 'gigaword'"):
        scoring("gigawrod")


def test_the_highlight_with_the_best_recall_counts() -> None:
    way = scoring("cnndm-first")
    hashed = score_as(way, ["## died in ####"], [["12 died in 1998"]], ("1",))
    assert hashed.mean["1"].f == 1.0
    summary, highlights = "rain fell on the town", ["rain fell today", "a dog ran home", "on the town"]
    found = score_as(way, [summary], [highlights], ("1", "2", "L"))
    assert found.per_document["1"][0] == pytest.approx((3 / 5, 1.0, 3 / 4), abs=1e-5)  # all of the third's words
    assert "refs:best" in found.signature
    assert resolve_run(load_recipe("coarse_to_fine"), row="c2f", size="paper").evaluation.profile == "cnndm-first"


@pytest.mark.parametrize("profile", ["cnndm", "samsum"])
def test_summaries_are_scored_sentence_by_sentence(profile: str) -> None:
    """The hypothesis stands in one line, as a model writes it; the reference has a highlight a line."""
    hypothesis = "A red car hit the old wall. Nobody was hurt today. The driver left."
    reference = "the driver left the scene .\nnobody hurt as car hit wall ."
    way = scoring(profile)
    found = score_as(way, [hypothesis], [[reference]], ("1", "2", "L"))
    lines = "A red car hit the old wall.\nNobody was hurt today.\nThe driver left."
    whole = rouge([lines], [[reference]], kinds=("1", "2", "Lsum"))
    assert found.per_document["L"] == whole.per_document["Lsum"]
    assert found.per_document["2"] == whole.per_document["2"]
    assert found.per_document["L"][0].f > scores("rouge155", [hypothesis], [reference]).per_document["L"][0].f + 0.2
    assert found.signature.endswith("|L:sum")
    named = score_as(way, [hypothesis], [[reference]], ("rougeL",))
    assert named.per_document["rougeL"] == whole.per_document["Lsum"]
    assert named.signature.endswith("|L:sum")
    # nobody, hurt; the driver left; car hit wall: 8 of the reference's 11 words
    assert found.per_document["L"][0].recall == pytest.approx(8 / 11, abs=1e-5)


def test_a_text_of_several_lines_keeps_them() -> None:
    assert sentence_lines("One line. Of two sentences.\n\n Another ") == "One line. Of two sentences.\nAnother"
    assert sentence_lines("One is here. Two is there.") == "One is here.\nTwo is there."
    assert sentence_lines(" \n ") == ""


@pytest.mark.parametrize(
    ("references", "profile"),
    [
        (["принтер печатает дважды", "замок не включается"], "unicode"),
        (["苹果发布手机", "принтер в комнате 12"], "unicode"),  # a number is the only word that rouge155 counts
        (["лифт HP сломан", ""], "unicode"),  # what has no text says nothing
        (["Zoë aß Crème brûlée à Málaga", "ở Hà Nội", "12"], None),
        (["printer prints twice", "принтер печатает дважды"], None),  # half is not most
        (["", ""], None),
    ],
)
def test_another_script_than_latin_is_counted_where_nobody_chose(references: list[str], profile: str | None) -> None:
    entries = [(text,) for text in references]
    way = suited(scoring(None, {"stem": False}), entries)
    assert way.rouge.get("profile") == profile
    assert way.rouge["stem"] is False
    assert ("most references" in way.flags) == (profile is not None)
    for chosen in ("rouge155", "plain", "gigaword"):
        assert suited(scoring(chosen), entries) == scoring(chosen)


def test_it_is_said_where_the_default_parts_words() -> None:
    german, english = [["Köln wächst"]], [["The city grows"]]
    assert suited(Scoring(), german * 2 + english * 8).flags.startswith("rouge155 parts words at letters such as é")
    assert "which 2 of 10 references have" in suited(Scoring(), german * 2 + english * 8).flags
    assert suited(Scoring(), german * 2 + english * 8).rouge == {}
    assert suited(Scoring(), german + english * 9) == Scoring()
    assert suited(scoring("unicode"), german) == scoring("unicode")
