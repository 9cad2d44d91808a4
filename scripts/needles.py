"""Does a model that reads in chunks look at the right document? python scripts/needles.py MODEL HAYSTACKS [COUNT]

HAYSTACKS is a file that `laconic data haystack` made: `place` in each record is where the document stands that was
asked for. Printed, as means over records: the share of the coarse attention that is on chunks of it, what that were if
attention was flat, how often the chunk with the largest weight of a summary is one of them, how often one of them was
read at all for the summary (where chunks are chosen), and seconds a document.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from laconic import Summarizer


def main(model: str, file: str, count: int | None = None) -> None:
    """Print the figures of the first ``count`` records as JSON."""
    records = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()[:count]]
    summarizer = Summarizer.from_pretrained(model)
    found = []
    for record in records:
        start = time.perf_counter()
        summary = summarizer.summarize(record["document"], explain=True)
        seconds = time.perf_counter() - start
        first, last = record["place"]
        chunks = [chunk for chunk in summary.chunks if chunk.end > chunk.start]
        right = np.array([chunk.start < last and chunk.end > first for chunk in chunks])
        weights = np.array([chunk.weights for chunk in chunks]).mean(axis=1)
        chosen = [bool(chunk.read) for chunk in chunks if chunk.read is not None]
        found.append(
            {
                "attention": weights[right].sum() / weights.sum(),
                "flat": right.mean(),
                "largest": float(right[weights.argmax()]),
                "read": float(np.any(right[chosen])) if chosen else 1.0,
                "read of right": float(right[chosen].mean()) if chosen else float(right.mean()),
                "seconds": seconds,
            }
        )
    print(json.dumps({name: round(float(np.mean([each[name] for each in found])), 4) for name in found[0]}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:4]))
