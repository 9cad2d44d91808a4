"""Records as compact arrays of ids, ready for collation."""

from __future__ import annotations

import copy
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from catchline.config.schema import TextConfig
from catchline.errors import ConfigError, DataError
from catchline.files import write_json
from catchline.jobs import Pieces
from catchline.text.base import Tokenizer
from catchline.text.sentences import sentence_gaps
from catchline.text.unknown import ExtendedIds, extended
from catchline.types import Record, TokenizedText, references_of

RAGGED = ("source", "target", "words", "ids", "references")
COLUMNS = {
    **dict.fromkeys(("source", "target", "source.total", "target.total"), "<i4"),
    **dict.fromkeys((f"{name}.lengths" for name in RAGGED), "<i4"),
    **dict.fromkeys(("words", "ids", "references"), "u1"),
}
FACTS = "facts.json"
RECORDS = 1000  # a piece of work of a process


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


@dataclass(slots=True)
class Part:
    """Some records encoded: the columns of an `EncodedDataset`, rows one behind the other, and what was counted.

    ``source`` and ``target`` are int32 ids, ``words`` (those outside the vocabulary), ``ids`` and ``references`` UTF-8
    with a NUL between strings; under ``NAME.lengths`` the int32 lengths of a column's rows, under ``source.total`` and
    ``target.total`` the int32 numbers of tokens before the cut. Counted are ``records`` given, ``too_long`` documents
    that were left out, and ``unknown`` tokens of the documents, which the vocabulary lacks.
    """

    columns: dict[str, np.ndarray]
    counts: Counter[str]


class Pairs(list[Record]):
    """Records with their ``sides``, documents and summaries, which a process may have split into stretches already."""

    def __init__(self, records: Iterable[Record], sides: Sequence[list[str]]) -> None:
        super().__init__(records)
        self.sides = sides

    @classmethod
    def of(cls, records: Sequence[Record]) -> Pairs:
        if isinstance(records, Pairs):
            return records
        return cls(records, ([record.document for record in records], [record.summary for record in records]))


