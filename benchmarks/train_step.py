"""How fast and in how much memory a training step runs, against OpenNMT-py and against the usual way.

    python benchmarks/train_step.py [--threads 1 2] [--steps 5] [--opennmt FOLDER] [--short]

The model is See et al.'s pointer-generator with coverage switched on (recipe ``headline_writer``, size
``cnndm``): source 400, target 100, batch 16, vocabulary 50,000, float32. A step is forward, backward, clipping
and Adagrad, as ``catchline train`` makes it; the peers get the same clipping and the same fused Adagrad. All
run in one process in turn (A B C A B C ...) on the same inputs. See ``benchmarks/README.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.config.schema import RunConfig
from catchline.models.seq2seq import Seq2Seq
from catchline.types import PLAIN_PASS, TrainingBatch
from paired import (
    Step,
    best_of,
    in_own_process,
    made_batch,
    megabytes,
    our_step,
    peer_step,
    place,
    report,
    same_function,
)
from peers import opennmt
from peers.usual_pointer_generator import UsualPointerGenerator

BATCH, SOURCE, TARGET, VOCABULARY, OUTSIDE = 16, 400, 100, 50_000, 20
OURS, USUAL = "catchline", "usual form"


def batch_of() -> TrainingBatch:
    return made_batch(VOCABULARY, BATCH, SOURCE, TARGET, outside=OUTSIDE)


def resolved(precision: str = "fp32") -> RunConfig:
    """The recipe's size ``cnndm`` with coverage on; torch's initial weights, which are not all close to zero."""
    overrides = {
        "model": {"attention": {"coverage_from_start": True, "coverage_init": "default"}, "init": "torch"},
        "training": {"precision": precision},
    }
    return resolve_run(load_recipe("headline_writer"), "pointer-generator-coverage", "cnndm", overrides)


def our_model(run: RunConfig) -> Seq2Seq:
    torch.manual_seed(0)
    model: Seq2Seq = build("model", MODELS, run.model, vocab_size=VOCABULARY)
    return model


def is_same(run: RunConfig, batch: TrainingBatch) -> bool:
    """Does the usual form, given our weights, give our loss and gradients?"""
    model, objectives = our_model(run), [build("objective", OBJECTIVES, spec) for spec in run.objectives]
    usual = UsualPointerGenerator(model)
    output = model(batch, context=objectives[0].wants(batch, PLAIN_PASS))
    terms = [objective(output, batch) for objective in objectives]
    ours = torch.stack([term.weight * term.sum / term.count for term in terms]).sum()
    pairs = [
        (model.embedding.weight, usual.embedding.weight),
        (model.head.projection.weight, usual.output_weight),
        (model.decoder.layer.weight_ih_l0, usual.cell.weight_ih),
        (model.attention.coverage_vector, usual.attention.coverage_vector),
        (model.attention.memory_projection.weight, usual.attention.memory_projection.weight),
        (model.head.gate.weight, usual.gate.weight),
    ]
    return same_function(ours, usual(batch), pairs)


def step_of(which: str) -> Step:
    run, batch = resolved(), batch_of()
    model = our_model(run)
    return our_step(run, model, batch) if which == OURS else peer_step(run, UsualPointerGenerator(model), batch)


def competitors(folder: Path | None) -> dict[str, Step]:
    """Ours in fp32 and bf16, the usual form, and OpenNMT-py in two widths if it is there."""
    run, batch, bf16 = resolved(), batch_of(), resolved("bf16")
    steps = {OURS: step_of(OURS), f"{OURS} bf16": our_step(bf16, our_model(bf16), batch), USUAL: step_of(USUAL)}
    version = opennmt.find(folder)
    if version is None:
        print("OpenNMT-py is not installed; comparing with the usual form only (benchmarks/README.md says how).")
        return steps
    for width in (512, 256):
        torch.manual_seed(0)
        model = opennmt.OpenNmt(vocab_size=VOCABULARY, embedding_size=run.model["embedding_size"], width=width)
        steps[f"OpenNMT-py {version} {width}"] = peer_step(run, model, opennmt.translate(batch, VOCABULARY))
    return steps


def memory_of(which: str) -> float:
    """How far two steps raise the memory of this process above that of model and optimizer."""
    torch.set_num_threads(1)
    step = step_of(which)
    before = megabytes("VmRSS")
    step()
    step()
    return megabytes() - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each, after one to warm up")
    parser.add_argument("--opennmt", type=Path, help="the folder OpenNMT-py was installed into")
    parser.add_argument("--short", action="store_true", help="one timed step of each")
    parser.add_argument("--memory-of", choices=[OURS, USUAL], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        print(json.dumps(memory_of(options.memory_of)))
        return 0
    if not is_same(resolved(), batch_of()):
        return 1
    steps = competitors(options.opennmt)
    for threads in options.threads:
        title = f"\n{place(threads)}: a step of {BATCH * TARGET:,} target tokens, and against ours"
        best = best_of(steps, 1 if options.short else options.steps)
        report(title, best, OURS)
        speeds = {name: BATCH * TARGET / clock for name, (clock, _) in best.items()}
        print("  target tokens a second: " + ", ".join(f"{name} {speed:.0f}" for name, speed in speeds.items()))
    del steps
    rises = {name: in_own_process(__file__, "--memory-of", name) for name in (OURS, USUAL)}
    print("\nPeak memory of a step above model and optimizer state")
    for name, rise in rises.items():
        print(f"  {name:<22} {rise:>6.0f} MB")
    print(f"  ours is {rises[OURS] / rises[USUAL]:.2f} of the usual form's (wanted: at most 0.33)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
