"""A corpus of Gigaword's size: what a training holds in memory, and how soon it starts the second time.

    python benchmarks/large_corpus.py [--pairs 4000000] [--folder DIR] [--corpus FILE] [--short]

The pairs are sentences of 20 to 40 words of a Zipf vocabulary; ``--corpus`` takes those of a file as they are. A
training of a few updates is started twice, then made again with an interruption in the middle, whose weights must be
the same. Printed for each start: seconds by the clock and of the processors to the end of the first update, and the
most memory that its processes had together, in megabytes: all of it (proportional set size), and what is not pages of
files, which the system takes back as it needs them.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from paired import SOURCE, write_pairs

SMALL = ("model.hidden_size=16", "model.embedding_size=16", "training.batch_size=64", "data.min_supported=0")


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


def watch(name: str, arguments: list[str], out: Path, cache: Path) -> None:
    """Start ``catchline ARGUMENTS``, watch it, and print what it took up to its first update."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "CATCHLINE_CACHE": str(cache)}
    before, start, log = os.times(), time.perf_counter(), out / "log.jsonl"
    command = [sys.executable, "-m", "catchline.cli.main", *arguments]
    first, most, most_private = 0.0, 0, 0
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)
        while process.poll() is None:
            whole, private = memory(process.pid)
            most, most_private = max(most, whole), max(most_private, private)
            if not first and log.is_file() and log.stat().st_size:
                first = time.perf_counter() - start
            time.sleep(0.2)
        if process.returncode:
            said.seek(0)
            sys.exit(said.read().decode()[-2000:])
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    print(
        f"{name:<13} first update {first:6.1f} s   all {time.perf_counter() - start:6.1f} s ({cpu:.1f} s CPU)   "
        f"memory {most / 1024:,.0f} MB, {most_private / 1024:,.0f} without files",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4_000_000)
    parser.add_argument("--folder", type=Path, help="where corpus and cache go; a temporary one if not given")
    parser.add_argument("--corpus", type=Path, help="JSON lines to train on")
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--short", action="store_true", help="20,000 pairs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as home:
        folder = Path(home)
        corpus, cache = given.corpus or folder / "train.jsonl", folder / "cache"
        if given.corpus is None:
            write_pairs(corpus, 20_000 if given.short else given.pairs, 20, 40)
        print(f"{corpus.stat().st_size / 1e6:,.0f} MB", flush=True)
        train = ["train", "headline_writer", "--set", f"data.train={corpus.resolve()}", "--set", "training.log_every=1"]
        train += [part for change in SMALL for part in ("--set", change)]
        starts = {"first": given.updates, "second": given.updates, "cut": given.updates // 2}
        for name, updates in starts.items():
            out = folder / name
            watch(name, [*train, "--set", f"training.max_updates={updates}", "--out", str(out)], out, cache)
        resume = ["resume", str(folder / "cut"), "--set", f"training.max_updates={given.updates}"]
        watch("resumed", resume, folder / "cut", cache)
        weights = [(folder / name / "model/model.safetensors").read_bytes() for name in starts]
        same = "equal" if len({hashlib.sha256(each).digest() for each in weights}) == 1 else "DIFFERENT"
        kept = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
        print(f"cache {kept / 1e6:,.0f} MB; weights after {given.updates} updates {same}")


if __name__ == "__main__":
    main()
