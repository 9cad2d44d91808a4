"""What distraction (M3) costs in beam search: plain beam 5 against beam 5 with the three terms.

The model is the distraction network at the paper's CNN size with random weights (m = 120, n = 600, bi-GRU, l = 100,
K = 25,000): sources of 800 tokens, 100 steps (minimum = maximum), beam 5. Both ways decode the same batch in one
process, in turn, and the ratio is that of the least times. ``--short`` is a quick check that everything runs.

    python benchmarks/distraction_decoding.py [--threads 1 2] [--batch-sizes 1 8] [--rounds 3] [--short]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import torch

from catchline.config.names import MODELS, build
from paired import IDS, best_of, exactly, made_batch, place, report, search

TERMS = {"attention": 1.0, "context": -0.5, "state": -0.5}


@dataclass(frozen=True)
class Size:
    """Of the model and of the documents."""

    embedding: int = 120
    hidden: int = 600
    attention: int = 100
    vocabulary: int = 25_000
    source: int = 800
    steps: int = 100


SMALL = Size(embedding=24, hidden=64, attention=32, vocabulary=2_000, source=80, steps=20)


def make_model(size: Size, *, m1_m2: bool) -> Any:
    """The two-level network, with M1 and M2 or without."""
    torch.manual_seed(0)
    spec = {
        "type": "distraction",
        "embedding_size": size.embedding,
        "hidden_size": size.hidden,
        "attention": {"type": "distraction", "size": size.attention, "content": m1_m2, "history": m1_m2},
    }
    model = build("model", MODELS, spec, vocab_size=size.vocabulary, **IDS).eval()
    with torch.no_grad():  # as it is drawn, a network hardly tells one position or word from another
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    size = SMALL if options.short else Size()
    plain = exactly(size.steps, 5, length_normalisation="predicted")
    with_m3 = exactly(size.steps, 5, length_normalisation="predicted", distraction=TERMS)
    for m1_m2 in (False, True):
        model = make_model(size, m1_m2=m1_m2)
        for threads in options.threads:
            for documents in options.batch_sizes:
                batch = made_batch(size.vocabulary, documents, size.source, 1)
                ways = {name: search(model, batch, one) for name, one in (("plain", plain), ("with M3", with_m3))}
                title = f"{'M1 + M2' if m1_m2 else 'without M1, M2'}, {place(threads)}, {documents} documents at once"
                report(title, best_of(ways, options.rounds), "plain")


if __name__ == "__main__":
    main()
