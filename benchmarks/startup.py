"""How long `laconic --help` and `import laconic` take, against an interpreter that does nothing.

    python benchmarks/startup.py [--short]

Prints the median, and the ratio to `python -c pass` on the same machine. Exits with 1 above the limits
(0.5 s for help, 0.2 s for the import).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

CLAIMS = {
    "laconic --help": (["-m", "laconic.cli.main", "--help"], 0.5),
    "import laconic": (["-c", "import laconic"], 0.2),
}


def median_seconds(arguments: list[str], runs: int) -> float:
    """The median wall time of ``python ARGUMENTS`` after one run that warms the file cache."""
    seconds = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="5 runs in place of 30")
    runs = 5 if parser.parse_args().short else 30
    idle = median_seconds(["-c", "pass"], runs)
    print(f"{'python -c pass':<16} {idle:.3f} s")
    too_slow = 0
    for name, (arguments, limit) in CLAIMS.items():
        seconds = median_seconds(arguments, runs)
        verdict = "within" if seconds <= limit else "ABOVE"
        too_slow += seconds > limit
        print(f"{name:<16} {seconds:.3f} s  {seconds / idle:.1f}x of an idle interpreter, {verdict} {limit} s")
    return 1 if too_slow else 0


if __name__ == "__main__":
    sys.exit(main())
