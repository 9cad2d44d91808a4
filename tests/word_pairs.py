"""Pairs of made-up words to train on for seconds."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from json_lines import write_lines

Range = tuple[int, int]


def write_word_pairs(
    folder: Path, splits: Mapping[str, int], seed: int, *, lengths: Range = (3, 9), summary: Range = (2, 2)
) -> Path:
    """``SPLIT.jsonl`` with so many documents of ``lengths`` words, out of twenty; a summary is the first of them."""
    folder.mkdir(exist_ok=True)
    rng = random.Random(seed)
    for split, count in splits.items():
        rows = []
        for number in range(count):
            text = [f"word{rng.randrange(20)}" for _ in range(rng.randint(*lengths))]
            words = text[: rng.randint(*summary)]
            rows.append({"id": f"{split}{number}", "document": " ".join(text), "summary": " ".join(words)})
        write_lines(folder / f"{split}.jsonl", rows)
    return folder
