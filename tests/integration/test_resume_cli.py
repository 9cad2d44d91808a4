"""``catchline train`` and ``catchline resume`` from the command line."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from catchline.cli.io import records_of, say
from catchline.cli.main import main
from catchline.config.loading import load_recipe, resolve_run
from catchline.data.checks import ENOUGH_FOR_TEST
from catchline.errors import ConfigError
from catchline.evaluation import confidence
from catchline.training.log import read_log
from catchline.training.run import hold_out
from commands import refused, run
from word_pairs import write_word_pairs

END = "training.max_updates"
held_out = partial(hold_out, force=False, say=say, note=say)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    torch.set_num_threads(1)
    return write_word_pairs(tmp_path / "pairs", {"train": 48, "valid": 8, "test": 4}, 1, lengths=(6, 6))


def arguments(data: Path, out: Path, *more: str) -> list[str]:
    settings = ["training.max_updates=4", "training.max_epochs=null", "training.checkpoint.every_updates=2"]
    changes = [part for setting in settings for part in ("--set", setting)]
    return ["train", "headline_writer", "--size", "tiny", "--data", str(data), "--out", str(out), *changes, *more]


def test_train_then_train_further(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(arguments(data, out)) == 0
    said = capsys.readouterr()
    assert "train on 48 pairs, validate on 8" in said.err
    assert "4 updates" in said.err
    assert f"Model: {out / 'model'}" in said.out
    assert f"faster as graphs: catchline export {out / 'model'} --out DIR --int8" in said.out
    assert "lead-1" in said.out
    assert "taking the first sentence" in said.out
    assert not (out / "data").exists()

    refused(capsys, 2, "already holds a run", *arguments(data, out))
    assert main(["resume", str(out), "--set", "training.max_updates=7", "--json"]) == 0
    said = capsys.readouterr()
    result = json.loads(said.out)
    assert (result["updates"], result["stopped"]) == (7, "max_updates")
    assert "taking the first sentence" in result["score"]
    assert "Resuming from" in said.err

    # the same seven updates as a run that was planned so from the start
    whole = json.loads(run(capsys, *arguments(data, tmp_path / "whole"), "--set", "training.max_updates=7", "--json"))
    assert whole["metrics"] == result["metrics"]


def test_one_file_is_split_and_scored(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    single = arguments(data / "train.jsonl", out)
    assert main(single) == 0
    said = capsys.readouterr()
    assert "has no validation file: 44 for train, 4 for validation (seed 1" in said.err
    assert "train on 44 pairs, validate on 4" in said.err
    assert "on 4 pairs it was not trained on" in said.out
    held = (out / "data" / "validation.jsonl").read_bytes()
    kept = (out / "data" / "train.jsonl").read_text().splitlines()
    assert len(kept) == 44
    assert not set(kept) & set(held.decode().splitlines())
    assert main(single) == 2  # and the parts of the run that is there stay as they are
    assert (out / "data" / "validation.jsonl").read_bytes() == held
    out = out.rename(tmp_path / "moved")
    assert main(["resume", str(out), "--set", f"{END}=5", "--json"]) == 0
    elsewhere = (out / "data").rename(tmp_path / "elsewhere")
    lies = [part for split in ("train", "validation") for part in ("--set", f"data.{split}={elsewhere}/{split}.jsonl")]
    assert main(["resume", str(out), "--set", f"{END}=6", *lies]) == 0
    assert "Nothing was held out" in run(capsys, *arguments(data / "train.jsonl", tmp_path / "all"), "--all-pairs")


def test_ones_own_test_pairs_are_what_is_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    with pytest.raises(ConfigError, match="would be overwritten"):
        held_out(inside, tmp_path / "run")


@pytest.mark.parametrize("linked", [False, True])
def test_pairs_in_the_run_folder_that_no_run_wrote_stay(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], linked: bool
) -> None:
    own, out = data / "train.jsonl", tmp_path / "a project"
    place = out / "data" / "train.jsonl"
    place.parent.mkdir(parents=True)
    if linked:
        place.symlink_to(own)
    else:
        place.write_text("mine")
    before = own.read_bytes(), place.read_bytes()
    for given in (own, place) if linked else (own,):
        for more in ((), ("--force",)):
            refused(capsys, 2, f"{place} exists and no run wrote it: move", *arguments(given, out, *more))
    assert (own.read_bytes(), place.read_bytes()) == before
    assert [path.name for path in out.iterdir()] == ["data"]


def test_the_parts_of_a_run_are_replaced_with_it(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, out = data / "train.jsonl", tmp_path / "run"
    place = out / "data" / "train.jsonl"
    place.parent.mkdir(parents=True)  # what stood there has been removed, as one was told
    assert main(arguments(own, out)) == 0
    parts = {path.name: path.read_bytes() for path in place.parent.iterdir()}
    place.write_text("mine")  # in the place of a part
    refused(capsys, 2, "no run wrote it", *arguments(own, out, "--force"))
    assert place.read_text() == "mine"
    place.write_bytes(parts["train.jsonl"])
    assert main(arguments(own, out, "--force", "--set", "training.seed=2")) == 0
    assert {path.name for path in place.parent.iterdir()} == parts.keys()
    assert place.read_bytes() != parts["train.jsonl"]
    assert [entry["update"] for entry in read_log(out / "log.jsonl") if entry["kind"] == "validation"] == [4]


def test_why_nothing_is_held_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, said in ((3, "3 pairs are too few to hold any out."), (30, "29 are (near) duplicates of others")):
        lines = [f"the same text that is in every record,summary {count}" for count in range(number)]
        (tmp_path / "pairs.csv").write_text("\n".join(["document,summary", *lines]))
        run = resolve_run(
            load_recipe("headline_writer"), size="tiny", overrides={"data": {"train": str(tmp_path / "pairs.csv")}}
        )
        assert held_out(run, tmp_path / "run") is run
        assert said in capsys.readouterr().err
    assert not (tmp_path / "run" / "data").exists()


def test_the_held_out_pairs_calibrate_the_model(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few, enough = tmp_path / "a few", tmp_path / "enough"
    assert main(arguments(data, few)) == 0
    said = capsys.readouterr().out
    assert "12 held-out pairs are fewer than the 100" in said
    assert "`catchline calibrate` fits it to more held-out pairs." in said
    assert not (few / "model" / "calibration.json").exists()

    monkeypatch.setattr(confidence, "LEAST_RECORDS", 12)
    monkeypatch.setattr(confidence, "accepted", lambda made, *_: [number % 3 == 0 for number in range(len(made))])
    assert main(arguments(data, enough)) == 0
    assert "Of 12 held-out lines 33% have ROUGE-1 of 0.4 or more" in capsys.readouterr().out
    stored = json.loads((enough / "model" / "calibration.json").read_text())
    assert (stored["records"], stored["threshold"]) == (12, 0.0), "of sentences as many"

    monkeypatch.setattr(confidence, "accepted", lambda made, *_: [False] * len(made))
    assert main(arguments(data, enough, "--force")) == 0
    said = capsys.readouterr().out
    assert "Of 12 held-out lines 0% have ROUGE-1" in said
    assert "taking the first sentence" in said


def test_what_resume_refuses(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, 5, "is not a run folder", "resume", tmp_path)
    out = tmp_path / "run"
    assert main(arguments(data, out)) == 0
    capsys.readouterr()
    recipe = (out / "model" / "recipe.yaml").read_bytes()
    refused(capsys, 5, "is a model folder, not a run folder", "resume", out / "model")
    assert (out / "model" / "recipe.yaml").read_bytes() == recipe
    refused(capsys, 2, "can only change training.max_updates", "resume", out, "--set", "training.batch_size=3")
    for folder in out.glob("checkpoint-*"):
        (folder / "model.safetensors").write_bytes(b"")
    assert main(["resume", str(out), "--set", "training.max_updates=9"]) == 5
    said = capsys.readouterr().err
    assert "model.safetensors is not the file that was written" in said
    assert "None of the" in said


def test_train_needs_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, 2, "--data DIR", "train", "headline_writer", "--size", "tiny", "--out", tmp_path / "run")
    (tmp_path / "test.jsonl").write_text("{}\n")
    refused(capsys, 2, "no training file", "train", "headline_writer", "--data", tmp_path, "--out", tmp_path / "run")
