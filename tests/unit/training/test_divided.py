"""Processes that a training starts itself: copies of the first, between which each batch is divided."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import PartialState
from runs import bits, continues_exactly, quiet

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.schema import RunConfig
from catchline.errors import CheckpointError, ConfigError, DataError, TrainingError
from catchline.training import loop, outlook, processes
from catchline.training.batches import BatchStream
from catchline.training.checkpoint import checkpoint_folders, read_checkpoint
from catchline.training.logging import read_log
from catchline.training.outlook import with_processes
from catchline.training.processes import divided
from catchline.training.run import train

SGD = {"type": "sgd", "learning_rate": 0.5}  # it shows a wrong factor that Adam would hide
FOUR = pytest.param(4, marks=pytest.mark.slow)
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT", "GLOO_SOCKET_IFNAME")


@pytest.fixture(autouse=True)
def _nothing_left() -> Any:
    environment, threads = dict(os.environ), torch.get_num_threads()
    yield
    assert not multiprocessing.active_children()
    assert {name: os.environ.get(name) for name in LAUNCHER} == {name: environment.get(name) for name in LAUNCHER}
    assert torch.get_num_threads() == threads
    assert not torch.distributed.is_initialized()
    assert PartialState(cpu=True).num_processes == 1


@pytest.mark.parametrize("count", [2, 3, FOUR])
def test_a_divided_batch_makes_the_update_of_a_whole_one(make_run: Any, tmp_path: Path, count: int) -> None:
    changes = {"training": {"batch_size": 7, "max_epochs": 1, "max_updates": None, "log_every": 1, "optimizer": SGD}}
    train(make_run(**changes), tmp_path / "one", on_message=quiet)
    said: list[str] = []
    train(make_run(**changes, **{"training.processes": count}), tmp_path / "several", on_message=said.append)
    assert any(f"batches of 7, divided between {count} processes" in line for line in said)
    assert len(said) == len(set(said))  # the copies say nothing
    logs = [read_log(tmp_path / name / "log.jsonl") for name in ("one", "several")]
    assert len(logs[0]) == len(logs[1]) == 7  # 40 pairs, and one validation
    for single, several in zip(*logs, strict=True):
        close = {key: pytest.approx(value, rel=1e-4) for key, value in single.items() if isinstance(value, float)}
        assert several == single | close
    folders = (checkpoint_folders(tmp_path / name)[0] for name in ("one", "several"))
    one, several = (read_checkpoint(folder).tensors["model"] for folder in folders)
    torch.testing.assert_close(several, one, rtol=1e-4, atol=1e-6)


def test_each_process_has_a_number_and_one_thread(tmp_path: Path) -> None:
    found = multiprocessing.get_context("fork").SimpleQueue()

    def work() -> str:
        state = PartialState()
        found.put((state.process_index, state.num_processes, torch.get_num_threads()))
        return "the first process's"

    torch.set_num_threads(2)
    try:
        assert divided(work, 3, tmp_path) == "the first process's"
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert sorted(found.get() for _ in range(3)) == [(rank, 3, 1) for rank in range(3)]


def test_a_stopped_run_continues_exactly(make_run: Any, tmp_path: Path) -> None:
    """The signal reaches the first process alone; all of them stop behind the same update."""
    changes = {"model.dropout": 0.3, "training.processes": 2, "training.log_every": 1}
    stopped = continues_exactly(make_run(**changes), tmp_path)
    assert read_checkpoint(checkpoint_folders(stopped)[0]).values["identity"]["processes"] == 2


def test_a_run_goes_on_with_as_many_processes_only(make_run: Any, tmp_path: Path) -> None:
    train(make_run(**{"training.processes": 2}), tmp_path, on_message=quiet)
    with pytest.raises(CheckpointError, match=r"training\.processes"):
        train(make_run(**{"training.max_updates": 9}), tmp_path, resume=True, on_message=quiet)


def test_a_copy_that_is_killed_ends_the_training_and_resume_goes_on(make_run: Any, tmp_path: Path) -> None:
    run = make_run(**{"training.processes": 2, "training.checkpoint.every_updates": 2, "training.log_every": 1})

    def kill(entry: dict[str, Any]) -> None:
        if entry["update"] == 3:
            multiprocessing.active_children()[0].kill()

    with pytest.raises(TrainingError, match=r"A process of this training died .*: catchline resume .*killed;"):
        train(run, tmp_path / "killed", on_log=kill, on_message=quiet)
    train(run, tmp_path / "killed", resume=True, on_message=quiet)
    train(run, tmp_path / "whole", on_message=quiet)
    assert bits(tmp_path / "killed") == bits(tmp_path / "whole")


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (DataError("line 7 is bad."), TrainingError, r"^line 7 is bad\.$"),
        (ZeroDivisionError("of ours"), RuntimeError, "(?s)In process 1 of this training:.*ZeroDivisionError: of ours"),
        (KeyboardInterrupt(), TrainingError, "A process of this training died"),
    ],
)
def test_what_a_copy_fails_of_is_told(
    make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, kind: Any, says: str
) -> None:
    update = loop.Trainer._update

    def fail(trainer: Any, stop: Any) -> None:
        if trainer.accelerator.process_index == 1 and trainer.state.update == 2:
            raise error
        update(trainer, stop)

    monkeypatch.setattr(loop.Trainer, "_update", fail)
    with pytest.raises(kind, match=says):
        train(make_run(**{"training.processes": 2}), tmp_path, on_message=quiet)


@pytest.mark.parametrize("error", [DataError("no records"), RuntimeError("of ours"), KeyboardInterrupt()])
def test_what_the_first_process_fails_of_is_its_error(
    make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, error: BaseException
) -> None:
    """Its copies end, without a word, although they were waiting for it."""
    first = os.getpid()
    prepare = processes.Accelerator.wait_for_everyone

    def fail(accelerator: Any) -> None:
        if os.getpid() == first:
            raise error
        prepare(accelerator)

    monkeypatch.setattr(processes.Accelerator, "wait_for_everyone", fail)
    with pytest.raises(type(error)) as caught:
        train(make_run(**{"training.processes": 3}), tmp_path, on_message=quiet)
    assert caught.value is error
    assert capfd.readouterr() == ("", "")


def test_the_pre_training_stage_has_the_same_processes(make_run: Any, tmp_path: Path, pairs: Path) -> None:
    stage = {"enabled": True, "data": str(pairs), "set": {"training": {"max_updates": 2, "processes": 1}}}
    train(make_run(pretraining=stage, **{"training.processes": 2}), tmp_path, on_message=quiet)
    for folder in (tmp_path, tmp_path / "pretraining"):
        identity = read_checkpoint(checkpoint_folders(folder)[0]).values["identity"]
        assert (identity["processes"], identity["recipe"]["training"]["processes"]) == (2, 2)


def test_batches_are_divided_or_each_process_has_its_own(make_run: Any, make_trainer: Any) -> None:
    data = make_trainer().parts.train_set

    def sizes(each: int, world: int, **training: Any) -> list[int]:
        changes = {f"training.{name}": value for name, value in ({"processes": each} | training).items()}
        settings = make_run(**changes).training
        streams = [BatchStream(data, list, settings, rank=rank, world_size=world) for rank in range(world)]  # type: ignore[arg-type]
        return [sum(len(one) for one in parts) for parts in zip(*(s._new_sampler(data).batches(0) for s in streams))]  # noqa: B905

    assert sorted(sizes(2, 2)) == sorted(sizes(1, 1)) == [8] * 5
    assert sorted(sizes(1, 2)) == [8, 16, 16]
    tokens = {"batch_tokens": 40, "batching": "sorted"}
    assert sizes(2, 2, **tokens) == sizes(1, 1, **tokens)
    assert len(sizes(1, 2, **tokens)) < len(sizes(1, 1, **tokens))


# ------------------------------------------------------------------------------------- where it cannot be


@pytest.mark.parametrize(
    ("world", "forks", "gpu", "says"),
    [
        ("2", True, False, "training.processes is 2, and a launcher started 2 processes: leave one of the two out"),
        ("1", False, False, "not possible on this system"),
        ("1", True, True, "not possible with a GPU"),
    ],
)
def test_processes_that_cannot_be_are_refused(
    monkeypatch: pytest.MonkeyPatch, world: str, forks: bool, gpu: bool, says: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", world)
    monkeypatch.setattr(processes, "copies", lambda: forks)
    with monkeypatch.context() as within:
        within.setattr(torch.accelerator, "is_available", lambda: gpu)
        with pytest.raises(ConfigError, match=says):
            divided(lambda: None, 2, Path())
    monkeypatch.delenv("WORLD_SIZE")


@pytest.mark.parametrize(
    ("cores", "changes", "expected"),
    [
        (1, {}, 1),
        (2, {"batch_size": 64}, 2),
        (2, {"batch_size": 7}, 1),
        (2, {"batch_size": 8}, 2),
        (3, {"batch_size": 12}, 3),
        (64, {"batch_size": 256}, 4),
        (4, {"batch_size": 1, "batch_tokens": 1000, "batching": "sorted"}, 4),
        (2, {"batch_size": 64, "processes": 1}, 1),
        (2, {"batch_size": 4, "processes": 3}, 3),
    ],
)
def test_unasked_processes(
    make_run: Any, monkeypatch: pytest.MonkeyPatch, cores: int, changes: dict[str, Any], expected: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(cores))
    run: RunConfig = make_run(**{f"training.{name}": value for name, value in changes.items()})
    with monkeypatch.context() as within:
        within.setattr(torch.accelerator, "is_available", lambda: False)
        assert with_processes(run).training.processes == expected
        within.setenv("WORLD_SIZE", "2")
        assert with_processes(run) is run


@pytest.mark.parametrize(("gigabytes", "expected"), [(99, 4), (48, 2), (16, 1), (0.1, 1)])
def test_unasked_processes_fit_into_memory(monkeypatch: pytest.MonkeyPatch, gigabytes: float, expected: int) -> None:
    """BART of 406 million parameters, taken for 506: 10 GB a process, and half of what is free."""
    run = resolve_run(load_recipe("coconet"), None, "paper", {"training": {"batch_tokens": None, "batch_size": 64}})
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.setattr(outlook, "_free_memory", lambda: int(gigabytes * 2**30))
    with monkeypatch.context() as within:
        within.setattr(torch.accelerator, "is_available", lambda: False)
        assert with_processes(run).training.processes == expected
