"""Does a model that reads in chunks look at the right document?

HAYSTACKS is a file of `catchline data haystack`. Documents are read whole. Printed are means over records: ROUGE F1 x
100, the shares of words that were read and of the coarse attention that is on the right document, beside that of flat
attention, how often the largest weight is on it and how often it was read at all, the entropy of the coarse attention
in nats, and seconds a document.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from catchline import Summarizer
from catchline.metrics.rouge import rouge
from catchline.types import Summary

MOST = 1_000_000  # tokens


def looked_at(summary: Summary, place: tuple[int, int]) -> dict[str, float]:
    """Where the summary's words looked, against the characters of the right document."""
    chunks = [chunk for chunk in summary.chunks if chunk.end > chunk.start]
    if not chunks:  # nothing was written
        return {"words read": summary.reading["words_read"] / summary.reading["words"]}
    right = np.array([chunk.start < place[1] and chunk.end > place[0] for chunk in chunks])
    weights = np.array([chunk.weights for chunk in chunks]).mean(axis=1)
    read = np.array([chunk.read is None or bool(chunk.read) for chunk in chunks])
    return {
        "words read": summary.reading["words_read"] / summary.reading["words"],
        "attention on it": weights[right].sum() / weights.sum(),
        "if flat": right.mean(),
        "largest on it": float(right[weights.argmax()]),
        "it was read": float((right & read).any()),
        "entropy": summary.reading.get("coarse_entropy", float("nan")),
    }


def main(model: str, haystacks: Path, count: int | None) -> None:
    """Print the figures of the first ``count`` records as JSON."""
    records = [json.loads(line) for line in haystacks.read_text(encoding="utf-8").splitlines()[:count]]
    summarizer = Summarizer.from_pretrained(model)
    system: Any = summarizer.system
    system.text = system.text.model_copy(update={"max_source_tokens": MOST})
    texts, found = [], []
    for number, record in enumerate(records, 1):
        start = time.perf_counter()
        summary = summarizer.summarize(record["document"], explain=True, always_write=True, surface="raw")
        found.append(looked_at(summary, record["place"]) | {"seconds": time.perf_counter() - start})
        texts.append(summary.text)
        print(f"\r{number:,} of {len(records):,}", end="", file=sys.stderr)
    scores = rouge(texts, [[record["summary"]] for record in records], kinds=("1", "2", "L")).per_document
    means = {f"ROUGE-{kind}": 100 * float(np.mean([score.f for score in every])) for kind, every in scores.items()}
    names = dict.fromkeys(name for each in found for name in each)
    means |= {name: float(np.mean([each[name] for each in found if name in each])) for name in names}
    print(json.dumps({name: round(value, 4) for name, value in means.items()}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a run or model folder")
    parser.add_argument("haystacks", type=Path)
    parser.add_argument("count", type=int, nargs="?", help="of records; all if not given")
    main(**vars(parser.parse_args()))
