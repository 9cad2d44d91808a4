"""``catchline summarize`` on a quiet machine and beside other work, with OpenMP's threads waiting passively or
spinning.

A pointer-generator with random weights summarizes made-up documents in a process of its own, with torch's default
threads, once with ``OMP_WAIT_POLICY=passive`` (what the command sets unless it is set) and once with ``active``; first
alone, then beside as many busy processes as there are cores. They take turns; the best of each is printed.

    python benchmarks/contention.py [--documents 200] [--repeats 3] [--short]
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
from pathlib import Path

import torch

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, build
from catchline.models.folder import save_model_folder
from catchline.text.tokenizer import WordTokenizer

WORDS = [f"word{number}" for number in range(3000)]
CATCHLINE = "import sys; from catchline.cli.main import main; sys.exit(main())"
BUSY = [sys.executable, "-c", "while True: pass"]


def make(folder: Path, documents: int) -> tuple[Path, Path]:
    """A model folder and a file of documents of 50 words."""
    draw = random.Random(1)
    texts = [" ".join(draw.choices(WORDS, k=50)) for _ in range(documents)]
    data = folder / "documents.jsonl"
    data.write_text("".join(json.dumps({"id": str(n), "document": text}) + "\n" for n, text in enumerate(texts)))
    run = resolve_run(load_recipe("headline_writer"), "pointer-generator-coverage", "small")
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train([" ".join(WORDS)])
    torch.manual_seed(0)
    model = build("model", MODELS, run.model, vocab_size=tokenizer.vocab_size, pad_id=0, unk_id=1, bos_id=2, eos_id=3)
    return save_model_folder(folder / "model", model=model, tokenizer=tokenizer, run=run), data


def seconds(model: Path, data: Path, policy: str) -> float:
    out = data.with_suffix(".out")
    out.unlink(missing_ok=True)
    command = [sys.executable, "-c", CATCHLINE, "summarize", str(model), str(data), "--output", str(out)]
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"} | {"OMP_WAIT_POLICY": policy}
    began = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="few documents, once")
    options = parser.parse_args()
    documents, repeats = (8, 1) if options.short else (options.documents, options.repeats)
    with tempfile.TemporaryDirectory() as place:
        model, data = make(Path(place), documents)
        for name, others in (("alone", 0), (f"beside {os.cpu_count()} busy processes", os.cpu_count() or 1)):
            busy = [subprocess.Popen(BUSY) for _ in range(others)]
            try:
                times = {policy: [] for policy in ("passive", "active")}
                for _ in range(repeats):
                    for policy, found in times.items():
                        found.append(seconds(model, data, policy))
            finally:
                for process in busy:
                    process.kill()
            passive, active = min(times["passive"]), min(times["active"])
            found = f"passive {passive:.2f} s, spinning {active:.2f} s, {active / passive:.2f}x"
            print(f"{name}: {documents} documents, {found}", flush=True)


if __name__ == "__main__":
    main()
