"""Records as arrays of ids, and batches of them: the only place where padding is added; and the batches of an epoch.

Which examples form a batch is random, but they are of similar length; batches and their order are functions of seed and
epoch alone, so a run that stops at batch n of epoch e continues with the batches that it would have seen. Batches are
those of all processes together, in order of length (`part_of_rank`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from catchline.config.schema import TextConfig
from catchline.errors import ConfigError, DataError
from catchline.text.base import Tokenizer, extend_ids, extended
from catchline.text.sentences import sentence_gaps
from catchline.types import Batch, Record, TokenizedText, TrainingBatch


@dataclass(frozen=True, slots=True)
class Example:
    """One encoded record: what the collator needs, nothing padded. ``source_extended_ids`` (S,) int32 includes the
    special tokens where the run asks for them; words outside the vocabulary are ``V + k`` and ``oov_words[k]`` is their
    string. ``target_extended_ids`` (T,) int32 is what the decoder has to write, EOS at its end unless truncated
    without; ``None`` without a summary."""

    source_extended_ids: np.ndarray
    oov_words: list[str]
    target_extended_ids: np.ndarray | None = None
    record_id: str = ""
    index: int = 0


class EncodedDataset:
    """Examples under a truncation. ``examples`` are what `encode` makes, ``totals`` (2, N) the numbers of tokens of
    documents and summaries before the cut, ``references`` what each summary is compared with, where that is kept."""

    def __init__(
        self,
        examples: Sequence[Example],
        totals: np.ndarray,
        tokenizer: Tokenizer,
        config: TextConfig,
        references: Sequence[Sequence[str]] = (),
    ) -> None:
        self.max_source_tokens = self._built_source = config.max_source_tokens
        self.max_target_tokens = self._built_target = config.max_target_tokens
        self._frame = _Frame(tokenizer, config)
        self._examples, self.references = examples, references
        self._source_totals, self._target_totals = totals.astype(np.int64)

    @classmethod
    def build(cls, records: Iterable[Record], tokenizer: Tokenizer, config: TextConfig) -> EncodedDataset:
        """Tokenize ``records`` in memory. Raises DataError: a text has no token, or there is no record."""
        encoded = list(encode(list(records), tokenizer, config))
        if not encoded:
            raise DataError("There are no records to encode; the data file is empty or every record was skipped.")
        examples, *totals = zip(*encoded, strict=True)
        return cls(examples, np.array(totals), tokenizer, config)

    def limits(self, max_source_tokens: int | None = None, max_target_tokens: int | None = None) -> EncodedDataset:
        """A view of the same examples with a narrower truncation: what is read of a shorter one is a prefix, extended
        ids included (`catchline.text.base`). Raises ConfigError: wider than the data set was built for."""
        view = copy.copy(self)
        view.max_source_tokens = max_source_tokens or self.max_source_tokens
        view.max_target_tokens = max_target_tokens or self.max_target_tokens
        if view.max_source_tokens > self._built_source or view.max_target_tokens > self._built_target:
            most = f"{self._built_source} source and {self._built_target} target tokens"
            raise ConfigError(f"The data was encoded with at most {most}: a phase can read less, not more.")
        self._frame.check(view.max_source_tokens, view.max_target_tokens)
        return view

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> Example:
        frame, example = self._frame, self._examples[index]
        source = example.source_extended_ids[: self.max_source_tokens - frame.around]
        words = example.oov_words[: max(int(source.max()) - frame.vocab_size + 1, 0)]
        if frame.around:
            source = np.concatenate((frame.prefix, source, frame.suffix))
        target = None if example.target_extended_ids is None else self._target(example, index, len(words))
        return Example(source, words, target, example.record_id, index)

    def _target(self, example: Example, index: int, num_words: int) -> np.ndarray:
        frame, target = self._frame, example.target_extended_ids
        assert target is not None
        room = self.max_target_tokens - len(frame.target_prefix)
        closed = frame.eos_on_truncation or self._target_totals[index] + frame.around_target <= self.max_target_tokens
        ids = target[: room - 1] if closed else target[:room]
        # a word that only the part of the source behind the cut has cannot be copied
        ids = np.where(ids >= frame.vocab_size + num_words, frame.unk_id, ids)
        return np.concatenate((frame.target_prefix, ids, [frame.eos_id] if closed else [])).astype(np.int32)

    @property
    def source_lengths(self) -> np.ndarray:
        """The number of source ids of every example under the present truncation, special tokens included: int64."""
        return np.minimum(self._source_totals + self._frame.around, self.max_source_tokens)

    @property
    def target_lengths(self) -> np.ndarray:
        """The number of target ids of every example under the present truncation, EOS included: int64."""
        return np.minimum(self._target_totals + self._frame.around_target, self.max_target_tokens)

    @property
    def targets_cut(self) -> np.ndarray:
        """Which summaries are longer than the present truncation: bool."""
        return self._target_totals + self._frame.around_target > self.max_target_tokens


def encode(records: Sequence[Record], tokenizer: Tokenizer, config: TextConfig) -> Iterator[tuple[Example, int, int]]:
    """Each record as an example, cut, without special tokens, with the numbers of tokens of its document and summary
    before the cut (separators counted). Raises DataError: a document or summary holds no token."""
    frame, separator = _Frame(tokenizer, config), tokenizer.separator
    sides = [[record.document for record in records], [record.summary for record in records]]
    gaps: list[Any] = [None, None]
    if separator is not None:
        gaps = list(zip(*(record_gaps(record, separator) for record in records), strict=True)) or gaps
    rooms = (config.max_source_tokens - frame.around, config.max_target_tokens)
    sources, targets = map(tokenizer.encode_ids, sides, rooms, gaps)
    for number, (record, source, target) in enumerate(zip(records, sources, targets, strict=True), start=1):
        (ids, unknown, total), (target_ids, target_unknown, target_total) = source, target
        if not total or (record.summary and not target_total):
            side, origin = "summary" if total else "document", record.origin or f"record '{record.id or number}'"
            raise DataError(f"{origin}: the {side} has no token after tokenization.")
        ids, words = extend_ids(ids, unknown, frame.vocab_size, frame.unk_id, None if frame.extends else [])
        target_ids, _ = extend_ids(target_ids, target_unknown, frame.vocab_size, frame.unk_id, words)
        yield Example(ids, words, target_ids if target_total else None, record.id), total, target_total


def record_gaps(record: Record, separator: str) -> list[list[tuple[int, int]]]:
    """Where ``separator`` belongs in the document (between its given sentences, else between those found in it) and in
    the summary."""
    document = sentence_gaps(record.document, separator, record.sentences)
    return [document, sentence_gaps(record.summary, separator, by_line=True)]


def encode_documents(
    documents: Sequence[str | Record], tokenizer: Tokenizer, config: TextConfig, ids: Sequence[str] = ()
) -> tuple[list[Example], list[TokenizedText]]:
    """Encode raw documents for decoding: the examples for the collator, and each source's tokens and offsets, those of
    the example's ids, special tokens included. A record's given sentences count where a separator stands between
    sentences. Raises DataError: a document holds no token."""
    records = [Record(document) if isinstance(document, str) else document for document in documents]
    sources, separator, limit = [record.document for record in records], tokenizer.separator, config.max_source_tokens
    gaps = None if separator is None else [record_gaps(record, separator)[0] for record in records]
    texts = list(tokenizer.encode_stream(sources, max_tokens=limit, specials=config.source_specials, gaps=gaps))
    return examples_of(texts, tokenizer, config, ids), texts


def examples_of(
    texts: Sequence[TokenizedText], tokenizer: Tokenizer, config: TextConfig, ids: Sequence[str] = ()
) -> list[Example]:
    """The examples of tokens that are cut already. Raises DataError: a document holds no token."""
    frame, examples = _Frame(tokenizer, config), []
    for index, (text, record_id) in enumerate(zip(texts, ids or [""] * len(texts), strict=True)):
        if not text.total:
            raise DataError(f"Document {record_id or index + 1} is empty; there is nothing to summarize.")
        source, words = extended(text, frame.vocab_size, frame.unk_id, None if frame.extends else [])
        examples.append(Example(source, words, None, record_id, index))
    return examples


class _Frame:
    """What stands around a text's own tokens, and how its unknown words are numbered."""

    def __init__(self, tokenizer: Tokenizer, config: TextConfig) -> None:
        self.vocab_size, self.unk_id, self.eos_id = tokenizer.vocab_size, tokenizer.unk_id, tokenizer.eos_id
        wrapped = config.source_specials
        self.prefix = np.array(tokenizer.prefix_ids if wrapped is True else (), dtype=np.int32)
        self.suffix = np.array(tokenizer.suffix_ids if wrapped else (), dtype=np.int32)
        self.target_prefix = np.array(tokenizer.target_prefix_ids, dtype=np.int32)
        self.around, self.around_target = len(self.prefix) + len(self.suffix), len(self.target_prefix) + 1  # EOS
        self.eos_on_truncation = config.eos_on_truncation
        self.extends = config.oov_copy == "extended"
        if config.sentence_separator != tokenizer.separator:
            raise ConfigError(
                f"text.sentence_separator is {config.sentence_separator!r}, but the tokenizer was made with "
                f"{tokenizer.separator!r}; use the tokenizer's, or train again."
            )
        self.check(config.max_source_tokens, config.max_target_tokens)

    def check(self, max_source_tokens: int, max_target_tokens: int) -> None:
        if max_source_tokens <= self.around or max_target_tokens <= len(self.target_prefix):
            limits = f"{max_source_tokens} source and {max_target_tokens} target tokens"
            raise ConfigError(f"{limits} leave no room for text besides the special tokens.")


