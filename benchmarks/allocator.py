"""What another memory allocator is worth in training on a CPU, by the same training with it and without, in turns.

    python benchmarks/allocator.py [--preload /usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4] [--updates 60]

glibc gives the large arrays of a step back to the system and asks for them again in the next, and the system clears
every page of them. tcmalloc (Debian and Ubuntu: libtcmalloc-minimal4) keeps them. Recipe ``oneline``, size ``box``, on
made-up pairs of 40 to 260 words, one thread. Printed for each turn: seconds an update by the clock, after the first
twenty; seconds of the processor for the whole training, of which for the system; and the most memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import psutil

CATCHLINE = "catchline.cli.main"
WARM = 20  # updates that are not counted; the log has every twentieth


def make_corpus(folder: Path, pairs: int) -> None:
    """Documents of a Zipf vocabulary and lines of their words, `pairs` to train on and a few to validate on."""
    chosen = random.Random(0)
    words = ["".join(chosen.choices("abcdefghijklmnop", k=chosen.randint(2, 9))) for _ in range(20_000)]
    weights = list(accumulate(1 / (rank + 3) for rank in range(len(words))))
    for name, count in (("train", pairs), ("validation", 64)):
        with (folder / f"{name}.jsonl").open("w") as file:
            for _ in range(count):
                document = chosen.choices(words, cum_weights=weights, k=chosen.randint(40, 260))
                file.write(json.dumps({"document": " ".join(document), "summary": " ".join(document[:10])}) + "\n")


def train(
    data: Path,
    out: Path,
    updates: int,
    *,
    recipe: Sequence[str] = ("oneline", "--size", "box", "--from", "scratch"),
    settings: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] = (sys.executable, "-m", CATCHLINE),
    warm: int = WARM,
) -> dict[str, float]:
    """One training in processes of its own; what it took, the first `warm` updates not counted."""
    given = {"training.max_updates": updates, "training.log_every": WARM, "training.precision": "fp32"}
    given |= {"training.validation.every_updates": updates, "data.min_supported": 0, **(settings or {})}
    command = [*command, "train", *recipe, "--data", str(data), "--out", str(out)]
    command += [part for key, value in given.items() for part in ("--set", f"{key}={value}")]
    process = subprocess.Popen(
        command, env=os.environ | (environment or {}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    ended, waited, most = 0, 0, 0.0
    while not ended:
        time.sleep(0.1)
        waited += 1
        if waited % 30 == 0:  # to look is work for a core
            most = max(most, memory(process.pid))
        ended, status, used = os.wait4(process.pid, os.WNOHANG)
    if status:
        raise SystemExit(f"{' '.join(command)} failed.")
    log = [json.loads(line) for line in (out / "timing.jsonl").read_text().splitlines()]
    seconds = {line["update"]: line["elapsed_seconds"] for line in log}
    return {
        "seconds an update": (seconds[updates] - seconds[warm]) / (updates - warm),
        "CPU seconds": used.ru_utime + used.ru_stime,
        "of the system": used.ru_stime,
        "MB": most,
    }


def memory(number: int) -> float:
    """MB that a process and those it started have, each page they share counted once."""
    with suppress(psutil.Error):
        first = psutil.Process(number)
        return sum(each.memory_full_info().pss for each in (first, *first.children(recursive=True))) / 2**20
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found = next(map(str, Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4")), None)
    parser.add_argument("--preload", default=found, help="the allocator's library; tcmalloc's, where it is installed")
    parser.add_argument("--updates", type=int, default=60, help="a multiple of 20, at least 40")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    if options.preload is None:
        raise SystemExit("There is no libtcmalloc_minimal.so.4 below /usr/lib; name an allocator with --preload.")
    taken: dict[str, list[dict[str, float]]] = {"": [], options.preload: []}
    settings = {"training.batch_size": 64}
    with tempfile.TemporaryDirectory() as folder:
        make_corpus(Path(folder), 64 * options.updates)
        for turn in range(options.rounds):
            for preload, turns in taken.items():
                alone = {"OMP_NUM_THREADS": "1"} | ({"LD_PRELOAD": preload} if preload else {})
                out = Path(folder, f"{turn}-{bool(preload)}")
                turns.append(train(Path(folder), out, options.updates, settings=settings, environment=alone))
                figures = ", ".join(f"{value:.2f} {name}" for name, value in turns[-1].items())
                print(f"{Path(preload).name or 'glibc':<28} {figures}", flush=True)
    plain, other = (statistics.median(turn["seconds an update"] for turn in turns) for turns in taken.values())
    print(f"\nAn update takes {other / plain:.2f} of its time with glibc.")


if __name__ == "__main__":
    main()
