"""Two and four gloo processes make the same update as one process with the same global batch."""

from __future__ import annotations

import multiprocessing
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.utils import DistributedType
from runs import bits, quiet

from catchline.config.schema import RunConfig
from catchline.training.checkpoint import checkpoint_folders, read_checkpoint
from catchline.training.log import read_log
from catchline.training.run import close_processes, join_processes, train

SGD = {"type": "sgd", "learning_rate": 0.5}  # it shows a wrong factor that Adam would hide
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["catchline.training.run", "catchline.models.seq2seq"])


def child(values: dict[str, Any], out: str, resume: bool, count: int, rank: int, port: int) -> None:
    torch.set_num_threads(1)
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in places.items()}, MASTER_ADDR="127.0.0.1")
    train(RunConfig(**values), out, resume=resume, on_message=quiet)
    close_processes()


def train_with(count: int, run: RunConfig, out: Path, *, resume: bool = False) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    values = run.model_dump()
    processes = [
        CONTEXT.Process(target=child, args=(values, str(out), resume, count, rank, port)) for rank in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(100)
    assert [process.exitcode for process in processes] == [0] * count


FOUR = pytest.param(4, ["nll", "coverage"], marks=pytest.mark.slow)


@pytest.mark.parametrize(("count", "objectives"), [(2, ["nll"]), (2, ["nll", "coverage"]), FOUR])
def test_several_processes_equal_one_with_the_same_global_batch(
    make_run: Any, tmp_path: Path, count: int, objectives: list[str]
) -> None:
    # a reduction per token and one per example: their counts differ between processes, and from each other
    kinds = {"nll": {"type": "nll", "reduction": "token"}, "coverage": {"type": "coverage", "reduction": "example"}}
    changes = {
        "objectives": [kinds[name] for name in objectives],
        "training": {"batch_size": 8 // count, "max_epochs": 1, "max_updates": None, "log_every": 1, "optimizer": SGD},
        # another parameter has no gradient at all (coverage off): it must be left alone
        "model.attention.coverage_from_start": "coverage" in objectives,
    }
    train(make_run(**changes, **{"training.batch_size": 8}), tmp_path / "one", on_message=quiet)
    train_with(count, make_run(**changes), tmp_path / "several")
    logs = [read_log(tmp_path / name / "log.jsonl") for name in ("one", "several")]
    assert len(logs[0]) == len(logs[1]) >= 6
    for single, several in zip(*logs, strict=True):
        assert single.keys() == several.keys()
        for key, value in single.items():
            assert several[key] == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value), key
    folders = (checkpoint_folders(tmp_path / name)[0] for name in ("one", "several"))
    one, several = (read_checkpoint(folder).tensors["model"] for folder in folders)
    torch.testing.assert_close(several, one, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_continue_exactly(make_run: Any, tmp_path: Path, count: int) -> None:
    changes = {"model.dropout": 0.3, "training.checkpoint": {"every_updates": 4, "keep": 9}}
    changes |= {"training.batch_size": 3, "training.accumulation": 2}
    whole = make_run(**changes, **{"training.max_updates": 7})
    train_with(count, whole, tmp_path / "whole")
    # stopped within an epoch, by its own end, and continued
    train_with(count, make_run(**changes, **{"training.max_updates": 5}), tmp_path / "parts")
    train_with(count, whole, tmp_path / "parts", resume=True)
    assert bits(tmp_path / "parts")[:2] == bits(tmp_path / "whole")[:2]


def test_training_leaves_apples_gpu_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It has no float64, in which validation sums losses; accelerate would take it unasked."""
    asked: dict[str, Any] = {}

    def made(**options: Any) -> Any:
        asked.update(options)
        return SimpleNamespace(num_processes=1, distributed_type=DistributedType.NO)

    monkeypatch.setattr("catchline.training.run.Accelerator", made)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    for apple in (False, True):
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda apple=apple: apple)
        join_processes([], tmp_path)
        assert asked["cpu"] is apple
