"""Validation: losses over the whole set, and ROUGE of decoded summaries.

The teacher-forced loss (``val_loss_tf``) is See et al.'s and the one good for early stopping; the free-running
loss (``val_loss_free``), in which the model reads its own predictions, is the one of the Headline Writer's tables
(specification b.5, c.44). Both are the weighted total, coverage included (c.45), with each objective's own value
beside it. Batches are dealt to the processes in turn and the sums added up, so each record counts once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from laconic.config.schema import RunConfig
from laconic.data.dataset import EncodedDataset
from laconic.metrics.scoring import score_texts, scoring
from laconic.models.base import SummarizationModel
from laconic.search.decode import decode
from laconic.search.scorers import with_word_blocking
from laconic.text.tokenizer import Tokenizer
from laconic.training.forcing import free_running_mask
from laconic.training.gradients import sum_over_processes
from laconic.types import Batch, Term, references_of

LOWER_IS_BETTER = {"val_loss_tf": True, "val_loss_free": True, "rouge1": False, "rouge2": False, "rougeL": False}
Terms = Callable[[Batch], list[Term]]


@dataclass
class Validator:
    """Computes a run's validation values. ``terms(batch)`` is the loop's forward pass and objectives."""

    run: RunConfig
    model: SummarizationModel
    tokenizer: Tokenizer
    dataset: EncodedDataset
    collator: Callable[[Sequence[Any]], Batch]
    accelerator: Accelerator
    terms: Terms
    names: Callable[[], list[str]]  # the objectives that are active

    def __call__(self) -> dict[str, float]:
        """All values asked for, by name.

        The same on every process. Gradients are off and the model is in evaluation mode meanwhile.
        """
        settings = self.run.training.validation
        training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                values = self._losses("val_loss_tf", free=False)
                if settings.free_running or settings.metric == "val_loss_free":
                    values |= self._losses("val_loss_free", free=True)
                if settings.decode_records:
                    values |= self._rouge(settings.decode_records)
        finally:
            self.model.train(training)
        return values

    def _losses(self, name: str, *, free: bool) -> dict[str, float]:
        """The weighted total under ``name`` and each objective's value under ``name_objective``."""
        sums: dict[str, Tensor] = {}
        tokens = torch.zeros((), dtype=torch.float64, device=self.accelerator.device)
        for indices in self._mine(range(len(self.dataset))):
            batch = self._batch(indices)
            assert batch.target_ids is not None
            assert batch.target_mask is not None
            tokens += float(batch.target_mask.sum())
            if free:
                size = (batch.target_ids.shape[0], batch.target_ids.shape[1])
                batch = replace(batch, forced_mask=free_running_mask(size))
            for term in self.terms(batch.to(self.accelerator.device)):
                rest = term.sum.new_tensor([term.weight, 1.0]).double()
                row = torch.cat([torch.stack([term.sum.double(), term.count.double()]), rest])
                sums[term.name] = sums[term.name] + row if term.name in sums else row
        names = self.names()
        nothing = torch.zeros(4, dtype=torch.float64, device=self.accelerator.device)
        counted = torch.cat([tokens.view(1), nothing[1:]])
        table = torch.stack([*(sums.get(n, nothing) for n in names), counted])
        *of_terms, (num_tokens, *_) = sum_over_processes(table, self.accelerator).tolist()
        rows = dict(zip(names, of_terms, strict=True))
        values = {n: total / count if count else 0.0 for n, (total, count, _, _) in rows.items()}
        loss = sum(weight / terms * values[n] for n, (_, _, weight, terms) in rows.items())
        perplexity = {} if free else self._perplexity(rows.get("nll"), num_tokens)
        return {name: loss} | {f"{name}_{n}": value for n, value in values.items() if len(names) > 1} | perplexity

    def _perplexity(self, nll: Sequence[float] | None, tokens: float) -> dict[str, float]:
        """``val_ppl``: exp of the mean -ln P of the tokens, where the objective ``nll`` is a sum over tokens."""
        reductions = [spec.get("reduction", "token") for spec in self.run.objectives if spec["type"] == "nll"]
        if nll is None or len(reductions) != 1 or reductions[0] == "example" or not tokens:
            return {}
        count = nll[1] if reductions[0] == "token" else tokens  # words may be left out of the loss
        return {"val_ppl": math.exp(min(nll[0] / max(count, 1.0), 700.0))}

    def _rouge(self, num_records: int) -> dict[str, float]:
        count = min(num_records, len(self.dataset))
        mine: dict[int, str] = {}
        for indices in self._mine(range(count)):
            mine |= dict(zip(indices, self._decode(indices), strict=True))
        parts = gather_object([mine]) if self.accelerator.num_processes > 1 else [mine]
        texts = {index: text for part in parts for index, text in part.items()}
        references = [references_of(self.dataset.records[index]) for index in range(count)]
        way = scoring(self.run.evaluation.profile, self.run.evaluation.rouge)
        options = {name: value for name, value in way.rouge.items() if name != "kinds"}
        mine_all = [texts[index] for index in range(count)]
        result = score_texts(mine_all, references, kinds=("1", "2", "L"), by_sentence=way.by_sentence, **options)
        return {f"rouge{kind}": float(getattr(result.mean[kind], way.shown)) for kind in ("1", "2", "L")}

    def _decode(self, indices: Sequence[int]) -> list[str]:
        batch = self._batch(indices)
        search = with_word_blocking(self.run.search.model_copy(update={"num_return": 1}), self.tokenizer)
        found = decode(
            self.model,
            batch.to(self.accelerator.device),
            search,
            unk_id=self.tokenizer.unk_id,
            bos_id=self.model.decoder_start_id,
            eos_id=self.tokenizer.eos_id,
            pad_id=self.tokenizer.pad_id,
            separator_id=self.tokenizer.separator_id,
        )
        words = batch.oov_words or [[] for _ in indices]
        return [self.tokenizer.decode(best[0].ids, own) for best, own in zip(found, words, strict=True)]

    def _batch(self, indices: Sequence[int]) -> Batch:
        return self.collator([self.dataset[index] for index in indices])

    def _mine(self, indices: Sequence[int]) -> Iterator[list[int]]:
        """This process's batches: similar lengths together, in an order that never changes."""
        size = self.run.training.validation.batch_size or self.run.training.batch_size
        lengths = self.dataset.source_lengths
        ordered = sorted(indices, key=lambda index: (lengths[index], index))
        batches = [ordered[start : start + size] for start in range(0, len(ordered), size)]
        yield from batches[self.accelerator.process_index :: self.accelerator.num_processes]
