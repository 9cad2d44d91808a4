"""What happens to a corpus before and around training: seconds, and the ratio to an older checkout.

    python benchmarks/data_path.py [--pairs 100000] [--processes 2] [--before SRC] [--corpus FILE] [--short]

Prints for each command its wall time and its CPU time with that of its processes: a training to the end of its first
update, with nothing kept and again with the encoded corpus there; `data check`; `evaluate lead-1`. The floor is reading
the JSON lines. ``--before`` is the folder ``src`` of an older checkout, which runs in turns with this one; whether both
made the same (weights, vocabulary, reports) is said. The pairs, about a kilobyte each, are made of words of a Zipf
vocabulary with numbers and names that stand once or twice; ``--corpus`` takes a file of yours.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from pathlib import Path

from paired import SOURCE, catchline, write_pairs

MODEL = ("model.hidden_size=16", "model.embedding_size=16", "training.max_updates=1", "training.batch_size=8")


def made_of(run_folder: Path) -> str:
    """A digest of what a training left: weights and vocabulary."""
    files = ("model/model.safetensors", "tokenizer/tokenizer.json")
    return hashlib.sha256(b"".join((run_folder / file).read_bytes() for file in files)).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--short", action="store_true", help="3,000 pairs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        corpus = given.corpus or folder / "train.jsonl"
        if given.corpus is None:
            write_pairs(corpus, 3000 if given.short else given.pairs, 170, 170)
        start = time.perf_counter()
        count = sum(len(json.loads(line)) > 1 for line in corpus.open(encoding="utf-8"))
        seconds, size = time.perf_counter() - start, corpus.stat().st_size / 1e6
        print(f"{count:,} pairs, {size:.1f} MB; JSON lines read in {seconds:.1f} s")
        sources = {"before": given.before, "now": SOURCE} if given.before else {"now": SOURCE}
        train = ["train", "headline_writer", "--set", f"data.train={corpus}", "--force"]
        train += [part for change in MODEL for part in ("--set", change)]
        rows = {
            "train, first start": [*train, "--out", str(folder / "run")],
            "train, second start": [*train, "--out", str(folder / "again")],
            "data check": ["data", "check", str(corpus), "--json"],
            "evaluate lead-1": ["evaluate", "lead-1", "--data", str(corpus), "--json"],
        }
        for name, arguments in rows.items():
            spent = {}
            for label, source in sources.items():
                how = {"source": source, "threads": given.processes, "CATCHLINE_CACHE": str(folder / f"cache-{label}")}
                wall, cpu, printed = catchline(*arguments, **how)
                spent[label] = wall, cpu, made_of(Path(arguments[-1])) if "--out" in arguments else printed
            shown = "   ".join(f"{label} {wall:7.1f} s ({cpu:.1f} s CPU)" for label, (wall, cpu, _) in spent.items())
            if given.before:
                same = "equal" if len({made for _, _, made in spent.values()}) == 1 else "DIFFERENT"
                shown += f"  {spent['before'][0] / spent['now'][0]:.1f}x, results {same}"
            print(f"{name:<22}{shown}", flush=True)


if __name__ == "__main__":
    main()
