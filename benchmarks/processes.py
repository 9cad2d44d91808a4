"""How well a training divides over processes: one against two (gloo), one thread and one core each.

    python benchmarks/processes.py [--processes 2] [--updates 60] [--rounds 2]

The same recipe (``oneline``, size ``box``, float32) on the same made-up pairs, once in one process and once under
``torchrun``, in turns. A process takes `batch_size` pairs an update, so N processes take N times as many; efficiency is
target tokens a second of N processes over N times those of one. Needs that many idle cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from allocator import WARM, make_corpus, train


def started(processes: int) -> list[str]:
    """The command in front of `laconic`'s arguments, and its cores."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:processes]))
    pinned = ["taskset", "-c", cores, sys.executable, "-m"]
    several = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
    return pinned + (several if processes > 1 else []) + ["laconic.cli.main"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--updates", type=int, default=60, help="a multiple of 20, at least 40")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    taken: dict[int, list[float]] = {1: [], options.processes: []}
    with tempfile.TemporaryDirectory() as folder:
        make_corpus(Path(folder), 64 * options.updates * options.processes)
        for turn in range(options.rounds):
            for processes, turns in taken.items():
                out = Path(folder, f"{turn}-{processes}")
                turns.append(train(Path(folder), out, options.updates, command=started(processes))["seconds an update"])
                print(f"{processes} process{'es' * (processes > 1)}: {turns[-1]:.2f} seconds an update", flush=True)
    one, several = map(statistics.median, taken.values())
    print(f"\nEfficiency of {options.processes} processes: {one / several:.2f} (the first {WARM} updates not counted)")


if __name__ == "__main__":
    main()
