"""ROUGE: a plain reference, properties of every profile, how data sets are scored, ``catchline rouge``."""

from __future__ import annotations

import io
import json
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.cli.main import main
from catchline.config.loading import load_recipe, resolve_run
from catchline.errors import ConfigError, DataError
from catchline.metrics.overlap import lcs_length, lcs_positions
from catchline.metrics.rouge import Score, rouge
from catchline.metrics.scoring import PROFILES, Scoring, score_as, scoring, sentence_lines, suited
from catchline.metrics.significance import bootstrap_interval
from commands import refused, run

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


@given(SMALL, SMALL)
@settings(max_examples=80)
def test_lcs_positions_are_those_of_the_table(reference, hypothesis):
    expected = table_positions(reference, hypothesis)
    assert lcs_length(reference, hypothesis) == len(expected)
    found = lcs_positions(reference, hypothesis)  # as bits of a number
    assert [place for place in range(found.bit_length()) if found >> place & 1] == expected


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


@pytest.mark.parametrize("sign", ["\u00ad", "\u2060", "\u200e"])
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
    ("hypotheses", "references", "options", "says"),
    [
        ([], [], {}, "0 hypotheses and 0 references"),
        ("a", ["a"], {}, "wrap a single text"),
        (["a"], [[]], {}, "Document 1 has no reference"),
        ([None], ["a"], {}, "must be texts, not NoneType"),
        (["a"], [["b", None]], {}, "must be texts, not NoneType"),
        (["a"], ["a"], {"kinds": ["0"]}, "Unknown ROUGE kind"),
        (["a"], ["a"], {"kinds": []}, "name a ROUGE kind at least"),
        (["a"], ["a"], {"profile": "rogue155"}, "Did you mean 'rouge155'"),
        (["a"], ["a"], {"stemm": True}, "Did you mean 'stem'"),
        (["a"], ["a"], {"alpha": 2.0}, "less than or equal to 1 (given: 2.0)"),
        (["a"], ["a"], {"max_bytes": 0}, "'rouge.max_bytes'"),
    ],
)
def test_wrong_input_is_explained(hypotheses, references, options, says):
    with pytest.raises(ConfigError if options else DataError, match=re.escape(says)):
        rouge(hypotheses, references, **options)


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
    assert all(way.flags for way in PROFILES.values())
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


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hyp.txt").write_bytes("the cat sat\r\n\nbetter dogs\r😀\n".encode())
    (tmp_path / "ref.txt").write_text("the cats sat down\nfoo\ngood dog\nbar\n")
    (tmp_path / "other.txt").write_text("a cat\nfoo\nwell dogs\nbar\n")
    return tmp_path


def test_table_and_warnings(files, capsys):
    assert main(["rouge", "hyp.txt", "ref.txt"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].split() == ["ROUGE", "P", "R", "F"]
    assert out.splitlines()[-1].startswith("rouge:rouge155|n:4|stem:porter+wordnet2.0|")
    assert "2 of 4 hypotheses have no word" in err
    assert "profile unicode" not in err


def test_json_with_documents_and_flags(files, capsys):
    arguments = "hyp.txt ref.txt other.txt --json -d -f B --kinds 1,Lsum --interval"
    record = json.loads(run(capsys, "rouge", *arguments.split()))
    assert list(record["scores"]) == ["1", "Lsum"]
    assert len(record["per_document"]) == record["counts"]["documents"] == 4
    assert "refs:best" in record["signature"]
    assert set(record["intervals"]["1"]) == {"low", "high"}


def test_json_lines_hold_both_sides(files, capsys, monkeypatch):
    lines = '{"summary": "a b", "references": ["a b", "c"]}\n{"summary": "x", "reference": "x"}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    (files / "p.jsonl").write_text('"a b"\n"x"\n')
    (files / "r.jsonl").write_text('{"references": ["a b"]}\n{"summary": "x"}\n')
    for arguments in (["-", "-f", "max", "--no-stem"], ["p.jsonl", "r.jsonl"]):
        out = run(capsys, "rouge", *arguments, "--json", "--kinds", "1")
        assert json.loads(out)["scores"]["1"]["f"] == 1.0


def test_separator_makes_sentences(files, capsys):
    (files / "a.txt").write_text("c d<n>a b\n")
    (files / "b.txt").write_text("a b<n>c d\n")
    out = run(capsys, "rouge", "a.txt", "b.txt", "--separator", "<n>", "--kinds", "Lsum,L", "--json")
    scores = json.loads(out)["scores"]
    assert (scores["Lsum"]["f"], scores["L"]["f"]) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["hyp.txt", "short.txt"], 3, "hyp.txt has 4 lines but short.txt has 1"),
        (["hyp.txt"], 3, "name a file of references"),
        (["-", "-"], 2, "can be read only once; save it, and name that file"),
        (["empty.txt", "empty.txt"], 3, "empty.txt is empty"),
        (["binary.txt", "short.txt"], 3, "binary.txt, line 2: not UTF-8"),
        (["keys.jsonl", "short.txt"], 3, "there is no field hypothesis or"),
        (["list.jsonl", "short.txt"], 3, "list.jsonl, line 1: a system writes one text, not a list of 2"),
    ],
)
def test_bad_input_is_one_clear_sentence(files, capsys, arguments, code, says):
    (files / "short.txt").write_text("a\n")
    (files / "empty.txt").write_text("")
    (files / "binary.txt").write_bytes(b"a\n\xff\n")
    (files / "list.jsonl").write_text('{"summary": ["a", "b"]}\n')
    (files / "keys.jsonl").write_text('{"id": 3}\n')
    refused(capsys, code, says, "rouge", *arguments)
