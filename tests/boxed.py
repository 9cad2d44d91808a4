"""A small stand-in for the model in the box, trained for seconds on made-up text; it is never shipped."""

from __future__ import annotations

import json
import random
from pathlib import Path

import torch

from catchline.config.loading import load_recipe, resolve_run
from catchline.models.folder import LoadedModel, load_model_folder
from catchline.training.run import train

THINGS = ["file", "list", "socket", "table", "index", "graph", "matrix", "token", "cache", "stream"]
VERBS = ["read", "sort", "close", "print", "merge", "split", "count", "copy"]


def write_pairs(path: Path, number: int, seed: int = 0) -> Path:
    """JSON lines of a document and the few words that it is about."""
    draw = random.Random(seed)
    with path.open("w", encoding="utf-8") as handle:
        for position in range(number):
            verb, thing = draw.choice(VERBS), draw.choice(THINGS)
            body = f"This will {verb} the {thing} and return nothing. The {thing} is kept. Errors are raised."
            row = {"id": f"{seed}.{position}", "document": body, "summary": f"{verb} the {thing}."}
            handle.write(json.dumps(row) + "\n")
    return path


def make_stand_in(work: Path, root: Path, updates: int = 6) -> Path:
    """Train recipe ``oneline`` in its smallest size and write it as ``root/oneline``, weights in bfloat16."""
    data = {"train": str(write_pairs(work / "train.jsonl", 64))}
    training = {"max_updates": updates, "initial_weights": None}
    run = resolve_run(load_recipe("oneline"), size="tiny", overrides={"data": data, "training": training})
    result = train(run, work / "run", on_message=lambda _: None)
    loaded: LoadedModel = load_model_folder(result.model_folder)
    loaded.model.to(torch.bfloat16)
    loaded.name = "oneline"
    loaded.save_pretrained(root / "oneline")
    return root / "oneline"
