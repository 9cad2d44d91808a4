"""What several processes of one training are worth, beside one with one thread, with threads that sleep and that spin.

    python benchmarks/processes.py [--recipes headline_writer coconet] [--size study] [--busy 0] [--rounds 2]

The same updates of a recipe on the same made-up pairs: `divided`, as `catchline train` does it by itself, each batch is
divided between `--processes` copies of the training; `launched`, under ``torchrun``, each process has batches of its
own, so an update is of that many batches. `--busy` processes do something else meanwhile. In turns; the least of the
rounds, by the clock and of the processors, and the most memory of all processes, of which shared pages count once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from allocator import WARM, make_corpus, train


def ways(processes: int) -> dict[str, dict[str, Any]]:
    """Arguments of `train` by the name of the way."""
    one = {"training.processes": 1}
    run = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(processes),
        "-m",
        "catchline.cli.main",
    ]
    alone = {"OMP_NUM_THREADS": "1"}
    return {
        "one thread": {"settings": one, "environment": alone},
        "threads that sleep": {"settings": one},
        "threads that spin": {"settings": one, "environment": {"OMP_WAIT_POLICY": "active"}},
        "divided": {"settings": {"training.processes": processes}},
        "launched": {"settings": one, "environment": alone, "command": [sys.executable, *run]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="+", default=["headline_writer"])
    parser.add_argument("--size", default="study")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--updates", type=int, default=3 * WARM, help=f"a multiple of {WARM}, at least {2 * WARM}")
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--ways", nargs="+", default=list(ways(1)))
    options = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            make_corpus(Path(folder), 1_200)
            for recipe in options.recipes:
                measure(recipe, options, Path(folder))
    finally:
        for process in busy:
            process.kill()


def measure(recipe: str, options: argparse.Namespace, folder: Path) -> None:
    chosen = {name: how for name, how in ways(options.processes).items() if name in options.ways}
    best: dict[str, dict[str, float]] = {}
    for turn in range(options.rounds):
        for name, how in chosen.items():
            out = folder / f"{recipe}-{turn}-{name.replace(' ', '-')}"
            start = ["--from", "scratch"] if recipe == "oneline" else []
            took = train(folder, out, options.updates, recipe=[recipe, "--size", options.size, *start], **how)
            before = best.get(name, took)
            best[name] = {figure: (max if figure == "MB" else min)(took[figure], before[figure]) for figure in took}
    first = next(iter(best.values()))["seconds an update"]
    print(f"{recipe}, size {options.size}, {os.cpu_count()} cores, {options.busy} busy processes beside")
    for name, figures in best.items():
        seconds, cpu, memory = figures["seconds an update"], figures["CPU seconds"], figures["MB"]
        times = seconds / (options.processes if name == "launched" else 1) / first
        print(
            f"  {name:20}{seconds:7.3f} s an update ({times:.2f} a batch){cpu:8.1f} CPU s{memory:8.0f} MB", flush=True
        )


if __name__ == "__main__":
    main()
