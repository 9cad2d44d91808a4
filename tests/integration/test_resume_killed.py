"""Kill -9 at random moments: the run ends in the same bits as one that was left alone."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

UPDATES = 30
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["laconic.training.loop", "laconic.models.seq2seq"])


def write_pairs(folder: Path) -> None:
    rng = random.Random(3)
    words = [f"word{i}" for i in range(30)]
    for split, count in (("train", 90), ("validation", 12)):
        with open(folder / f"{split}.jsonl", "w", encoding="utf-8") as file:
            for number in range(count):
                text = [rng.choice(words) for _ in range(rng.randint(3, 9))]
                pair = {"id": f"{split}{number}", "document": " ".join(text), "summary": " ".join(text[:2])}
                file.write(json.dumps(pair) + "\n")


def settings(data: Path, workers: int = 0, updates: int = UPDATES) -> dict[str, Any]:
    """Everything that has state: dropout, coins, accumulation, averaging, phases, plateau, both validations."""
    return {
        "name": "killed",
        "data": {"train": str(data / "train.jsonl"), "validation": str(data / "validation.jsonl")},
        "text": {"max_source_tokens": 10, "max_target_tokens": 4, "tokenizer": {"type": "word", "min_frequency": 1}},
        "model": {
            "type": "seq2seq",
            "embedding_size": 8,
            "encoder_hidden": 8,
            "hidden_size": 8,
            "dropout": 0.2,
            "attention": {"type": "additive", "coverage": True, "coverage_from_start": False},
        },
        "objectives": [{"type": "nll"}, {"type": "coverage"}],
        "training": {
            "batch_size": 4,
            "accumulation": 2,
            "max_updates": updates,
            "clip_norm": 1.0,
            "average_last": 5,
            "workers": workers,
            "log_every": 4,
            "teacher_forcing": {"ratio": 0.6, "scope": "example_step"},
            "schedule": {"type": "plateau", "warmup_updates": 3, "plateau_patience": 0},
            "phases": [
                {"name": "short", "until": 9, "max_source_tokens": 5, "objective_weights": {"coverage": 0.0}},
                {"name": "long", "until": 19, "max_source_tokens": 10},
                {"name": "coverage", "model": {"coverage": True}, "objective_weights": {"coverage": 1.0}},
            ],
            "validation": {"every_updates": 7, "free_running": True, "decode_records": 2},
            "checkpoint": {"every_updates": 4},
        },
    }


def child(values: dict[str, Any], out: str, resume: bool, rank: int, world: int, port: int) -> None:
    import torch

    from laconic.config.schema import RunConfig
    from laconic.training.loop import train
    from laconic.training.processes import close_processes

    torch.set_num_threads(1)
    if world > 1:
        places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in places.items()}, MASTER_ADDR="127.0.0.1")
    train(RunConfig(**values), out, resume=resume, on_message=lambda message: None)
    close_processes()


def start(values: dict[str, Any], out: Path, world: int = 1) -> list[Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    resume = (out / "recipe.yaml").exists()
    processes = [
        CONTEXT.Process(target=child, args=(values, str(out), resume, rank, world, port)) for rank in range(world)
    ]
    for process in processes:
        process.start()
    return processes


def finish(processes: list[Any]) -> None:
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def run_with_kills(values: dict[str, Any], out: Path, world: int, kills: int, seed: int) -> int:
    """Start again and again, killing everything at random moments between updates' lines; then let it finish."""
    rng = random.Random(seed)
    done = 0
    while done < kills:
        before = len(list(out.glob("checkpoint-*")))
        processes = start(values, out, world)
        deadline = time.monotonic() + 30
        while not list(out.glob("checkpoint-*")) and before == 0 and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.05, 0.9))
        alive = all(process.is_alive() for process in processes)
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
        done += 1
        if not alive:
            break
    finish(start(values, out, world))
    return done


def final_bits(out: Path) -> dict[str, Any]:
    """Everything of a finished run that must not depend on having been interrupted."""
    folder = max(out.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    state = json.loads((folder / "state.json").read_text())
    for clock in ("elapsed_seconds", "timing_bytes"):
        state["train_state"].pop(clock)
    bits: dict[str, Any] = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    bits |= {"name": folder.name, "state": state, "log": (out / "log.jsonl").read_bytes()}
    # the order of the exported file's header is not reproducible
    exported = load_file(out / "model" / "model.safetensors")
    bits["exported"] = {name: value.tolist() for name, value in exported.items()}
    return bits


def assert_same(first: Path, second: Path) -> None:
    a, b = final_bits(first), final_bits(second)
    assert a.keys() == b.keys()
    different = [name for name in a if a[name] != b[name]]
    assert not different, different
    assert {"model.safetensors", "optimizer.safetensors", "average.safetensors"} <= a.keys()


def compare(tmp_path: Path, *, world: int, workers: int, kills: int, seed: int, further: bool) -> None:
    write_pairs(tmp_path)
    values = settings(tmp_path, workers)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(values, whole, world))
    killed.mkdir()
    assert run_with_kills(values, killed, world, kills, seed) >= 1
    assert_same(whole, killed)
    if not further:
        return
    # the batches that would come next are the same, too: train both a little further
    longer = settings(tmp_path, workers, UPDATES + 6)
    for out in (whole, killed):
        finish(start(longer, out, world))
    assert_same(whole, killed)


def test_a_killed_run_ends_in_the_same_bits(tmp_path: Path) -> None:
    compare(tmp_path, world=1, workers=0, kills=3, seed=1, further=False)


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("workers", [0, 2])
def test_ten_kills(tmp_path: Path, world: int, workers: int) -> None:
    compare(tmp_path, world=world, workers=workers, kills=10, seed=10 * world + workers, further=True)