class Collator:
    """``collator(examples) -> Batch`` of NumPy arrays. It is a `TrainingBatch` when every example has a summary. The
    decoder's input is the target shifted by one with the start token in front; words outside the vocabulary become UNK
    wherever an array feeds an embedding."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.vocab_size = tokenizer.vocab_size
        self.pad_id, self.unk_id, self.start_id = tokenizer.pad_id, tokenizer.unk_id, tokenizer.decoder_start_id

    def __call__(self, examples: Sequence[Example]) -> Batch:
        """Pad ``examples``, none of which is empty."""
        ids, mask = self._pad([example.source_extended_ids for example in examples])
        source: dict[str, Any] = {
            "source_ids": np.where(ids >= self.vocab_size, self.unk_id, ids),
            "source_extended_ids": ids,
            "source_mask": mask,
            "extended_vocab_size": self.vocab_size + max(len(example.oov_words) for example in examples),
            "oov_words": [example.oov_words for example in examples],
            "record_ids": [example.record_id for example in examples],
            "indices": [example.index for example in examples],
        }
        targets = [example.target_extended_ids for example in examples if example.target_extended_ids is not None]
        if len(targets) < len(examples):
            return Batch(**source)
        ids, mask = self._pad(targets)
        inputs = np.full_like(ids, self.start_id)
        inputs[:, 1:] = np.where(ids[:, :-1] >= self.vocab_size, self.unk_id, ids[:, :-1])
        inputs = np.where(mask, inputs, self.pad_id)
        return TrainingBatch(**source, target_input_ids=inputs, target_ids=ids, target_mask=mask)

    def _pad(self, rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        mask = np.arange(lengths.max())[None, :] < lengths[:, None]  # (B, S)
        padded = np.full(mask.shape, self.pad_id, dtype=np.int64)
        padded[mask] = np.concatenate(rows)
        return padded, mask


# ------------------------------------------------------------------------------------------ the batches of an epoch

POOL = 100  # batches


def bucketed(lengths: np.ndarray, size: int, seed: int, epoch: int, pool: int = POOL) -> list[np.ndarray]:
    """Batches of similar length (the scheme of See et al., 2017): the indices are shuffled by (seed, epoch), cut into
    pools of ``pool`` batches, each pool is sorted by length and sliced, and the batches are shuffled."""
    random = np.random.default_rng((seed, epoch))
    batches: list[np.ndarray] = []
    for part in cut_by_number(random.permutation(len(lengths)), size * pool):
        batches += cut_by_number(part[np.argsort(lengths[part], kind="stable")], size)
    return [batches[number] for number in random.permutation(len(batches))]


def by_length(lengths: np.ndarray, seed: int) -> np.ndarray:
    """All indices sorted by length, to be cut once (the scheme of Chen et al., 2016); documents of equal length are
    ordered by ``seed``. `shuffled` orders the batches of an epoch."""
    order = np.random.default_rng(seed).permutation(len(lengths))
    return order[np.argsort(lengths[order], kind="stable")]


def shuffled(batches: Sequence[np.ndarray], seed: int, epoch: int) -> list[np.ndarray]:
    """The batches in the order of ``epoch``."""
    return [batches[number] for number in np.random.default_rng((seed, epoch)).permutation(len(batches))]


def cut_by_number(order: np.ndarray, size: int) -> list[np.ndarray]:
    """Batches of ``size`` examples; the last may have fewer."""
    return [order[start : start + size] for start in range(0, len(order), size)]


def cut_by_tokens(order: np.ndarray, lengths: np.ndarray, tokens: int, ranks: int = 1) -> list[np.ndarray]:
    """Batches of as many examples as fit: a rank's examples times the longest of ``lengths``, those of the longer side
    of each pair, is at most ``tokens`` (the batches of Duan et al., 2019). An example that is longer by itself is all
    that a rank gets."""
    cuts, start, longest = [], 0, 0
    for place, length in enumerate(lengths[order].tolist()):
        longest = max(longest, length)
        if place - start >= ranks and longest * -((start - place - 1) // ranks) > tokens:
            cuts.append(place)
            start, longest = place, length
    return np.split(order, cuts)


def part_of_rank(batch: np.ndarray, rank: int, ranks: int) -> list[int]:
    """Every ``ranks``-th example of a batch: the parts are alike in length, so that no process waits for another. Where
    a batch has fewer examples than there are ranks, they are used again."""
    return np.resize(batch, max(len(batch), ranks))[rank::ranks].tolist()
