"""Fitting confidence to what readers said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from catchline.errors import DataError
from catchline.metrics.confidence import FACTS
from catchline_study.calibration import Ratings, fit, reliability


def test_ratings_are_found_by_record_and_words(tmp_path: Path) -> None:
    lines = [{"id": "a", "summary": "River rose", "rating": rating} for rating in (3, 2)]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, [*lines, {"id": "b", "summary": "x", "rating": 1}])))
    found = Ratings.read(tmp_path / "r.jsonl")
    assert (found.of("a", "river ROSE!"), found.of("b", "x"), found.accept) == (2.5, 1.0, 2.5)
    assert np.isnan(found.of("b", "river rose"))
    assert Ratings.read(tmp_path / "r.jsonl", 2).accept == 2
    (tmp_path / "r.jsonl").write_text('{"summary": "x", "rating": 1}')
    with pytest.raises(DataError, match="rating 1 needs an 'id'"):
        Ratings.read(tmp_path / "r.jsonl")


def test_the_fit_is_checked_on_records_that_it_has_not_seen() -> None:
    random = np.random.default_rng(5)
    scores = random.normal(-1.0, 1.0, 1000)
    good = random.random(1000) < 1 / (1 + np.exp(-(2 * scores + 1)))
    facts = [dict.fromkeys(FACTS, 0.0) | {"mean_log_prob": float(score)} for score in scores]
    found, held_out = fit(facts, good.tolist())
    assert (found.records, held_out.base_rate) == (1000, pytest.approx(good.mean()))
    assert held_out.error < 0.05
    assert held_out.auc > 0.8
    chance = fit(facts, (random.random(1000) < 0.5).tolist())[1]
    assert abs(chance.auc - 0.5) < 0.06


def test_reliability_by_hand() -> None:
    found = reliability(np.array([0.1, 0.1, 0.9, 0.9]), np.array([0.0, 1.0, 1.0, 1.0]))
    assert found.bins == ((0.1, 0.5, 2), (0.9, 1.0, 2))
    assert found.error == pytest.approx(0.5 * 0.4 + 0.5 * 0.1)
    assert found.auc == pytest.approx((2 + 0.5) / 3)  # of three pairs two are in order, one is a tie
    assert found.brier == pytest.approx((0.01 + 0.81 + 0.01 + 0.01) / 4)
    assert reliability(np.array([0.5]), np.array([1.0])).auc == 0.5
