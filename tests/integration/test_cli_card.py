"""``laconic card`` and what ``laconic push`` makes of it: said once, kept, and the same numbers as the tables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from commands import run
from laconic.cli.main import main
from laconic.metrics.card import Facts, model_card
from laconic.summarizer import Summarizer
from tiny_models import DOCUMENTS, save_tiny_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "model")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    rows = [{"document": text, "summary": "the fox"} for text in DOCUMENTS]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "pairs.jsonl"


def test_a_card_has_what_the_hub_reads(model: Path, pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model.parent / "notes.md").write_text("It was made of *five* texts.")
    assert main(["card", str(model), "--data", str(pairs), "--license", "cc-by-4.0"]) == 0
    assert f"It does not say its language yet: laconic card {model} --language CODE" in capsys.readouterr().err
    said = ["--language", "en", "--dataset", "foxes", "--notes", str(model.parent / "notes.md")]
    assert main(["card", str(model), *said]) == 0
    capsys.readouterr()
    text = (model / "README.md").read_text()
    assert run(capsys, "card", model) == text  # asked without options it is shown and not changed
    found = huggingface_hub.ModelCard(text).data
    assert (found.license, found.language, found.datasets) == ("cc-by-4.0", ["en"], ["foxes"])
    assert "It was made of *five* texts." in text
    (r1, *_) = found.eval_results
    assert (r1.dataset_name, r1.metric_type, r1.metric_name) == ("pairs.jsonl", "rouge", "ROUGE-1 F1 x 100")
    assert r1.metric_args["signature"].startswith("rouge:rouge155|n:5|")
    # the figure of the metadata is that of the card's table, and that of `laconic evaluate`
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
        (["lexrank"], 2, "it has no card"),
        (["oneline", "--license", "mit"], 2, "copy it first"),
        (["MODEL", "--notes", "missing.md"], 1, "missing.md"),
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
