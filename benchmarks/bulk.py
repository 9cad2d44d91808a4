"""Many short documents in one `catchline summarize`, with one thread, two, or two processes; beside old code or on Ray.

    python benchmarks/bulk.py [--documents 2000] [--before SRC | --ray] [--exported] [--rounds 2] [--short]

The model is a pointer-generator with coverage of size ``small`` after one update, so that nearly every summary is as
long as the search allows: beam 4, documents of 30 to 60 words of a Zipf vocabulary. ``--before`` is the folder ``src``
of an older checkout, which makes the model (later ones open what earlier ones wrote) and takes turns with this one;
with ``--ray`` workers of Ray take turns with processes, the start of a cluster on this machine included; with
``--exported`` the same model's graphs of 32 and of eight bits do.
Printed: seconds by the clock and of the processors, from the shell to the last line of the file, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from itertools import accumulate
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
TRAIN = ("training.max_updates=1", "training.batch_size=8")


def make_documents(path: Path, count: int, seed: int) -> None:
    chosen = random.Random(seed)
    words = ["".join(chosen.choices("abcdefghijklmnop", k=chosen.randint(2, 9))) for _ in range(20_000)]
    weights = list(accumulate(1 / (rank + 3) for rank in range(len(words))))
    with path.open("w") as file:
        for number in range(count):
            text = chosen.choices(words, cum_weights=weights, k=chosen.randint(30, 60))
            pair = {"id": f"d{number}", "document": " ".join(text), "summary": " ".join(text[:8])}
            file.write(json.dumps(pair) + "\n")


def run(source: Path, *arguments: str, threads: int = 1) -> tuple[float, float]:
    """Seconds of ``catchline ARGUMENTS`` with so many threads a process: by the clock, and of the processors."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": str(threads)}
    started = time.perf_counter()
    command = [sys.executable, "-m", "catchline.cli.main", *arguments]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed.")
    return time.perf_counter() - started, used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--before", type=Path, help="the folder src of an older checkout")
    parser.add_argument("--ray", action="store_true", help="beside as many workers of Ray")
    parser.add_argument("--exported", action="store_true", help="beside the model's graphs, of 32 bits and of eight")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--short", action="store_true", help="100 documents, once")
    options = parser.parse_args()
    checkouts = {"before": options.before.resolve(), "now": SOURCE} if options.before else {"now": SOURCE}
    if options.ray:
        checkouts["ray"] = SOURCE
    with tempfile.TemporaryDirectory() as folder:
        pairs, given, model = Path(folder, "pairs.jsonl"), Path(folder, "given.jsonl"), Path(folder, "run")
        make_documents(pairs, 400, 0)
        make_documents(given, 100 if options.short else options.documents, 1)
        settings = [part for change in (f"data.train={pairs}", *TRAIN) for part in ("--set", change)]
        row = ("headline_writer", "--row", "pointer-generator-coverage", "--size", "small")
        run(next(iter(checkouts.values())), "train", *row, *settings, "--out", str(model))
        models = dict.fromkeys(checkouts, model)
        for name, how in {"32 bits": (), "8 bits": ("--int8",)}.items() if options.exported else ():
            checkouts[name], models[name] = SOURCE, Path(folder, name)
            run(SOURCE, "export", str(model), "--out", str(models[name]), *how)
        for jobs, threads in ((1, 1), (1, 2), (2, 1)):
            best = dict.fromkeys(checkouts, (float("inf"), float("inf")))
            for turn in range(1 if options.short else options.rounds):
                for name, source in checkouts.items():
                    out = Path(folder, f"{name}-{jobs}-{threads}-{turn}.jsonl")
                    asked: tuple[str, ...] = ("--jobs", str(jobs), "--beam-size", "4", "--output", str(out))
                    asked += ("--ray",) if name == "ray" else ()
                    taken = run(source, "summarize", str(models[name]), str(given), *asked, threads=threads)
                    best[name] = min(best[name], taken)
            for name, (clock, processors) in best.items():
                of = f"{jobs} process{'es' * (jobs > 1)}, {threads} thread{'s' * (threads > 1)}"
                print(f"{of}, {name}: {clock:.1f} s, {processors:.1f} s of the processors")
            if options.before:
                print(f"  before / now: {best['before'][0] / best['now'][0]:.2f}x", flush=True)


if __name__ == "__main__":
    main()
