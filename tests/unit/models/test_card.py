"""The model card: made of the folder's files, the same numbers as the tables; ``catchline push``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from catchline.metrics.confidence import Calibration
from catchline.models.card import Card, card_follows, model_card, write_card
from catchline.summarizer import Summarizer
from commands import run
from tiny_models import save_tiny_model

FILES: dict[str, Any] = {
    "config.json": {"name": "my-model", "model": {"type": "coconet"}, "catchline": {"version": "9.9"},
                    "text": {"max_source_tokens": 400}},
    "generation_config.json": {"max_length": 30, "beam_size": 4},
    "export.json": {"parameters": 1234567},
    "recipe.yaml": {"name": "my_run", "description": "What it is.", "model": {"type": "coconet"}, "row": "row9",
                    "size": "small",
                    "training": {"max_updates": 5, "batch_tokens": 12000, "initial_weights": "oneline"}},
    "metrics.json": {"update": 12345, "validation": {"rouge1": 0.125, "val_loss": 2.34567, "said": "x"},
                     "signature": "s|n:2",
                     "data": {"train": {"pairs": 12345, "sha256": "ab"}, "odd": 3, "test": {"pairs": "x"}}},
    "card.json": {"license": "mit", "language": ["en"], "datasets": ["foxes", "cats"], "notes": " Noted. ", "scores": [
        {"data": "foxes", "split": "test", "records": 1234, "rouge": {"1": 30.5, "L": 20.0}, "signature": "sig",
         "header": ["system", "ROUGE-1"], "rows": [["first sentence", "20.0"], ["the model", "30.5"]],
         "notes": ["One note."]},
        {"data": "cats", "records": 5, "rouge": {}, "signature": "other", "header": ["system", "R"],
         "rows": [["the model", "1"]], "notes": ["One note.", "Two."]},
    ]},
}  # fmt: skip
SAID = [
    "# my-model\n\nWhat it is.\n\nA `coconet` summarizer with 1,234,567 parameters, made with catchline 9.9.",
    "up to 400 tokens",
    "up to 30 (beam 4)",
    "Recipe `my_run`, row `row9`, size `small`: 12,345 updates of 12,000 tokens with adam, learning rate 0.001",
    "It started from the weights of oneline.\n",
    "\nData sets: foxes, cats.\n",
    "\n| train | 12,345 | `ab` |\n\nLicence of the model: mit.\n\nNoted.\n",
    "| foxes (test), 1,234 records | ROUGE-1 |\n| --- | --- |\n| first sentence | 20.0 |\n| the model | 30.5 |\n\n",
    "| the model | 1 |\n\nOne note.\nTwo.\n\n",
    "at update 12345: rouge1 0.125, val_loss 2.346 (s|n:2).\n",
]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "model")


def folder_of(place: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():  # a recipe may be JSON: that is YAML
        (place / name).write_text(json.dumps(content))
    return place


def test_a_card_says_what_the_files_of_the_folder_say(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, FILES)
    card = model_card(folder)
    for part in SAID:
        assert part in card
    found = huggingface_hub.ModelCard(card).data
    assert (found.license, found.language, found.datasets) == ("mit", ["en"], ["foxes", "cats"])
    assert (found.base_model, found.tags) == ("oneline", ["catchline", "coconet", "my-run", "summarization"])
    results = [(one.dataset_split, one.metric_name, one.metric_value) for one in found.eval_results]
    assert results == [("test", "ROUGE-1", 30.5), ("test", "ROUGE-L", 20.0)]
    training = FILES["recipe.yaml"]["training"]
    for start, told in (("owner/name", "owner/name"), ("../runs/mine", "an earlier model")):
        folder_of(folder, {"recipe.yaml": FILES["recipe.yaml"] | {"training": training | {"initial_weights": start}}})
        card = model_card(folder)
        assert f"It started from the weights of {told}." in card
        assert huggingface_hub.ModelCard(card).data.base_model == (start if start == told else None)


def test_new_scores_replace_those_on_the_same_data() -> None:
    card = Card.model_validate(FILES["card.json"])
    for new, left in (({}, ["other", "new"]), ({"split": ""}, ["sig", "other", "new"])):
        scores = card.scores[0].model_copy(update={"signature": "new", **new})
        assert [one.signature for one in card.with_scores(scores).scores] == left


def test_a_card_follows_what_changes_in_its_folder(model: Path, tmp_path: Path) -> None:
    with card_follows(model):
        Calibration.blank().save(model)
    assert "Below a confidence of" in (model / "README.md").read_text()
    write_card(model, Card(license="mit"))
    Summarizer.from_pretrained(model, beam_size=3).save_pretrained(tmp_path / "copy")
    assert Card.of(tmp_path / "copy").license == "mit"
    assert "(beam 3)" in (tmp_path / "copy" / "README.md").read_text()
    (model / "README.md").write_text(text := (model / "README.md").read_text() + "By hand.")
    with card_follows(model):
        (model / "calibration.json").unlink()
    assert (model / "README.md").read_text() == text


def test_a_push_sends_the_folder_as_it_is(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / "README.md").write_text("My own words.")
    (model / "notes.txt").write_text("private")
    sent: dict[str, Any] = {}

    class Api:
        def __init__(self, token: str) -> None:
            sent["token"] = token

        def create_repo(self, name: str, **options: Any) -> None:
            sent.update(options, name=name)

        def upload_folder(self, **options: Any) -> str:
            sent.update(options)
            return "https://huggingface.co/owner/name"

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setenv("HF_TOKEN", "t")
    assert run(capsys, "push", model, "owner/name", "--private") == "https://huggingface.co/owner/name\n"
    assert (sent["token"], sent["name"], sent["private"], sent["folder_path"]) == ("t", "owner/name", True, model)
    assert (model / "README.md").read_text() == "My own words."
    assert "README.md" in sent["allow_patterns"]
    assert "notes.txt" not in sent["allow_patterns"]
