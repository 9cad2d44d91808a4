"""The pairs of a run: read once and encoded once for all runs that read them so; and the batches that an update reads.

Pairs and encoded pairs are folders of a cache, each named by a digest of what it was made of: the bytes and paths of
the data files, the settings that say what is read and how it is encoded, the tokenizer, and the code. A folder appears
whole and never changes, so runs may share it. Pairs are Arrow files, which are mapped: memory does not grow with them.

The cache is the folder that ``CATCHLINE_CACHE`` names (``off``: nothing is kept after the run), else ``catchline`` in
the user's folder of caches. Folders that nobody used for thirty days go when a new one is made.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tokenizers
import torch
from torch import Tensor

from catchline import __version__
from catchline.config.names import sources_of
from catchline.config.schema import SPLITS, DataConfig, TextConfig, TrainingConfig
from catchline.data.checks import supported_share
from catchline.data.dataset import (
    Collator,
    EncodedDataset,
    Example,
    bucketed,
    by_length,
    cut_by_number,
    cut_by_tokens,
    encode,
    part_of_rank,
    shuffled,
)
from catchline.data.records import ReadOptions, SkipCounter, files_of, read_with
from catchline.errors import ConfigError, DataError
from catchline.files import digest_of, replacing_folder, sha256, write_json
from catchline.jobs import batches, parallel
from catchline.layers import chunks as noise
from catchline.text.base import CONFIG_FILE, TOKENIZER_FILE, Tokenizer
from catchline.text.sentences import between, sentence_gaps
from catchline.text.truecase import MAX_CHARACTERS, Casing, learn_casing
from catchline.training.log import ShowProgress
from catchline.types import Record, TrainingBatch, references_of

CACHE, OFF = "CATCHLINE_CACHE", "off"
UNUSED_DAYS = 30
_PIECE = 1000  # records, a piece of work of a process
_FILE, _FACTS = "pairs.arrow", "facts.json"
_TEXTS, _LISTS = pa.list_(pa.large_string()), ("references", "sentences")
_STRINGS = ("document", "summary", "id", "origin")
_PAIRS = pa.schema([*((name, pa.large_string()) for name in _STRINGS), *((name, _TEXTS) for name in _LISTS)])
_IDS = pa.list_(pa.int32())
_ENCODED = pa.schema(
    [("source", _IDS), ("target", _IDS), ("words", _TEXTS), ("id", pa.large_string()), ("references", _TEXTS)]
    + [(name, pa.int32()) for name in ("source_total", "target_total")]
)


class Corpus:
    """The pairs of one split, read and judged when they are first needed (DataError). Training pairs of which the part
    that is read holds too little are left out (``data.min_supported``)."""

    def __init__(self, data: DataConfig, split: str, max_source_tokens: int = 0) -> None:
        path = getattr(data, split)
        if path is None:
            raise ConfigError(f"The run names no {split}ing data: set data.{split}, or give --data DIR.")
        self.path, self.data = str(path), data
        self._least = data.min_supported if split == "train" else 0.0
        self._words = max_source_tokens

    @cached_property
    def key(self) -> str:
        """A digest of what is read: the files, and the settings that say which of it and how."""
        files = files_of(self.path, self.data.format)
        for file in files:
            if not file.is_file():
                raise DataError(f"{file} is a pipe or device; training reads its data more than once: name a file.")
        parts = [[str(file), digest_of(file)] for file in files] or os.urandom(16).hex()  # of the hub: read it again
        settings = self.data.model_dump(mode="json", exclude={*SPLITS, "min_supported"})
        return _digest(self.path, self._least and [self._least, self._words], parts, settings)

    @cached_property
    def _folder(self) -> Path:
        return cached("pairs", self.key, self._write)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """``notes`` for the person who trains, ``characters`` of the documents, and ``digest``: SHA-256 of the pairs in
        their order, each document, a byte 0, its summary, a byte 1."""
        return dict(json.loads((self._folder / _FACTS).read_text(encoding="utf-8")))

    @cached_property
    def table(self) -> pa.Table:
        """The pairs, mapped."""
        return _mapped(self._folder)

    def _write(self, folder: Path) -> None:
        skipped, notes, digest = SkipCounter(), list[str](), hashlib.sha256()
        read = kept = characters = 0
        records = read_with(self.path, ReadOptions.of(self.data), on_skip=skipped, on_choice=notes.append)
        with pa.OSFile(str(folder / _FILE), "wb") as file, pa.ipc.new_file(file, _PAIRS) as writer:
            for some in batches(records, _PIECE):
                good = [pair for pair in some if not self._least or supported_share(pair, self._words) >= self._least]
                read, kept = read + len(some), kept + len(good)
                characters += sum(len(pair.document) for pair in good)
                digest.update("".join([f"{pair.document}\0{pair.summary}\1" for pair in good]).encode())
                columns = [pa.array([getattr(p, own.name) for p in good], own.type) for own in _PAIRS]
                writer.write_batch(pa.record_batch(columns, schema=_PAIRS))
        if skipped.total:
            notes.append(f"{self.path}: {skipped.describe()}; for example: {skipped.examples[0]}")
        if self._least:
            notes.append(
                f"{self.path}: {read - kept:,} of {read:,} pairs left out, because less than {self._least:.0%} of the "
                "summary's words are in the part that is read (data.min_supported)"
            )
        if read and not kept:
            raise DataError(f"{notes[-1]}. Are the columns right? data.min_supported=0 (--set) learns from all pairs.")
        write_json(folder / _FACTS, {"notes": notes, "characters": characters, "digest": digest.hexdigest()})

    def casing(self) -> Casing:
        """How the pairs write their words; of many documents some are read."""
        step = 1 + self.facts["characters"] // MAX_CHARACTERS
        return learn_casing(islice(_Texts(self.table["document"]), 0, None, step), _Texts(self.table["summary"]))

    def vocabulary_texts(self, text: TextConfig) -> Iterator[str]:
        """What the vocabulary is learnt from; a separator that the data spells out is not part of it."""
        separator, names = text.sentence_separator, ("document", "summary")
        for name in names[:1] if text.vocabulary_from == "documents" else names:
            for own in _Texts(self.table[name]):
                if separator is not None and separator in own:
                    own = " ".join(part for _, part in between(own, sentence_gaps(own, separator)))
                yield own


def encoded(
    corpus: Corpus, name: str, tokenizer: Tokenizer, folder: Path, text: TextConfig, show: ShowProgress
) -> tuple[EncodedDataset, list[str]]:
    """The pairs encoded, from the cache or into it, and what there is to say of it; ``folder`` is the tokenizer's."""
    most, references = corpus.data.max_document_tokens, name == "validation"

    def piece(batch: pa.RecordBatch) -> pa.RecordBatch:
        pairs = [Record(**row | {name: tuple(row[name]) for name in _LISTS}) for row in batch.to_pylist()]
        rows = []
        for pair, (example, total, target_total) in zip(pairs, encode(pairs, tokenizer, text), strict=True):
            if most is None or total <= most:
                texts = (example.oov_words, example.record_id, list(references_of(pair)) if references else [])
                rows.append((example.source_extended_ids, example.target_extended_ids, *texts, total, target_total))
        columns = zip(*rows, strict=True) if rows else [()] * len(_ENCODED)
        arrays = [pa.array(values, own.type) for values, own in zip(columns, _ENCODED, strict=True)]
        return pa.record_batch(arrays, schema=_ENCODED)

    def make(place: Path) -> None:
        show(0, description=f"Encoding {name} data")
        done = 0
        with pa.OSFile(str(place / _FILE), "wb") as file, pa.ipc.new_file(file, _ENCODED) as writer:
            for batch in parallel(piece, corpus.table.to_batches()):
                writer.write_batch(batch)
                done += batch.num_rows
                show(done)
        if not done:
            raise DataError(
                f"All {corpus.table.num_rows:,} documents have more than {most} tokens (data.max_document_tokens)."
            )

    settings = text.model_dump(mode="json", exclude={"tokenizer", "vocabulary_from", "pretrained_embeddings"})
    files = (folder / TOKENIZER_FILE, folder / CONFIG_FILE, *sources_of(text.tokenizer))
    made_of = [tokenizer.vocab_size, *(digest_of(file) for file in files)]
    table = _mapped(cached("encoded", _digest(corpus.key, made_of, settings, most, references), make))
    totals = np.array([table[f"{side}_total"].to_numpy() for side in ("source", "target")])
    compared = table["references"].to_pylist() if references else ()
    data = EncodedDataset(_Examples(table), totals, tokenizer, text, compared)
    notes = []
    if left := corpus.table.num_rows - len(data):
        notes.append(
            f"{name} data: {left:,} of {len(data) + left:,} pairs left out, because the document has more than "
            f"{most:,} tokens (data.max_document_tokens); {len(data):,} are left"
        )
    return data, notes


