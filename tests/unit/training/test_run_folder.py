"""One job in a run folder at a time, and no run goes on as another one unless that is said."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from runs import quiet, stop_at

from catchline.cli.main import main
from catchline.config.loading import dump_run, load_run
from catchline.config.schema import RunConfig
from catchline.errors import CheckpointError, ConfigError, FolderInUseError
from catchline.files import only_here
from catchline.training.checkpoint import checkpoint_folders
from catchline.training.log import read_log
from catchline.training.loop import Trainer
from catchline.training.run import train
from commands import refused
from json_lines import change

MakeRun = Callable[..., RunConfig]
CHECKPOINTS = {"training.checkpoint.every_updates": 2}


@pytest.fixture(scope="module")
def run(make_run: MakeRun) -> RunConfig:
    return make_run(**CHECKPOINTS)


@pytest.fixture(scope="module")
def finished(run: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(go(run, tmp_path_factory.mktemp("finished") / "run").folder)


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    """A run that is done, for this test alone."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def go(run: RunConfig, out: Path, **options: Any) -> Any:
    return train(run, out, on_message=quiet, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_that_is_being_trained_is_left_alone(run: RunConfig, out: Path) -> None:
    before = contents(out)
    with only_here(out):
        for options in ({"resume": True}, {"force": True}, {}, {"resume": True, "accept_changes": True}):
            with pytest.raises(FolderInUseError, match=f"{out} is in use by process {os.getpid()}"):
                go(run, out, **options)
    assert contents(out) == before


def test_a_run_holds_its_folder(run: RunConfig, tmp_path: Path) -> None:
    out, met = tmp_path / "run", list[int]()

    def meddle(entry: dict[str, Any]) -> None:
        with pytest.raises(FolderInUseError):
            go(run, out, force=True)
        met.append(entry["update"])

    go(run, out, on_log=meddle)
    assert len(met) == 5
    assert not (out / ".lock").exists()


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
    assert f"catchline resume {out} --accept-changes" in str(caught.value)
    assert recipe.read_text() == edited, "what was refused must not look as if it had been accepted"


def test_a_recipe_that_was_cut_anywhere_is_refused(run: RunConfig, out: Path) -> None:
    recipe = out / "recipe.yaml"
    whole = recipe.read_text().splitlines(keepends=True)
    loaded = 0
    for count in range(1, len(whole)):
        recipe.write_text("".join(whole[:count]))
        try:
            cut = load_run(recipe)
        except ConfigError:
            continue
        loaded += 1
        if cut != run:
            with pytest.raises(CheckpointError, match="is not what the run was made with"):
                go(cut, out, resume=True)
    assert loaded > 20


def test_what_a_continuation_may_change(run: RunConfig, make_run: MakeRun, out: Path, tmp_path: Path) -> None:
    moved = shutil.copy(str(run.data.train), tmp_path / "elsewhere.jsonl")
    longer = make_run(**CHECKPOINTS, **{"training.max_updates": 8, "data.train": str(moved)})
    assert go(longer, out, resume=True).updates == 8


@pytest.mark.parametrize("kept", [0.5, 0.0, None])
def test_a_log_that_was_cut_or_deleted_is_refused(
    run: RunConfig, make_run: MakeRun, out: Path, kept: float | None
) -> None:
    log = out / "log.jsonl"
    size = log.stat().st_size
    if kept is None:
        log.unlink()
    else:
        os.truncate(log, int(kept * size))
    with pytest.raises(CheckpointError, match=rf"log.jsonl (has|is gone).* {size:,} bytes .*--accept-changes"):
        go(run, out, resume=True)
    assert go(run, out, resume=True, accept_changes=True).updates == 6
    longer = make_run(**CHECKPOINTS, **{"training.max_updates": 8})
    assert go(longer, out, resume=True, accept_changes=True).updates == 8
    assert read_log(log)[-1]["update"] == 8, "every line is whole"
    assert go(longer, out, resume=True).updates == 8, "what was accepted is the run from then on"


def test_accepted_changes_are_trained_with(make_run: MakeRun, tmp_path: Path) -> None:
    """Fewer batches, fewer phases: the run goes on from where it can."""
    phases = [{"name": "first", "until": 2}, {"name": "second", "until": 4}, {"name": "third"}]
    out = tmp_path / "run"
    go(make_run(**CHECKPOINTS, **{"training.phases": phases}), out)
    changed = make_run(**{"training.batch_size": 64, "training.max_updates": 9})
    with pytest.raises(CheckpointError, match=r"training\.batch_size: 8 there, 64 now"):
        go(changed, out, resume=True)
    assert go(changed, out, resume=True, accept_changes=True).updates == 9
    assert go(changed, out, resume=True).updates == 9


@pytest.mark.parametrize("killed", ["_update", "_checkpoint"])
def test_a_run_killed_before_its_first_checkpoint_begins_anew(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """With its own recipe. The first validation has written a model by the time of the first checkpoint."""
    out, recipe = tmp_path / "run", tmp_path / "run" / "recipe.yaml"

    def stop(*_: Any) -> None:
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, killed, stop)
        with pytest.raises(InterruptedError):
            go(make_run(), out)
    assert (out / "model" / "config.json").is_file() == (killed == "_checkpoint")
    whole = recipe.read_text()
    recipe.write_text(whole.replace("seed: 3", "seed: 4"))
    with pytest.raises(CheckpointError, match="was changed or cut short"):
        go(load_run(recipe), out, resume=True)
    recipe.write_text(whole)
    assert go(load_run(recipe), out, resume=True).updates == 6


@pytest.mark.parametrize("what", ["training data", "validation data", "tokenizer"])
def test_the_rest_of_the_identity(run: RunConfig, out: Path, tmp_path: Path, what: str) -> None:
    if what == "tokenizer":
        with open(out / "tokenizer" / "tokenizer.json", "a") as file:
            file.write("\n")
    else:
        key, place = ("train" if what == "training data" else "validation"), tmp_path / "turned.jsonl"
        first, *rest = Path(getattr(run.data, key)).read_text().splitlines(keepends=True)
        place.write_text("".join([*rest, first]))
        run = run.model_copy(update={"data": run.data.model_copy(update={key: str(place)})})
    with pytest.raises(CheckpointError, match=f"The {what} is not what the run was started with"):
        go(run, out, resume=True)


def test_checkpoints_of_an_older_version_go_on(run: RunConfig, out: Path) -> None:
    """They know the training data and the number of processes only; their recipe has no digest."""
    (out / "recipe.yaml").write_text((out / "recipe.yaml").read_text().partition("\n")[2])
    for folder in out.glob("checkpoint-*"):
        state = json.loads((folder / "state.json").read_text())
        kept = {key: state["identity"][key] for key in ("data", "processes")}
        text = json.dumps(state | {"identity": kept | {"seed": 3, "records": 20}})
        (folder / "state.json").write_text(text)
        manifest = json.loads((folder / "manifest.json").read_text())
        digest = hashlib.sha256(text.encode()).hexdigest()
        manifest["files"]["state.json"] = {"bytes": len(text.encode()), "sha256": digest}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    assert go(run, out, resume=True).updates == 6


def test_the_command_says_it_in_one_sentence(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (out / "log.jsonl").unlink()
    refused(capsys, 5, "log.jsonl is gone or empty", "resume", out)
    with only_here(out):
        refused(capsys, 1, "is in use by process", "resume", out, "--accept-changes")
    assert main(["resume", str(out), "--accept-changes"]) == 0


def test_pairs_held_out_for_an_earlier_run_go(make_run: MakeRun, pairs: Path, tmp_path: Path) -> None:
    out, parts = tmp_path / "run", tmp_path / "run" / "data"
    parts.mkdir(parents=True)
    shutil.copy(pairs / "train.jsonl", parts)
    for name in ("validation.jsonl", "test.jsonl", "mine.jsonl"):
        (parts / name).write_text("{}")
    every = contents(parts)
    noted = {name: hashlib.sha256(content).hexdigest() for name, content in every.items() if name != "mine.jsonl"}
    run = make_run(**{"data.train": str(parts / "train.jsonl"), "training.max_updates": 1})
    for options in ({}, {"force": True}):  # nothing there is of an earlier run
        go(run, out, **options)
        assert contents(parts).keys() == every.keys()
    (parts / ".held_out.json").write_text(json.dumps(noted))
    (parts / "validation.jsonl").write_text("{ }")  # a part no longer
    go(run, out, force=True)
    assert sorted(path.name for path in parts.glob("*.jsonl")) == ["mine.jsonl", "train.jsonl", "validation.jsonl"]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "name", ["recipe.yaml", "log.jsonl", "timing.jsonl", "model/notes", "tokenizer/tokenizer.json", "checkpoint-500/x"]
)
def test_what_no_run_wrote_is_never_replaced(run: RunConfig, tmp_path: Path, name: str, force: bool) -> None:
    out = tmp_path / "a project"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text("name: mine")
    with pytest.raises(ConfigError, match=f"is no run folder, and its {name.partition('/')[0]} would be lost: name"):
        go(run, out, force=force)
    assert contents(out) == {name: b"name: mine"}


@pytest.mark.parametrize("log", [True, False])
def test_a_model_without_checkpoints_is_neither_replaced_nor_begun_anew(run: RunConfig, out: Path, log: bool) -> None:
    for folder in checkpoint_folders(out):
        shutil.rmtree(folder)
    for path in [] if log else out.glob("*.jsonl"):
        path.unlink()
    before = contents(out / "model")
    for accept in (False, True):
        with pytest.raises(CheckpointError, match="a model and no checkpoint to go on from: train another run, from"):
            go(run, out, resume=True, accept_changes=accept)
    with pytest.raises(ConfigError, match=r"use force \(--force\)"):
        go(run, out)
    assert contents(out / "model") == before
    assert go(run, out, force=True).updates == 6


def test_a_command_that_is_advised_runs_where_a_path_has_blanks(run: RunConfig, tmp_path: Path) -> None:
    out = tmp_path / "my runs"
    advice = f"`catchline resume '{out}'"
    assert f"catchline resume '{out}'" in stop_at(run, out, 2)
    with pytest.raises(ConfigError) as refused:
        go(run, out)
    assert advice in str(refused.value)
    (out / "log.jsonl").unlink()
    with pytest.raises(CheckpointError) as changed:
        go(run, out, resume=True)
    assert f"{advice} --accept-changes`" in str(changed.value)


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
    found = []
    for number in range(2):
        out = tmp_path / str(number) / "run"
        command = [sys.executable, "-c", DRAW, str(tmp_path / "run.yaml"), str(out)]
        subprocess.run(command, check=True, umask=0o027, env=os.environ | {"PYTHONHASHSEED": str(number)})
        modes = {stat.S_IMODE(path.stat().st_mode) for path in out.rglob("*") if path.is_file()}
        assert modes == {0o640}
        assert {stat.S_IMODE(path.stat().st_mode) for path in out.rglob("*") if path.is_dir()} == {0o750}
        found.append(contents(out))
    clocks = {name for name in found[0] if name.endswith(("state.json", "manifest.json", "timing.jsonl"))}
    assert found[0].keys() == found[1].keys()
    assert {name for name in found[0] if found[0][name] != found[1][name]} <= clocks
