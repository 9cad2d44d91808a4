"""Scoring options of a run, sweeps over sizes, and scores by document length."""

from __future__ import annotations

import pytest

from catchline.config.schema import EvaluationConfig
from catchline.errors import ConfigError
from catchline.evaluation.run import Contender, EvaluationOptions, evaluate_system, options_of, score
from catchline.evaluation.table import compared, result_table
from catchline.metrics.rouge import rouge
from catchline.types import Record
from catchline_study.breakdown import as_dicts, best_lines, best_of, buckets, by_length, sweep_names


def record(length: int, number: int = 0) -> Record:
    return Record(" ".join(["word"] * length) + " .", "word", str(number))


RECORDS = [record(length, number) for number, length in enumerate([9, 2, 5, 2, 30, 7, 1])]


def test_options_of_a_run() -> None:
    plain = options_of(EvaluationConfig())
    assert (plain.kinds, plain.scoring.rouge, plain.scoring.shown, plain.batch_size) == (("1", "2", "L"), {}, "f", 32)
    duc = options_of(EvaluationConfig(profile="duc2004", rouge={"stem": False, "kinds": ["1"]}), interval=False)
    assert duc.scoring.shown == "recall"
    assert duc.kinds == ("1",)
    expected = {"profile": "rouge155", "stem": False, "multi": "average", "max_bytes": 75, "interval": False}
    assert duc.scoring.rouge == expected
    with pytest.raises(ConfigError, match="Unknown ROUGE profile"):
        options_of(EvaluationConfig(profile="duc"))


def test_recall_is_what_counts_where_the_profile_says_so() -> None:
    records = [Record("x", "a b c d"), Record("x", "a")]
    lines = [{"summary": "a b"}, {"summary": "a b c"}]
    options = options_of(EvaluationConfig(profile="duc2004"))
    result = score("x", records, lines, options=options)
    expected = rouge(["a b", "a b c"], ["a b c d", "a"], interval=True, max_bytes=75)
    assert result.shown == "recall"
    assert result.value("1") == result.rouge["1"].recall == pytest.approx(0.75)
    assert result.per_document["1"] == (0.5, 1.0)
    assert result.rouge["1"].low == expected.interval["1"].low.recall
    assert result.rouge["1"].f != result.rouge["1"].recall
    _, rows, notes = result_table([result])
    assert rows[0][1].startswith("75.00")
    assert notes[0].startswith("ROUGE recall x 100")
    assert notes[2:] == [options.scoring.flags, result.signature]
    assert "-b 75" in notes[2]
    entry = compared([result])[0]
    assert (entry["shown"], entry["flags"]) == ("recall", options.scoring.flags)


def test_numbers_are_restored_for_scoring_only() -> None:
    records, lines = [Record("He paid 12 pounds.", "12 pounds")], [{"summary": "## pounds"}]
    off = score("x", records, lines)
    on = score("x", records, lines, options=EvaluationOptions(restore_numbers=True))
    assert off.rouge["1"].recall == 0.5
    assert on.rouge["1"].f == 1.0
    assert lines == [{"summary": "## pounds"}]


# ----------------------------------------------------------------------------------------- sweeps


def test_sizes_of_a_sweep() -> None:
    assert sweep_names("lead:1-3") == ["lead-1", "lead-2", "lead-3"]
    assert sweep_names("lexrank:2-2") == ["lexrank-2"]
    assert sweep_names("first_words:10-30:10") == [f"first_words:words={n}" for n in (10, 20, 30)]
    assert sweep_names("first_characters:5-6") == ["first_characters:characters=5", "first_characters:characters=6"]
    assert sweep_names("concept_ilp:5-6") == ["concept_ilp:max_words=5", "concept_ilp:max_words=6"]
    for name in (*sweep_names("first_words:5-9:2"), *sweep_names("first_characters:5-6"), *sweep_names("lead:1-2")):
        Contender(name)
    for spec in ("lead", "lead:3", "lead:3-1", "lead:0-2", "lead:1-5:0", "led:1-2", "lead:a-b", f"lead:1-{'9' * 5000}"):
        with pytest.raises(ConfigError):
            sweep_names(spec)


def test_the_best_size_by_each_kind() -> None:
    records = [Record("The cat sat. The dog ran. An owl flew.", "the cat sat the dog ran")]
    results = {name: evaluate_system(Contender(name), records) for name in sweep_names("lead:1-3")}
    best = best_of(list(results.values()))
    assert best == {"1": "lead-2", "2": "lead-2", "L": "lead-2", "mean": "lead-2"}
    assert best_lines({"lead:1-3": best}, results) == [
        "lead:1-3: best lead-2 (ROUGE-1 100.00, ROUGE-2 100.00, ROUGE-L 100.00, mean)"
    ]
    same = [Record("A b.", "a b")] * 2
    tied = {name: evaluate_system(Contender(name), same) for name in sweep_names("lead:1-2")}
    assert set(best_of(list(tied.values())).values()) == {"lead-1"}  # of equals the first


# ---------------------------------------------------------------------------------------- lengths


def test_buckets_of_equal_size() -> None:
    found = buckets(RECORDS, "3")
    # lengths in order: 1 2 2 | 5 7 | 9 30 (seven documents, cut at 2.33 and 4.67)
    assert [bucket.places for bucket in found] == [(1, 6), (2, 3, 5), (0, 4)]
    assert [(bucket.low, bucket.high) for bucket in found] == [(1, 2), (2, 7), (9, 30)]
    assert found[2].mean == 19.5
    assert found[0].name == "1 to 2"
    assert [len(bucket.places) for bucket in buckets(RECORDS, "7")] == [1] * 7
    assert buckets(RECORDS, "1")[0].places == tuple(range(7))


def test_buckets_by_given_lengths() -> None:
    found = buckets(RECORDS, "5, 9,100")
    assert [bucket.places for bucket in found] == [(1, 3, 6), (2, 5), (0, 4)]  # from 5 on, from 9 on; none from 100
    assert [bucket.places for bucket in buckets(RECORDS, "7,")] == [(1, 2, 3, 6), (0, 4, 5)]
    for spec in ("0", "8", "a", "5,3", "", ",5", "3.5", "²", "9" * 5000):
        with pytest.raises(ConfigError, match="--by-length"):
            buckets(RECORDS, spec)


def test_scores_of_a_bucket_are_those_of_its_documents() -> None:
    records = [Record("a b c d e f", "a b"), Record("a b", "a x"), Record("a b c", "b")]
    lines = [{"summary": "a b a b"}, {"summary": "a"}, {"summary": "c"}]
    found = buckets(records, "2")
    results = by_length("x", records, lines, found, options=EvaluationOptions())
    # half of three is rounded to even: 1.5 -> 2
    assert [bucket.places for bucket in found] == [(1, 2), (0,)]
    expected = rouge(["a b a b"], ["a b"])
    assert results[1].rouge["1"].f == expected.mean["1"].f
    assert results[1].measures["repetition"] == pytest.approx(1 / 3)
    assert results[0].rouge["1"].f == pytest.approx((2 / 3 + 0) / 2, abs=1e-5)
    entries = as_dicts(found, {"x": results})
    assert [entry["records"] for entry in entries] == [2, 1]
    assert entries[1]["systems"][0]["rouge"]["1"]["f"] == results[1].rouge["1"].f
