"""What happens to a corpus before and around training: seconds, and the ratio to an older checkout.

    python benchmarks/data_path.py [--pairs 100000] [--processes 2] [--before SRC] [--corpus FILE] [--short]

Prints for each command its wall time and its CPU time with that of its processes: a training to the end of its first
update, with nothing kept and again with the encoded corpus there; `data check` and `data stats`; `evaluate lead-1`;
ROUGE of as many pairs. The floor is reading the JSON lines. ``--before`` is the folder ``src`` of an older checkout,
which runs in turns with this one; what both make (weights, vocabulary, reports) is compared byte by byte. The pairs,
about a kilobyte each, are made of words of a Zipf vocabulary with numbers and names that stand once or twice;
``--corpus`` takes a file of yours.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
MODEL = ("model.hidden_size=16", "model.embedding_size=16", "training.max_updates=1", "training.batch_size=8")


def make_corpus(path: Path, pairs: int) -> None:
    """JSON lines of about 170 words and a summary of 15."""
    made = random.Random(0)
    words = ["".join(made.choices("abcdefghijklmnop", k=made.randint(2, 11))) for _ in range(60_000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    with path.open("w", encoding="utf-8") as file:
        for number in range(pairs):
            text = made.choices(words, weights, k=170)
            for place in range(0, 170, 17):
                text[place] = made.choice([f"{made.randrange(9999)},", f"Name{made.randrange(99_999)}", "the", "it's"])
                text[place - 1] += "."
            record = {"id": str(number), "document": " ".join(text), "summary": " ".join(text[3:150:10])}
            file.write(json.dumps(record) + "\n")


def run(source: Path, arguments: list[str], processes: int, cache: Path) -> tuple[float, float, str]:
    """Wall and CPU seconds of ``python ARGUMENTS``, and what it printed."""
    environment = {"PYTHONPATH": str(source), "OMP_NUM_THREADS": str(processes), "CATCHLINE_CACHE": str(cache)}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def made_of(run_folder: Path) -> str:
    """A digest of what a training left: weights, vocabulary, table of capitals."""
    files = ("model/model.safetensors", "tokenizer/tokenizer.json", "tokenizer/casing.json")
    return hashlib.sha256(b"".join((run_folder / file).read_bytes() for file in files)).hexdigest()


ROUGE = """
import json, sys, time
from catchline import rouge
pairs = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
leads = [pair["document"].split(".")[0] for pair in pairs]
start = time.perf_counter()
rouge(leads, [pair["summary"] for pair in pairs], processes=int(sys.argv[2]))
print(len(pairs) / (time.perf_counter() - start))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--short", action="store_true", help="3,000 pairs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        corpus = given.corpus or folder / "train.jsonl"
        if given.corpus is None:
            make_corpus(corpus, 3000 if given.short else given.pairs)
        start = time.perf_counter()
        count = sum(len(json.loads(line)) > 1 for line in corpus.open(encoding="utf-8"))
        seconds, size = time.perf_counter() - start, corpus.stat().st_size / 1e6
        print(f"{count:,} pairs, {size:.1f} MB; JSON lines read in {seconds:.1f} s")
        sources = {"before": given.before, "now": SOURCE} if given.before else {"now": SOURCE}
        catchline = ["-m", "catchline.cli.main"]
        train = [*catchline, "train", "headline_writer", "--set", f"data.train={corpus}", "--force"]
        train += [part for change in MODEL for part in ("--set", change)]
        spread = ["--processes", str(given.processes)]
        rows = {
            "train, first start": [*train, "--out", str(folder / "run")],
            "train, second start": [*train, "--out", str(folder / "again")],
            "data check": [*catchline, "data", "check", str(corpus), "--json"],
            "data stats": [*catchline, "data", "stats", str(corpus), "--json"],
            "evaluate lead-1": [*catchline, "evaluate", "lead-1", "--data", str(corpus), "--json"],
            "rouge": ["-c", ROUGE, str(corpus), str(given.processes)],
        }
        for name, arguments in rows.items():
            spent = {}
            for label, source in sources.items():
                more = spread if name.startswith("evaluate") and label == "now" else []
                spent[label] = run(source, arguments + more, given.processes, folder / f"cache-{label}")
                if "--out" in arguments:
                    spent[label] = (*spent[label][:2], made_of(Path(arguments[-1])))
            ratio = ""
            if given.before:
                same = "equal" if len({made for _, _, made in spent.values()}) == 1 else "DIFFERENT"
                cpu = spent["before"][1] / spent["now"][1]
                ratio = f"  {spent['before'][0] / spent['now'][0]:.1f}x ({cpu:.1f}x CPU)"
                ratio += f", results {same}" if name.startswith(("train", "data")) else ""
            shown = "   ".join(f"{label} {wall:7.1f} s ({cpu:.1f} s CPU)" for label, (wall, cpu, _) in spent.items())
            if name == "rouge":
                ratio += f"  pairs a second: {', '.join(f'{float(printed):,.0f}' for _, _, printed in spent.values())}"
            print(f"{name:<22}{shown}{ratio}", flush=True)


if __name__ == "__main__":
    main()
