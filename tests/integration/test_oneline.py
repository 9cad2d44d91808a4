"""The bundled model wherever a model can be named, by a small one; and an installation without it."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import torch

from catchline import Summarizer
from catchline.cli.main import main
from catchline.config import shipped
from catchline.config.loading import load_recipe, load_run, resolve_run, with_absolute_paths
from catchline.config.schema import RunConfig, TrainingConfig
from catchline.errors import ModelError
from catchline.models.card import model_card
from catchline.models.folder import load_model_folder
from catchline.server.catalogue import open_models
from catchline.training.run import train
from commands import refused, run
from json_lines import write_lines

Capture = pytest.CaptureFixture[str]
TEXT = "This will merge the stream and return nothing. The stream is kept. Errors are raised."


def write_pairs(path: Path, number: int, seed: int = 0) -> Path:
    """JSON lines of a document and the few words that it is about."""
    draw, rows = random.Random(seed), []
    for _ in range(number):
        verb, thing = draw.choice(["read", "sort", "close", "print"]), draw.choice(["file", "list", "socket", "table"])
        body = f"This will {verb} the {thing} and return nothing. The {thing} is kept. Errors are raised."
        rows.append({"document": body, "summary": f"{verb} the {thing}."})
    return write_lines(path, rows)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model ``oneline``, trained for seconds; its weights are in bfloat16."""
    work, folder = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("package")
    data = {"train": str(write_pairs(work / "train.jsonl", 64))}
    changes = {"data": data, "training": {"max_updates": 6, "initial_weights": None}}
    result = train(resolve_run(load_recipe("oneline"), size="tiny", overrides=changes), work / "run")
    loaded = load_model_folder(result.model_folder)
    loaded.model.to(torch.bfloat16)
    loaded.name = "oneline"
    loaded.save_pretrained(folder / "oneline")
    return folder


@pytest.fixture
def bundled(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shipped, "ROOT", root)
    return root / "oneline"


@pytest.fixture
def nothing_bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "ROOT", tmp_path / "nothing here")


@pytest.fixture
def article(tmp_path: Path) -> Path:
    path = tmp_path / "article.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.mark.usefixtures("bundled")
def test_commands_need_no_model(article: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    unnamed = run(capsys, "summarize", article)
    assert run(capsys, "summarize", "oneline", article) == unnamed != ""
    explained = json.loads(run(capsys, "explain", article, "--json"))
    assert explained["words"]
    assert [explained["model"], Summarizer().summarize(TEXT).model, Summarizer().name] == ["oneline"] * 3


@pytest.mark.usefixtures("bundled")
def test_it_is_served_and_evaluated_by_its_name(tmp_path: Path, capsys: Capture) -> None:
    assert list(open_models(["oneline", "lexrank"], "cpu")) == ["oneline", "lexrank"]
    data = write_pairs(tmp_path / "test.jsonl", 8, seed=1)
    scores = json.loads(run(capsys, "evaluate", "oneline", "lead-1", "--data", data, "--json"))["systems"]
    assert [row["system"] for row in scores] == ["oneline", "lead-1"]
    run(capsys, "data", "check", data, "--recipe", "oneline", "--json")
    refused(capsys, ModelError.exit_code, "Did you mean 'oneline'?", "evaluate", "onelin", "--data", data)


@pytest.mark.usefixtures("bundled")
def test_its_name_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "oneline").mkdir()
    monkeypatch.chdir(tmp_path)
    assert Summarizer.from_pretrained("oneline").name == "oneline"
    run = RunConfig(
        name="x", model={"type": "seq2seq"}, training=TrainingConfig(max_updates=1, initial_weights="oneline")
    )
    assert with_absolute_paths(run).training.initial_weights == "oneline"


@pytest.mark.usefixtures("nothing_bundled")
def test_without_it_nothing_answers(article: Path, capsys: Capture) -> None:
    said = "is not in this installation: install Catchline again"
    for command in (["summarize", article], ["summarize", "oneline", article]):
        refused(capsys, ModelError.exit_code, said, *command)


TINY = ["--size", "tiny", "--set", "training.max_updates=2", "--set", "text.max_source_tokens=20"]


def test_training_starts_from_it_with_its_tokenizer(bundled: Path, tmp_path: Path, capsys: Capture) -> None:
    """Also where the recipe describes another one."""
    data, mine = write_pairs(tmp_path / "pairs.jsonl", 16, seed=2), tmp_path / "mine.yaml"
    mine.write_text("extends: oneline\nname: mine\nbase: {text: {tokenizer: {max_vocabulary: 77}}}\n", encoding="utf-8")
    words = list(load_model_folder(bundled).tokenizer.vocabulary)
    for recipe, start, place in (("oneline", "oneline", "a"), (mine, "oneline", "b"), ("oneline", "scratch", "c")):
        out, taken = tmp_path / place, start == "oneline"
        assert main(["train", str(recipe), *TINY, "--data", str(data), "--from", start, "--out", str(out)]) == 0
        assert ("taken as initial weights" in capsys.readouterr().err) == taken
        assert (list(load_model_folder(out).tokenizer.vocabulary) == words) == taken
        assert (load_run(out / "recipe.yaml").training.initial_weights == "oneline") == taken


def test_fine_tuning_is_the_default_of_its_recipe(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    data = write_pairs(tmp_path / "pairs.jsonl", 16, seed=2)
    shutil.copytree(root / "oneline", tmp_path / "box" / "oneline")
    monkeypatch.setattr(shipped, "ROOT", tmp_path / "box")
    out = ["--out", str(tmp_path / "run"), "--set", "training.max_updates=1"]
    command = ["train", "oneline", "--data", str(data), *out]
    main(command)  # the stand-in is smaller than the recipe says
    assert "Starting from oneline, the bundled model; --from scratch starts from nothing." in capsys.readouterr().err
    shutil.rmtree(tmp_path / "box")
    refused(capsys, ModelError.exit_code, "oneline is not in this installation", *command)


def test_the_card_of_the_bundled_model_is_that_of_its_files() -> None:
    folder = shipped.ROOT / "oneline"  # the real one
    assert model_card(folder) == (folder / "README.md").read_text(encoding="utf-8")