class EncodedDataset:
    """Encoded records as columns (`Part`), in memory (`build`) or mapped from the files of a folder (`open`).

    ``separator_id`` is the id of the word between sentences, none where there is no such word. ``num_too_long`` counts
    the documents that were left out for their length.
    """

    max_source_tokens: int
    max_target_tokens: int

    def __init__(
        self, columns: dict[str, np.ndarray], tokenizer: Tokenizer, config: TextConfig, counts: Mapping[str, int]
    ) -> None:
        self.max_source_tokens = self._built_source = config.max_source_tokens
        self.max_target_tokens = self._built_target = config.max_target_tokens
        self._frame = _Frame(tokenizer, config)
        self.separator_id = tokenizer.separator_id
        self.num_too_long, self._num_unknown = int(counts["too_long"]), int(counts["unknown"])
        self._sources, self._targets, self._words, self._ids, self._references = (
            _Ragged(columns[name], columns[f"{name}.lengths"]) for name in RAGGED
        )
        self._source_totals, self._target_totals = columns["source.total"], columns["target.total"]

    @classmethod
    def build(
        cls, records: Iterable[Record], tokenizer: Tokenizer, config: TextConfig, max_document_tokens: int | None = None
    ) -> EncodedDataset:
        """Tokenize ``records`` but those whose document has more than ``max_document_tokens`` (separators counted).

        Raises:
            DataError: a document or summary holds no token (names the record's origin), or there is no record.
        """
        encoder = Encoder(tokenizer, config, max_document_tokens)
        return cls.of(encoder, encoder.parts(records))

    @classmethod
    def of(cls, encoder: Encoder, found: Iterable[Part]) -> EncodedDataset:
        """The parts that ``encoder`` made, in memory.

        Raises:
            DataError: there is no record in them.
        """
        parts = list(found)
        counts = encoder.summed(part.counts for part in parts)
        columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in COLUMNS}
        return cls(columns, encoder.tokenizer, encoder.config, counts)

    @classmethod
    def open(cls, folder: Path, tokenizer: Tokenizer, text_config: TextConfig) -> EncodedDataset:
        """Map what `Encoder.store` wrote; nothing is read until it is used.

        Raises:
            OSError, ValueError: the folder is not there, or not whole.
        """
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        columns = {}
        for name, kind in COLUMNS.items():
            path, size = folder / name, int(facts["sizes"][name])
            if path.stat().st_size != size * np.dtype(kind).itemsize:
                raise ValueError(f"{path} is not whole")
            columns[name] = np.asarray(np.memmap(path, kind, mode="r")) if size else np.zeros(0, kind)
        return cls(columns, tokenizer, text_config, facts)

    def limits(self, max_source_tokens: int | None = None, max_target_tokens: int | None = None) -> EncodedDataset:
        """Return a view of the same arrays with a narrower truncation (``None`` keeps the present one): what is read of
        a shorter one is a prefix, extended ids included (`catchline.text.unknown`).

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
        return len(self._sources)

    def __getitem__(self, index: int) -> Example:
        frame = self._frame
        room = frame.source_room(self.max_source_tokens)
        source = self._sources[index][:room]
        words = self._words.strings(index)[: max(int(source.max()) - frame.vocab_size + 1, 0)]
        total = int(self._target_totals[index])
        cut = total + frame.around_target > self.max_target_tokens
        return Example(
            np.concatenate((frame.prefix, source, frame.suffix)) if frame.around else source,
            words,
            self._finished(self._targets[index], cut, len(words)) if total else None,
            "".join(self._ids.strings(index)),
            index,
        )

    def _finished(self, target: np.ndarray, cut: bool, num_words: int) -> np.ndarray:
        """A summary's ids as the decoder has to write them; is it ``cut``?"""
        frame = self._frame
        room = self.max_target_tokens - len(frame.target_prefix)
        closed = not cut or frame.eos_on_truncation
        kept = target[: room - 1] if closed else target[:room]
        # a word that only the part of the source behind the cut has cannot be copied
        kept = np.where(kept >= frame.vocab_size + num_words, frame.unk_id, kept)
        return np.concatenate((frame.target_prefix, kept, [frame.eos_id] if closed else [])).astype(np.int32)

    def references(self, index: int) -> list[str]:
        """What the record's summary is compared with, where `Encoder` was to keep it."""
        return self._references.strings(index)

    @property
    def source_lengths(self) -> np.ndarray:
        """The number of source ids of every example under the present truncation, special tokens included: int64."""
        room = self._frame.source_room(self.max_source_tokens)
        return np.minimum(self._sources.lengths, room) + self._frame.around

    @property
    def target_lengths(self) -> np.ndarray:
        """The number of target ids of every example under the present truncation, EOS included: int64."""
        return np.minimum(self._target_totals.astype(np.int64) + self._frame.around_target, self.max_target_tokens)

    def cut_shares(self) -> tuple[float, float]:
        """The shares of the documents and of the summaries that are longer than the present truncation."""
        sources = self._source_totals > self._frame.source_room(self.max_source_tokens)
        return float(sources.mean()), float(self.targets_cut.mean())

    @property
    def targets_cut(self) -> np.ndarray:
        """Which summaries are longer than the present truncation: bool."""
        return np.asarray(self._target_totals + self._frame.around_target > self.max_target_tokens)

    def percentile(self, side: str, percent: float) -> int:
        """The limit in tokens (``source`` or ``target``) within which so many of the texts are whole."""
        totals, around = self._source_totals, self._frame.around
        if side == "target":
            totals, around = self._target_totals, self._frame.around_target
        return int(np.ceil(np.percentile(totals, percent))) + around

    @property
    def unknown_share(self) -> float:
        """The share of the documents' tokens that the vocabulary lacks."""
        return self._num_unknown / len(self._sources.flat)


