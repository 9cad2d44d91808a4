"""A step of exported models in 32 bits and in eight, in turns in one process.

One document, four beams, in ``laconic.runtime``: the model in the box, and the pointer-generator with coverage of size
``cnndm`` (See et al. 2017; random weights) with a vocabulary of 50,000, a source of 400 tokens of which 20 are outside
of it. A step is what search asks of a model, with the outputs that it reads; the search itself is not in it.

    python benchmarks/eight_bits.py [--steps 40] [--repeats 15] [--threads 1]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laconic.config.loading import load_recipe, resolve_run
from laconic.config.names import MODELS, build
from laconic.export.folder import export_apart
from laconic.models.folder import save_model_folder
from laconic.runtime.folder import open_export
from laconic.search.state import select
from laconic.text.tokenizer import WordTokenizer
from laconic.types import Batch
from paired import best_of

VOCAB, SOURCE, OUTSIDE, BEAMS = 50_000, 400, 20, 4


def pointer_generator(folder: Path) -> Path:
    """Untrained, with a vocabulary of made-up words."""
    words = WordTokenizer(WordTokenizer.Config(min_frequency=1, max_vocabulary=VOCAB))
    words.train([" ".join(f"w{number}" for number in range(VOCAB))])
    run = resolve_run(load_recipe("headline_writer"), "pointer-generator-coverage", "cnndm")
    torch.manual_seed(0)
    ids = {name: getattr(words, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
    model = build("model", MODELS, run.model, vocab_size=words.vocab_size, **ids).eval()
    model.switch({"coverage": True})
    return save_model_folder(folder, model=model, tokenizer=words, run=run)


def steps(folder: Path, source: int, count: int, threads: int) -> Callable[[], None]:
    """``count`` steps over one made-up document."""
    model: Any = open_export(folder, threads).model
    draw = np.random.default_rng(1)
    extended = draw.integers(4, model.vocab_size, (1, source))
    extended[0, draw.permutation(source)[:OUTSIDE]] = model.vocab_size + np.arange(OUTSIDE)
    known = np.where(extended >= model.vocab_size, 1, extended)
    memory = model.encode(Batch(known, extended, np.ones_like(known, dtype=bool), model.vocab_size + OUTSIDE))
    first = select(model.start(memory), np.zeros(BEAMS, np.int64))
    ids = draw.integers(4, model.vocab_size, (count, BEAMS))

    def run() -> None:
        state = first
        for each in ids:
            state = model.step(each, state)[1]

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="Few steps, once.")
    arguments = parser.parse_args()
    count, repeats = (3, 1) if arguments.short else (arguments.steps, arguments.repeats)
    print("a step of 4 beams, best of turns     wall ms  CPU ms  weights MB")
    with tempfile.TemporaryDirectory() as home:
        sources: list[tuple[str, str | Path, int]] = [
            ("the model in the box, source 128", "oneline", 128),
            ("pointer-generator, V 50,000, source 400", pointer_generator(Path(home, "large")), SOURCE),
        ]
        for title, source, length in sources:
            ways: dict[str, Callable[[], None]] = {}
            sizes: dict[str, float] = {}
            for name, int8 in (("32 bits", False), ("8 bits", True)):
                folder = Path(home, f"{Path(source).name}-{int(int8)}")
                export_apart(source, folder, int8=int8)
                ways[name] = steps(folder, length, count, arguments.threads)
                sizes[name] = (folder / "model.safetensors").stat().st_size / 1e6
            found = best_of(ways, repeats, "cpu")
            print(title)
            for name, spent in found.items():
                wall, processor = (1000 * each / count for each in spent)
                print(f"    {name:32} {wall:7.2f} {processor:7.2f} {sizes[name]:11.1f}")
            print(f"    {'ratio of CPU time':32} {found['32 bits'][1] / found['8 bits'][1]:7.2f}")


if __name__ == "__main__":
    main()
