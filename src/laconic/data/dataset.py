"""Records as compact arrays of ids, ready for collation.

Extended ids are numbered by first appearance in the source, so a shorter truncation is a prefix of a longer
one: `EncodedDataset.limits` narrows the truncation without tokenizing again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from laconic.config.schema import TextConfig
from laconic.errors import ConfigError, DataError
from laconic.text.base import Tokenizer
from laconic.text.sentences import sentence_gaps
from laconic.text.unknown import extend_source, extend_target
from laconic.types import Record, TokenizedText


@dataclass(frozen=True, slots=True)
class Example:
    """One encoded record: what the collator needs, nothing padded.

    ``source_extended_ids`` (S,) int32 includes the special tokens where the run asks for them; words outside
    the vocabulary are ``V + k`` and ``oov_words[k]`` is their string. ``target_extended_ids`` (T,) int32 is
    what the decoder has to write, EOS at its end unless truncated without; ``None`` without a summary.
    """

    source_extended_ids: np.ndarray
    oov_words: list[str]
    target_extended_ids: np.ndarray | None = None
    record_id: str = ""
    index: int = 0
    source_truncated: bool = False
    target_truncated: bool = False


class EncodedDataset:
    """A data set in memory: flat int32 arrays with one offset a record. Build it with `build`.

    ``separator_id`` is the id of the word between sentences, none where there is no such word. ``num_too_long`` counts
    the documents that were left out for their length.
    """

    records: list[Record]
    max_source_tokens: int
    max_target_tokens: int
    num_too_long: int = 0

    def __init__(self, records: list[Record], tokenizer: Tokenizer, config: TextConfig) -> None:
        self.records = records
        self.max_source_tokens = self._built_source = config.max_source_tokens
        self.max_target_tokens = self._built_target = config.max_target_tokens
        self._frame = _Frame(tokenizer, config)
        self._frame.check(self.max_source_tokens, self.max_target_tokens)
        self.separator_id = tokenizer.separator_id
        self._sources = _Ragged()
        self._targets = _Ragged()
        self._oov_words: list[tuple[str, ...]] = []

    @classmethod
    def build(
        cls,
        records: Iterable[Record],
        tokenizer: Tokenizer,
        text_config: TextConfig,
        progress: Callable[[int], object] | None = None,
        *,
        max_document_tokens: int | None = None,
    ) -> EncodedDataset:
        """Tokenize ``records``; ``progress(n)`` is called with the number of records newly done.

        Records whose document has more than ``max_document_tokens`` tokens (separators counted) are left out.

        Raises:
            DataError: a document or summary holds no token (names the record's origin), or there is no record.
        """
        given = list(records)
        data = cls([], tokenizer, text_config)
        if not given:
            raise DataError("There are no records to encode; the data file is empty or every record was skipped.")
        separator = tokenizer.separator
        sources = tokenizer.encode_stream(
            (record.document for record in given),
            max_tokens=data._frame.source_room(data.max_source_tokens),
            gaps=None if separator is None else (document_gaps(record, separator) for record in given),
        )
        targets = tokenizer.encode_stream(
            (record.summary for record in given),
            max_tokens=data.max_target_tokens,
            gaps=None if separator is None else (sentence_gaps(r.summary, separator, by_line=True) for r in given),
        )
        interned: dict[str, str] = {}
        for count, (record, source, target) in enumerate(zip(given, sources, targets, strict=True), start=1):
            if max_document_tokens is None or source.total <= max_document_tokens:
                data._add(record, source, target, interned)
            if progress and count % 256 == 0:
                progress(256)
        if progress:
            progress(len(given) % 256)
        data.num_too_long = len(given) - len(data.records)
        if not data.records:
            raise DataError(
                f"All {len(given):,} documents have more than {max_document_tokens} tokens (data.max_document_tokens)."
            )
        data._sources.freeze()
        data._targets.freeze()
        return data

    def _add(self, record: Record, source: TokenizedText, target: TokenizedText, interned: dict[str, str]) -> None:
        self.records.append(record)
        if not source.ids:
            raise DataError(f"{_origin(record, len(self._sources))}: the document holds no token after tokenization.")
        if record.summary and not target.ids:
            raise DataError(f"{_origin(record, len(self._sources))}: the summary holds no token after tokenization.")
        extended, words = self._frame.extend(source)
        self._sources.append(extended, source.total)
        self._targets.append(self._frame.extend_target(target, words), target.total)
        self._oov_words.append(tuple(interned.setdefault(word, word) for word in words))

    def limits(self, max_source_tokens: int | None = None, max_target_tokens: int | None = None) -> EncodedDataset:
        """Return a view of the same arrays with a narrower truncation (``None`` keeps the present one).

        Raises:
            ConfigError: wider than the data set was built for.
        """
        view = copy.copy(self)
        view.max_source_tokens = max_source_tokens or self.max_source_tokens
        view.max_target_tokens = max_target_tokens or self.max_target_tokens
        if view.max_source_tokens > self._built_source or view.max_target_tokens > self._built_target:
            raise ConfigError(
                f"The data was encoded with at most {self._built_source} source and {self._built_target} target "
                f"tokens; {view.max_source_tokens} and {view.max_target_tokens} need it encoded again with "
                "text.max_source_tokens and text.max_target_tokens that large."
            )
        self._frame.check(view.max_source_tokens, view.max_target_tokens)
        return view

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Example:
        source, source_total = self._sources[index]
        room = self._frame.source_room(self.max_source_tokens)
        target, target_total = self._targets[index]
        record = self.records[index]
        return self._frame.example(
            source[:room],
            self._oov_words[index],
            (target, target_total, self.max_target_tokens) if record.summary else None,
            record_id=record.id,
            index=index,
            source_truncated=source_total > room,
        )

    @property
    def source_lengths(self) -> list[int]:
        """The number of source ids of every example under the present truncation, special tokens included."""
        room = self._frame.source_room(self.max_source_tokens)
        lengths = np.minimum(self._sources.lengths, room) + len(self._frame.prefix) + len(self._frame.suffix)
        return lengths.tolist()

    @property
    def target_lengths(self) -> list[int]:
        """The number of target ids of every example under the present truncation, EOS included."""
        extra = len(self._frame.target_prefix) + 1
        return np.minimum(self._targets.totals + extra, self.max_target_tokens).tolist()

    def cut_shares(self) -> tuple[float, float]:
        """The shares of the documents and of the summaries that are longer than the present truncation."""
        sources = self._sources.totals > self._frame.source_room(self.max_source_tokens)
        targets = self._targets.totals + len(self._frame.target_prefix) + 1 > self.max_target_tokens
        return float(sources.mean()), float(targets.mean())

    def percentile(self, side: str, percent: float) -> int:
        """The limit in tokens (``source`` or ``target``) within which so many of the texts are whole."""
        frame = self._frame
        around = len(frame.target_prefix) + 1 if side == "target" else len(frame.prefix) + len(frame.suffix)
        totals = self._targets.totals if side == "target" else self._sources.totals
        return int(np.ceil(np.percentile(totals, percent))) + around

    @property
    def unknown_share(self) -> float:
        """The share of the documents' tokens that the vocabulary lacks."""
        ids = self._sources.flat
        return float(((ids >= self._frame.vocab_size) | (ids == self._frame.unk_id)).mean())


def document_gaps(record: Record, separator: str) -> list[tuple[int, int]]:
    """Where ``separator`` belongs in the document: between its given sentences, else between those found in it."""
    return sentence_gaps(record.document, separator, record.sentences)


def encode_documents(
    documents: Sequence[str | Record], tokenizer: Tokenizer, config: TextConfig, ids: Sequence[str] = ()
) -> tuple[list[Example], list[TokenizedText]]:
    """Encode raw documents for decoding: the examples for the collator, and each source's tokens and offsets.

    The token texts are those of the example's ids, special tokens included, so attention over the source can
    be shown in the user's text. A record's given sentences count where a separator stands between sentences.

    Raises:
        DataError: a document holds no token.
    """
    frame = _Frame(tokenizer, config)
    frame.check(config.max_source_tokens, config.max_target_tokens)
    records = [Record(document) if isinstance(document, str) else document for document in documents]
    separator = tokenizer.separator
    stream = tokenizer.encode_stream(
        (record.document for record in records),
        max_tokens=config.max_source_tokens,
        specials=config.source_specials,
        gaps=None if separator is None else (document_gaps(record, separator) for record in records),
    )
    texts = list(stream)
    examples = []
    for index, text in enumerate(texts):
        if not text.total:
            name = f" '{ids[index]}'" if ids and ids[index] else f" {index + 1}"
            raise DataError(f"Document{name} is empty; there is nothing to summarize.")
        extended, words = frame.extend(text)
        examples.append(
            Example(
                np.array(extended, dtype=np.int32),
                words,
                record_id=ids[index] if ids else "",
                index=index,
                source_truncated=text.truncated,
            )
        )
    return examples, texts


class _Frame:
    """What stands around a text's own tokens, and how its unknown words are numbered."""

    def __init__(self, tokenizer: Tokenizer, config: TextConfig) -> None:
        self.vocab_size, self.unk_id, self.eos_id = tokenizer.vocab_size, tokenizer.unk_id, tokenizer.eos_id
        wrapped = config.source_specials
        self.prefix = np.array(tokenizer.prefix_ids if wrapped is True else (), dtype=np.int32)
        self.suffix = np.array(tokenizer.suffix_ids if wrapped else (), dtype=np.int32)
        self.target_prefix = np.array(tokenizer.target_prefix_ids, dtype=np.int32)
        self.eos_on_truncation = config.eos_on_truncation
        self.extends = config.oov_copy == "extended"
        if config.sentence_separator != tokenizer.separator:
            raise ConfigError(
                f"text.sentence_separator is {config.sentence_separator!r}, but the tokenizer was made with "
                f"{tokenizer.separator!r}; use the tokenizer's, or train again."
            )

    def check(self, max_source_tokens: int, max_target_tokens: int) -> None:
        if self.source_room(max_source_tokens) < 1:
            raise ConfigError(f"max_source_tokens {max_source_tokens} leaves no room beside the special tokens.")
        if max_target_tokens - len(self.target_prefix) < 1:
            raise ConfigError(f"max_target_tokens {max_target_tokens} leaves no room beside the special tokens.")

    def source_room(self, max_source_tokens: int) -> int:
        return max_source_tokens - len(self.prefix) - len(self.suffix)

    def extend(self, source: TokenizedText) -> tuple[list[int], list[str]]:
        if not self.extends:
            return list(source.ids), []
        return extend_source(source, self.vocab_size, self.unk_id)

    def extend_target(self, target: TokenizedText, words: Sequence[str]) -> list[int]:
        return extend_target(target, words, self.vocab_size, self.unk_id)

    def example(
        self,
        source: np.ndarray,
        words: Sequence[str],
        target: tuple[np.ndarray, int, int] | None,
        *,
        record_id: str,
        index: int,
        source_truncated: bool,
    ) -> Example:
        seen = max(int(source.max()) - self.vocab_size + 1, 0)
        finished, cut = (None, False) if target is None else self._finish_target(*target, num_words=seen)
        return Example(
            np.concatenate((self.prefix, source, self.suffix)) if len(self.prefix) + len(self.suffix) else source,
            list(words[:seen]),
            finished,
            record_id,
            index,
            source_truncated,
            cut,
        )

    def _finish_target(
        self, target: np.ndarray, total: int, max_target_tokens: int, num_words: int
    ) -> tuple[np.ndarray, bool]:
        room = max_target_tokens - len(self.target_prefix)
        cut = total + 1 > room
        closed = not cut or self.eos_on_truncation
        kept = target[: room - 1] if closed else target[:room]
        # a word that only the part of the source behind the cut has cannot be copied
        kept = np.where(kept >= self.vocab_size + num_words, self.unk_id, kept)
        parts = (self.target_prefix, kept, [self.eos_id] if closed else [])
        return np.concatenate(parts).astype(np.int32), cut


class _Ragged:
    """Rows of different length in one int32 array."""

    def __init__(self) -> None:
        self._pending: list[np.ndarray] = []
        self._totals: list[int] = []
        self.flat = np.zeros(0, dtype=np.int32)
        self.starts = np.zeros(1, dtype=np.int64)
        self.totals = np.zeros(0, dtype=np.int64)

    def append(self, row: Sequence[int], total: int) -> None:
        self._pending.append(np.array(row, dtype=np.int32))
        self._totals.append(total)

    def freeze(self) -> None:
        self.starts = np.cumsum([0, *map(len, self._pending)], dtype=np.int64)
        self.flat = np.concatenate(self._pending)
        self.totals = np.array(self._totals, dtype=np.int64)
        self._pending = []
        self._totals = []

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self._pending) or len(self.starts) - 1

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.flat[self.starts[index] : self.starts[index + 1]], int(self.totals[index])


def _origin(record: Record, index: int) -> str:
    return record.origin or (f"record '{record.id}'" if record.id else f"record {index + 1}")
