"""Memory and time of a training step of the distraction model, against arithmetic and against the plain way.

    python benchmarks/distraction_training.py [--hidden 600] [--steps 2] [--threads 1] [--short] [--json FILE]

Recipe ``distraction``, row ``m1-m2``, size ``paper``: source 800, target 50, batch 64, attention 100, vocabulary
25,000, float32. A step is forward, backward, clipping and Adadelta, as ``catchline train`` makes it. The plain way
(``peers/usual_distraction.py``) is the same function with the same weights, where autograd keeps a (batch, source,
attention) tensor for every step and the logits of all words. See ``benchmarks/README.md``.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.config.schema import RunConfig
from catchline.models.distraction import Distraction
from catchline.training.optim import build_optimizer
from catchline.training.step import UpdateStep
from catchline.types import PLAIN_PASS, TrainingBatch
from peers.usual_distraction import UsualDistraction

WANTED = 1.5  # measured over arithmetic, at most
OURS, PLAIN = "catchline", "plain way"
Step = Callable[[], Any]


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
    return {name: 4 * count / 1e6 for name, count in numbers.items()}


def resolved(sizes: Sizes) -> RunConfig:
    """The recipe's row ``m1-m2`` in these sizes."""
    model = {"embedding_size": sizes.embedding, "hidden_size": sizes.hidden, "attention": {"size": sizes.attention}}
    return resolve_run(load_recipe("distraction"), "m1-m2", "paper", {"model": model})


def synthetic_batch(sizes: Sizes) -> TrainingBatch:
    """Random words, all lengths full."""
    generator = torch.Generator().manual_seed(0)

    def words(*shape: int) -> Tensor:
        return torch.randint(4, sizes.vocabulary, shape, generator=generator)

    source, target = words(sizes.batch, sizes.source), words(sizes.batch, sizes.target)
    return TrainingBatch(
        source_ids=source,
        source_extended_ids=source,
        source_mask=torch.ones_like(source, dtype=torch.bool),
        extended_vocab_size=sizes.vocabulary,
        target_input_ids=torch.cat([torch.full((sizes.batch, 1), 2), target[:, :-1]], dim=1),
        target_ids=target,
        target_mask=torch.ones_like(target, dtype=torch.bool),
    )


def model_of(run: RunConfig, sizes: Sizes) -> Distraction:
    torch.manual_seed(0)
    model: Distraction = build("model", MODELS, run.model, vocab_size=sizes.vocabulary)
    return model


def our_step(run: RunConfig, sizes: Sizes, batch: TrainingBatch) -> Step:
    """One update as `catchline train` makes it."""
    model = model_of(run, sizes)
    objectives = [build("objective", OBJECTIVES, spec) for spec in run.objectives]
    update = UpdateStep(run.training, model, objectives, Accelerator(cpu=True))
    optimizer = build_optimizer(run.training.optimizer, model.parameters())

    def step() -> None:
        update([batch], 0, [], Path())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def plain_step(run: RunConfig, sizes: Sizes, batch: TrainingBatch) -> Step:
    """One update of the plain way."""
    model = UsualDistraction(model_of(run, sizes))
    optimizer = build_optimizer(run.training.optimizer, model.parameters())

    def step() -> None:
        model(batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), run.training.clip_norm or math.inf, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def same_function(run: RunConfig, sizes: Sizes) -> tuple[float, float]:
    """How far the plain way, given our weights, is from ours: loss, and gradients against their norm."""
    sizes = replace(sizes, batch=4, source=min(sizes.source, 60), target=min(sizes.target, 12))
    batch, model = synthetic_batch(sizes), model_of(run, sizes)
    with torch.no_grad():  # as they start, contents are too small to say much
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    plain = UsualDistraction(model)
    nll = build("objective", OBJECTIVES, run.objectives[0])
    term = nll(model(batch, context=nll.wants(batch, PLAIN_PASS)), batch)
    ours, theirs = term.sum / term.count, plain(batch)
    ours.backward()
    theirs.backward()
    named = dict(plain.named_parameters())
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
    errors = []
    for name, parameter in model.named_parameters():
        if name in names and parameter.grad is not None:
            other = named[names[name]].grad
            assert other is not None
            errors.append(float((parameter.grad - other).norm() / other.norm()))
    return abs(float(((ours - theirs) / theirs).detach())), max(errors)