class Encoder:
    """Makes the columns of an `EncodedDataset`, by several processes if there are any.

    Records whose document has more than ``max_document_tokens`` tokens are left out. ``references``: keep what
    summaries are compared with.
    """

    def __init__(
        self, tokenizer: Tokenizer, config: TextConfig, max_document_tokens: int | None = None, references: bool = False
    ) -> None:
        self.tokenizer, self.config = tokenizer, config
        self._most, self._references = max_document_tokens, references
        self._frame = _Frame(tokenizer, config)

    def parts(
        self, records: Iterable[Record], workers: int = 1, progress: Callable[[int], object] = lambda _: None
    ) -> Iterator[Part]:
        """The parts in the order of the records; only some of them are in memory at a time.

        Raises:
            DataError: a document or summary holds no token (names the record's origin).
        """
        done = 0
        for part in Pieces.of(records, RECORDS).worked(self._part, workers):
            if isinstance(part, tuple):
                place, origin, problem = part
                raise DataError(f"{origin or f'record {done + place + 1}'}: {problem}")
            done += part.counts["records"]
            progress(part.counts["records"])
            yield part

    def store(self, folder: Path, parts: Iterable[Part], facts: Callable[[], dict[str, Any]]) -> None:
        """Write the parts to the files of ``folder``, and in the end beside them ``facts()`` for whoever opens it."""
        counted = []
        sizes = dict.fromkeys(COLUMNS, 0)
        with ExitStack() as opened:
            files = {name: opened.enter_context((folder / name).open("wb")) for name in COLUMNS}
            for part in parts:
                for name, values in part.columns.items():
                    files[name].write(values.tobytes())
                    sizes[name] += len(values)
                counted.append(part.counts)
        write_json(folder / FACTS, {**facts(), **self.summed(counted), "sizes": sizes})

    def summed(self, counted: Iterable[Counter[str]]) -> Counter[str]:
        """What the parts counted.

        Raises:
            DataError: there was no record, or all documents were too long.
        """
        sums: Counter[str] = Counter()
        for counts in counted:
            sums.update(counts)
        if not sums["records"]:
            raise DataError("There are no records to encode; the data file is empty or every record was skipped.")
        if sums["records"] == sums["too_long"]:
            raise DataError(
                f"All {sums['records']:,} documents have more than {self._most} tokens (data.max_document_tokens)."
            )
        return sums

    def _part(self, given: Sequence[Record]) -> Part | tuple[int, str, str]:
        """The records encoded; or which of them cannot be, and why."""
        frame, tokenizer, separator = self._frame, self.tokenizer, self.tokenizer.separator
        gaps: list[Any] = [None, None]
        if separator is not None:
            gaps[0] = [document_gaps(record, separator) for record in given]
            gaps[1] = [sentence_gaps(record.summary, separator, by_line=True) for record in given]
        room = frame.source_room(self.config.max_source_tokens)
        documents, summaries = Pairs.of(given).sides
        source = tokenizer.encode_many(documents, room, gaps[0])
        target = tokenizer.encode_many(summaries, self.config.max_target_tokens, gaps[1])
        short = source.totals <= (self._most or sys.maxsize)
        for place in np.flatnonzero(short & ((source.totals == 0) | (target.totals == 0))).tolist():
            record = given[place]
            for name, text, found in (("document", record.document, source), ("summary", record.summary, target)):
                if text and not found.totals[place]:
                    origin = record.origin or (f"record '{record.id}'" if record.id else "")
                    return place, origin, f"the {name} holds no token after tokenization."
        kept = [given[place] for place in np.flatnonzero(short).tolist()]
        source, target = source.chosen(short), target.chosen(short)
        own = ExtendedIds(source, frame.vocab_size, frame.unk_id, frame.extends)
        columns = {
            "source": own.ids,
            "source.lengths": source.lengths.astype(np.int32),
            "source.total": source.totals.astype(np.int32),
            "target": own.of_targets(target),
            "target.lengths": target.lengths.astype(np.int32),
            "target.total": target.totals.astype(np.int32),
        }
        texts: dict[str, Sequence[Iterable[str]]] = {
            "words": own.words,
            "ids": [[record.id] for record in kept],
            "references": [references_of(record) if self._references else () for record in kept],
        }
        for name, rows in texts.items():
            joined = list(map(_joined, rows))
            columns[name] = np.frombuffer(b"".join(joined), np.uint8)
            columns[f"{name}.lengths"] = np.fromiter(map(len, joined), np.int32)
        unknown = int(((own.ids >= frame.vocab_size) | (own.ids == frame.unk_id)).sum())
        return Part(columns, Counter(records=len(given), too_long=len(given) - len(kept), unknown=unknown))


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
    for index, (text, record_id) in enumerate(zip(texts, ids or [""] * len(texts), strict=True)):
        if not text.total:
            raise DataError(f"Document {record_id or index + 1} is empty; there is nothing to summarize.")
        source, words = extended(text, frame.vocab_size, frame.unk_id, None if frame.extends else [])
        examples.append(Example(source, list(words), None, record_id, index))
    return examples, texts


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
        if self.source_room(max_source_tokens) < 1:
            raise ConfigError(f"max_source_tokens {max_source_tokens} leaves no room beside the special tokens.")
        if max_target_tokens - len(self.target_prefix) < 1:
            raise ConfigError(f"max_target_tokens {max_target_tokens} leaves no room beside the special tokens.")

    def source_room(self, max_source_tokens: int) -> int:
        return max_source_tokens - self.around


class _Ragged:
    """Rows of different length in one array."""

    def __init__(self, flat: np.ndarray, lengths: np.ndarray) -> None:
        self.flat, self.lengths = flat, lengths
        self._starts = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, dtype=np.int64, out=self._starts[1:])  # without the type, ten times as long

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.flat[self._starts[index] : self._starts[index + 1]]

    def strings(self, index: int) -> list[str]:
        row = self[index]
        return row.tobytes().decode("utf-8", "surrogatepass").split("\0")[:-1] if len(row) else []


def _joined(strings: Iterable[str]) -> bytes:
    return "".join([f"{string}\0" for string in strings]).encode("utf-8", "surrogatepass")
