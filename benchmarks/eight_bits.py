"""A model's summaries over graphs of eight bits and of 32, in turns in one process.

Each way summarizes all texts together and some one after another; milliseconds a text by the clock and of the
processor, and of that the encoder and the steps of search. Texts are a file's records (``--data``), or the longest
paragraphs of docs/. At the end: how many lines are equal.

    OMP_NUM_THREADS=1 python benchmarks/eight_bits.py [--model MODEL] [--data FILE] [--texts 64] [--repeats 3]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from catchline import Summarizer
from catchline.data.readers import read_records
from catchline.export.folder import export_apart
from catchline.runtime.sessions import Session

DOCS = Path(__file__).resolve().parent.parent / "docs"
ALONE = 16  # texts that are summarized one after another
GRAPHS = ("encoder.onnx", "step.onnx")


class Timed(Session):
    """A session whose runs are added up."""

    spent: ClassVar[Counter[str]] = Counter()

    def run(self, values: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        began = time.perf_counter()
        found = super().run(values, outputs)
        Timed.spent[self._where.name] += time.perf_counter() - began
        return found


def texts(data: Path | None, count: int) -> list[str]:
    if data:
        return [record.document for record, _ in zip(read_records(data), range(count), strict=False)]
    found = [part for path in sorted(DOCS.glob("*.md")) for part in path.read_text(encoding="utf-8").split("\n\n")]
    prose = [" ".join(part.split()) for part in found if part[:1].isalpha()]
    return sorted(prose, key=len, reverse=True)[:count]


def opened(folder: Path) -> Summarizer:
    summarizer = Summarizer.from_pretrained(folder)
    model = summarizer.system.model
    for session in (model._encoder, model._step):
        session.__class__ = Timed
    return summarizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="oneline")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="few texts, once")
    options = parser.parse_args()
    count, repeats = (2, 1) if options.short else (options.texts, options.repeats)
    documents, lines = texts(options.data, count), {}
    best: dict[tuple[str, str], tuple[float, ...]] = {}
    with tempfile.TemporaryDirectory() as home:
        ways = {}
        for name, int8 in (("32 bits", False), ("8 bits", True)):
            export_apart(options.model, Path(home, name), int8=int8)
            ways[name] = opened(Path(home, name))
        for _ in range(repeats):
            for name, summarizer in ways.items():
                for how, groups in (("together", [documents]), ("alone", [[text] for text in documents[:ALONE]])):
                    Timed.spent.clear()
                    clock, processor = time.perf_counter(), time.process_time()
                    found = [summary.text for group in groups for summary in summarizer.summarize(group)]
                    total = time.perf_counter() - clock, time.process_time() - processor
                    parts = (*total, *(Timed.spent[graph] for graph in GRAPHS))
                    each = tuple(1e3 * part / len(found) for part in parts)
                    best[how, name] = min(best.get((how, name), each), each)
                    if how == "together":
                        lines[name] = found
    print(f"{len(documents)} texts, ms a text  clock  processor  encoder  steps")
    for (how, name), each in sorted(best.items()):
        print(f"  {how:10} {name:8}" + "".join(f"{part:9.1f}" for part in each))
    for how in ("together", "alone"):
        print(f"  {how:10} 8 bits take {best[how, '8 bits'][0] / best[how, '32 bits'][0]:.2f} of the time of 32")
    print(f"  equal lines: {sum(map(str.__eq__, *lines.values()))} of {len(documents)}")


if __name__ == "__main__":
    main()
