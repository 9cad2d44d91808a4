"""``catchline train`` and ``resume``: held-out pairs, and a task that is learnt."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path

import pytest

from catchline.cli.io import records_of, say
from catchline.cli.main import main
from catchline.config.loading import load_recipe, resolve_run
from catchline.data.checks import ENOUGH_FOR_TEST
from catchline.errors import ConfigError
from catchline.evaluation import measures as fitting
from catchline.summarizer import confidence
from catchline.training.run import hold_out
from catchline.training.run import train as train_run
from commands import Capture, Patch, refused, run
from json_lines import write_lines
from word_pairs import write_word_pairs

END = "training.max_updates"
held_out = partial(hold_out, force=False, say=say, note=say)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_word_pairs(tmp_path / "pairs", {"train": 48, "valid": 8, "test": 4}, 1, lengths=(6, 6))


def arguments(data: Path, out: Path, *more: str) -> list[str]:
    settings = ["training.max_updates=4", "training.max_epochs=null", "training.checkpoint.every_updates=2"]
    changes = [part for setting in settings for part in ("--set", setting)]
    return ["train", "headline_writer", "--size", "tiny", "--data", str(data), "--out", str(out), *changes, *more]


def test_train_then_train_further(data: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "run"
    assert main(arguments(data, out)) == 0
    said = capsys.readouterr()
    assert all(part in said.err for part in ("train on 48 pairs, validate on 8", "4 updates"))
    graphs = f"faster as an ONNX model: catchline export {out / 'model'} --out DIR --int8"
    few = "12 held-out pairs are fewer than the 100"
    for part in (f"Model: {out / 'model'}", graphs, "lead-1", "taking the first sentence", few):
        assert part in said.out
    assert not (out / "data").exists()
    assert not (out / "model" / "calibration.json").exists()

    refused(capsys, 2, "already has a run", *arguments(data, out))
    assert main(["resume", str(out), "--set", f"{END}=7", "--json"]) == 0
    said = capsys.readouterr()
    result = json.loads(said.out)
    assert (result["updates"], result["stopped"]) == (7, "max_updates")
    assert "taking the first sentence" in result["score"]
    assert "Resuming from" in said.err

    # the same seven updates as a run that was planned so from the start
    whole = json.loads(run(capsys, *arguments(data, tmp_path / "whole"), "--set", f"{END}=7", "--json"))
    assert whole["metrics"] == result["metrics"]


def test_one_file_is_split_and_scored(data: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "run"
    single = arguments(data / "train.jsonl", out)
    assert main(single) == 0
    said = capsys.readouterr()
    assert "has no validation file: 44 for train, 4 for validation (seed 1" in said.err
    assert "train on 44 pairs, validate on 4" in said.err
    assert "on 4 pairs it was not trained on" in said.out
    held = (out / "data" / "validation.jsonl").read_bytes()
    kept = (out / "data" / "train.jsonl").read_bytes().splitlines()
    assert len(kept) == 44
    assert not set(kept) & set(held.splitlines())
    assert main(single) == 2  # and the parts of the run that is there stay as they are
    assert (out / "data" / "validation.jsonl").read_bytes() == held
    out = out.rename(tmp_path / "moved")
    assert main(["resume", str(out), "--set", f"{END}=5", "--json"]) == 0
    elsewhere = (out / "data").rename(tmp_path / "elsewhere")
    lies = [part for split in ("train", "validation") for part in ("--set", f"data.{split}={elsewhere}/{split}.jsonl")]
    assert main(["resume", str(out), "--set", f"{END}=6", *lies]) == 0
    assert "No pairs were held out" in run(capsys, *arguments(data / "train.jsonl", tmp_path / "all"), "--all-pairs")


def test_ones_own_test_pairs_are_what_is_scored(tmp_path: Path, capsys: Capture) -> None:
    columns = {"document_column": "work text", "summary_column": "head line"}
    for name, count in (("train", ENOUGH_FOR_TEST), ("test", 3)):
        lines = [f"{name} w{number} v{number * 7},{name} s{number}" for number in range(count)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["work text,head line", *lines]))
    splits = {name: str(tmp_path / f"{name}.csv") for name in ("train", "test")}
    run = resolve_run(load_recipe("headline_writer"), size="tiny", overrides={"data": splits | columns})
    held = held_out(run, tmp_path / "run").data
    assert f"{ENOUGH_FOR_TEST - 20} for train, 20 for validation (" in capsys.readouterr().err
    assert held.test == str(tmp_path / "run" / "data" / "test.jsonl")
    assert [record.summary for record in records_of(held.test, held)] == ["test s0", "test s1", "test s2"]
    inside = run.model_copy(update={"data": held.model_copy(update={"test": None})})
    with pytest.raises(ConfigError, match="that are read now: give another --out"):
        held_out(inside, tmp_path / "run")


@pytest.mark.parametrize("linked", [False, True])
def test_pairs_in_the_run_folder_that_no_run_wrote_stay(
    data: Path, tmp_path: Path, capsys: Capture, linked: bool
) -> None:
    own, place = data / "train.jsonl", tmp_path / "a project" / "data" / "train.jsonl"
    place.parent.mkdir(parents=True)
    place.symlink_to(own) if linked else place.write_text("mine")
    before = own.read_bytes(), place.read_bytes()
    for given in (own, place) if linked else (own,):
        command = arguments(given, tmp_path / "a project", "--force")
        refused(capsys, 2, f"{place.parent} has pairs that no run wrote", *command)
    assert (own.read_bytes(), place.read_bytes()) == before


@pytest.mark.parametrize(
    ("count", "said"), [(3, "none of 3 pairs is held out"), (30, "none of 30 pairs is held out (seed 1; 29 (near)")]
)
def test_why_nothing_is_held_out(count: int, said: str, tmp_path: Path, capsys: Capture) -> None:
    rows = [{"document": "the same text that is in every record", "summary": f"summary {n}"} for n in range(count)]
    changes = {"data": {"train": str(write_lines(tmp_path / "pairs.jsonl", rows))}}
    run = resolve_run(load_recipe("headline_writer"), size="tiny", overrides=changes)
    assert held_out(run, tmp_path / "run") is run
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run" / "data").exists()


def test_the_held_out_pairs_calibrate_the_model(
    data: Path, tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(confidence, "LEAST_RECORDS", 12)
    monkeypatch.setattr(fitting, "accepted", lambda made, *_: [n % 3 == 0 for n in range(len(made))])
    said = run(capsys, *arguments(data, tmp_path / "run"))
    assert "Of 12 held-out lines 33% have ROUGE-1 of 0.4 or more" in said
    assert "Only a reader can judge them" in said
    stored = json.loads((tmp_path / "run" / "model" / "calibration.json").read_text())
    assert (stored["records"], stored["threshold"]) == (12, 0.0), "of sentences as many"


def test_what_resume_refuses(data: Path, tmp_path: Path, capsys: Capture) -> None:
    refused(capsys, 5, "is not a run folder", "resume", tmp_path)
    out = tmp_path / "run"
    assert main(arguments(data, out)) == 0
    recipe = (out / "model" / "recipe.yaml").read_bytes()
    refused(capsys, 5, "is not a run folder", "resume", out / "model")
    assert (out / "model" / "recipe.yaml").read_bytes() == recipe
    refused(capsys, 2, "can only change training.max_updates", "resume", out, "--set", "training.batch_size=3")


def test_the_pointer_learns_to_copy_unknown_words(tmp_path: Path) -> None:
    """Documents of 3 to 5 words, six in ten of them never seen before; the summary repeats the document."""
    draw = random.Random(1)

    def word() -> str:
        unknown = "".join(draw.choices("bcdfghjklmnpqrstvwxz", k=7))
        return unknown if draw.random() < 0.6 else f"word{draw.randrange(144)}"

    for split, count in (("train", 3520), ("validation", 64)):
        texts = [" ".join(word() for _ in range(draw.randint(3, 5))) for _ in range(count)]
        write_lines(tmp_path / f"{split}.jsonl", [{"document": text, "summary": text} for text in texts])
    changes = {
        "data": {split: str(tmp_path / f"{split}.jsonl") for split in ("train", "validation")},
        "text": {"tokenizer": {"type": "word", "min_frequency": 2}, "max_source_tokens": 8, "max_target_tokens": 8},
        "model": {"embedding_size": 24, "encoder_hidden": 32, "hidden_size": 48, "attention": {"size": 32}},
        "training": {"batch_size": 32, "max_updates": 110, "optimizer": {"type": "adam", "learning_rate": 0.008}},
        "training.validation": {"every_updates": 110, "decode_records": 64},
        "search": {"beam_size": 3, "max_length": 8},
    }
    run = resolve_run(load_recipe("headline_writer"), "pointer-generator", "tiny", changes)
    metrics = train_run(run, tmp_path / "run", on_message=lambda message: None).metrics
    assert metrics["val_loss_tf"] < 0.05
    assert metrics["rougeL"] > 0.98
