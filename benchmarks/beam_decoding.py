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
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, build
from catchline.config.schema import SearchConfig
from catchline.layers.copying import pointer
from catchline.layers.vocabulary import VocabularyProjection
from catchline.papers.pointer_generator import final_distribution
from catchline.search.arrays import select
from catchline.search.torch_bridge import decode
from catchline.types import Batch

SOURCE, VOCAB, OWN_WORDS, BEAMS, BATCH = 400, 50_000, 20, 4, 16
IDS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}


def make_model() -> Any:
    """The ``cnndm`` size with coverage on, See et al.'s initialisation."""
    run = resolve_run(load_recipe("headline_writer"), "pointer-generator-coverage", "cnndm")
    torch.manual_seed(0)
    model = build("model", MODELS, run.model, vocab_size=VOCAB, **IDS).eval()
    model.switch({"coverage": True})
    return model


def make_documents(count: int) -> list[Tensor]:
    """Extended source ids (S,) with ``OWN_WORDS`` words outside the vocabulary in each document."""
    generator = torch.Generator().manual_seed(1)
    documents = []
    for _ in range(count):
        ids = torch.randint(4, VOCAB, (SOURCE,), generator=generator)
        places = torch.randperm(SOURCE, generator=generator)[:OWN_WORDS]
        ids[places] = VOCAB + torch.arange(OWN_WORDS)
        documents.append(ids)
    return documents


def batch_of(documents: list[Tensor]) -> Batch:
    extended = torch.stack(documents)
    ids = extended.masked_fill(extended >= VOCAB, IDS["unk_id"])
    return Batch(ids, extended, torch.ones_like(ids, dtype=torch.bool), VOCAB + OWN_WORDS)


# ---------------------------------------------------------------------------------- the three ways


def ours(model: Any, documents: list[Tensor], config: SearchConfig, batch_size: int) -> list[list[int]]:
    """This toolkit's search, ``batch_size`` documents at a time."""
    found = []
    for start in range(0, len(documents), batch_size):
        batch = batch_of(documents[start : start + batch_size])
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
def usual(model: Any, documents: list[Tensor], config: SearchConfig, *, packed: bool = False) -> list[list[int]]:
    """One document at a time, everything repeated for each beam; ``packed`` lends it our packed product."""
    with plain_mixture(packed):
        return [usual_one(model, document, config) for document in documents]


def usual_one(model: Any, document: Tensor, config: SearchConfig) -> list[int]:
    memory = model.encode(batch_of([document] * config.beam_size))
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


# -------------------------------------------------------------------------------------- measuring


def seconds(work: Callable[[], list[list[int]]]) -> tuple[float, list[list[int]]]:
    started = time.perf_counter()
    found = work()
    return time.perf_counter() - started, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--documents", type=int, default=BATCH)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    config = SearchConfig(
        beam_size=BEAMS,
        min_length=options.steps,
        min_length_share=None,
        max_length=options.steps,
        forbid_unk=False,
        scorers=(),
    )
    model, documents = make_model(), make_documents(options.documents)
    short = config.model_copy(update={"min_length": 2, "max_length": 2})
    for threads in options.threads:
        torch.set_num_threads(threads)
        ways = {
            "usual": lambda c: usual(model, documents, c),
            "usual, packed": lambda c: usual(model, documents, c, packed=True),
            "ours, 1": lambda c: ours(model, documents, c, 1),
            "ours, 16": lambda c: ours(model, documents, c, BATCH),
        }
        speed, found = {}, {}
        for name, way in ways.items():
            way(short)  # warm up
            runs = [seconds(lambda way=way: way(config)) for _ in range(options.repeats)]
            speed[name] = len(documents) / min(time_ for time_, _ in runs)
            found[name] = runs[0][1]
        same = sum(a == b for a, b in zip(found["ours, 1"], found["ours, 16"], strict=True))
        print(f"{threads} thread{'s' * (threads > 1)}: documents a second at {options.steps} steps")
        for name, value in speed.items():
            print(f"  {name:13} {value:7.3f}")
        print(f"  ours, 16 / usual   {speed['ours, 16'] / speed['usual']:5.2f}x")
        print(f"  ours, 16 / usual, packed {speed['ours, 16'] / speed['usual, packed']:5.2f}x")
        print(f"  ours, 16 / ours, 1 {speed['ours, 16'] / speed['ours, 1']:5.2f}x")
        print(f"  same summary in a batch as alone: {same} of {len(documents)}", flush=True)


if __name__ == "__main__":
    main()
