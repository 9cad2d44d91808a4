"""Memory and time of a training step of the distraction model, against arithmetic and against the plain way.

    python benchmarks/distraction_training.py [--hidden 600] [--steps 2] [--threads 1] [--short]

Recipe ``distraction``, row ``m1-m2``, size ``paper``: source 800, target 50, batch 64, attention 100, vocabulary
25,000, float32. A step is forward, backward, clipping and Adadelta, as ``catchline train`` makes it. The plain way
(``peers/usual_distraction.py``) is the same function with the same weights, where autograd keeps a (batch, source,
attention) tensor for every step and the logits of all words. See ``benchmarks/README.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, replace

import torch

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.config.schema import RunConfig
from catchline.models.distraction import Distraction
from catchline.types import PLAIN_PASS, TrainingBatch
from paired import best_of, in_own_process, made_batch, megabytes, our_step, peer_step, same_function
from peers.usual_distraction import UsualDistraction

WANTED = 1.5  # measured over arithmetic, at most
OURS, PLAIN = "catchline", "plain way"


@dataclass(frozen=True)
class Sizes:
    """What is trained on what."""

    batch: int = 64
    source: int = 800
    target: int = 50
    attention: int = 100
    hidden: int = 600
    embedding: int = 120
    vocabulary: int = 25_000

    def made(self) -> TrainingBatch:
        return made_batch(self.vocabulary, self.batch, self.source, self.target)


SHORT = Sizes(batch=16, source=200, target=20, hidden=100, vocabulary=5_000)


def arithmetic(sizes: Sizes) -> dict[str, float]:
    """Megabytes of what the plain formulas keep for the backward pass, float32."""
    b, s, t, a, n, v = sizes.batch, sizes.source, sizes.target, sizes.attention, sizes.hidden, sizes.vocabulary
    numbers = {
        "energies, one (B, S, A) a step": b * s * a * t,
        "logits and two more of their size": 3 * b * t * v,
        "input products of the encoder": b * s * 2 * 3 * n,
        "input products of GRU_2": b * t * 3 * n,
        "encoder states H": b * s * 2 * n,
        "keys U_a H": b * s * a,
    }
    return {name: 4 * count / 2**20 for name, count in numbers.items()}


def resolved(sizes: Sizes) -> RunConfig:
    """The recipe's row ``m1-m2`` in these sizes."""
    model = {"embedding_size": sizes.embedding, "hidden_size": sizes.hidden, "attention": {"size": sizes.attention}}
    return resolve_run(load_recipe("distraction"), "m1-m2", "paper", {"model": model})


def model_of(run: RunConfig, sizes: Sizes) -> Distraction:
    torch.manual_seed(0)
    model: Distraction = build("model", MODELS, run.model, vocab_size=sizes.vocabulary)
    return model


def is_same(run: RunConfig, sizes: Sizes) -> bool:
    """Does the plain way, given our weights, give our loss and gradients?"""
    sizes = replace(sizes, batch=4, source=min(sizes.source, 60), target=min(sizes.target, 12))
    batch, model = sizes.made(), model_of(run, sizes)
    with torch.no_grad():  # as they start, contents are too small to say much
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    plain = UsualDistraction(model)
    nll = build("objective", OBJECTIVES, run.objectives[0])
    term = nll(model(batch, context=nll.wants(batch, PLAIN_PASS)), batch)
    ours, theirs = dict(model.named_parameters()), dict(plain.named_parameters())
    names = {
        "embedding.weight": "embedding.weight",
        "attention.history_vector": "attention.history_vector",
        "attention.content_history_vector": "attention.content_history_vector",
        "attention.memory_projection.weight": "attention.memory_projection.weight",
        "decoder.of_word.weight_ih": "second.weight_ih",
        "decoder.of_content.weight_hh": "first.weight_hh",
        "encoder.layer.weight_hh_l0": "encoder.weight_hh_l0",
        "head.projection.weight": "output.weight",
    }
    pairs = [(ours[name], theirs[other]) for name, other in names.items()]
    return same_function(term.sum / term.count, plain(batch), pairs)


def measure(which: str, sizes: Sizes, steps: int) -> dict[str, float]:
    """Seconds of a step and how far it raises this process's memory above that of model and optimizer."""
    run, batch = resolved(sizes), sizes.made()
    model = model_of(run, sizes)
    state = 3 * sum(p.numel() for p in model.parameters()) * 4 / 2**20  # gradients, Adadelta's two sums
    step = our_step(run, model, batch) if which == OURS else peer_step(run, UsualDistraction(model), batch)
    before = megabytes("VmRSS")
    seconds, processor = best_of({"": step}, steps)[""]
    rise = megabytes() - before
    return {"seconds": seconds, "cpu_seconds": processor, "rise": rise, "activations": rise - state}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=Sizes.hidden, help="hidden size, of each direction")
    parser.add_argument("--steps", type=int, default=1, help="timed steps of each, after one to warm up")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="a small model")
    parser.add_argument("--measure", choices=[OURS, PLAIN], help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.measure:
        print(json.dumps(measure(options.measure, Sizes(**options.sizes), options.steps)))
        return 0
    sizes = SHORT if options.short else replace(Sizes(), hidden=options.hidden)
    if not is_same(resolved(sizes), sizes):
        return 1
    how = ["--sizes", json.dumps(asdict(sizes)), "--steps", str(options.steps), "--threads", str(options.threads)]
    figures = {name: in_own_process(__file__, "--measure", name, *how) for name in (OURS, PLAIN)}
    parts = arithmetic(sizes)
    print(f"\nArithmetic: what the plain formulas keep at {sizes}, MB")
    for name, value in parts.items():
        print(f"  {name:<36} {value:>7.0f}")
    total = sum(parts.values())
    print(f"  {'together':<36} {total:>7.0f}")
    print("\nMeasured: peak above model, and above gradients and Adadelta's sums as well, MB; seconds a step")
    print(f"  {'':<12} {'above model':>12} {'activations':>12} {'of arithmetic':>14} {'seconds':>8} {'CPU s':>7}")
    for name, f in figures.items():
        seconds = f"{f['seconds']:>8.2f} {f['cpu_seconds']:>7.2f}"
        print(f"  {name:<12} {f['rise']:>12.0f} {f['activations']:>12.0f} {f['activations'] / total:>13.2f}x {seconds}")
    ours, plain = figures[OURS], figures[PLAIN]
    print(
        f"\nOurs: {ours['activations'] / total:.2f}x of the arithmetic (wanted: at most {WANTED:.1f}x),"
        f" {ours['activations'] / plain['activations']:.2f} of the plain way's memory,"
        f" {plain['cpu_seconds'] / ours['cpu_seconds']:.2f}x its speed (CPU seconds)"
    )
    print("reached" if ours["activations"] <= WANTED * total else "NOT reached")
    return 0


if __name__ == "__main__":
    sys.exit(main())
