"""ROUGE against a plain reference written from the definitions, and the properties every profile must have."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.errors import ConfigError, DataError
from catchline.metrics.overlap import lcs_length, lcs_positions
from catchline.metrics.rouge import Score, rouge
from catchline.metrics.significance import bootstrap_interval

SMALL = st.lists(st.integers(0, 5), max_size=25)


def table_positions(reference, hypothesis):
    """The LCS by the textbook table, read out with the tool's preference."""
    rows, columns = len(reference), len(hypothesis)
    table = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows):
        for j in range(columns):
            same = reference[i] == hypothesis[j]
            table[i + 1][j + 1] = table[i][j] + 1 if same else max(table[i][j + 1], table[i + 1][j])
    found, i, j = [], rows, columns
    while i and j:
        if reference[i - 1] == hypothesis[j - 1]:
            i, j = i - 1, j - 1
            found.append(i)
        elif table[i - 1][j] >= table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return sorted(found)


def bits(number):
    return [place for place in range(number.bit_length()) if number >> place & 1]


@given(SMALL, SMALL)
@settings(max_examples=80)
def test_lcs_positions_are_those_of_the_table(reference, hypothesis):
    expected = table_positions(reference, hypothesis)
    assert lcs_length(reference, hypothesis) == len(expected)
    assert bits(lcs_positions(reference, hypothesis)) == expected


def test_plain_profile_is_case_sensitive_and_keeps_punctuation():
    score = rouge(["The cat ."], ["the cat ."], kinds=["1"], profile="plain")
    assert score.mean["1"] == (0.66667, 0.66667, 0.66667)


def test_unicode_profile_reads_any_script():
    pairs = [
        ("Привет, мир!", "привет мир"),
        ("我爱北京", "我爱上海"),
        ("हिन्दी भाषा", "हिन्दी"),
        ("نامه\u200cها", "نامه ها"),
        ("ＡＢＣ", "abc"),
    ]
    score = rouge([p[0] for p in pairs], [p[1] for p in pairs], kinds=["1"], profile="unicode")
    assert [round(one.f, 3) for one in score.per_document["1"]] == [1.0, 0.5, 0.667, 0.0, 1.0]
    latin = rouge([p[0] for p in pairs[:2]], [p[1] for p in pairs[:2]], kinds=["1"])
    assert latin.mean["1"].f == 0.0
    assert (latin.counts.wordless_hypotheses, latin.counts.wordless_references) == (2, 2)


@pytest.mark.parametrize("sign", ["\u00ad", "\u200d", "\u2060", "\ufeff", "\u200e"])
def test_invisible_characters_are_no_part_of_a_word(sign: str) -> None:
    found = rouge([f"The coop{sign}erative met{sign}"], ["The cooperative met"], profile="unicode")
    assert found.mean["1"].f == 1.0
    assert found.signature.endswith("catchline.r4")


@pytest.mark.parametrize("text", ["のため9週間", "基于LSTM的", "รีต 33 ส", "ກABC"])
def test_what_follows_a_character_of_an_unspaced_script_is_a_word_of_its_own(text: str):
    """As if blanks stood around each run of Latin letters and digits; the nine of ``のため9週間`` was part of め."""
    apart = re.sub(r"[A-Za-z0-9]+", r" \g<0> ", text)
    assert rouge([text], [apart], kinds=["2"], profile="unicode").mean["2"].f == 1.0
    alone = re.search("[A-Za-z0-9]+", text)
    assert alone
    assert rouge([alone[0]], [text], kinds=["1"], profile="unicode").mean["1"].precision == 1.0


@pytest.mark.parametrize(
    ("profile", "text", "other", "same"),
    [
        ("unicode", "he runs", "he running", True),
        ("unicode", "бегут", "бегущих", False),
        ("unicode", "бегут", "БЕГУТ", True),
        ("plain", "runs", "running", False),
        ("plain", "runs", "runs", True),
        ("characters", "<unk> 北", "北 <unk>", True),
    ],
)
def test_stemming_is_of_english_and_of_profiles_that_stem(profile: str, text: str, other: str, same: bool) -> None:
    assert rouge([text], [other], kinds=["1"], profile=profile, stem=True).mean["1"].f == same


