"""Validation: losses over the whole set, ROUGE of decoded summaries, and what early stopping and schedules make of it.

The teacher-forced loss (``val_loss_tf``) is See et al.'s and the one good for early stopping; the free-running
loss (``val_loss_free``), in which the model reads its own predictions, is the one of the Headline Writer's tables.
Both are the weighted total, coverage included, with each objective's own value beside it. Batches are dealt to the
processes in turn and the sums added up, so each record counts once.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from accelerate.utils import gather_object

from catchline.config.schema import RunConfig, TrainingConfig
from catchline.data.dataset import EncodedDataset
from catchline.errors import ConfigError
from catchline.metrics.rouge import RougeResult
from catchline.metrics.scoring import Scoring, score_as, scoring, suited
from catchline.search.torch_bridge import decode, evaluating
from catchline.training.checkpoint import TrainState
from catchline.training.data import free_running_mask, pairs_of
from catchline.training.prepare import Prepared
from catchline.training.step import UpdateStep
from catchline.types import PLAIN_PASS, TrainingBatch, UpdateContext

PLATEAU_FACTOR, PLATEAU_PATIENCE = 0.5, 1
LOWER_IS_BETTER = {"val_loss_tf", "val_loss_tf_nll", "val_loss_free"}  # the other metrics are ROUGE's


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