# ------------------------------------------------------------------------- measuring, each in a process of its own


def measure(which: str, sizes: Sizes, steps: int) -> dict[str, float]:
    """Seconds of a step and how far it raises the memory above that of model and optimizer."""
    run, batch = resolved(sizes), synthetic_batch(sizes)
    step = (our_step if which == OURS else plain_step)(run, sizes, batch)
    before, wall, cpu = _megabytes("VmRSS"), [], []
    for number in range(steps + 1):
        started, used = time.perf_counter(), time.process_time()
        step()
        if number or not steps:
            wall.append(time.perf_counter() - started)
            cpu.append(time.process_time() - used)
    peak = _megabytes("VmHWM")
    state = 3 * sum(p.numel() for p in model_of(run, sizes).parameters()) * 4 / 1e6  # gradients, Adadelta's two sums
    return {
        "seconds": statistics.median(wall),
        "cpu_seconds": statistics.median(cpu),
        "rise": peak - before,
        "activations": peak - before - state,
    }


def _megabytes(name: str) -> float:
    """A line of Linux's own account: VmRSS is what is resident, VmHWM the most that was since the program started."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024 / 1e6


def measured(which: str, sizes: Sizes, options: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", which, "--sizes", json.dumps(asdict(sizes))]
    command += ["--steps", str(options.steps), "--threads", str(options.threads)]
    figures: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return figures


def show(sizes: Sizes, parts: dict[str, float], figures: dict[str, dict[str, float]]) -> bool:
    print(f"\nArithmetic: what the plain formulas keep at {sizes}, MB")
    for name, value in parts.items():
        print(f"  {name:<36} {value:>7.0f}")
    total = sum(parts.values())
    print(f"  {'together':<36} {total:>7.0f}")
    print("\nMeasured: peak above model, and above gradients and Adadelta's sums as well, MB; seconds a step")
    print(f"  {'':<12} {'above model':>12} {'activations':>12} {'of arithmetic':>14} {'seconds':>8} {'CPU s':>7}")
    for name, f in figures.items():
        share = f["activations"] / total
        seconds = f"{f['seconds']:>8.2f} {f['cpu_seconds']:>7.2f}"
        print(f"  {name:<12} {f['rise']:>12.0f} {f['activations']:>12.0f} {share:>13.2f}x {seconds}")
    ours, plain = figures[OURS], figures[PLAIN]
    print(
        f"\nOurs: {ours['activations'] / total:.2f}x of the arithmetic (wanted: at most {WANTED:.1f}x),"
        f" {ours['activations'] / plain['activations']:.2f} of the plain way's memory,"
        f" {plain['cpu_seconds'] / ours['cpu_seconds']:.2f}x its speed (CPU seconds)"
    )
    return ours["activations"] <= WANTED * total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=Sizes.hidden, help="hidden size, of each direction")
    parser.add_argument("--steps", type=int, default=1, help="timed steps of each, after one to warm up")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", "--short", "--small", action="store_true", dest="short", help="a small model")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    parser.add_argument("--measure", choices=[OURS, PLAIN], help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.measure:
        print(json.dumps(measure(options.measure, Sizes(**options.sizes), options.steps)))
        return 0
    sizes = SHORT if options.short else replace(Sizes(), hidden=options.hidden)
    loss_error, gradient_error = same_function(resolved(sizes), sizes)
    print(f"The plain way with our weights: loss differs by {loss_error:.1e}, gradients by {gradient_error:.1e}")
    if loss_error > 1e-5 or gradient_error > 1e-3:
        print("These are not the same function; the comparison below would mean nothing.")
        return 1
    figures = {name: measured(name, sizes, options) for name in (OURS, PLAIN)}
    parts = arithmetic(sizes)
    reached = show(sizes, parts, figures)
    print("reached" if reached else "NOT reached")
    if options.json:
        content = {"sizes": asdict(sizes), "arithmetic": parts, "measured": figures}
        options.json.write_text(json.dumps(content, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
