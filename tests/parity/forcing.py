"""What teacher forcing says of the hypotheses that a search has found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from catchline.types import Batch, Hypothesis, TrainingBatch


@torch.no_grad()
def forced(model: Any, batch: Batch, row: int, words: Sequence[int], ids: Mapping[str, int]) -> Tensor:
    """log P of each of ``words`` as the summary of one document, read after ``bos_id``."""
    gold = torch.tensor([words])
    inputs = torch.cat([torch.full((1, 1), ids["bos_id"]), gold[:, :-1]], dim=1)
    inputs = inputs.masked_fill(inputs >= model.vocab_size, ids["unk_id"])
    sources = (part[row, None] for part in (batch.source_ids, batch.source_extended_ids, batch.source_mask))
    real = torch.ones_like(gold).bool()
    targets = {"target_ids": gold, "target_input_ids": inputs, "target_mask": real}
    return model(TrainingBatch(*sources, batch.extended_vocab_size, **targets)).gold_log_probs[0]


def worst(model: Any, batch: Batch, found: list[list[Hypothesis]], ids: Mapping[str, int]) -> tuple[float, float]:
    """The largest difference of a word's log-probability in search (32 bits there) from the forced one, and that of a
    hypothesis' sum; an error where no hypothesis has any word."""
    words, sums = list[float](), list[float]()
    for row, hypotheses in enumerate(found):
        for hypothesis in (h for h in hypotheses if h.token_log_probs):
            expected = forced(model, batch, row, [*hypothesis.ids, *[ids["eos_id"]] * hypothesis.finished], ids)
            words.append(float((expected - torch.tensor(hypothesis.token_log_probs)).abs().max()))
            sums.append(abs(float(expected.sum()) - hypothesis.log_prob))
    return max(words), max(sums)