class _Texts:
    """A column of strings, which can be read again and again."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __iter__(self) -> Iterator[str]:
        for chunk in self._column.chunks:
            yield from chunk.to_pylist()


class _Examples(Sequence[Any]):
    """The rows of encoded pairs."""

    def __init__(self, table: pa.Table) -> None:
        self._source, self._target, self._words, self._id = map(table.column, ("source", "target", "words", "id"))

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:
        target = self._target[index].values
        ids = None if target is None else target.to_numpy()
        source, words = self._source[index].values.to_numpy(), self._words[index].as_py()
        return Example(source, words, ids, self._id[index].as_py(), index)


def _mapped(folder: Path) -> pa.Table:
    try:
        return pa.ipc.open_file(pa.memory_map(str(folder / _FILE))).read_all()
    except pa.ArrowInvalid as error:
        raise DataError(f"{folder} is damaged ({error}): remove it; it is made again.") from None


# --------------------------------------------------------------------------------------------------------- the cache


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="catchline-")


def cache_folder() -> Path:
    """Where things are kept, made if need be; a folder that goes with this process where nothing can be kept."""
    given = os.environ.get(CACHE)
    if given != OFF:
        folder = Path(given or os.path.join(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "catchline"))
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    return Path(_temporary().name)


def cached(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder of that key; ``make`` fills it if it is not there."""
    place = cache_folder()
    folder = place / f"{kind}-{key[:32]}"
    if not folder.is_dir():
        for other in place.glob(f"*{kind}-{'[0-9a-f]' * 32}*"):  # nothing else that lies there, drafts of the dead too
            if other.stat().st_mtime < time.time() - UNUSED_DAYS * 86_400:
                shutil.rmtree(other, ignore_errors=True)
        with replacing_folder(folder) as draft:
            make(draft)
    os.utime(folder)
    return folder


