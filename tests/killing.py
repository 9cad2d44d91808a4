"""Small runs of every family, killed with SIGKILL at random moments; what of a finished run must not depend on that."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import socket
import time
from pathlib import Path
from typing import Any

from catchline.config.loading import load_recipe, merge, resolve_run
from word_pairs import write_word_pairs

UPDATES = 30
PAIRS = {"train": 90, "validation": 12}
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["catchline.training.run", "catchline.models.seq2seq"])

# recipe, row, size and the key of the model's dropout
FAMILIES = {
    "distraction": ("distraction", "m1-m2-m3", "tiny", "model.dropout"),
    "coarse-to-fine": ("coarse_to_fine", "c2f-multi2", "tiny", "model.dropout"),
    "contrastive": ("contrastive", "contrastive", "tiny", "model.dropout"),
    "coconet": ("coconet", "coconet", "tiny", "model.dropout"),
    "coconet-bart": ("coconet", "coconet", "tiny-bart", "model.architecture.dropout"),
}


def settings(data: Path, family: str = "headline writer", *, updates: int = UPDATES) -> dict[str, Any]:
    """A run of a family with everything that has state: dropout, accumulation, averaging, both kinds of validation."""
    places = {split: str(data / f"{split}.jsonl") for split in ("train", "validation")}
    training = {
        "batch_size": 4,
        "accumulation": 2,
        "max_updates": updates,
        "max_epochs": None,
        "clip_norm": 1.0,
        "average_last": 5,
        "log_every": 4,
        "validation": {"every_updates": 7, "metric": "val_loss_free", "decode_records": 2},
        "checkpoint": {"every_updates": 4},
    }
    if family in ("headline writer", "two stages"):
        stage = {"max_updates": 14, "phases": [], "optimizer": {"learning_rate": 0.01}, "average_last": 3}
        before = {"enabled": True, "data": str(data / "spans"), "set": {"training": stage}}
        return _headline_writer(places, training) | ({"pretraining": before} if family == "two stages" else {})
    recipe, row, size, dropout = FAMILIES[family]
    changes = {"data": places, "training": training, dropout: 0.1}
    return resolve_run(load_recipe(recipe), row, size, changes).model_dump(mode="json")


def _headline_writer(places: dict[str, str], training: dict[str, Any]) -> dict[str, Any]:
    """With scheduled sampling, a plateau schedule, and phases of other lengths and of coverage."""
    return {
        "name": "killed",
        "data": places,
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
        "training": merge(
            training,
            {
                "teacher_forcing": {"ratio": 0.6, "scope": "example_step"},
                "schedule": {"type": "plateau", "warmup_updates": 3},
                "phases": [
                    {"name": "short", "until": 9, "max_source_tokens": 5},
                    {"name": "long", "until": 19, "max_source_tokens": 10},
                    {"name": "coverage", "model": {"coverage": True}},
                ],
            },
        ),
    }


def child(values: dict[str, Any], out: str, resume: bool, rank: int, world: int, port: int) -> None:
    import torch

    from catchline.config.schema import RunConfig
    from catchline.training.run import train
    from catchline.training.step import close_processes

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
    ranks = [(values, str(out), resume, rank, world, port) for rank in range(world)]
    processes = [CONTEXT.Process(target=child, args=arguments) for arguments in ranks]
    for process in processes:
        process.start()
    return processes


def finish(processes: list[Any]) -> None:
    for process in processes:
        process.join(300)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def kill(values: dict[str, Any], out: Path, world: int, seconds: float) -> bool:
    """Start a run, or go on with it, and kill all its processes after a time; was there anything left to kill?"""
    processes, end = start(values, out, world), time.monotonic() + seconds
    while time.monotonic() < end and any(process.is_alive() for process in processes):
        time.sleep(0.002)
    alive = any(process.is_alive() for process in processes)
    for process in processes:
        process.kill()
        process.join()
    return alive


def bits(out: Path) -> dict[str, Any]:
    """Everything of a finished run that must not depend on having been interrupted: each file but the clock's."""
    found: dict[str, Any] = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        if name == "pretraining/.lock":  # of a process that was killed at the end of the stage
            continue
        if path.name == "state.json":
            state = json.loads(path.read_text())
            state["train_state"].pop("elapsed_seconds")
            found[name] = state
        elif path.is_dir() or path.name in {"manifest.json", "finished.json"}:
            found[name] = None  # its name counts: no litter
        else:
            found[name] = path.read_bytes()
    return found


def assert_same(first: Path, second: Path) -> None:
    a, b = bits(first), bits(second)
    assert a.keys() == b.keys()
    different = [name for name in a if a[name] != b[name]]
    assert not different, different
    assert {"log.jsonl", "model/model.safetensors", "recipe.yaml"} <= a.keys()


def survive(folder: Path, family: str, *, world: int, kills: int, seed: int, further: bool = True) -> None:
    """A run that is killed ``kills`` times at any moment between its first and its last breath ends in the bits, and
    in the files, of one that was left alone; so does the same run when it is then trained a little ``further``.

    A run that is over before it is killed is compared, and another one begun.
    """
    for seed_of_pairs, place in enumerate((folder, folder / "spans")):
        write_word_pairs(place, PAIRS, seed_of_pairs)
    values = settings(folder, family)
    whole, killed = folder / "whole", folder / "killed"
    before = time.monotonic()
    finish(start(values, whole, world))
    lasts = time.monotonic() - before
    rng = random.Random(seed)
    done = 0
    while done < kills:
        # each of them may take as long as the first, which also made the tokenizer and the first checkpoints
        if kill(values, killed, world, rng.uniform(0.1, 1.0) * lasts):
            done += 1
        else:
            finish(start(values, killed, world))
            assert_same(whole, killed)
            shutil.rmtree(killed)
    finish(start(values, killed, world))
    assert_same(whole, killed)
    if not further:
        return
    longer = settings(folder, family, updates=UPDATES + 6)
    for out in (whole, killed):
        finish(start(longer, out, world))
    assert_same(whole, killed)
