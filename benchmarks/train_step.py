"""How fast and in how much memory a training step runs, against OpenNMT-py and against the usual way.

    python benchmarks/train_step.py [--threads 1 2] [--steps 5] [--opennmt FOLDER] [--short] [--json FILE]

The model is See et al.'s pointer-generator with coverage switched on (recipe ``headline_writer``, size
``cnndm``): source 400, target 100, batch 16, vocabulary 50,000, float32. A step is forward, backward, clipping
and Adagrad, as ``catchline train`` makes it; the peers get the same clipping and the same fused Adagrad. All
run in one process in turn (A B C A B C ...) on the same inputs. See ``benchmarks/README.md``.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.config.schema import RunConfig
from catchline.models.seq2seq import Seq2Seq
from catchline.training.optim import build_optimizer
from catchline.training.step import UpdateStep
from catchline.types import PLAIN_PASS, TrainingBatch
from peers import opennmt
from peers.usual_pointer_generator import UsualPointerGenerator

BATCH, SOURCE, TARGET, VOCABULARY, OUTSIDE = 16, 400, 100, 50_000, 20
WANTED_SPEED, WANTED_MEMORY = 2.0, 1 / 3
Step = Callable[[], Any]


def synthetic_batch(seed: int = 0) -> TrainingBatch:
    """Word ids distributed as in text: log-uniform ranks, so that frequent words repeat within a document.

    All lengths are full. Each document has some words of its own outside the vocabulary (5 % of its tokens);
    a third of the target tokens are words of the source.
    """
    generator = torch.Generator().manual_seed(seed)

    def words(*shape: int) -> Tensor:
        ranks = torch.rand(shape, generator=generator) * torch.log(torch.tensor(float(VOCABULARY - 4)))
        return 4 + ranks.exp().long().clamp_max(VOCABULARY - 5)

    source = words(BATCH, SOURCE)
    outside = torch.rand(source.shape, generator=generator) < 0.05
    own = VOCABULARY + torch.randint(OUTSIDE, source.shape, generator=generator)
    source = torch.where(outside, own, source)
    copied = source.gather(1, torch.randint(SOURCE, (BATCH, TARGET), generator=generator))
    is_copied = torch.rand(copied.shape, generator=generator) < 1 / 3
    target = torch.where(is_copied, copied, words(BATCH, TARGET))
    inputs = torch.cat([torch.full((BATCH, 1), 2), target[:, :-1]], dim=1)
    return TrainingBatch(
        source_ids=source.masked_fill(source >= VOCABULARY, 1),
        source_extended_ids=source,
        source_mask=torch.ones_like(source, dtype=torch.bool),
        extended_vocab_size=VOCABULARY + OUTSIDE,
        target_input_ids=inputs.masked_fill(inputs >= VOCABULARY, 1),
        target_ids=target,
        target_mask=torch.ones_like(target, dtype=torch.bool),
    )


# ------------------------------------------------------------------------------------- the steps


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


def our_step(run: RunConfig, batch: TrainingBatch) -> Step:
    """One update as `catchline train` makes it."""
    model = our_model(run)
    objectives = [build("objective", OBJECTIVES, spec) for spec in run.objectives]
    update = UpdateStep(run.training, model, objectives, Accelerator(cpu=True))
    optimizer = build_optimizer(run.training.optimizer, model.parameters())

    def step() -> None:
        update([batch], 0, [], Path())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def peer_step(run: RunConfig, model: nn.Module, batch: Any) -> Step:
    """One update of a peer: ``model(batch)`` is the loss."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = build_optimizer(run.training.optimizer, parameters)

    def step() -> None:
        model(batch).backward()
        torch.nn.utils.clip_grad_norm_(parameters, run.training.clip_norm or math.inf, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def same_function(run: RunConfig, batch: TrainingBatch) -> tuple[float, float]:
    """How far the usual form, given our weights, is from ours: loss, and gradients against their norm."""
    model, objectives = our_model(run), [build("objective", OBJECTIVES, spec) for spec in run.objectives]
    usual = UsualPointerGenerator(model)
    output = model(batch, context=objectives[0].wants(batch, PLAIN_PASS))
    terms = [objective(output, batch) for objective in objectives]
    ours = torch.stack([term.weight * term.sum / term.count for term in terms]).sum()
    theirs = usual(batch)
    ours.backward()
    theirs.backward()
    pairs = [
        (model.embedding.weight, usual.embedding.weight),
        (model.head.projection.weight, usual.output_weight),
        (model.decoder.layer.weight_ih_l0, usual.cell.weight_ih),
        (model.attention.coverage_vector, usual.attention.coverage_vector),
        (model.attention.memory_projection.weight, usual.attention.memory_projection.weight),
        (model.head.gate.weight, usual.gate.weight),
    ]
    errors = [float((a.grad - b.grad).norm() / b.grad.norm()) for a, b in pairs]
    return abs(float(((ours - theirs) / theirs).detach())), max(errors)


# ----------------------------------------------------------------------------------------- speed


@dataclass
class Timing:
    """Seconds of the steps of one competitor: by the clock, and of all its threads together."""

    step: Step
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def once(self, keep: bool = True) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        self.step()
        if keep:
            self.wall.append(time.perf_counter() - wall)
            self.cpu.append(time.process_time() - cpu)

    def figures(self) -> dict[str, float]:
        tokens = BATCH * TARGET
        wall = statistics.median(self.wall)
        return {
            "tokens_per_second": tokens / wall,
            "best_tokens_per_second": tokens / min(self.wall),
            "cpu_seconds": statistics.median(self.cpu),
        }


def compare(steps: dict[str, Step], threads: int, count: int) -> dict[str, dict[str, float]]:
    """Run the competitors in turn, ``count`` times each after one step to warm up."""
    torch.set_num_threads(threads)
    timings = {name: Timing(step) for name, step in steps.items()}
    for number in range(count + 1):
        for timing in timings.values():
            timing.once(keep=number > 0)
    return {name: timing.figures() for name, timing in timings.items()}


def show(threads: int, figures: dict[str, dict[str, float]]) -> None:
    ours = figures["catchline"]
    print(f"\n{threads} thread{'s' * (threads > 1)}: target tokens a second, CPU seconds a step; and ours against it")
    print(f"  {'':<22} {'median':>7} {'best':>7} {'CPU s':>7}   {'median':>8} {'best':>6} {'CPU s':>6}")
    for name, f in figures.items():
        ratios = ""
        if not name.startswith("catchline"):
            ratios = (
                f"   {ours['tokens_per_second'] / f['tokens_per_second']:>7.2f}x"
                f" {ours['best_tokens_per_second'] / f['best_tokens_per_second']:>5.2f}x"
                f" {f['cpu_seconds'] / ours['cpu_seconds']:>5.2f}x"
            )
        print(
            f"  {name:<22} {f['tokens_per_second']:>7.0f} {f['best_tokens_per_second']:>7.0f}"
            f" {f['cpu_seconds']:>7.2f}{ratios}"
        )


# ---------------------------------------------------------------------------------------- memory


def measure_memory(which: str) -> dict[str, float]:
    """In a process of its own: how far a few steps raise the memory above that of model and optimizer."""
    run, batch = resolved(), synthetic_batch()
    step = (
        our_step(run, batch) if which == "catchline" else peer_step(run, UsualPointerGenerator(our_model(run)), batch)
    )
    before = _megabytes("VmRSS")
    for _ in range(2):
        step()
    peak = _megabytes("VmHWM")
    return {"before": before, "peak": peak, "rise": peak - before}


def _megabytes(name: str) -> float:
    """A line of Linux's own account: VmRSS is what is resident, VmHWM the most that was since the program started
    (``ru_maxrss`` would count the process that started this one)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def compare_memory() -> dict[str, dict[str, float]]:
    figures = {}
    for name in ("catchline", "usual form"):
        command = [sys.executable, __file__, "--measure-memory", name]
        figures[name] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return figures


def show_memory(figures: dict[str, dict[str, float]]) -> float:
    print("\nPeak memory of a step above model and optimizer state")
    for name, f in figures.items():
        print(f"  {name:<22} {f['rise']:>6.0f} MB  (from {f['before']:.0f} to {f['peak']:.0f})")
    share = figures["catchline"]["rise"] / figures["usual form"]["rise"]
    print(f"  ours is {share:.2f} of the usual form's (wanted: at most {WANTED_MEMORY:.2f})")
    return share


# ------------------------------------------------------------------------------------------ main


def competitors(folder: Path | None) -> dict[str, Step]:
    """Ours in fp32 and bf16, the usual form, and OpenNMT-py in two widths if it is there."""
    run, batch = resolved(), synthetic_batch()
    steps = {"catchline": our_step(run, batch), "catchline bf16": our_step(resolved("bf16"), batch)}
    steps["usual form"] = peer_step(run, UsualPointerGenerator(our_model(run)), batch)
    version = opennmt.find(folder)
    if version is None:
        print("OpenNMT-py is not installed; comparing with the usual form only (benchmarks/README.md says how).")
        return steps
    for width in (512, 256):
        torch.manual_seed(0)
        model = opennmt.OpenNmt(vocab_size=VOCABULARY, embedding_size=run.model["embedding_size"], width=width)
        steps[f"OpenNMT-py {version} {width}"] = peer_step(run, model, opennmt.translate(batch, VOCABULARY))
    return steps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each, after one to warm up")
    parser.add_argument("--opennmt", type=Path, help="the folder OpenNMT-py was installed into")
    parser.add_argument("--quick", "--short", action="store_true", help="one timed step of each")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    parser.add_argument("--measure-memory", choices=["catchline", "usual form"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure_memory:
        torch.set_num_threads(1)
        print(json.dumps(measure_memory(options.measure_memory)))
        return 0

    loss_error, gradient_error = same_function(resolved(), synthetic_batch())
    print(f"The usual form with our weights: loss differs by {loss_error:.1e}, gradients by {gradient_error:.1e}")
    if loss_error > 1e-5 or gradient_error > 1e-3:
        print("These are not the same function; the comparison below would mean nothing.")
        return 1
    count = 1 if options.quick else options.steps
    steps = competitors(options.opennmt)
    speed = {}
    for threads in options.threads:
        speed[threads] = compare(steps, threads, count)
        show(threads, speed[threads])
    del steps
    memory = compare_memory()
    share = show_memory(memory)
    if options.json:
        options.json.write_text(json.dumps({"speed": speed, "memory": memory}, indent=2) + "\n")
    peer = next((n for n in speed[options.threads[0]] if n.startswith("OpenNMT")), "usual form")
    ratios = [f["catchline"]["tokens_per_second"] / f[peer]["tokens_per_second"] for f in speed.values()]
    reached = min(ratios) >= WANTED_SPEED and share <= WANTED_MEMORY
    print(
        f"\nAgainst {peer}: {', '.join(f'{r:.2f}x' for r in ratios)} (wanted: {WANTED_SPEED:.0f}x);"
        f" {'reached' if reached else 'NOT reached'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
