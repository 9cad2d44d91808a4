"""A pre-training stage: what it inherits, where it lies, when it is done, what is refused."""

from __future__ import annotations

import json
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from runs import quiet

from catchline.config.loading import dump_run, load_recipe, load_run, merge, resolve_run, with_absolute_paths
from catchline.config.schema import RunConfig
from catchline.errors import ConfigError, DataError
from catchline.models.folder import load_model_folder
from catchline.text.tokenizer import Tokenizer
from catchline.training import loop
from catchline.training.checkpoint import checkpoint_folders
from catchline.training.loop import TrainingInterrupted
from catchline.training.run import stage_of, train
from json_lines import write_lines


@pytest.fixture(scope="session")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs of spans, as `catchline data select-spans` writes them; words that the training pairs lack among them."""
    folder = tmp_path_factory.mktemp("spans")
    rng = random.Random(7)
    for split, count in (("train", 24), ("validation", 6)):
        texts = [[f"word{rng.randrange(20)}" for _ in range(7)] + ["spanword"] for _ in range(count)]
        pairs = [{"document": " ".join(words), "summary": " ".join(words[2:4])} for words in texts]
        write_lines(folder / f"{split}.jsonl", pairs)
    return folder


@pytest.fixture(scope="module")
def run(make_run: Any, spans: Path) -> RunConfig:
    return staged(make_run(), spans)


@pytest.fixture(scope="module")
def whole(run: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of both stages, which no test changes."""
    return Path(train(run, tmp_path_factory.mktemp("whole") / "run", on_message=quiet).folder)


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def staged(run: RunConfig, spans: Path | None, changes: dict[str, Any] | None = None) -> RunConfig:
    stage = {"enabled": True, "data": None if spans is None else str(spans), "set": {"training": {"max_updates": 3}}}
    values = merge(run.model_dump(mode="json"), {"pretraining": stage}, revive=True)
    return RunConfig(**merge(values, changes or {}, revive=True))


def test_the_stage_is_the_run_with_its_own_data_and_settings(run: RunConfig, spans: Path) -> None:
    own = {"training.optimizer.learning_rate": 0.5, "objectives": [{"type": "nll"}]}
    stage = stage_of(staged(run, spans, {"data.document_column": "article", "pretraining.set": own}))
    assert stage.data.train == str(spans / "train.jsonl")
    assert stage.data.validation == str(spans / "validation.jsonl")
    assert stage.data.document_column is None  # the pairs of the training proper are written otherwise
    assert stage.model == run.model
    assert (stage.training.max_updates, stage.training.batch_size, stage.training.seed) == (3, 8, 3)
    assert stage.training.optimizer.learning_rate == 0.5
    assert stage.objectives == ({"type": "nll"},)
    assert not stage.pretraining.enabled
    one_file = stage_of(staged(run, spans / "train.jsonl")).data
    assert (one_file.train, one_file.validation) == (str(spans / "train.jsonl"), None)


def test_the_training_starts_from_the_stage(run: RunConfig, tmp_path: Path) -> None:
    said: list[str] = []
    entries: list[dict[str, Any]] = []
    out = tmp_path / "run"
    result = train(run, out, on_message=said.append, on_log=entries.append)
    assert (result.updates, result.folder) == (6, str(out))
    stage = out / "pretraining"
    assert load_run(stage / "recipe.yaml") == stage_of(with_absolute_paths(run))
    assert [folder.name for folder in checkpoint_folders(stage)] == ["checkpoint-3"]
    assert json.loads((stage / "finished.json").read_text())["result"]["updates"] == 3
    assert [entry["update"] for entry in entries if entry.get("stage") == "pretraining"] == [2, 3, 3]
    assert {entry.get("stage") for entry in entries} == {"pretraining", None}
    assert [line[:12] for line in said if line.startswith("Stage")] == ["Stage 1 of 2", "Stage 2 of 2"]

    # the same, by hand: the stage is a run like any other, and the training a run with initial weights
    without = run.model_copy(update={"pretraining": type(run.pretraining)()})
    training = run.training.model_copy(update={"initial_weights": str(stage)})
    train(without.model_copy(update={"training": training}), tmp_path / "by hand", on_message=quiet)
    assert_equal_models(out, tmp_path / "by hand")
    train(without, tmp_path / "without", on_message=quiet)
    with pytest.raises(AssertionError):
        assert_equal_models(out, tmp_path / "without")
    assert not (tmp_path / "without" / "pretraining").exists()


def assert_equal_models(first: Path, second: Path) -> None:
    a, b = (load_model_folder(folder).model.state_dict() for folder in (first, second))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_one_tokenizer_for_both_stages(whole: Path) -> None:
    folders = [whole / place / name for place in ("", "pretraining") for name in ("tokenizer", "model")]
    assert len({(folder / "tokenizer.json").read_text() for folder in folders}) == 1
    assert Tokenizer.load(folders[0]).token_id("spanword") is None


