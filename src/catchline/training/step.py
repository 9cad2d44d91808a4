"""An update and a validation, in one process or several: the gradients of one, the losses and ROUGE of the other.

Gradients are summed, not averaged, in one all-reduce of one flat buffer: the loss is divided by counts that are already
global. Parameters that a phase froze or a switch left unused need no special mode, and every process steps with the
same bits.

The teacher-forced loss of validation (``val_loss_tf``) is See et al.'s and the one good for early stopping; the
free-running loss (``val_loss_free``), in which the model reads its own predictions, is the one of the Headline Writer's
tables. Both are the weighted total, coverage included, with each objective's own value beside it. Batches are dealt to
the processes in turn and the sums added up, so each record counts once.
"""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.tracking import get_available_trackers
from accelerate.utils import DistributedType, broadcast_object_list, gather_object
from torch import Tensor, nn

from catchline.config.schema import RunConfig, TrainingConfig
from catchline.data.dataset import EncodedDataset
from catchline.errors import CatchlineError, ConfigError, TrainingError
from catchline.layers.chunks import sent
from catchline.metrics.rouge import RougeResult
from catchline.metrics.scoring import Scoring, score_as, scoring, suited
from catchline.models.base import SummarizationModel
from catchline.objectives.base import Objective
from catchline.search.torch_bridge import decode, evaluating
from catchline.training.checkpoint import TrainState, last_good
from catchline.training.data import forced_mask, free_running_mask, noise_seed, pairs_of
from catchline.training.prepare import Prepared
from catchline.types import PLAIN_PASS, Batch, ModelOutput, Term, TrainingBatch, UpdateContext

_NAMED_RECORDS = 20
PLATEAU_FACTOR, PLATEAU_PATIENCE = 0.5, 1
LOWER_IS_BETTER = {"val_loss_tf", "val_loss_tf_nll", "val_loss_free"}  # the other metrics are ROUGE's


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


