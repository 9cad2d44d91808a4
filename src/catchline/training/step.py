"""Gradients of one update: forward, objectives, one division, sums over micro-batches and processes.

Gradients are summed, not averaged, in one all-reduce of one flat buffer: the loss is divided by counts that are already
global. Parameters that a phase froze or a switch left unused need no special mode, and every process steps with the
same bits.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.tracking import get_available_trackers
from accelerate.utils import DistributedType, broadcast_object_list, gather_object
from torch import Tensor, nn

from catchline.config.schema import TrainingConfig
from catchline.errors import CatchlineError, ConfigError, TrainingError
from catchline.layers.chunks import sent
from catchline.models.base import SummarizationModel
from catchline.objectives.base import Objective
from catchline.training.checkpoint import last_good
from catchline.training.data import forced_mask, noise_seed
from catchline.types import Batch, ModelOutput, Term, TrainingBatch, UpdateContext

_NAMED_RECORDS = 20


@dataclass(frozen=True)
class UpdateFigures:
    """One update in numbers, the same on every process. ``flags`` are the processes' flags added up; ``details`` are
    this process's figures of its last micro-batch, where a line of the log is due."""

    loss: float
    values: dict[str, float]
    grad_norm: float
    tokens: int
    flags: list[float]
    details: dict[str, float] = field(default_factory=dict)


