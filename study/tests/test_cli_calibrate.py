"""``catchline calibrate`` on a tiny pointer-generator."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from catchline import Summarizer
from catchline.cli.main import main
from catchline.evaluation import confidence
from catchline.metrics.confidence import CHOOSING, FEATURES, SENTENCE, Calibration
from catchline.summarizer.torch_backend import NeuralSystem
from catchline.text.sentences import sentence_strings
from catchline_study import calibration
from commands import refused, run
from json_lines import write_lines
from tiny_models import DOCUMENTS, save_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny", max_source_tokens=12)


@pytest.fixture
def _little_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibration of a toy model needs few words of English, and few records."""
    monkeypatch.setattr(calibration, "LEAST_RECORDS", 40)
    few = dict(list(confidence.english_words().items())[:500])
    monkeypatch.setattr(confidence, "english_words", lambda: few)


@pytest.mark.usefixtures("_little_is_enough")
def test_calibrate_believes_readers_where_they_have_rated(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "MOST_RERANKED", 1)  # what readers compared counts in full
    place, data, sheet = tmp_path / "model", tmp_path / "pairs.jsonl", tmp_path / "ratings.jsonl"
    shutil.copytree(folder, place)
    records = [{"id": f"r{n}", "document": DOCUMENTS[n % 5], "summary": "late"} for n in range(50)]
    write_lines(data, records)
    found = Summarizer.from_pretrained(place).summarize(DOCUMENTS[:5], beam_size=3, num_return=3)
    longest = [max((one, *one.alternatives), key=lambda line: len(line.text)).text for one in found]
    lines = [
        {"id": f"r{n}", "summary": one.text.upper(), "rating": 1 + (n % 3 > 0) * (one.text == longest[n % 5])}
        for n in range(45)
        for one in (found[n % 5], *found[n % 5].alternatives)
    ]
    write_lines(sheet, lines)
    arguments = ["calibrate", str(place), "--data", str(data), "--ratings", str(sheet), "--json"]
    arguments += ["--set", "choose=rerank", "--set", "beam_size=3"]
    assert 0.3 < json.loads(run(capsys, *arguments))["accepted"] <= 30 / 45
    made = Calibration.load(place)
    assert made is not None
    assert (made.records, made.accepted) == (45, "rated 2 or more by readers")
    chosen = Summarizer.from_pretrained(place).summarize(DOCUMENTS[:5], always_write=True)
    assert sum(len(one.text) for one in chosen) > sum(len(one.text) for one in found), "readers like the longer"
    assert made.sentence == ()
    one_each = [line | {"summary": chosen[n % 5].text, "rating": n % 2} for n, line in enumerate(lines[:135:3])]
    sentences = [(n, sentence) for n in range(45) for sentence in sentence_strings(DOCUMENTS[n % 5])]
    one_each += [{"id": f"r{n}", "summary": sentence, "rating": int(n % 5 > 1)} for n, sentence in sentences]
    write_lines(sheet, one_each)
    assert main(arguments) == 0
    again = Calibration.load(place)
    assert again is not None
    assert (again.records, again.choosing) == (45, made.choosing), "they were chosen by these weights"
    assert len(again.sentence) == len(SENTENCE) + 1, "they rated sentences of the texts too"
    capsys.readouterr()
    write_lines(sheet, lines[:60])
    assert main(arguments) == 3
    assert (
        "40 records or more of which readers rated the line that the model writes; here are" in capsys.readouterr().err
    )
    refused(
        capsys,
        3,
        "no file nowhere.jsonl; `catchline judge analyse --lines` makes such",
        *arguments[:5],
        "nowhere.jsonl",
    )
    sheet.write_text(json.dumps({"id": "r1", "summary": "late"}) + "\n")
    refused(capsys, 3, "rating 1 needs an 'id', a text, and a 'rating', a number", *arguments)
    refused(capsys, 2, "--accept 3 is no ROUGE F", "calibrate", place, "--data", data, "--accept", "3")


