"""How long commands take from the shell to their end, and how much memory they and a service hold.

    python benchmarks/startup.py [--short] [--model MODEL]

Each command runs in its own process. Printed are the median by the clock, the best, and the least seconds of the
processor, which is the one to trust on a machine with other work; then the most memory the process had. The service is
asked for forty summaries with their explanation before its memory is read. Exits with 1 above the limits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEXT = (
    "The river rose two metres in a single night after days of heavy rain, and the people of three villages had to "
    "leave their houses. Nobody was hurt, said the mayor. Helpers filled sandbags until the morning.\n"
)
LIMITS = {"catchline --help": 0.5, "import catchline": 0.2, "catchline summarize": 0.8}  # seconds
MOST_RESIDENT = 150.0  # MB of a served small model
COMMAND = [sys.executable, "-m", "catchline.cli.main"]


def measured(arguments: list[str], runs: int) -> tuple[float, float, float, float]:
    """Median and best by the clock, least of the processor, most memory in MB; after one run that warms the files."""
    clock, processor, most = [], [], 0.0
    for _ in range(runs + 1):
        start = time.perf_counter()
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        clock.append(time.perf_counter() - start)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{' '.join(arguments)} ended with {process.returncode}")
        processor.append(used.ru_utime + used.ru_stime)
        most = max(most, used.ru_maxrss / 1024)
    return statistics.median(clock[1:]), min(clock[1:]), min(processor[1:]), most


@contextmanager
def service(model: str) -> Iterator[tuple[int, str]]:
    """A service of ``model``: its process id and its address."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", model], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        line = next((line for line in process.stderr if " at http" in line), None)
        if line is None:
            sys.exit(f"catchline serve {model} did not start")
        yield process.pid, line.split(" at ")[1].strip()
    finally:
        process.terminate()
        process.wait(30)


def resident(pid: int) -> dict[str, float]:
    """MB that a process holds, that of it which is its own, and the most it has held (Linux)."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon", "VmHWM")}


def served(model: str, requests: int) -> dict[str, float]:
    """The memory of a service that has answered this many requests."""
    with service(model) as (pid, address):
        for number in range(requests):
            body = json.dumps({"document": TEXT * (1 + number % 4), "explain": True}).encode()
            request = urllib.request.Request(f"{address}v1/summarize", body, {"Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=60).read()
        return resident(pid)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="5 runs instead of 20")
    parser.add_argument("--model", default="oneline", help="what summarizes and is served")
    options = parser.parse_args()
    runs, above = 5 if options.short else 20, 0
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text(TEXT, encoding="utf-8")
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "import catchline": [sys.executable, "-c", "import catchline"],
            "catchline --help": [*COMMAND, "--help"],
            "catchline summarize": [*COMMAND, "summarize", options.model, str(text)],
            "catchline summarize lexrank": [*COMMAND, "summarize", "lexrank", str(text)],
        }
        print(f"{'':27}{'median s':>9}{'best s':>9}{'CPU s':>9}{'most MB':>9}")
        for name, arguments in commands.items():
            median, best, processor, most = measured(arguments, runs)
            limit = LIMITS.get(name)
            above += limit is not None and median > limit
            verdict = "" if limit is None else f"  {'within' if median <= limit else 'ABOVE'} {limit} s"
            print(f"{name:27}{median:9.3f}{best:9.3f}{processor:9.3f}{most:9.0f}{verdict}", flush=True)
    held = served(options.model, 40)
    above += held["VmRSS"] > MOST_RESIDENT
    print(
        f"catchline serve {options.model}: resident {held['VmRSS']:.0f} MB, of which its own {held['RssAnon']:.0f}, "
        f"at most {held['VmHWM']:.0f}; {'within' if held['VmRSS'] <= MOST_RESIDENT else 'ABOVE'} {MOST_RESIDENT:.0f} MB"
    )
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