class UpdateStep:
    """Leaves an update's clipped gradients on the model's parameters; the loop steps the optimizer."""

    def __init__(
        self,
        settings: TrainingConfig,
        model: SummarizationModel,
        objectives: Sequence[Objective],
        accelerator: Accelerator,
    ) -> None:
        self.settings, self.model, self.accelerator = settings, model, accelerator
        given = [objective.to(accelerator.device) for objective in objectives]
        names = [objective.name for objective in objectives]
        if len(set(names)) != len(names):
            raise ConfigError(f"objectives: name each once (given: {', '.join(names)}).")
        self.active = [objective for objective in given if objective.config.weight]
        if not self.active:
            raise ConfigError("All objectives have weight 0; there is nothing to train.")
        self._parameters = list(model.parameters())

    def terms(
        self, batch: TrainingBatch, context: UpdateContext, ahead: Sequence[Objective] = ()
    ) -> tuple[ModelOutput, list[Term]]:
        """Forward pass and the active objectives, under autocast for bf16. The whole minibatch is shown to those that
        look ``ahead``."""
        low = self.settings.precision == "bf16"
        with torch.autocast(self.accelerator.device.type, torch.bfloat16, enabled=low):
            output: ModelOutput = self.model(batch, context=context)
            for objective in ahead:
                objective.see(output, batch)
                objective.seen()
            return output, [objective(output, batch, context) for objective in self.active]

    def __call__(
        self, micro_batches: Sequence[TrainingBatch], update: int, flags: Sequence[float], out: Path
    ) -> UpdateFigures:
        """Compute the gradients of the update after ``update`` completed ones."""
        device = self.accelerator.device
        tokens = sum(int(batch.target_mask.sum()) for batch in micro_batches)
        last = len(micro_batches) - 1
        batches = [self._ready(batch, update, last=n == last) for n, batch in enumerate(micro_batches)]
        several = len(batches) > 1 or self.accelerator.num_processes > 1
        # One count: divide the summed gradients. More: each objective's is needed before the backward pass.
        late = several and self._one_count()
        ahead = [objective for objective in self.active if objective.looks_ahead]
        counts = self._look(batches, ahead) if len(batches) > 1 and (ahead or not late) else None
        sums, seen = torch.zeros(2, len(self.active), device=device)
        losses: list[Tensor] = []
        observed: dict[str, Tensor] = {}
        for batch, context in batches:
            output, terms = self.terms(batch, context, ahead if len(batches) == 1 else ())
            if context.observe:
                with torch.no_grad():
                    every = [output.figures, *(objective.figures(output, batch) for objective in self.active)]
                observed = dict(chain.from_iterable(figures.items() for figures in every))
            weights = [term.weight for term in terms]
            own = torch.stack([term.count.detach().float() for term in terms])
            if counts is None and not late:
                counts = self._shared(own)
            divisors = torch.ones_like(own) if counts is None else counts
            loss = torch.stack([t.weight * t.sum / count for t, count in zip(terms, divisors, strict=True)]).sum()
            loss.backward()
            losses.append(loss.detach())
            sums += torch.stack([term.sum.detach().float() for term in terms])
            seen += own
        del output, terms
        figures = torch.cat([sums, seen, sent(torch.tensor([float(tokens), *flags]), device)])
        figures = sum_gradients(self._parameters, figures, self.accelerator)
        size = len(self.active)
        if counts is None:
            counts = self._divisors(figures[size : 2 * size])
            torch._foreach_div_([p.grad for p in self._parameters if p.grad is not None], counts[0])
        norm = nn.utils.clip_grad_norm_(self._parameters, self.settings.clip_norm or math.inf, foreach=True)
        # the one moment of an update at which the host waits for the device
        own = torch.stack([norm.detach(), *observed.values()]).float()
        numbers = torch.cat([figures[:size] / counts, own, figures[2 * size :]]).tolist()
        details = dict(zip(observed, numbers[size + 1 :], strict=False))
        del numbers[size + 1 : size + len(own)]
        values = {o.name: value for o, value in zip(self.active, numbers[:size], strict=True)}
        for objective in self.active:
            objective.check(values[objective.name], update + 1)
        total = sum(weight * value for weight, value in zip(weights, values.values(), strict=True))
        if not (math.isfinite(total) and math.isfinite(numbers[size])):
            self._refuse(total, numbers[size], micro_batches, losses, update, out)
        return UpdateFigures(total, values, numbers[size], int(numbers[size + 1]), numbers[size + 2 :], details)

    def _ready(self, batch: TrainingBatch, update: int, *, last: bool) -> tuple[TrainingBatch, UpdateContext]:
        """The batch on the device, and what the update wants of model and objectives: the scheduled-sampling mask, a
        seed for the model's noise, whether the log looks, and what the objectives want."""
        settings, device = self.settings, self.accelerator.device
        mask = forced_mask(settings, batch, update)
        batch = batch.to(device, non_blocking=True)
        context = UpdateContext(
            forced_mask=None if mask is None else mask.to(device, non_blocking=True),
            noise_seed=noise_seed(settings.seed, update),
            observe=last and (update + 1) % settings.log_every == 0,
        )
        for objective in self.active:
            context = objective.wants(batch, context)
        return batch, context

    def _one_count(self) -> bool:
        """Are the active objectives divided by the same number?"""
        counts = {o.config.reduction if o.counts_words else o.name for o in self.active}
        return len(self.active) == 1 or (len(counts) == 1 and all(o.counts_words for o in self.active))

    def _look(self, batches: Sequence[tuple[TrainingBatch, UpdateContext]], ahead: Sequence[Objective]) -> Tensor:
        """The objectives' counts over several micro-batches, by a forward pass without gradients that is shown to those
        that look ahead.

        Only models know which tokens count (`ModelOutput.token_mask`), so this rare combination pays for one pass more.
        """
        counts, device = [], self.accelerator.device
        with torch.no_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            for batch, context in batches:
                output, terms = self.terms(batch, context)
                counts.append(torch.stack([term.count.float() for term in terms]))
                for objective in ahead:
                    objective.see(output, batch)
        for objective in ahead:
            objective.seen()
        return self._shared(torch.stack(counts).sum(0))

    def _shared(self, counts: Tensor) -> Tensor:
        return self._divisors(self.accelerator.reduce(counts, reduction="sum"))

    def _divisors(self, counts: Tensor) -> Tensor:
        """What the update's sums are divided by; plain sums by 1, in however many parts they came."""
        plain = torch.tensor([o.config.reduction == "sum" for o in self.active])
        return counts.masked_fill(sent(plain, counts.device), 1.0).clamp_min(1e-8)

    def _refuse(
        self, loss: float, norm: float, batches: Sequence[Batch], losses: Sequence[Tensor], update: int, out: Path
    ) -> None:
        what = f"gradient norm ({norm})" if math.isfinite(loss) else f"loss ({loss})"
        bad = [batch for batch, value in zip(batches, losses, strict=True) if not bool(value.isfinite())] or batches
        ids = gather_object([name for batch in bad for name in (batch.record_ids or map(str, batch.indices))])
        more = f" and {len(ids) - _NAMED_RECORDS} more" if len(ids) > _NAMED_RECORDS else ""
        named = ", ".join(ids[:_NAMED_RECORDS]) + more
        raise TrainingError(
            f"The {what} of update {update + 1} is not finite; training stopped before the weights changed. "
            f"Records of the batch: {named}. {last_good(out)} "
            "Try a lower learning rate, training.clip_norm=1.0 or training.precision=fp32, or check these records."
        )


