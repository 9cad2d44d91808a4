"""Kill -9 in the pre-training stage, between the stages and in the training: the run ends in the same bits."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["laconic.training.run", "laconic.models.seq2seq"])
STAGE_UPDATES, UPDATES = 12, 14


def write_pairs(folder: Path) -> None:
    rng = random.Random(3)
    words = [f"word{i}" for i in range(30)]
    for place, count in ((folder / "pairs", 60), (folder / "spans", 40)):
        place.mkdir()
        for split, number in (("train", count), ("validation", 8)):
            with open(place / f"{split}.jsonl", "w", encoding="utf-8") as file:
                for _ in range(number):
                    text = [rng.choice(words) for _ in range(rng.randint(3, 9))]
                    file.write(json.dumps({"document": " ".join(text), "summary": " ".join(text[:2])}) + "\n")


def settings(data: Path) -> dict[str, Any]:
    """With everything that draws random numbers, and checkpoints that do not fall on the ends."""
    stage = {"max_updates": STAGE_UPDATES, "optimizer": {"learning_rate": 0.01}, "average_last": 3}
    return {
        "name": "stages",
        "data": {split: str(data / "pairs" / f"{split}.jsonl") for split in ("train", "validation")},
        "text": {"max_source_tokens": 10, "max_target_tokens": 4, "tokenizer": {"type": "word", "min_frequency": 1}},
        "model": {"type": "seq2seq", "embedding_size": 8, "encoder_hidden": 8, "hidden_size": 8, "dropout": 0.2},
        "pretraining": {"enabled": True, "data": str(data / "spans"), "set": {"training": stage}},
        "training": {
            "batch_size": 4,
            "max_updates": UPDATES,
            "teacher_forcing": {"ratio": 0.6, "scope": "example_step"},
            "log_every": 3,
            "validation": {"every_updates": 4},
            "checkpoint": {"every_updates": 5},
        },
    }


def child(values: dict[str, Any], out: str, slowly: float, rank: int, world: int, port: int) -> None:
    import torch

    from laconic.config.schema import RunConfig
    from laconic.training import loop
    from laconic.training.processes import close_processes
    from laconic.training.run import train

    torch.set_num_threads(1)
    if world > 1:
        places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in places.items()}, MASTER_ADDR="127.0.0.1")
    update = loop.Trainer._update

    def slow(trainer: Any, stop: Any) -> None:
        time.sleep(slowly)
        update(trainer, stop)

    loop.Trainer._update = slow  # type: ignore[method-assign, assignment]
    resume = (Path(out) / "recipe.yaml").exists()
    train(RunConfig(**values), out, resume=resume, on_message=lambda message: None)
    close_processes()


def start(values: dict[str, Any], out: Path, world: int, slowly: float = 0.0) -> list[Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [
        CONTEXT.Process(target=child, args=(values, str(out), slowly, rank, world, port)) for rank in range(world)
    ]
    for process in processes:
        process.start()
    return processes


def finish(processes: list[Any]) -> None:
    for process in processes:
        process.join(100)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def kill_when(values: dict[str, Any], out: Path, world: int, reached: Callable[[], bool]) -> None:
    processes = start(values, out, world, slowly=0.05)
    deadline = time.monotonic() + 60
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.002)
    alive = [process.is_alive() for process in processes]
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
    assert all(alive), "the run was over before it could be killed"


def bits(out: Path) -> dict[str, Any]:
    """Everything of a finished run, both stages, that must not depend on having been interrupted."""
    found: dict[str, Any] = {}
    for stage, last in ((out / "pretraining", STAGE_UPDATES), (out, UPDATES)):
        folder = stage / f"checkpoint-{last}"
        state = json.loads((folder / "state.json").read_text())
        for clock in ("elapsed_seconds", "timing_bytes"):
            state["train_state"].pop(clock)
        found |= {f"{stage.name}/{path.name}": path.read_bytes() for path in folder.glob("*.safetensors")}
        found |= {f"{stage.name}/state": state, f"{stage.name}/log": (stage / "log.jsonl").read_bytes()}
        exported = load_file(stage / "model" / "model.safetensors")
        found[f"{stage.name}/exported"] = {name: value.tolist() for name, value in exported.items()}
    return {name.removeprefix(f"{out.name}/"): value for name, value in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2])
def test_killed_in_both_stages_it_ends_in_the_same_bits(tmp_path: Path, world: int) -> None:
    write_pairs(tmp_path)
    values = settings(tmp_path)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(values, whole, world))
    stage = killed / "pretraining"
    kill_when(values, killed, world, lambda: (stage / "checkpoint-5").is_dir())
    assert not (stage / "finished.json").exists()
    kill_when(values, killed, world, lambda: (stage / "finished.json").exists())
    assert not list(killed.glob("checkpoint-*"))
    kill_when(values, killed, world, lambda: (killed / "checkpoint-5").is_dir())
    finish(start(values, killed, world))
    a, b = bits(whole), bits(killed)
    assert a.keys() == b.keys()
    assert not [name for name in a if a[name] != b[name]]
