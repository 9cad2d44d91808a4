"""Confidence is fitted to what readers said; ``catchline calibrate`` on a tiny pointer-generator."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from catchline import Summarizer
from catchline.errors import DataError
from catchline.metrics.confidence import FACTS, Calibration
from catchline_study import calibration
from catchline_study.calibration import Ratings, fit, reliability
from commands import refused, run
from json_lines import write_lines
from tiny_models import DOCUMENTS, save_tiny_model


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


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(calibration, "LEAST_RECORDS", 40)
    records = [{"id": f"r{n}", "document": DOCUMENTS[n % 5], "summary": "it was late"} for n in range(45)]
    write_lines(tmp_path / "pairs.jsonl", records)
    return save_tiny_model(tmp_path / "model", max_source_tokens=12)


def test_calibrate_believes_readers_where_they_have_rated(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, sheet = place.parent / "pairs.jsonl", place.parent / "ratings.jsonl"
    made = Summarizer.from_pretrained(place).summarize(DOCUMENTS[:5])
    lines = [{"id": f"r{n}", "summary": made[n % 5].text.upper(), "rating": 1 + (n % 3 > 0)} for n in range(45)]
    write_lines(sheet, lines)
    arguments = ["calibrate", str(place), "--data", str(data), "--ratings", str(sheet), "--json"]
    values = json.loads(run(capsys, *arguments))
    assert (values["accepted"], values["threshold"]) == (pytest.approx(2 / 3), 0.5)
    found = Calibration.load(place)
    assert found is not None
    assert (found.records, found.accepted) == (45, "rated 2 or more by readers")
    assert json.loads(run(capsys, *arguments, "--threshold", "0.25"))["threshold"] == 0.25
    write_lines(sheet, lines[:20])
    refused(capsys, 3, "40 records or more of which readers rated the line that the model writes; here", *arguments)
    refused(capsys, 3, "no file nowhere.jsonl; `catchline judge analyse", *arguments[:5], "nowhere.jsonl")
    assert "Below a confidence of 0.25" in (place / "README.md").read_text()
    assert Summarizer.from_pretrained(place).summarize(DOCUMENTS[0], always_write=True).confidence is not None
    how = ["--data", data, "--ratings", sheet]
    refused(capsys, 2, "`catchline export oneline --out DIR` makes a copy", "calibrate", "oneline", *how)
    refused(capsys, 2, "has no confidence to calibrate", "calibrate", "lexrank", *how)
