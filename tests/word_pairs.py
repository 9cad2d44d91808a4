"""Pairs of made-up words to train on for seconds."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path


def write_word_pairs(
    folder: Path, splits: Mapping[str, int], seed: int, *, lengths: tuple[int, int] = (3, 9), summary: int = 2
) -> Path:
    """``SPLIT.jsonl`` with so many documents of ``lengths`` words, out of twenty; a summary is the first of them."""
    folder.mkdir(exist_ok=True)
    rng = random.Random(seed)
    for split, count in splits.items():
        with open(folder / f"{split}.jsonl", "w", encoding="utf-8") as file:
            for number in range(count):
                text = [f"word{rng.randrange(20)}" for _ in range(rng.randint(*lengths))]
                pair = {"id": f"{split}{number}", "document": " ".join(text), "summary": " ".join(text[:summary])}
                file.write(json.dumps(pair) + "\n")
    return folder
