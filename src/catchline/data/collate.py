"""From examples to a `Batch` of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from catchline.data.dataset import Example
from catchline.data.padding import ArrayCollator
from catchline.types import Batch, TrainingBatch


class Collator(ArrayCollator):
    """``collator(examples) -> Batch``: what `ArrayCollator` makes, as tensors over the same memory."""

    def __call__(self, examples: Sequence[Example]) -> Batch:
        return super().__call__(examples).changed(torch.from_numpy)

    def pairs(self, examples: Sequence[Example]) -> TrainingBatch:
        """Pad examples that all have a summary."""
        batch = self(examples)
        assert isinstance(batch, TrainingBatch), "a record without a summary passed the readers"
        return batch
