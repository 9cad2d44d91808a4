"""What distraction (M3) costs in beam search: plain beam 5 against beam 5 with the three terms.

The model is the distraction network at the paper's CNN size with random weights (m = 120, n = 600, bi-GRU, l = 100,
K = 25,000): sources of 400 to 800 tokens, 100 steps (minimum = maximum), beam 5. Both ways decode the same batches in
one process, in turn, and the ratio is that of the sums of the least times of each batch. ``--short`` is a quick check
that everything runs.

    python benchmarks/distraction_decoding.py [--threads 1 2] [--batch-sizes 1 8] [--rounds 3] [--short]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import torch

from catchline.config.names import MODELS, build
from catchline.config.schema import SearchConfig
from catchline.search.torch_bridge import decode
from catchline.types import Batch

BEAMS = 5
IDS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
TERMS = {"attention": 1.0, "context": -0.5, "state": -0.5}


@dataclass(frozen=True)
class Size:
    """Of the model and of the documents."""

    embedding: int = 120
    hidden: int = 600
    attention: int = 100
    vocab: int = 25_000
    shortest: int = 400
    longest: int = 800
    steps: int = 100


SMALL = Size(embedding=24, hidden=64, attention=32, vocab=2_000, shortest=40, longest=80, steps=20)


def make_model(size: Size, *, m1_m2: bool) -> Any:
    """The two-level network, with M1 and M2 or without."""
    torch.manual_seed(0)
    spec = {
        "type": "distraction",
        "embedding_size": size.embedding,
        "hidden_size": size.hidden,
        "attention": {"type": "distraction", "size": size.attention, "content": m1_m2, "history": m1_m2},
    }
    model = build("model", MODELS, spec, vocab_size=size.vocab, **IDS).eval()
    with torch.no_grad():  # as it is drawn, a network hardly tells one position or word from another
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model


def make_batches(size: Size, batch_size: int, count: int) -> list[Batch]:
    """Documents of random words; those of a batch are of similar length."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.linspace(size.shortest, size.longest, batch_size * count).int().tolist()
    batches = []
    for first in range(0, len(lengths), batch_size):
        mine = lengths[first : first + batch_size]
        ids = torch.randint(4, size.vocab, (len(mine), max(mine)), generator=generator)
        mask = torch.arange(max(mine))[None, :] < torch.tensor(mine)[:, None]
        ids = ids.masked_fill(~mask, IDS["pad_id"])
        batches.append(Batch(ids, ids, mask, size.vocab))
    return batches


@dataclass
class Times:
    """The least time of each way, by the clock on the wall and by that of the processor, summed over batches."""

    wall: dict[str, float]
    cpu: dict[str, float]

    def __str__(self) -> str:
        return ", ".join(f"{way} {value:.2f} s" for way, value in self.wall.items()) + (
            f", ratio {self.wall['with M3'] / self.wall['plain']:.3f}"
            f" (processor time: {self.cpu['with M3'] / self.cpu['plain']:.3f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    size = SMALL if options.small else Size()
    lengths = {
        "min_length": size.steps,
        "min_length_share": None,
        "max_length": size.steps,
        "length_normalisation": "predicted",
    }
    ways = {
        "plain": SearchConfig(beam_size=BEAMS, **lengths),
        "with M3": SearchConfig(beam_size=BEAMS, **lengths, distraction=TERMS),
    }
    for m1_m2 in (False, True):
        model = make_model(size, m1_m2=m1_m2)
        name = "M1 + M2" if m1_m2 else "without M1, M2"
        for threads in options.threads:
            torch.set_num_threads(threads)
            for batch_size in options.batch_sizes:
                batches = make_batches(size, batch_size, options.batches)
                times, differing = measured(model, batches, ways, options.rounds)
                print(
                    f"{name}, {threads} thread{'s' * (threads > 1)}, {batch_size} documents at once: {times}"
                    f"; {differing} of {batch_size * len(batches)} summaries differ",
                    flush=True,
                )


def measured(model: Any, batches: list[Batch], ways: dict[str, SearchConfig], rounds: int) -> tuple[Times, int]:
    """The times, and how many summaries the terms changed."""
    total = Times(dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0.0))
    differing = 0
    for batch in batches:
        for config in ways.values():  # warm up
            decode(model, batch, config.model_copy(update={"min_length": 2, "max_length": 2}), **IDS)
        wall: dict[str, list[float]] = {way: [] for way in ways}
        cpu: dict[str, list[float]] = {way: [] for way in ways}
        found: dict[str, list[list[int]]] = {}
        for number in range(rounds):
            for way in list(ways) if number % 2 == 0 else reversed(list(ways)):
                started = time.perf_counter(), time.process_time()
                found[way] = [hypotheses[0].ids for hypotheses in decode(model, batch, ways[way], **IDS)]
                wall[way].append(time.perf_counter() - started[0])
                cpu[way].append(time.process_time() - started[1])
        for way in ways:
            total.wall[way] += min(wall[way])
            total.cpu[way] += min(cpu[way])
        differing += sum(a != b for a, b in zip(*found.values(), strict=True))
    return total, differing


if __name__ == "__main__":
    main()
