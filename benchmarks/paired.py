"""What benchmarks share: made-up texts and batches, steps of training, searches of a given length, times in turns."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.config.schema import RunConfig, SearchConfig
from catchline.search.torch_bridge import decode
from catchline.training.optim import build_optimizer
from catchline.training.step import UpdateStep
from catchline.types import Batch, TrainingBatch, UpdateContext

SOURCE = Path(__file__).parent.parent / "src"
IDS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
BASE = {"layers": 6, "size": 512, "heads": 8, "feed_forward": 2048, "vocabulary": 32_000}
SMALL = {"layers": 2, "size": 128, "heads": 4, "feed_forward": 256, "vocabulary": 4_000}
Step = Callable[[], Any]

# ---------------------------------------------------------------------------------------- texts and batches


def zipf_words(count: int, longest: int = 11) -> tuple[list[str], list[float]]:
    """Made-up words, and their weights as `random.choices` takes them added up: the first is the most frequent."""
    made = random.Random(0)
    words = ["".join(made.choices("abcdefghijklmnop", k=made.randint(2, longest))) for _ in range(count)]
    return words, list(accumulate(1 / (rank + 3) for rank in range(count)))


def write_pairs(path: Path, count: int, shortest: int, longest: int, seed: int = 0) -> None:
    """JSON lines of Zipf's words, a tenth of them numbers and names that stand once or twice."""
    chosen, (words, weights) = random.Random(seed), zipf_words(60_000)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            text = chosen.choices(words, cum_weights=weights, k=chosen.randint(shortest, longest))
            for place in range(0, len(text), 10):
                text[place] = chosen.choice([f"{chosen.randrange(9999)},", f"Name{chosen.randrange(99_999)}", "it's."])
            record = {"id": f"d{number}", "document": " ".join(text), "summary": " ".join(text[: len(text) // 2 : 3])}
            file.write(json.dumps(record) + "\n")


def log_uniform(vocabulary: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Word ids whose ranks are log-uniform, about as in texts: frequent words repeat within a document."""
    share = torch.rand(shape, generator=generator)
    return 4 + ((vocabulary - 4) ** share).long().clamp_max(vocabulary - 6)  # the last id is padding to one peer


def made_batch(
    vocabulary: int, pairs: int, source: int, target: int, *, outside: int = 0, seed: int = 1, device: str = "cpu"
) -> TrainingBatch:
    """All lengths are full; a third of the target words are words of the source. With ``outside`` this many words of
    each document are outside the vocabulary (5% of its tokens)."""
    generator = torch.Generator().manual_seed(seed)
    read = log_uniform(vocabulary, (pairs, source), generator)
    if outside:
        own = vocabulary + torch.randint(outside, read.shape, generator=generator)
        read = torch.where(torch.rand(read.shape, generator=generator) < 0.05, own, read)
    written = log_uniform(vocabulary, (pairs, target), generator)
    copied = read.gather(1, torch.randint(source, written.shape, generator=generator))
    written = torch.where(torch.rand(written.shape, generator=generator) < 1 / 3, copied, written)
    inputs = torch.cat([torch.full((pairs, 1), IDS["bos_id"]), written[:, :-1]], dim=1)
    return TrainingBatch(
        source_ids=read.masked_fill(read >= vocabulary, IDS["unk_id"]),
        source_extended_ids=read,
        source_mask=torch.ones_like(read, dtype=torch.bool),
        extended_vocab_size=vocabulary + outside,
        target_input_ids=inputs.masked_fill(inputs >= vocabulary, IDS["unk_id"]),
        target_ids=written,
        target_mask=torch.ones_like(written, dtype=torch.bool),
        indices=list(range(pairs)),
    ).to(device)


def transformer(sizes: dict[str, int], **more: Any) -> Any:
    """A Transformer of these sizes, with random weights."""
    torch.manual_seed(0)
    sides = {"encoder_layers": sizes["layers"], "decoder_layers": sizes["layers"], "hidden_size": sizes["size"]}
    spec = {
        "type": "transformer",
        "num_heads": sizes["heads"],
        "feed_forward_size": sizes["feed_forward"],
        "dropout": 0.3,
    }
    return build("model", MODELS, spec | sides | more, vocab_size=sizes["vocabulary"], **IDS).eval()


def exactly(words: int, beams: int, **more: Any) -> SearchConfig:
    """A search whose summaries all have this many words."""
    lengths = {"min_length": words, "min_length_share": None, "max_length": words}
    return SearchConfig(beam_size=beams, forbid_unk=False, **lengths | more)


def search(model: Any, batch: Batch, config: SearchConfig) -> Step:
    """The search of ``batch``, which has to write all the words."""

    def run() -> None:
        found = decode(model.eval(), batch, config, **IDS)
        assert all(len(best[0].ids) == config.max_length for best in found)

    return run


# --------------------------------------------------------------------------------------------- training steps


def our_step(run: RunConfig, model: nn.Module, batch: TrainingBatch) -> Step:
    """One update as `catchline train` makes it."""
    objectives = [build("objective", OBJECTIVES, spec) for spec in run.objectives]
    update = UpdateStep(run.training, model, objectives, Accelerator(cpu=True))
    optimizer = build_optimizer(run.training.optimizer, model.parameters())

    def step() -> None:
        update([batch], 0, [], Path())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def peer_step(run: RunConfig, model: nn.Module, batch: Any) -> Step:
    """One update of a peer: ``model(batch)`` is the loss; clipping and optimizer are those of the run."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = build_optimizer(run.training.optimizer, parameters)

    def step() -> None:
        model(batch).backward()
        torch.nn.utils.clip_grad_norm_(parameters, run.training.clip_norm or math.inf, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def adam_step(
    model: Any, batch: TrainingBatch, objectives: Sequence[dict[str, Any]], *, device: str = "cpu", bf16: bool = False
) -> Step:
    """One update by Adam with these objectives."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
    parts = [build("objective", OBJECTIVES, spec) for spec in objectives]
    context = UpdateContext(noise_seed=1)
    for objective in parts:
        context = objective.wants(batch, context)

    def step() -> None:
        model.train()
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            output = model(batch, context=context)
        terms = [objective(output, batch, context) for objective in parts]
        torch.stack([term.weight * term.sum / term.count for term in terms]).sum().backward()
        optimizer.step()

    return step


def same_function(ours: Tensor, theirs: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]) -> bool:
    """Whether a peer's loss with our weights is ours, and so are its gradients (``pairs`` of parameters)."""
    ours.backward()
    theirs.backward()
    loss = abs(float(((ours - theirs) / theirs).detach()))
    gradients = max(float((a.grad - b.grad).norm() / b.grad.norm()) for a, b in pairs)  # type: ignore[operator,union-attr]
    print(f"The plain form with our weights: loss differs by {loss:.1e}, gradients by {gradients:.1e}")
    if same := loss <= 1e-5 and gradients <= 1e-3:
        return same
    print("These are not the same function; the comparison below would mean nothing.")
    return same


# ----------------------------------------------------------------------------------------------- measuring


def best_of(ways: dict[Any, Step], repeats: int, device: str = "cpu") -> dict[Any, tuple[float, float]]:
    """The best time of each by the clock and by the processor, taking turns; the first turn warms up."""
    best = dict.fromkeys(ways, (float("inf"), float("inf")))
    for turn in range(repeats + 1):
        for name, way in ways.items():
            clock, processor = time.perf_counter(), time.process_time()
            way()
            if device == "cuda":
                torch.cuda.synchronize()
            spent = (time.perf_counter() - clock, time.process_time() - processor)
            if turn:
                best[name] = (min(best[name][0], spent[0]), min(best[name][1], spent[1]))
    return best


def report(title: str, best: dict[str, tuple[float, float]], against: str) -> None:
    """Milliseconds, and how many times those of one of the ways."""
    print(title)
    for name, (clock, processor) in best.items():
        times = clock / best[against][0], processor / best[against][1]
        print(
            f"  {name:24}{1000 * clock:10.2f} ms x {times[0]:6.3f}   processor {1000 * processor:10.2f} ms"
            f" x {times[1]:6.3f}",
            flush=True,
        )


def place(threads: int, device: str = "cpu") -> str:
    """Where something ran, in words; sets the threads."""
    torch.set_num_threads(threads)
    return f"{threads} thread{'s' * (threads > 1)}" if device == "cpu" else torch.cuda.get_device_name()


def megabytes(name: str = "VmHWM", device: str = "cpu") -> float:
    """Linux's own account of this process: VmRSS is what is resident, VmHWM the most that was since it started
    (``ru_maxrss`` would count the process that started this one). On a device: the most that its tensors had."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 2**10


def in_own_process(script: str, *arguments: str) -> Any:
    """What a script prints, as JSON, with these arguments."""
    command = [sys.executable, script, *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def catchline(*arguments: str, source: Path = SOURCE, threads: int = 1, **more: str) -> tuple[float, float, str]:
    """Seconds of ``catchline ARGUMENTS`` by the clock and of the processors, and what it printed."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": str(threads)} | more
    start, before = time.perf_counter(), os.times()
    done = subprocess.run(
        [sys.executable, "-m", "catchline.cli.main", *arguments], env=environment, capture_output=True, text=True
    )
    after, wall = os.times(), time.perf_counter() - start
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, used, done.stdout