@pytest.mark.usefixtures("_little_is_enough")
def test_calibrate_stores_what_it_found(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rated = [n % 3 > 0 for n in range(45)]  # what the toy model writes would satisfy nobody
    monkeypatch.setattr(calibration, "accepted", lambda *_, **__: rated)
    place = tmp_path / "model"
    shutil.copytree(folder, place)
    records = [{"document": DOCUMENTS[n % 5], "summary": "it was late"} for n in range(45)]
    data = tmp_path / "pairs.jsonl"
    write_lines(data, records)
    picture = tmp_path / "reliability.png"
    arguments = ["calibrate", str(place), "--data", str(data), "--diagram", str(picture), "--json"]
    values = json.loads(run(capsys, *arguments))
    assert values["accepted"] == pytest.approx(2 / 3)
    assert picture.stat().st_size > 1000
    found = Calibration.load(place)
    assert found is not None
    assert found.records == 45
    assert Summarizer.from_pretrained(place).summarize(DOCUMENTS[0], always_write=True).confidence is not None
    assert found.choosing == ()
    assert "Below a confidence of 0.20" in (place / "README.md").read_text()
    assert main([*arguments, "--set", "choose=rerank", "--set", "beam_size=3"]) == 0
    learnt = Summarizer.from_pretrained(place).system
    assert isinstance(learnt, NeuralSystem)
    assert (learnt.search.choose, learnt.search.beam_size) == ("rerank", 3)
    assert learnt.calibration is not None
    assert len(learnt.calibration.choosing) == len(CHOOSING)
    refused(
        capsys,
        2,
        "`catchline export oneline --out DIR` makes a copy",
        "calibrate",
        "oneline",
        "--data",
        data,
        "--set",
        "beam_size=3",
    )
    (place / "recipe.yaml").unlink()
    refused(capsys, 2, "was not made by catchline", *arguments, "--set", "beam_size=4")
    refused(capsys, 3, "needs 40 records or more; here are 39", *arguments, "--max-records", "39")
    assert main(["calibrate", "lexrank", "--data", str(data)]) == 2
    assert main(["calibrate", str(place), "--data", str(data), "--diagram", "x.doc"]) == 2


@pytest.mark.usefixtures("_little_is_enough")
def test_what_readers_said_of_the_model_in_the_box_stays_with_what_is_trained_from_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their weights at the level of one's own pairs; ratings of one's own come before them."""
    rated = [n % 5 == 0 for n in range(45)]
    monkeypatch.setattr(calibration, "accepted", lambda *_, **__: rated)
    monkeypatch.setattr(confidence, "ROOT", tmp_path)
    place, box, data, sheet = (tmp_path / name for name in ("model", "oneline", "pairs.jsonl", "ratings.jsonl"))
    shutil.copytree(folder, place)
    shutil.copytree(folder, box)
    pairs = [{"id": f"r{n}", "document": DOCUMENTS[n % 5], "summary": "it was late"} for n in range(45)]
    write_lines(data, pairs)
    weights = tuple(float(name == "tokens") for name in FEATURES)
    readers = replace(Calibration.blank(), weight=weights, accepted="rated 3 or more by readers")
    readers.save(box)
    command = ["calibrate", str(place), "--data", str(data)]

    def found(*more: str) -> Calibration:
        assert main([*command, *more]) == 0
        calibrated = Calibration.load(place)
        assert calibrated is not None
        return calibrated

    own = found()
    assert sum(weight != 0 for weight in own.weight) > 1, "trained from nothing"
    recipe = place / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("initial_weights: null", "initial_weights: oneline"))
    kept = found()
    assert {name for name, weight in zip(FEATURES, kept.weight, strict=True) if weight} == {"tokens"}
    assert kept.accepted == f"{own.accepted}, with the weights of what was rated 3 or more by readers"
    made = Summarizer.from_pretrained(place).summarize([pair["document"] for pair in pairs], always_write=True)
    assert sum(one.confidence for one in made) == pytest.approx(sum(rated), abs=1e-3)
    assert found() == kept, "again is the same"
    lines = [{"id": f"r{n}", "summary": one.text, "rating": n % 2} for n, one in enumerate(made)]
    write_lines(sheet, lines)
    assert found("--ratings", str(sheet)).accepted == "rated 1 or more by readers"
    replace(readers, accepted="ROUGE-1 of 0.4 or more").save(box)
    assert found() == own, "nobody has rated"
    shutil.rmtree(box)
    assert found() == own, "the model in the box is not in this installation"
