"""``catchline card`` and what ``catchline push`` makes of it: said once, kept, and the same numbers as the tables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from catchline.cli.card import card_follows
from catchline.cli.main import main
from catchline.metrics.card import Facts, model_card, write_card
from catchline.metrics.confidence import Calibration
from catchline.summarizer import Summarizer
from commands import run
from json_lines import write_lines
from tiny_models import DOCUMENTS, save_tiny_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "model")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    rows = [{"document": text, "summary": "the fox"} for text in DOCUMENTS]
    write_lines(tmp_path / "pairs.jsonl", rows)
    return tmp_path / "pairs.jsonl"


def test_a_card_has_what_the_hub_reads(model: Path, pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model.parent / "notes.md").write_text("\ufeffIt was made of *five* texts.", encoding="utf-8")
    assert main(["card", str(model), "--data", str(pairs), "--license", "cc-by-4.0"]) == 0
    assert f"It does not say its language yet: catchline card {model} --language CODE" in capsys.readouterr().err
    said = ["--language", "en", "--dataset", "foxes", "--notes", str(model.parent / "notes.md")]
    assert main(["card", str(model), *said]) == 0
    capsys.readouterr()
    text = (model / "README.md").read_text()
    assert "\ufeff" not in text
    assert run(capsys, "card", model) == text  # asked without options it is shown and not changed
    found = huggingface_hub.ModelCard(text).data
    assert (found.license, found.language, found.datasets) == ("cc-by-4.0", ["en"], ["foxes"])
    assert "It was made of *five* texts." in text
    (r1, *_) = found.eval_results
    assert (r1.dataset_name, r1.metric_type, r1.metric_name) == ("pairs.jsonl", "rouge", "ROUGE-1 F1 x 100")
    assert r1.metric_args["signature"].startswith("rouge:rouge155|n:5|")
    # the figure of the metadata is that of the card's table, and that of `catchline evaluate`
    table = next(line for line in text.splitlines() if line.startswith("| the model |"))
    assert float(re.findall(r"\| ([\d.]+) ±", table)[0]) == r1.metric_value
    scores = json.loads(run(capsys, "evaluate", "lead-1", model, "--data", pairs, "--json"))["systems"][-1]
    assert round(100 * scores["rouge"]["1"]["f"], 2) == r1.metric_value
    assert scores["signature"] == r1.metric_args["signature"]


def test_what_was_said_travels_with_the_model(model: Path, tmp_path: Path) -> None:
    assert main(["card", str(model), "--license", "mit"]) == 0
    Summarizer.from_pretrained(model, beam_size=3).save_pretrained(tmp_path / "copy")
    assert Facts.of(tmp_path / "copy").license == "mit"
    assert "(beam 3)" in (tmp_path / "copy" / "README.md").read_text()
    assert (tmp_path / "copy" / "README.md").read_text() == model_card(tmp_path / "copy")


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


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["MODEL", "--license", "My Licence"], 2, "'license'"),
        (["MODEL", "--language", "xx123"], 2, "--language xx123"),
        (["lexrank"], 2, "it has no card"),
        (["oneline", "--license", "mit"], 2, "copy it first"),
        (["MODEL", "--notes", "missing.md"], 3, "There is no file missing.md."),
    ],
)
def test_mistakes(model: Path, arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = (model / "README.md").read_text()
    assert main(["card", *(str(model) if word == "MODEL" else word for word in arguments)]) == code
    assert said in capsys.readouterr().err
    assert (model / "README.md").read_text() == before


def test_a_damaged_file_of_facts_is_one_sentence(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model / "card.json").write_text('{"scores": 5}')
    for command in (["card", str(model)], ["summarize", str(model), __file__]):
        assert main(command) != 0
        assert "scores" in capsys.readouterr().err


FILES: dict[str, Any] = {
    "config.json": {"name": "my-model", "model": {"type": "coconet"}, "catchline": {"version": "9.9"},
                    "text": {"max_source_tokens": 400}},
    "generation_config.json": {"max_length": 30, "beam_size": 4},
    "export.json": {"parameters": 1234567},
    "recipe.yaml": {"name": "my_run", "description": "What it is.", "model": {"type": "coconet"}, "row": "row9",
                    "size": "small",
                    "training": {"max_updates": 5, "batch_tokens": 12000, "initial_weights": "oneline"}},
    "environment.json": {"python": "3.11", "torch": "2.0", "os": "x"},
    "metrics.json": {"update": 12345, "validation": {"rouge1": 0.125, "val_loss": 2.34567, "said": "x"},
                     "signature": "s|n:2",
                     "data": {"train": {"pairs": 12345, "sha256": "ab"}, "odd": 3, "dev": {"pairs": 7},
                              "test": {"pairs": "x", "sha256": "c"}}},
    "card.json": {"license": "mit", "language": ["en"], "datasets": ["foxes", "cats"], "notes": " Noted. ", "scores": [
        {"data": "foxes", "split": "test", "records": 1234, "rouge": {"1": 30.5, "L": 20.0}, "signature": "sig",
         "header": ["system", "ROUGE-1"], "rows": [["first | sentence", "20.0"], ["the model", " 30.5 "]],
         "notes": ["One note."]},
        {"data": "cats", "records": 5, "rouge": {}, "signature": "other", "header": ["system", "R"],
         "rows": [["the model", "1"]], "notes": ["One note.", "Two."]},
    ]},
}  # fmt: skip
SAID = """
# my-model

