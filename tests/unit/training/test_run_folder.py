"""One job in a run folder at a time; a run continues only as itself, and a finished one is answered at once."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from runs import MakeRun, quiet, stop_at

from catchline.config.loading import dump_run, load_run
from catchline.config.schema import RunConfig
from catchline.errors import CheckpointError, ConfigError, FolderInUseError
from catchline.files import digest_of, only_here
from catchline.training.checkpoint import checkpoint_folders
from catchline.training.loop import Trainer
from catchline.training.run import train
from commands import Capture, refused
from json_lines import change

CHECKPOINTS = {"training.checkpoint.every_updates": 2}
LONGER = CHECKPOINTS | {"training.max_updates": 8}


@pytest.fixture(scope="module")
def run(make_run: MakeRun) -> RunConfig:
    return make_run(**CHECKPOINTS)


@pytest.fixture(scope="module")
def made(run: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(go(run, tmp_path_factory.mktemp("finished") / "run").folder)


@pytest.fixture
def out(made: Path, tmp_path: Path) -> Path:
    """A run that is done, for this test alone."""
    return Path(shutil.copytree(made, tmp_path / "run"))


def go(run: RunConfig, out: Path, **options: Any) -> Any:
    return train(run, out, on_message=quiet, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_finished_run_is_answered_at_once(run: RunConfig, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("catchline.training.run.prepare", None)  # nothing is read or built
        result = go(run, out, resume=True)
    assert (result.updates, result.stopped, result.model_folder) == (6, "max_updates", str(out / "model"))
    noted = json.loads((out / "finished.json").read_text())
    for damage in ({"result": {**noted["result"], "elapsed_seconds": [[]]}}, {"result": 3}, {"result": {}}):
        (out / "finished.json").write_text(json.dumps(noted | damage))
        assert go(run, out, resume=True).updates == 6
    (out / "model" / "config.json").unlink()
    assert go(run, out, resume=True).updates == 6
    assert (out / "model" / "config.json").is_file(), "its model is exported again"


def test_a_run_that_is_being_trained_is_left_alone(run: RunConfig, out: Path) -> None:
    before = contents(out)
    with only_here(out):
        for options in ({"resume": True}, {"force": True}, {}):
            with pytest.raises(FolderInUseError, match=f"{out} is in use by process {os.getpid()}"):
                go(run, out, **options)
    assert contents(out) == before


@pytest.mark.parametrize(
    ("key", "value"),
    [("training.seed", 4), ("training.batch_size", 4), ("model.hidden_size", 7), ("description", "other")],
)
def test_a_recipe_that_was_edited_is_refused(out: Path, key: str, value: Any) -> None:
    recipe = out / "recipe.yaml"
    before = reduce(dict.__getitem__, path := key.split("."), yaml.safe_load(recipe.read_text()))
    change(recipe, *path, value=value)
    edited = recipe.read_text()
    with pytest.raises(CheckpointError) as caught:
        go(load_run(recipe), out, resume=True)
    assert f"({key}: {json.dumps(before)} there, {json.dumps(value)} now)" in str(caught.value)
    assert recipe.read_text() == edited, "what was refused must not look as if it had been accepted"


def test_what_a_continuation_may_change(run: RunConfig, make_run: MakeRun, out: Path, tmp_path: Path) -> None:
    moved = shutil.copy(str(run.data.train), tmp_path / "elsewhere.jsonl")
    assert go(make_run(**LONGER, **{"data.train": str(moved)}), out, resume=True).updates == 8


@pytest.mark.parametrize("kept", [0.5, 0.0, None])
def test_a_log_that_was_cut_or_deleted_is_refused(out: Path, capsys: Capture, kept: float | None) -> None:
    log = out / "log.jsonl"
    log.unlink() if kept is None else os.truncate(log, int(kept * log.stat().st_size))
    refused(capsys, 5, "bytes of the last checkpoint: restore the file", "resume", out)


@pytest.mark.parametrize("killed", ["_update", "_checkpoint"])
def test_a_run_killed_before_its_first_checkpoint_begins_anew(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """The first validation has written a model by the time of the first checkpoint."""
    out, recipe = tmp_path / "run", tmp_path / "run" / "recipe.yaml"

    def stop(*_: Any) -> None:
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, killed, stop)
        with pytest.raises(InterruptedError):
            go(make_run(), out)
    assert (out / "model" / "config.json").is_file() == (killed == "_checkpoint")
    assert go(load_run(recipe), out, resume=True).updates == 6
    assert go(make_run(), tmp_path / "whole").metrics == go(load_run(recipe), out, resume=True).metrics


@pytest.mark.parametrize("what", ["training data", "validation data", "tokenizer"])
def test_the_rest_of_the_identity(make_run: MakeRun, out: Path, tmp_path: Path, what: str) -> None:
    run = make_run(**LONGER)
    if what == "tokenizer":
        with open(out / "tokenizer" / "tokenizer.json", "a") as file:
            file.write("\n")
    else:
        key, place = ("train" if what == "training data" else "validation"), tmp_path / "turned.jsonl"
        first, *rest = Path(getattr(run.data, key)).read_text().splitlines(keepends=True)
        place.write_text("".join([*rest, first]))
        run = make_run(**LONGER, **{f"data.{key}": str(place)})
    with pytest.raises(CheckpointError, match=f"The {what} is not what the run was started with"):
        go(run, out, resume=True)


def test_pairs_held_out_for_an_earlier_run_go(make_run: MakeRun, pairs: Path, tmp_path: Path) -> None:
    out, parts = tmp_path / "run", tmp_path / "run" / "data"
    parts.mkdir(parents=True)
    shutil.copy(pairs / "train.jsonl", parts)
    for name in ("validation.jsonl", "test.jsonl", "mine.jsonl"):
        (parts / name).write_text("{}")
    every = contents(parts)
    run = make_run(**{"data.train": str(parts / "train.jsonl"), "training.max_updates": 1})
    for options in ({}, {"force": True}):  # nothing there is of an earlier run
        go(run, out, **options)
        assert contents(parts).keys() == every.keys()
    noted = {name: digest_of(parts / name) for name in ("train.jsonl", "validation.jsonl", "test.jsonl")}
    (parts / ".held_out.json").write_text(json.dumps(noted))
    (parts / "validation.jsonl").write_text("{ }")  # a part no longer
    go(run, out, force=True)
    assert sorted(path.name for path in parts.glob("*.jsonl")) == ["mine.jsonl", "train.jsonl", "validation.jsonl"]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "name", ["recipe.yaml", "log.jsonl", "model/notes", "tokenizer/tokenizer.json", "checkpoint-500/x"]
)
def test_what_no_run_wrote_is_never_replaced(run: RunConfig, tmp_path: Path, name: str, force: bool) -> None:
    out = tmp_path / "a project"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text("name: mine")
    with pytest.raises(ConfigError, match=f"is not a run folder, and its {name.partition('/')[0]} would be lost: name"):
        go(run, out, force=force)
    assert contents(out) == {name: b"name: mine"}


def test_a_model_without_checkpoints_is_neither_replaced_nor_begun_anew(make_run: MakeRun, out: Path) -> None:
    for folder in checkpoint_folders(out):
        shutil.rmtree(folder)
    before, longer = contents(out / "model"), make_run(**LONGER)
    for options, said in (
        ({"resume": True}, "no checkpoint to continue from: train another run"),
        ({}, "with --force"),
    ):
        with pytest.raises((CheckpointError, ConfigError), match=said):
            go(longer, out, **options)
    assert contents(out / "model") == before
    assert go(longer, out, force=True).updates == 8


def test_a_command_that_is_advised_runs_where_a_path_has_blanks(run: RunConfig, tmp_path: Path) -> None:
    out = tmp_path / "my runs"
    assert f"catchline resume '{out}'" in stop_at(run, out, 2)
    with pytest.raises(ConfigError) as caught:
        go(run, out)
    assert f"`catchline resume '{out}'" in str(caught.value)


DRAW = """
import sys
from pathlib import Path
from catchline.config.loading import load_run
from catchline.training.run import train
train(load_run(Path(sys.argv[1])), sys.argv[2], on_message=lambda message: None)
"""


@pytest.mark.slow
def test_equal_runs_make_equal_files_and_the_umask_is_the_rule(make_run: MakeRun, tmp_path: Path) -> None:
    """In processes of their own, with other seeds of Python's hashes."""
    model = {"type": "transformer", "encoder_layers": 1, "decoder_layers": 1, "hidden_size": 8, "num_heads": 2}
    shared = {"feed_forward_size": 8, "share_embeddings": True}
    run = make_run(**{"model": model | shared, "objectives": [{"type": "nll"}]})
    (tmp_path / "run.yaml").write_text(dump_run(run))
    files = []
    for number in range(2):
        out = tmp_path / str(number) / "run"
        command = [sys.executable, "-c", DRAW, str(tmp_path / "run.yaml"), str(out)]
        subprocess.run(command, check=True, umask=0o027, env=os.environ | {"PYTHONHASHSEED": str(number)})
        modes = {stat.S_IMODE(path.stat().st_mode) for path in out.rglob("*") if path.is_file()}
        assert modes == {0o640}
        assert {stat.S_IMODE(path.stat().st_mode) for path in out.rglob("*") if path.is_dir()} == {0o750}
        files.append(contents(out))
    timed = ("state.json", "manifest.json", "finished.json")
    clocks = {name for name in files[0] if name.endswith(timed)}
    assert files[0].keys() == files[1].keys()
    assert {name for name in files[0] if files[0][name] != files[1][name]} <= clocks
