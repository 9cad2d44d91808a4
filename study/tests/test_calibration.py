"""Fitting confidence, the choice among hypotheses and among sentences to what readers said."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from catchline.errors import DataError
from catchline.metrics.confidence import (
    CHOOSING,
    FEATURES,
    SENTENCE,
    Calibration,
    Ranges,
    told_sentences,
)
from catchline.types import Record, Summary
from catchline_study.calibration import Ratings, fit, fit_choosing, fit_sentence, reliability

RANGES = Ranges(least_tokens=5, most_unknown=0.3, least_common=0.1)


KNOWN = {"source_tokens": 20.0, "source_unknown": 0.1, "source_common": 0.4, "source_ratio": 0.0}


def calibration(threshold: float = 0.5) -> Calibration:
    """The more likely the words, the surer."""
    size = len(FEATURES)
    weight = tuple(1.0 if name == "mean_log_prob" else 0.0 for name in FEATURES)
    return Calibration((0.0,) * size, (1.0,) * size, weight, bias=1.0, threshold=threshold, ranges=RANGES)


def facts_with(**values: float) -> dict[str, float]:
    return dict.fromkeys(FEATURES, 0.0) | KNOWN | values


def test_weights_of_choosing_are_those_that_scores_were_made_with() -> None:
    """Hypotheses whose ROUGE follows from how often their document says their words."""
    draw = np.random.default_rng(3)
    names = [f"word{letter}" for letter in "abcdefghij"]

    class Writer:
        def summarize(self, records: list[Record], **settings: object) -> list[Summary]:
            assert settings["num_return"] == 4
            assert settings["choose"] == "best"
            made = []
            for record in records:
                right = record.summary.split()
                lines = [right, [*right[:2], "x", "y"], [right[0], "x", "y", "z"], ["v", "x", "y", "z"]]
                shares = [len(set(line) & set(right)) / 4 for line in lines]
                facts = [facts_with(said_often=share, tokens=draw.random()) for share in shares]
                every = [Summary(" ".join(line), facts=each) for line, each in zip(lines, facts, strict=True)]
                draw.shuffle(every)
                made.append(replace(every[0], alternatives=tuple(every[1:])))
            return made

    records = [Record("a document", " ".join(draw.choice(names, 4, replace=False))) for _ in range(120)]
    weights = dict(zip(CHOOSING, fit_choosing(Writer(), 4, records, 32), strict=True))
    assert weights["said_often"] > 20
    assert abs(weights["tokens"]) < 5
    assert weights["mean_log_prob"] == 0.0  # it was the same everywhere
    names = [chr(code) * 2 for code in range(0x430, 0x450)]
    records = [Record("текст", " ".join(draw.choice(names, 4, replace=False))) for _ in range(120)]
    weights = dict(zip(CHOOSING, fit_choosing(Writer(), 4, records, 32), strict=True))
    assert weights["said_often"] > 20


def test_ratings_of_sentences_teach_when_one_is_likelier_to_do(tmp_path: Path) -> None:
    """Readers accept a sentence that says what the line says, and want none that leans on another."""
    documents = [f"The river {word} rose. It closed port {word} early." for word in map(str, range(120))]
    records = [Record(document, id=str(number)) for number, document in enumerate(documents)]
    made = [Summary(f"River {one.id} rose", document=one.document, id=one.id, facts=facts_with()) for one in records]
    lines = [
        {"id": one.id, "summary": sentence, "rating": rating}
        for one in records
        for sentence, rating in ((f"The river {one.id} rose", 3), (f"It closed port {one.id} early.", 0), ("a line", 3))
    ]

    def read(count: int) -> Ratings:
        (tmp_path / "ratings.jsonl").write_text("\n".join(map(json.dumps, lines[:count])))
        return Ratings.read(tmp_path / "ratings.jsonl")

    one = replace(calibration(), sentence=fit_sentence(calibration(), made, read(360)))
    told = told_sentences("The river 7 rose. It closed port 7 early.", "River 7 rose")
    chances = [one.sentence_confidence(facts | {"confidence": 0.5}) for _, facts in told]
    assert chances[0] > 0.95 > 0.05 > chances[1]
    marked = [replace(one, document=one.document.replace("river", r"\emph{river}")) for one in made]
    assert fit_sentence(calibration(), marked, read(360)) == one.sentence, "as readers see it, without markup"
    assert fit_sentence(calibration(), made, read(148)) == ()  # 99 sentences, 49 lines
    assert len(fit_sentence(calibration(), made, read(149))) == len(SENTENCE) + 1
    assert read(360).compared(records) == set()  # one line a text, the sentences aside
    lines.extend([line | {"summary": "another line"} for line in lines[2::3]])
    assert len(read(480).compared(records)) == 120


def test_the_fit_finds_probabilities_that_come_true() -> None:
    random = np.random.default_rng(5)
    scores = random.normal(-1.0, 1.0, 3000)
    good = random.random(3000) < 1 / (1 + np.exp(-(2 * scores + 1)))
    facts = [facts_with(mean_log_prob=float(score)) for score in scores]
    found, held_out = fit(facts, good.tolist(), threshold=0.2, rule="drawn")
    for score in (-2.0, -0.5, 0.5):
        truth = 1 / (1 + math.exp(-(2 * score + 1)))
        assert found.confidence(facts_with(mean_log_prob=score)) == pytest.approx(truth, abs=0.04)
    assert held_out.error < 0.03
    assert held_out.base_rate == pytest.approx(good.mean())
    assert found.ranges.least_tokens == 20
    with pytest.raises(DataError, match="No summary"):
        fit(facts, [False] * 3000, threshold=0.2, rule="")


def test_what_readers_look_at_stays_and_the_level_is_that_of_the_records() -> None:
    """Weights of readers, 200 records of another level, and a fact that goes with acceptance by chance."""
    random = np.random.default_rng(5)
    scores = random.normal(-1.0, 1.0, 200)
    good = random.random(200) < 1 / (1 + np.exp(-(scores - 0.5)))
    chance = random.normal(0.0, 1.0, 200) + good
    facts = [facts_with(mean_log_prob=a, joins=b) for a, b in zip(scores, chance, strict=True)]
    readers = replace(calibration(), bias=9.0, sentence=(1.0,) * (len(SENTENCE) + 1))  # sure of nearly everything here
    found, held_out = fit(facts, good.tolist(), threshold=0.2, rule="drawn", known=readers)
    own, _ = fit(facts, good.tolist(), threshold=0.2, rule="drawn")
    share = [float(np.mean([one.confidence(fact) for fact in facts])) for one in (readers, found)]
    assert share[0] > 0.99
    assert share[1] == pytest.approx(good.mean(), abs=1e-6)
    weights = dict(zip(FEATURES, found.weight, strict=True))
    assert weights.pop("mean_log_prob") == pytest.approx(1.0, abs=0.3)
    assert set(weights.values()) == {0.0}
    assert own.weight[FEATURES.index("joins")] > 0.5
    assert (found.mean, found.deviation) == (readers.mean, readers.deviation)
    assert (found.records, found.accepted, found.threshold, found.sentence) == (200, "drawn", 0.2, ())
    assert held_out.error < 0.1


def test_readers_weights_count_for_less_where_they_tell_nothing() -> None:
    """Two thousand records that are accepted whatever their facts."""
    random = np.random.default_rng(6)
    facts = [facts_with(mean_log_prob=score) for score in random.normal(-1.0, 1.0, 2000).tolist()]
    found, held_out = fit(facts, (random.random(2000) < 0.6).tolist(), threshold=0.2, rule="", known=calibration())
    assert abs(found.weight[0]) < 0.25
    assert held_out.error < 0.08


def test_reliability_by_hand() -> None:
    found = reliability(np.array([0.1, 0.1, 0.9, 0.9]), np.array([0.0, 1.0, 1.0, 1.0]))
    assert found.bins == ((0.1, 0.5, 2), (0.9, 1.0, 2))
    assert found.error == pytest.approx(0.5 * 0.4 + 0.5 * 0.1)
    assert found.auc == pytest.approx((2 + 0.5) / 3)  # of three pairs two are in order, one is a tie
    assert found.brier == pytest.approx((0.01 + 0.81 + 0.01 + 0.01) / 4)