@pytest.mark.parametrize("profile", ["rouge155", "google", "plain", "unicode"])
def test_empty_texts_score_zero_and_are_counted(profile):
    kinds = ["1", "2", "L", "Lsum"]
    score = rouge(["", "a b", " \n ", "a"], ["a b", "", "x", "a"], kinds=kinds, profile=profile)
    assert (score.counts.wordless_hypotheses, score.counts.wordless_references) == (2, 1)
    for kind in kinds:
        assert score.per_document[kind][:3] == [(0.0, 0.0, 0.0)] * 3
    assert score.per_document["1"][3].f == 1.0
    # half a character is a gap or itself
    assert rouge(["a \ud800 b"], ["a \ud800 b"], kinds=["1"], profile=profile).mean["1"].f == 1.0


@given(st.text(max_size=60), st.text(max_size=60))
@settings(max_examples=40)
def test_scores_are_between_zero_and_one_and_symmetric(left, right):
    for profile in ("rouge155", "google", "unicode"):
        one = rouge([left], [right], kinds=["1", "2", "L", "Lsum"], profile=profile).mean
        two = rouge([right], [left], kinds=["1", "2", "L", "Lsum"], profile=profile).mean
        for kind in ("1", "2", "L"):
            assert all(0.0 <= value <= 1.0 for value in one[kind])
            assert one[kind].precision == two[kind].recall
        assert one["L"].recall <= one["1"].recall + 1e-9
        assert one["Lsum"].recall <= one["1"].recall + 1e-9


def test_signature_pins_what_matters():
    base = rouge(["a"], ["a"]).signature
    assert base == "rouge:rouge155|n:1|stem:porter+wordnet2.0|stop:kept|limit:no|refs:average|alpha:0.5|catchline.r1"
    changes = {"stem": False, "exceptions": False, "remove_stop_words": True, "max_bytes": 75}
    changes |= {"multi": "best", "alpha": 0.3, "interval": True, "profile": "google"}
    signatures = {rouge(["a"], ["a"], **{name: value}).signature for name, value in changes.items()}
    assert len(signatures | {base}) == len(changes) + 1


def test_the_interval_is_the_bootstrap_of_each_column() -> None:
    generator = random.Random(6)
    texts = [" ".join(generator.choices("abcdefgh", k=generator.randint(2, 9))) for _ in range(12)]
    found = rouge(texts, texts[::-1], kinds=["1", "L"], interval=True)
    for kind, scores in found.per_document.items():
        for place, name in enumerate(Score._fields):
            low, high = bootstrap_interval([score[place] for score in scores], 1000)
            ends = [getattr(end, name) for end in found.interval[kind]]
            assert ends == pytest.approx([low, high], abs=1e-12)


@pytest.mark.parametrize(
    ("hypotheses", "references", "says"),
    [
        ([], [], "0 hypotheses and 0 references"),
        ("a", ["a"], "wrap a single text"),
        (["a"], [[]], "Document 1 has no reference"),
        ([None], ["a"], "must be texts, not NoneType"),
        (["a"], [["b", None]], "must be texts, not NoneType"),
    ],
)
def test_wrong_input_is_explained(hypotheses, references, says):
    with pytest.raises(DataError, match=says):
        rouge(hypotheses, references)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kinds": ["0"]}, "Unknown ROUGE kind"),
        ({"kinds": []}, "name a ROUGE kind at least"),
        ({"profile": "rogue155"}, "Did you mean 'rouge155'"),
        ({"stemm": True}, "Did you mean 'stem'"),
        ({"alpha": 2.0}, "less than or equal to 1 (given: 2.0)"),
        ({"max_bytes": 0}, "'rouge.max_bytes'"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        rouge(["a b"], ["a b"], **options)