@pytest.mark.parametrize("cut", [("pretraining", 2), pytest.param(("", 4), marks=pytest.mark.slow)])
def test_a_stopped_run_goes_on_in_its_stage(
    run: RunConfig, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: tuple[str, int]
) -> None:
    """Stopped in either stage, the run goes on there and ends in the same weights; a stage is not done twice."""
    real, out = loop.Trainer._update, tmp_path / "cut"
    updates: list[tuple[str, int]] = []

    def update(trainer: Any, stop: Any) -> None:
        real(trainer, stop)
        place = ("pretraining" if trainer.out != out else "", trainer.state.update)
        updates.append(place)
        if place == cut and updates.count(cut) == 1:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(loop.Trainer, "_update", update)
    with pytest.raises(TrainingInterrupted, match=f"catchline resume {out}$"):
        train(run, out, on_message=quiet)
    with pytest.raises(ConfigError, match="already has a run"):
        train(run, out, on_message=quiet)
    train(run, out, resume=True, on_message=quiet)
    assert updates == [("pretraining", number) for number in (1, 2, 3)] + [("", number) for number in range(1, 7)]
    assert_equal_models(whole, out)
    assert_equal_models(whole / "pretraining", out / "pretraining")


@pytest.mark.parametrize("lost", ["data of the stage", "model of the stage"])
def test_a_finished_stage_is_not_done_again(run: RunConfig, whole: Path, copy: Path, spans: Path, lost: str) -> None:
    """Killed between the stages, or in the training before its first checkpoint: the data of a stage that is done is
    not read, and a model that it lost is made again."""
    for folder in (*checkpoint_folders(copy), copy / "model"):
        shutil.rmtree(folder)
    (copy / "finished.json").unlink()
    data = spans / "train.jsonl"
    before = data.read_text()
    if lost == "model of the stage":
        shutil.rmtree(copy / "pretraining" / "model")
    else:
        data.write_text("not even JSON")
    try:
        train(run, copy, resume=True, on_message=quiet)
    finally:
        data.write_text(before)
    assert_equal_models(whole, copy)


def test_force_clears_the_stage_too(make_run: Any, copy: Path) -> None:
    (copy / "notes.txt").write_text("the user's own")
    train(make_run(**{"training.max_updates": 2}), copy, force=True, on_message=quiet)
    assert not (copy / "pretraining").exists()
    assert [path.name for path in checkpoint_folders(copy)] == ["checkpoint-2"]
    assert (copy / "notes.txt").exists()


def test_what_is_refused_leaves_no_folder(run: RunConfig, spans: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    named = staged(run, None, {"row": "cocopretrain"})
    with pytest.raises(ConfigError, match=r"Row 'cocopretrain' has a pre-training stage.*set pretraining.data"):
        train(named, out, on_message=quiet)
    with pytest.raises(ValidationError, match="set: 'model' is not among"):
        staged(run, spans, {"pretraining.set": {"model.hidden_size": 3}})
    changed = staged(run, spans, {"pretraining.set": {"text.tokenizer.min_frequency": 5}})
    with pytest.raises(ConfigError, match="both stages share one tokenizer"):
        train(changed, out, on_message=quiet)
    (tmp_path / "validation.jsonl").write_text("{}")
    with pytest.raises(DataError, match="has no training file"):
        train(staged(run, tmp_path), out, on_message=quiet)
    assert not out.exists()


def test_a_mistake_in_the_training_data_is_found_before_the_stage(run: RunConfig, tmp_path: Path) -> None:
    for split in ("train", "validation"):
        wrong = staged(run, Path(str(run.pretraining.data)), {f"data.{split}": str(tmp_path / "absent.jsonl")})
        with pytest.raises(DataError, match="does not exist"):
            train(wrong, tmp_path / "run", on_message=quiet)
        assert not (tmp_path / "run" / "pretraining" / "log.jsonl").exists()


def test_one_override_serves_rows_with_and_without_a_stage(tmp_path: Path) -> None:
    """``--set pretraining.data=DIR`` does not give a stage to a row that has none."""
    recipe = load_recipe("coconet")
    runs = {row: resolve_run(recipe, row, "tiny", [f"pretraining.data={tmp_path}"]) for row in recipe.rows}
    assert {row for row, made in runs.items() if made.pretraining.enabled} == {row for row in runs if "pretrain" in row}
    assert all(made.pretraining.data == str(tmp_path) for made in runs.values())
    (tmp_path / "again.yaml").write_text(dump_run(runs["coconet-pretraining"]))
    assert load_run(tmp_path / "again.yaml") == runs["coconet-pretraining"]
