"""Beam search over exported graphs against the same search in torch and against the peers, on the same networks.

* ``pointer``: the pointer-generator with coverage of size ``cnndm`` (V 50,000), source 400, beam 4, one document;
* ``transformer``: base size (6 + 6 layers, width 512, V 32,000), source 64, 20 words, beam 5, ``--batch`` documents.

Ours in torch, ours in `catchline.runtime` in 32 and in eight bits, and what `decoding_precision.py`
compares with: transformers' ``generate``, CTranslate2 where it can be imported, the pointer-generator's usual form. All
take turns in one process; the best time of each is printed, by the clock and of the processor, for a step and as a
ratio to the best of torch. ``step alone`` are the graphs without the search.

    python benchmarks/runtime_decoding.py [--threads 1 2] [--works pointer transformer] [--peers FOLDER] [--short]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import beam_decoding
import decoding_precision
from catchline.config.loading import load_recipe, resolve_run
from catchline.export.apart import export_apart
from catchline.jobs import threaded
from catchline.models.folder import save_model_folder
from catchline.runtime.folder import open_export
from catchline.search.decode import decode
from catchline.search.hypotheses import select
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Batch
from paired import BASE, IDS, SMALL, best_of, exactly, made_batch, place
from paired import transformer as transformer_of

Ways = decoding_precision.Ways


def exported(model: Any, kind: str, folder: Path) -> Path:
    """The model's folder, with a vocabulary of made-up words."""
    words = WordTokenizer(WordTokenizer.Config(min_frequency=1, max_vocabulary=model.vocab_size))
    words.train([" ".join(f"w{number}" for number in range(model.vocab_size))])
    run = resolve_run(load_recipe("headline_writer"), "pointer-generator-coverage", "cnndm")
    if kind != run.model["type"]:
        run = run.model_copy(update={"model": {"type": kind, **model.config.model_dump()}})
    return save_model_folder(folder, model=model, tokenizer=words, run=run)


def in_runtime(model: Any, kind: str, batch: Batch, beams: int, words: int, threads: int) -> Ways:
    """The search over the model's graphs, and their steps alone."""
    home = Path(tempfile.mkdtemp())
    source = exported(model, kind, home / "model")
    config = exactly(words, beams)
    parts = (batch.source_ids, batch.source_extended_ids, batch.source_mask)
    arrays = Batch(*(part.numpy() for part in parts), batch.extended_vocab_size)
    shares = min(threads, len(arrays.source_ids))  # as `catchline.summarizer.decoding` has them
    ways: Ways = {}
    for name, int8 in (("32 bits", False), ("8 bits", True)):
        export_apart(source, home / name, int8=int8)
        os.environ["OMP_NUM_THREADS"] = str(threads)
        graphs: Any = open_export(home / name).model

        def share(graphs: Any, number: int, go_on: Callable[[], None]) -> None:
            own = arrays.changed(lambda array: array[number::shares])
            assert all(len(best[0].ids) == words for best in decode(graphs, own, config, **IDS))

        def search(graphs: Any = graphs) -> None:
            list(threaded(partial(share, graphs), range(shares), shares))

        def steps(graphs: Any = graphs) -> None:
            documents = np.arange(len(arrays.source_ids))
            state = select(graphs.start(graphs.encode(arrays)), documents.repeat(beams))
            for _ in range(words + 1):
                state = graphs.step(np.full(len(documents) * beams, 7), state)[1]

        ways |= {f"runtime, {name}": search, f"step alone, {name}": steps}
    return ways


def pointer(threads: int, *, short: bool) -> tuple[Ways, int]:
    words = 10 if short else 60
    model, documents = beam_decoding.make_model(), beam_decoding.make_documents(1)
    ways = in_runtime(model, "seq2seq", documents, beam_decoding.BEAMS, words, threads)
    return decoding_precision.pointer(short=short) | ways, words + 1


def transformer(count: int, threads: int, *, short: bool) -> tuple[Ways, int]:
    sizes = SMALL if short else BASE
    documents = made_batch(sizes["vocabulary"], count, 64, 1)
    ways = in_runtime(transformer_of(sizes), "transformer", documents, 5, 20, threads)
    return decoding_precision.transformer(count, threads, short=short) | ways, 21


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--works", nargs="+", default=["pointer", "transformer"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="few words and small networks, to see that it runs")
    options = parser.parse_args()
    if options.peers:
        sys.path.append(str(options.peers))
    for threads in options.threads:
        where = place(threads)
        works = {
            "pointer": partial(pointer, threads, short=options.short),
            "transformer": partial(transformer, options.batch, threads, short=options.short),
        }
        for work in options.works:
            ways, steps = works[work]()
            best = best_of(ways, options.repeats)
            torchs = [best[way] for way in best if way.startswith("ours") and way != "ours, anew"]
            ours = [min(values) for values in zip(*torchs, strict=True)]
            print(f"{work}, {where}: ms a step, CPU ms a step, CPU times torch's best")
            for way, (clock, processor) in best.items():
                times = [1e3 * clock / steps, 1e3 * processor / steps, processor / ours[1]]
                print(f"  {way:22}{times[0]:9.2f}{times[1]:9.2f}{times[2]:7.2f}", flush=True)


if __name__ == "__main__":
    main()
