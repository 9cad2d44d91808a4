"""How data sets are scored: each profile against its rules written out again (distraction e, contrastive f)."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import pytest

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.schema import EvaluationConfig
from catchline.errors import ConfigError
from catchline.metrics.rouge import rouge
from catchline.metrics.rouge_text import stem_rouge155
from catchline.metrics.scoring import PROFILES, Scoring, score_as, scoring, sentence_lines, suited
from span_counts import longest


def scores(profile: str, hypotheses: list[str], references: list[Any], **changes: Any):
    way = scoring(profile, changes)
    return rouge(hypotheses, references, kinds=("1", "2", "L"), **way.rouge)


def grams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def matches(kind: str, mine: list[str], theirs: list[str]) -> tuple[int, int, int]:
    """Hits, size of the reference, size of the hypothesis."""
    if kind == "L":
        return longest(mine, theirs), len(theirs), len(mine)
    ours, models = grams(mine, int(kind)), grams(theirs, int(kind))
    return (ours & models).total(), models.total(), ours.total()


def prf(hits: int, model: int, mine: int) -> tuple[float, float, float]:
    recall, precision = round(hits / model, 5) if model else 0.0, round(hits / mine, 5) if mine else 0.0
    both = precision + recall
    return precision, recall, round(precision * recall / (0.5 * both), 5) if both else 0.0


def check(found: Any, hypotheses: list[str], references: list[list[str]], words: Any) -> None:
    for kind in ("1", "2", "L"):
        for number, (text, models) in enumerate(zip(hypotheses, references, strict=True)):
            each = [matches(kind, words(text), words(model)) for model in models]
            expected = prf(*map(sum, zip(*each, strict=True)))  # -f A: sums over the references
            assert tuple(found.per_document[kind][number]) == pytest.approx(expected, abs=1.01e-5), (kind, text)


def texts(seed: int, count: int, longest: int = 30) -> list[str]:
    rng = random.Random(seed)
    words = ["The", "the", "cat", "cats", "###", "#.#", "##-year-old", "-", "U.S.", "-lrb-", "UNK", ".", ",", "running"]
    words += ["policies", "naïve", "ran,", "it's", "1990", "x"]
    return [" ".join(rng.choice(words) for _ in range(rng.randint(1, longest))) for _ in range(count)]


def rouge155_words(text: str, limit: int | None = None) -> list[str]:
    """Lower-cased line, cut at so many bytes, then everything but a-z and 0-9 is a gap; Porter's stems."""
    line = bytes(byte + 32 if 65 <= byte <= 90 else byte for byte in text.encode())[:limit]
    words = re.findall(r"[a-z0-9]+", line.decode("ascii", "replace").replace("\ufffd", " "))
    return [stem_rouge155(word) if len(word) > 3 else word for word in words]


def test_gigaword_is_rouge155_with_stems_over_full_lengths() -> None:
    hypotheses, references = texts(0, 25), [[text] for text in texts(1, 25)]
    found = scores("gigaword", hypotheses, references, exceptions=False)
    check(found, hypotheses, references, rouge155_words)
    assert "stem:porter" in found.signature
    assert "limit:no" in found.signature


def test_duc_cuts_both_sides_at_75_bytes_before_words_are_made() -> None:
    hypotheses, pool = texts(2, 20), texts(3, 80)
    references = [pool[4 * number : 4 * number + 4] for number in range(20)]
    found = scores("duc2004", hypotheses, references, exceptions=False)
    check(found, hypotheses, references, lambda text: rouge155_words(text, 75))
    assert scoring("duc2004").shown == "recall"
    assert "limit:b75" in found.signature
    assert "refs:average" in found.signature


def test_the_word_at_the_limit_is_cut_and_stays() -> None:
    head = "w " * 36  # 72 bytes
    for tail, other, hits in (("abcdef", "abczzz", 37), ("abcdef", "abd", 36), ("ab cdef", "ab", 37)):
        found = scores("duc2004", [head + tail], [head + other])
        assert found.mean["1"].recall == pytest.approx(hits / 37, abs=1e-5), tail
    # both sides: a reference longer than 75 bytes is no longer than the hypothesis can be
    assert scores("duc2004", ["a " * 38], ["a " * 100]).mean["1"].recall == 1.0
    # capitals and blanks count as bytes like any other
    assert scores("duc2004", ["B" + " " * 74 + "a"], ["a"]).mean["1"].recall == 0.0


def test_number_signs_and_lone_hyphens_vanish() -> None:
    found = scores("gigaword", ["### rose ##.# % - on #### -lrb- UNK -rrb-"], ["lrb unk rrb rose on"])
    assert found.per_document["1"][0] == (1.0, 1.0, 1.0)
    assert scores("gigaword", ["###"], ["###"]).mean["1"].f == 0.0
    assert scores("gigaword", ["well-known"], ["well known"]).mean["2"].f == 1.0


def test_recall_over_four_references_is_of_their_sum() -> None:
    found = scores("duc2004", ["a b"], [["a b c d", "a", "x y", "a b"]])
    assert found.mean["1"].recall == pytest.approx((2 + 1 + 0 + 2) / (4 + 1 + 2 + 2), abs=1e-5)


CHINESE = ["我们是2024年的GPT模型。", "我 们 是 G P T", "模型 2024 gpt", "。", "年年年"]


def test_lcsts_counts_characters_whatever_their_blanks_and_script() -> None:
    pairs = [(a, b) for a in CHINESE for b in CHINESE]
    hypotheses, references = [a for a, _ in pairs], [[b] for _, b in pairs]
    found = scores("lcsts", hypotheses, references)
    check(found, hypotheses, references, lambda text: [c for c in text if not c.isspace()])
    spaced = scores("lcsts", [" ".join(text) for text in hypotheses], references)
    assert spaced.mean == found.mean
    assert scores("lcsts", ["GPT"], ["gpt"]).mean["1"].f == 0.0  # another character
    assert "stem:no" in found.signature


@pytest.mark.parametrize("seed", [0, 1])
def test_any_numbering_of_the_characters_gives_the_same(seed: int) -> None:
    """What the field does for the Perl tool: one decimal number a character."""
    pairs = [(a, b) for a in CHINESE for b in CHINESE]
    characters = sorted({c for text in CHINESE for c in text if not c.isspace()})
    numbers = random.Random(seed).sample(range(10, 5000), len(characters))
    table = dict(zip(characters, map(str, numbers), strict=True))

    def numbered(text: str) -> str:
        return " ".join(table[c] for c in text if not c.isspace())

    ours = scores("lcsts", [a for a, _ in pairs], [b for _, b in pairs])
    theirs = rouge([numbered(a) for a, _ in pairs], [numbered(b) for _, b in pairs], kinds=("1", "2", "L"), stem=False)
    assert ours.per_document == theirs.per_document


def test_an_unknown_mark_is_one_character() -> None:
    assert scores("lcsts", ["我<unk>们"], ["我们"]).mean["1"].precision == pytest.approx(2 / 3, abs=1e-5)


def test_the_release_of_distraction_counts_words_as_they_stand() -> None:
    hypotheses, references = texts(4, 25), [[text] for text in texts(5, 25)]
    found = scores("cnn-plain", hypotheses, references)
    check(found, hypotheses, references, str.split)
    # whole lines for the LCS, whatever line breaks there are; too short for an order is 0
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
