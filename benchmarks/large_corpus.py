"""A corpus of Gigaword's size: what a training holds in memory, and how soon it starts the second time.

    python benchmarks/large_corpus.py [--pairs 4000000] [--folder DIR] [--from FILE] [--corpus FILE] [--short]

The pairs, sentences of about 30 words and headlines of about 8, are made by repetition with noise: a sentence of a
Zipf vocabulary (or of the documents of ``--from``, JSON lines), in which some words are others, numbers or names that
stand once; ``--corpus`` takes those of a file as they are. A training of a few updates is started twice, then made
again with an interruption in the middle, whose weights must be the same. Printed for each start: seconds by the clock
and of the processors to the end of the first update, and the most memory that its processes had together, in megabytes:
all of it (proportional set size), and what is not pages of files, which the system takes back as it needs them. At last
a model of size ``study`` trains on the same encoded corpus: the share of its time in which it waits for batches.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import accumulate
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
SMALL = ("model.hidden_size=16", "model.embedding_size=16", "training.batch_size=64", "data.min_supported=0")
SEEDS = 50_000  # sentences that are repeated
WAITING = """
import sys, time
from catchline.cli.main import main
from catchline.training.data import BatchStream

taken, take = [], BatchStream.take

def timed(stream, *place):
    start = time.perf_counter()
    batches = take(stream, *place)
    taken.append((start, time.perf_counter()))
    return batches

BatchStream.take = timed
try:
    main()
finally:
    counted = taken[len(taken) // 3:]
    waited = sum(end - start for start, end in counted[:-1])
    print(f"{1e3 * waited / (len(counted) - 1):.1f} ms a batch, {waited / (counted[-1][0] - counted[0][0]):.2%}")
"""


def sentences(source: Path | None, chosen: random.Random) -> list[list[str]]:
    """What the noise is laid on."""
    if source is not None:
        with source.open(encoding="utf-8") as file:
            texts = [json.loads(line)["document"].split() for _, line in zip(range(SEEDS), file, strict=False)]
        return [text[:30] for text in texts if len(text) > 12]
    words = ["".join(chosen.choices("abcdefghijklmnop", k=chosen.randint(2, 11))) for _ in range(60_000)]
    weights = list(accumulate(1 / (rank + 3) for rank in range(len(words))))
    return [chosen.choices(words, cum_weights=weights, k=chosen.randint(20, 40)) for _ in range(SEEDS)]


def make_corpus(path: Path, pairs: int, source: Path | None) -> None:
    """JSON lines; one pair in two is a repetition with three other words, one in fifty has a word of its own."""
    chosen = random.Random(0)
    bases = sentences(source, chosen)
    with path.open("w", encoding="utf-8") as file:
        for number in range(pairs):
            text = bases[number % len(bases)][:]
            if number % 2:
                other = bases[chosen.randrange(len(bases))]
                for place in range(1, 12, 4):
                    text[place] = other[place]
            if number % 50 == 0:
                text[5] = f"Name{number}"
            summary = " ".join(text[1:24:3])
            file.write(json.dumps({"id": f"p{number}", "document": " ".join(text), "summary": summary}) + "\n")


def memory(process: int) -> tuple[int, int]:
    """Kilobytes of a process and its children, in all and without pages of files."""
    whole = private = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(os.getpgid(int(folder.name))) != process:
                continue
            for line in (folder / "smaps_rollup").read_text().splitlines():
                name, _, rest = line.partition(":")
                whole += int(rest.split()[0]) * (name == "Pss")
                private += int(rest.split()[0]) * (name == "Pss_Anon")
        except (OSError, ValueError):
            continue
    return whole, private


def run(arguments: list[str], log: Path, cache: Path) -> dict[str, float]:
    """Start ``catchline ARGUMENTS``, watch it, and tell what it took up to its first update."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "CATCHLINE_CACHE": str(cache)}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "catchline.cli.main", *arguments]
    found = dict.fromkeys(("first update", "memory", "private"), 0.0)
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)
        while process.poll() is None:
            whole, private = memory(process.pid)
            found["memory"] = max(found["memory"], whole / 1024)
            found["private"] = max(found["private"], private / 1024)
            if not found["first update"] and log.is_file() and log.stat().st_size:
                found["first update"] = time.perf_counter() - start
            time.sleep(0.2)
        if process.returncode:
            said.seek(0)
            sys.exit(said.read().decode()[-2000:])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return found | {"cpu": cpu, "wall": time.perf_counter() - start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4_000_000)
    parser.add_argument(
        "--folder", type=Path, help="a place for the corpus and the cache; a temporary one if not given"
    )
    parser.add_argument("--from", dest="source", type=Path)
    parser.add_argument("--corpus", type=Path, help="JSON lines to train on, in place of made ones")
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--short", action="store_true", help="20,000 pairs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        folder = Path(place)
        corpus, cache = folder / "train.jsonl", folder / "cache"
        pairs = 20_000 if given.short else given.pairs
        if given.corpus:
            corpus = given.corpus.resolve()
            with corpus.open("rb") as file:
                pairs = sum(1 for _ in file)
        else:
            make_corpus(corpus, pairs, given.source)
        print(f"{pairs:,} pairs, {corpus.stat().st_size / 1e6:,.0f} MB", flush=True)
        train = ["train", "headline_writer", "--set", f"data.train={corpus}", "--set", "training.log_every=1"]
        train += [part for change in SMALL for part in ("--set", change)]
        weights = {}
        for name, updates in {
            "first start": given.updates,
            "second start": given.updates,
            "cut": given.updates // 2,
        }.items():
            out = folder / name.split()[0]
            spent = run(
                [*train, "--set", f"training.max_updates={updates}", "--out", str(out)], out / "log.jsonl", cache
            )
            report(name, spent)
        out = folder / "cut"
        report(
            "resumed",
            run(["resume", str(out), "--set", f"training.max_updates={given.updates}"], out / "log.jsonl", cache),
        )
        for name in ("first", "second", "cut"):
            weights[name] = hashlib.sha256((folder / name / "model/model.safetensors").read_bytes()).hexdigest()
        study = ["--size", "study", "--set", f"training.max_updates={3 if given.short else 45}", "--out"]
        command = [sys.executable, "-c", WAITING, *train[: -len(SMALL) * 2], *study, str(folder / "study")]
        environment = os.environ | {"PYTHONPATH": str(SOURCE), "CATCHLINE_CACHE": str(cache)}
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        print(f"waiting for batches, size study: {said.splitlines()[-1]} of the time")
        kept = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
        same = "equal" if len(set(weights.values())) == 1 else "DIFFERENT"
        print(f"cache {kept / 1e6:,.0f} MB; weights after {given.updates} updates {same}")
        shutil.rmtree(cache)


def report(name: str, spent: dict[str, float]) -> None:
    print(
        f"{name:<13} first update {spent['first update']:6.1f} s   all {spent['wall']:6.1f} s "
        f"({spent['cpu']:.1f} s CPU)   memory {spent['memory']:,.0f} MB, {spent['private']:,.0f} without files",
        flush=True,
    )


if __name__ == "__main__":
    main()
