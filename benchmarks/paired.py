"""What benchmarks share that run several models in turns in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from catchline.config.names import OBJECTIVES, build
from catchline.types import TrainingBatch, UpdateContext


def training_step(
    model: Any, batch: TrainingBatch, objectives: Sequence[dict[str, Any]], *, device: str = "cpu", bf16: bool = False
) -> Callable[[], None]:
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


def best_of(ways: dict[str, Callable[[], None]], repeats: int, device: str) -> dict[str, tuple[float, float]]:
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


def peak_mib(device: str = "cpu") -> float:
    """The most memory this process (on a device: its tensors) has had, in MiB; Linux.

    Not ``ru_maxrss``, which begins with what the process that started this one had.
    """
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10