What it is.

A `coconet` summarizer with 1,234,567 parameters, made with catchline 9.9.
It reads up to 400 tokens of a document and writes up to 30 (beam 4).

## Training

Recipe `my_run`, row `row9`, size `small`: 12,345 updates of 12,000 tokens with adam, learning rate 0.001, seed 1, \
fp32. It started from the weights of oneline.
`recipe.yaml` holds every setting, `environment.json` the versions (python 3.11, torch 2.0).

## Data and licence

Data sets: foxes, cats.

| data | pairs | SHA-256 of the texts |
| --- | --- | --- |
| train | 12,345 | `ab` |

Licence of the model: mit.

Noted.

## Scores

| foxes (test), 1,234 records | ROUGE-1 |
| --- | --- |
| first \\| sentence | 20.0 |
| the model | 30.5 |

| cats, 5 records | R |
| --- | --- |
| the model | 1 |

One note.
Two.

Validation while it was trained, at update 12345: ROUGE-1 12.50, val_loss 2.346 (s|n:2).

## Limits
"""
SAID_OF_LITTLE = """
# coconet

A `coconet` summarizer with 26 parameters, made with catchline .
It reads up to 400 tokens of a document and writes up to 30 (beam 4).

## Data and licence

No licence is stated.

## Scores

None yet: `catchline card PATH_OR_HUB_ID --data FILE` scores it beside the first sentence.

## Limits

It knows foxes only.
"""


def folder_of(place: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():  # a recipe may be JSON: that is YAML
        (place / name).write_text(json.dumps(content))
    return place


def without_examples(card: str) -> str:
    return re.sub(r"\n```\w*\n.*?\n```\n", "", card[card.index("\n# ") :], flags=re.DOTALL)


def test_a_card_says_what_the_files_of_the_folder_say(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, FILES)
    card = model_card(folder)
    assert without_examples(card).startswith(SAID)
    found = huggingface_hub.ModelCard(card).data
    assert (found.base_model, found.tags) == ("oneline", ["coconet", "catchline", "my-run", "summarization"])
    results = [(one.dataset_split, one.metric_name, one.metric_value) for one in found.eval_results]
    assert results == [("test", "ROUGE-1 F1 x 100", 30.5), ("test", "ROUGE-L F1 x 100", 20.0)]
    assert huggingface_hub.ModelCard(model_card(folder, opened_as="oneline")).data.base_model is None
    training = FILES["recipe.yaml"]["training"]
    for start, told in (("owner/name", "owner/name"), ("../runs/mine", "an earlier model")):
        folder_of(folder, {"recipe.yaml": FILES["recipe.yaml"] | {"training": training | {"initial_weights": start}}})
        card = model_card(folder)
        assert f"It started from the weights of {told}." in card
        assert huggingface_hub.ModelCard(card).data.base_model == (start if start == told else None)
    plain = {"name": "my_run", "model": {"type": "coconet"}, "training": {"max_updates": 5}}
    folder_of(folder, {"recipe.yaml": plain, "metrics.json": {}})
    said = "\nRecipe `my_run`: batches of 32 pairs with adam, learning rate 0.001, seed 1, fp32.\n"
    assert said in model_card(folder)


def test_a_card_of_a_folder_that_says_little(tmp_path: Path) -> None:
    """Scales of weights in eight bits are no parameters."""
    shapes = {"a": [2, 3, 4], "b": [2], "a.scales": [7], "__metadata__": [5]}
    header = json.dumps({name: {"shape": shape} for name, shape in shapes.items()}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"weights")
    config = {"model": {"type": "coconet"}, "catchline": {}, "text": {"max_source_tokens": 400}}
    folder_of(tmp_path, {"config.json": config, "generation_config.json": FILES["generation_config.json"]})
    write_card(tmp_path, Facts())
    assert not (tmp_path / "card.json").exists()
    write_card(tmp_path, Facts(limits=" It knows foxes only.\n"))
    assert json.loads((tmp_path / "card.json").read_text()) == {"limits": " It knows foxes only.\n"}
    assert without_examples((tmp_path / "README.md").read_text()) == SAID_OF_LITTLE


def test_new_scores_take_the_place_of_those_on_the_same_data() -> None:
    facts = Facts.model_validate(FILES["card.json"])
    for new, left in (
        ({}, ["other", "new"]),
        ({"split": ""}, ["sig", "other", "new"]),
        ({"data": "x"}, ["sig", "other", "new"]),
    ):
        scores = facts.scores[0].model_copy(update={"signature": "new", **new})
        assert [one.signature for one in facts.with_scores(scores).scores] == left
    changed = facts.changed(license="", language=[], datasets=["dogs"])
    assert (changed.license, changed.language, changed.datasets) == ("mit", ["en"], ["dogs"])


def test_a_card_follows_what_changes_in_its_folder(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with card_follows(model):
        Calibration.blank().save(model)
    assert "Below a confidence of" in (model / "README.md").read_text()
    (model / "README.md").write_text(text := (model / "README.md").read_text() + "By hand.")
    with card_follows(model):
        (model / "calibration.json").unlink()
    assert (model / "README.md").read_text() == text
    assert f"was changed by hand and stays as it is; `catchline card {model}` prints" in capsys.readouterr().err
    (model / "README.md").write_text("# Somebody else's")
    with card_follows(model):
        pass
    assert not capsys.readouterr().err