@cache
def _code() -> str:
    """A digest of the modules that decide what reading and encoding make."""
    package = Path(__file__).parent.parent
    files = [path for folder in ("text", "data") for path in sorted((package / folder).glob("*.py"))]
    return sha256(b"".join(path.read_bytes() for path in [*files, Path(__file__)]))


def _digest(*parts: Any) -> str:
    made_of = [_code(), __version__, tokenizers.__version__, *parts]
    return sha256(json.dumps(made_of, sort_keys=True).encode("utf-8", "surrogatepass"))


# ------------------------------------------------------------------------------------------------------ batches


class BatchStream:
    """The training batches of one process, from any position on. A narrower truncation (``dataset`` may be replaced by
    a view) leaves them as they are: documents in order of length are so under any limit."""

    def __init__(
        self, dataset: EncodedDataset, collator: Collator, config: TrainingConfig, rank: int = 0, world_size: int = 1
    ) -> None:
        self.dataset, self._collator, self._config = dataset, collator, config
        self._rank, self._world_size, self._batch_size = rank, world_size, config.batch_size * world_size
        self._lengths = lengths = dataset.source_lengths
        self._order: tuple[int, list[np.ndarray]] | None = None
        self._fixed: list[np.ndarray] | None = None
        if config.batch_tokens is not None:
            longer = np.maximum(lengths, dataset.target_lengths)
            self._fixed = cut_by_tokens(by_length(lengths, config.seed), longer, config.batch_tokens, world_size)
        elif config.batching == "sorted":
            self._fixed = cut_by_number(by_length(lengths, config.seed), self._batch_size)
        self.batches_per_epoch = -(-len(dataset) // self._batch_size) if self._fixed is None else len(self._fixed)
        self.updates_per_epoch = -(-self.batches_per_epoch // config.accumulation)

    def take(self, epoch: int, position: int) -> list[TrainingBatch]:
        """The micro-batches of one update, the first being number ``position`` of ``epoch``; the last update of an
        epoch may have fewer."""
        if self._order is None or self._order[0] != epoch:
            seed, fixed = self._config.seed, self._fixed
            size, lengths = self._batch_size, self._lengths
            order = bucketed(lengths, size, seed, epoch) if fixed is None else shuffled(fixed, seed, epoch)
            self._order = (epoch, order)
        chosen = self._order[1][position : position + self._config.accumulation]
        parts = (part_of_rank(batch, self._rank, self._world_size) for batch in chosen)
        return [pairs_of(self._collator, [self.dataset[index] for index in part]) for part in parts]


def pairs_of(collator: Collator, examples: Sequence[Example]) -> TrainingBatch:
    """A batch of tensors of examples that all have a summary."""
    batch = collator(examples).changed(torch.from_numpy)
    assert isinstance(batch, TrainingBatch), "a record without a summary passed the readers"
    return batch


def forced_mask(training: TrainingConfig, batch: TrainingBatch, update: int) -> Tensor | None:
    """The scheduled-sampling mask (Headline Writer, section 3.3.4): bool (B, T), or None (ratio 1).

    At decoder step t > 0 the model reads the gold token where the mask is true, its prediction elsewhere; the first
    input is always BOS. ``scope`` says what shares a draw: ``step`` one per time step for the whole minibatch (our
    default), ``example_step`` one per example and step (scheduled sampling proper), ``sequence`` one per minibatch.
    A minibatch is all that an update reads, however it is split.
    """
    config, seed, shape = training.teacher_forcing, training.seed, batch.target_ids.shape
    if config.ratio >= 1.0:
        return None
    if config.scope == "example_step":
        keys = noise.mixed(noise_seed(seed, update, use=2) & 0xFFFFFFFF, torch.tensor(list(batch.indices)))
        numbers = noise.bits(keys, shape[1]) / 2**32
    else:
        generator = torch.Generator().manual_seed(noise_seed(seed, update, use=0))
        numbers = torch.rand(shape[1] if config.scope == "step" else 1, generator=generator)
    mask = (numbers < config.ratio).expand(shape).clone()
    mask[:, :1] = True
    return mask


def noise_seed(seed: int, update: int, use: int = 1) -> int:
    """Seed of an update's noise, a function of (seed, update) alone: the same for every process and micro-batch,
    because an update is one minibatch however it is split."""
    return int(np.random.SeedSequence([seed, update, 0, use]).generate_state(1, np.uint64)[0])


def free_running_mask(like: Tensor) -> Tensor:
    """A mask (B, T), as ``like``, under which the model reads only BOS and its predictions, as in decoding."""
    return (torch.arange(like.shape[1], device=like.device) == 0).expand(like.shape)
