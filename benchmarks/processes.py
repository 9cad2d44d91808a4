"""How well a training divides over processes: one against two (gloo), one thread and one core each.

    python benchmarks/processes.py [--processes 2] [--passes 1] [--rounds 2]

The same recipe (``oneline``, size ``box``, float32) on the same made-up pairs, once in one process and once under
``torchrun``, in turns. A process takes `batch_size` pairs an update, so N processes take N times as many; efficiency is
pairs a second of N processes over N times those of one. What an update takes goes with the lengths of its batch, so
whole passes over the data are counted, in which both read the same. Needs that many idle cores.
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
    parser.add_argument("--passes", type=int, default=1, help="over the data, after the first, which is not counted")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    taken: dict[int, list[float]] = {1: [], options.processes: []}
    with tempfile.TemporaryDirectory() as folder:
        make_corpus(Path(folder), 64 * WARM * options.processes)
        for turn in range(options.rounds):
            for processes, turns in taken.items():
                out = Path(folder, f"{turn}-{processes}")
                warm = WARM * options.processes // processes  # the updates of a pass
                took = train(Path(folder), out, (1 + options.passes) * warm, command=started(processes), warm=warm)
                turns.append(took["seconds an update"])
                print(f"{processes} process{'es' * (processes > 1)}: {turns[-1]:.2f} seconds an update", flush=True)
    one, several = map(statistics.median, taken.values())
    print(f"\nEfficiency of {options.processes} processes: {one / several:.2f}")


if __name__ == "__main__":
    main()