class Validator:
    """Computes a run's validation values. The losses are those of ``step``, its forward pass and active objectives."""

    def __init__(self, run: RunConfig, parts: Prepared, dataset: EncodedDataset, step: UpdateStep) -> None:
        self.settings, self.search = run.training.validation, run.search
        if self.settings.metric not in LOWER_IS_BETTER and not self.settings.decode_records:
            raise ConfigError(
                f"training.validation.metric is {self.settings.metric}, so summaries must be decoded: "
                "set training.validation.decode_records, for example to 200."
            )
        self.batch_size = run.training.batch_size
        self.scoring = scoring(run.evaluation.profile, run.evaluation.rouge)
        self.step, self.dataset, self.tokenizer, self.collator = step, dataset, parts.tokenizer, parts.collator

    def __call__(self) -> dict[str, float]:
        """All values asked for, by name, the same on every process; without gradients, in evaluation mode."""
        settings = self.settings
        with torch.no_grad(), evaluating(self.step.model):
            values = self._losses("val_loss_tf", free=False)
            if settings.metric == "val_loss_free":
                values |= self._losses("val_loss_free", free=True)
            if settings.decode_records:
                values |= self._rouge(settings.decode_records)
        return values

    def _losses(self, name: str, *, free: bool) -> dict[str, float]:
        """The weighted total under ``name`` and each objective's value under ``name_objective``."""
        active = self.step.active
        # of each objective sum and count; in the last row the target words that count
        table = torch.zeros(len(active) + 1, 2, dtype=torch.float64, device=self.step.accelerator.device)
        seen = Counter[str]()
        for indices in self._mine(len(self.dataset)):
            batch = self._batch(indices).to(table.device)
            context = UpdateContext(forced_mask=free_running_mask(batch.target_mask)) if free else PLAIN_PASS
            output, terms = self.step.terms(batch, context)
            counted = output.counted(batch).sum()
            seen.update({figure: float(value * counted) for figure, value in output.figures.items()})
            rows = [torch.stack([term.sum.double(), term.count.double()]) for term in terms]
            table += torch.stack([*rows, torch.stack([counted, counted]).double()])
        *sums, (tokens, _) = self.step.accelerator.reduce(table, reduction="sum").tolist()
        means = {o.name: total / count if count else 0.0 for o, (total, count) in zip(active, sums, strict=True)}
        values = {name: sum(o.config.weight * means[o.name] for o in active)}
        if len(means) > 1:
            values |= {f"{name}_{objective}": mean for objective, mean in means.items()}
        if free:
            return values
        every = Counter[str]()
        for part in gather_object([seen]):
            every.update(part)
        values |= {f"val_{figure}": total / max(tokens, 1.0) for figure, total in every.items()}
        for objective, (total, _) in zip(active, sums, strict=True):
            reduction = objective.config.reduction
            if objective.name == "nll" and reduction != "example" and tokens:  # a mean of -ln P over words, or a sum
                mean = means["nll"] if reduction == "token" else total / tokens
                values["val_ppl"] = math.exp(min(mean, 700.0))
        return values

    def _rouge(self, num_records: int) -> dict[str, float]:
        count = min(num_records, len(self.dataset))
        mine: dict[int, str] = {}
        for indices in self._mine(count):
            mine |= dict(zip(indices, self._decode(indices), strict=True))
        by_index = {index: text for part in gather_object([mine]) for index, text in part.items()}
        way, result = self._scored([by_index[index] for index in range(count)])
        return {f"rouge{kind}": float(getattr(score, way.shown)) for kind, score in result.mean.items()}

    def _scored(self, texts: Sequence[str]) -> tuple[Scoring, RougeResult]:
        references = [self.dataset.references[index] for index in range(len(texts))]
        way = suited(self.scoring, references)
        return way, score_as(way, texts, references, ("1", "2", "L"))

    @property
    def signature(self) -> str:
        """Of ROUGE, whatever the summaries are; empty where none are decoded."""
        count = min(self.settings.decode_records, len(self.dataset))
        return self._scored([""] * count)[1].signature if count else ""

    def _decode(self, indices: Sequence[int]) -> list[str]:
        batch, model, tokenizer = self._batch(indices), self.step.model, self.tokenizer
        search, ids = self.search.model_copy(update={"num_return": 1}), tokenizer.search_ids(model.decoder_start_id)
        hypotheses = decode(model, batch.to(self.step.accelerator.device), search, **ids)
        words = batch.oov_words or [[] for _ in indices]
        return [tokenizer.decode(best[0].ids, unknown) for best, unknown in zip(hypotheses, words, strict=True)]

    def _batch(self, indices: Sequence[int]) -> TrainingBatch:
        return pairs_of(self.collator, [self.dataset[index] for index in indices])

    def _mine(self, count: int) -> Iterator[list[int]]:
        """This process's batches of the first ``count`` records: similar lengths together, always in the same order."""
        size, accelerator, lengths = self.batch_size, self.step.accelerator, self.dataset.source_lengths[:count]
        ordered = np.argsort(lengths, kind="stable").tolist()
        most = self.step.model.attended_tokens or sys.maxsize  # longer ones apart: no document beside has attention
        parts = [[i for i in ordered if (lengths[i] > most) == apart] for apart in (False, True)]
        batches = [part[start : start + size] for part in parts for start in range(0, len(part), size)]
        yield from batches[accelerator.process_index :: accelerator.num_processes]


def is_best(state: TrainState, metric: float, training: TrainingConfig) -> bool:
    """Is this the best validation so far? Early stopping and the schedules that watch validation count from here."""
    sign = 1.0 if training.validation.metric in LOWER_IS_BETTER else -1.0
    before, state.previous_metric = state.previous_metric, metric
    state.decaying |= before is not None and sign * (metric - before) > 0
    if training.schedule.type == "sticky" and state.decaying:
        state.plateau_factor *= PLATEAU_FACTOR
    better = state.best_metric is None or sign * (state.best_metric - metric) > 0
    if better and metric == metric:
        state.best_metric, state.best_update = metric, state.update
        state.bad_validations = state.plateau_bad = 0
        return True
    state.bad_validations += 1
    state.plateau_bad += 1
    if training.schedule.type == "plateau" and state.plateau_bad > PLATEAU_PATIENCE:
        state.plateau_factor *= PLATEAU_FACTOR
        state.plateau_bad = 0
    return False