def sum_gradients(parameters: Sequence[nn.Parameter], figures: Tensor, accelerator: Accelerator) -> Tensor:
    """Replace every gradient by its sum over the processes; return ``figures`` (F,) summed likewise.

    A parameter without a gradient anywhere keeps none, so that the optimizer leaves it alone.
    """
    if accelerator.num_processes == 1:
        return figures
    trained = [p for p in parameters if p.requires_grad]
    present = torch.tensor([float(p.grad is not None) for p in trained], device=figures.device)
    flat = [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in trained]
    total = torch.cat([figures, present, *flat])
    torch.distributed.all_reduce(total)
    sizes = [figures.numel(), present.numel(), *(p.numel() for p in trained)]
    figures, present, *sums = total.split(sizes)
    for parameter, gradient, users in zip(trained, sums, present.tolist(), strict=True):
        parameter.grad = gradient.view_as(parameter) if users else None
    return figures


# ------------------------------------------------------------------------------------------ processes


def launched() -> int:
    """How many processes a launcher (torchrun, accelerate) started for this run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def join_processes(trackers: Sequence[str], out: Path) -> Accelerator:
    """The group of processes that a launcher started, or this one alone; ``trackers`` write into ``out``."""
    # Without cpu=True accelerate takes two processes of torchrun on a machine without a GPU for two single ones, and it
    # takes the GPU of a Mac, which has no float64, in which losses are summed.
    cpu = not torch.accelerator.is_available() or torch.backends.mps.is_available()
    absent = sorted(set(trackers) - {tracker.value for tracker in get_available_trackers()})
    if absent:
        raise ConfigError(f"training.trackers: {absent[0]} is not installed; install it, or leave it out.")
    accelerator = Accelerator(mixed_precision="no", cpu=cpu, log_with=list(trackers) or None, project_dir=str(out))
    plain = accelerator.distributed_type in (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
    if accelerator.num_processes != launched() or not plain:
        raise ConfigError(
            f"{accelerator.num_processes} of {launched()} processes work together, by {accelerator.distributed_type}; "
            "use plain data parallelism: torchrun, or accelerate launch --num_processes N."
        )
    return accelerator


def on_the_first(accelerator: Accelerator, do: Callable[[], object]) -> None:
    """Have the first process do something; if that fails with an error of ours, it is every process's error."""
    failed: list[CatchlineError | None] = [None]
    if accelerator.is_main_process:
        try:
            do()
        except CatchlineError as error:
            failed = [error]
    broadcast_object_list(failed)
    if failed[0] is not None:
        raise failed[0]


def close_processes() -> None:
    """Leave the group of processes, if there is one; the last thing a distributed program does."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
