"""From examples to padded arrays: the only place where padding is added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from catchline.data.dataset import Example
from catchline.errors import DataError
from catchline.text.base import Tokenizer
from catchline.types import Batch, TrainingBatch


class Collator:
    """``collator(examples) -> Batch`` of NumPy arrays.

    It is a `TrainingBatch` when every example has a summary. The decoder's input is the target shifted by one with the
    start token in front; words outside the vocabulary become UNK wherever an array feeds an embedding.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.vocab_size = tokenizer.vocab_size
        self.pad_id, self.unk_id, self.start_id = tokenizer.pad_id, tokenizer.unk_id, tokenizer.decoder_start_id

    def __call__(self, examples: Sequence[Example]) -> Batch:
        """Pad ``examples``.

        Raises:
            DataError: an example has an empty source (attention over nothing is not a number).
        """
        sources = [example.source_extended_ids for example in examples]
        if empty := [example for example, source in zip(examples, sources, strict=True) if not len(source)]:
            raise DataError(f"Record '{empty[0].record_id or empty[0].index}' has an empty source.")
        source_extended_ids, source_mask = self._pad(sources)
        batch = Batch(
            source_ids=self._without_extended(source_extended_ids),
            source_extended_ids=source_extended_ids,
            source_mask=source_mask,
            extended_vocab_size=self.vocab_size + max(len(example.oov_words) for example in examples),
            oov_words=[example.oov_words for example in examples],
            record_ids=[example.record_id for example in examples],
            indices=[example.index for example in examples],
        )
        targets = [example.target_extended_ids for example in examples if example.target_extended_ids is not None]
        if len(targets) < len(examples):
            return batch
        ids, mask = self._pad(targets)
        inputs = np.full_like(ids, self.start_id)
        inputs[:, 1:] = self._without_extended(ids[:, :-1])
        inputs = np.where(mask, inputs, self.pad_id)
        own = {each.name: getattr(batch, each.name) for each in fields(batch)}
        return TrainingBatch(**own, target_input_ids=inputs, target_ids=ids, target_mask=mask)

    def _pad(self, rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        mask = np.arange(lengths.max())[None, :] < lengths[:, None]  # (B, S)
        padded = np.full(mask.shape, self.pad_id, dtype=np.int64)
        padded[mask] = np.concatenate(rows)
        return padded, mask

    def _without_extended(self, ids: np.ndarray) -> np.ndarray:
        return np.where(ids >= self.vocab_size, self.unk_id, ids)
