"""Beam decoding in batches against one document at a time.

The model is the pointer-generator with coverage of size ``cnndm`` (See et al. 2017) with random weights:
source of 400 tokens, 120 steps (minimum = maximum), vocabulary 50,000 plus words of the documents' own,
beam 4. Four ways to decode the same documents, in one process:

* ``usual``: as the released implementations do: one document at a time, its memory repeated for each beam, the
  extended distribution written out (equation 5 as it stands), ``torch.topk``, hypotheses as Python objects;
* ``usual, packed``: the same with our packed vocabulary product lent to it;
* ``ours, 1``: this toolkit's search, one document at a time;
* ``ours, 16``: this toolkit's search, sixteen documents at a time.

    python benchmarks/beam_decoding.py [--threads 1 2] [--documents 16] [--steps 120]
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, build
from catchline.config.schema import SearchConfig
from catchline.layers.copying import pointer
from catchline.layers.copying.pointer import VocabularyProjection
from catchline.papers.pointer_generator import final_distribution
from catchline.search.hypotheses import select
from catchline.search.torch_bridge import decode
from catchline.types import Batch
from paired import IDS, Step, best_of, exactly, made_batch, place

SOURCE, VOCAB, OWN_WORDS, BEAMS, BATCH = 400, 50_000, 20, 4, 16


def make_model() -> Any:
    """The ``cnndm`` size with coverage on, See et al.'s initialisation."""
    run = resolve_run(load_recipe("headline_writer"), "pointer-generator-coverage", "cnndm")
    torch.manual_seed(0)
    model = build("model", MODELS, run.model, vocab_size=VOCAB, **IDS).eval()
    model.switch({"coverage": True})
    return model


def make_documents(count: int) -> Batch:
    """With ``OWN_WORDS`` words outside the vocabulary in each document."""
    return made_batch(VOCAB, count, SOURCE, 1, outside=OWN_WORDS)


# ---------------------------------------------------------------------------------- the three ways


def ours(model: Any, documents: Batch, config: SearchConfig, batch_size: int) -> list[list[int]]:
    """This toolkit's search, ``batch_size`` documents at a time."""
    found = []
    for start in range(0, len(documents.source_ids), batch_size):
        batch = documents.changed(lambda tensor: tensor[start : start + batch_size])  # noqa: B023
        found += [hypotheses[0].ids for hypotheses in decode(model, batch, config, **IDS)]
    return found


@dataclass
class PlainHypothesis:
    """A hypothesis as a Python object, after See et al.'s ``beam_search.py``."""

    tokens: list[int]
    log_probs: list[float]
    row: int
    attention: list[Tensor]

    @property
    def average(self) -> float:
        return sum(self.log_probs) / len(self.tokens)


@torch.inference_mode()
def usual(model: Any, documents: Batch, config: SearchConfig, *, packed: bool = False) -> list[list[int]]:
    """One document at a time, everything repeated for each beam; ``packed`` lends it our packed product."""
    with plain_mixture(packed):
        return [usual_one(model, documents, row, config) for row in range(len(documents.source_ids))]


def usual_one(model: Any, documents: Batch, row: int, config: SearchConfig) -> list[int]:
    memory = model.encode(documents.changed(lambda tensor: tensor[[row] * config.beam_size]))
    state = model.start(memory)
    hypotheses = [PlainHypothesis([IDS["bos_id"]], [0.0], row, []) for row in range(config.beam_size)]
    results: list[PlainHypothesis] = []
    for step in range(config.max_length + 1):
        last_ids = torch.tensor([hypothesis.tokens[-1] for hypothesis in hypotheses])
        output, state = model.step(last_ids, state)
        values, ids = output.log_probs.topk(2 * config.beam_size)
        grown = []
        for row, hypothesis in enumerate(hypotheses[: 1 if step == 0 else None]):
            for value, id_ in zip(values[row].tolist(), ids[row].tolist(), strict=True):
                grown.append(
                    PlainHypothesis(
                        [*hypothesis.tokens, id_],
                        [*hypothesis.log_probs, value],
                        row,
                        [*hypothesis.attention, output.attention[row]],
                    )
                )
        grown.sort(key=lambda hypothesis: -hypothesis.average)
        hypotheses = []
        for hypothesis in grown:
            if hypothesis.tokens[-1] != IDS["eos_id"]:
                hypotheses.append(hypothesis)
            elif step >= config.min_length:
                results.append(hypothesis)
            if len(hypotheses) == config.beam_size or len(results) == config.beam_size:
                break
        if len(results) == config.beam_size:
            break
        state = select(state, torch.tensor([hypothesis.row for hypothesis in hypotheses]))
    best = max(results or hypotheses, key=lambda hypothesis: hypothesis.average)
    return best.tokens[1 : config.max_length + 1]


@contextlib.contextmanager
def plain_mixture(packed: bool) -> Iterator[None]:
    """Within it the pointer head writes equation (5) out over all X words, after a plain linear layer if not packed."""
    ours_, prepare = pointer.final_distribution, VocabularyProjection.for_decoding
    pointer.final_distribution = written_out
    VocabularyProjection.for_decoding = lambda self, columns=None: prepare(self) if packed else self
    try:
        yield
    finally:
        pointer.final_distribution, VocabularyProjection.for_decoding = ours_, prepare


def written_out(logits: Tensor, gate: Tensor, copy_probs: Tensor, ids: Tensor, size: int, first: Tensor) -> Tensor:
    return final_distribution(logits, gate, copy_probs, ids, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--documents", type=int, default=BATCH)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="2 documents, 8 steps")
    options = parser.parse_args()
    count, steps = (2, 8) if options.short else (options.documents, options.steps)
    model, documents, config = make_model(), make_documents(count), exactly(steps, BEAMS)
    written: dict[str, list[list[int]]] = {}

    def way(name: str, search: Any, **how: Any) -> Step:
        return lambda: written.update({name: search(model, documents, config, **how)})

    ways = {
        "usual": way("usual", usual),
        "usual, packed": way("usual, packed", usual, packed=True),
        "ours, 1": way("ours, 1", ours, batch_size=1),
        "ours, 16": way("ours, 16", ours, batch_size=BATCH),
    }
    for threads in options.threads:
        print(f"{place(threads)}: documents a second at {steps} steps")
        speed = {name: count / clock for name, (clock, _) in best_of(ways, options.repeats).items()}
        for name, value in speed.items():
            print(f"  {name:13} {value:7.3f}   ours, 16 / {name:14} {speed['ours, 16'] / value:5.2f}x")
        same = sum(a == b for a, b in zip(written["ours, 1"], written["ours, 16"], strict=True))
        print(f"  same summary in a batch as alone: {same} of {count}", flush=True)


if __name__ == "__main__":
    main()
