"""The pairs of a run: read as often as they are needed, never held, and encoded once for all runs that read them so.

**What is kept.** Encoded pairs, and the tokenizers trained on them, stand in folders of a cache, each named by a digest
of what it was made of: the bytes of the data files and their paths (messages name them), the settings that say what is
read and how it is encoded, the tokenizer, and the code. A folder appears whole (`catchline.files.replacing_folder`)
and never changes, so runs may share it. It is mapped, not read: what a run has in memory does not grow with the corpus,
and processes of one machine share the pages.

The cache is the folder that ``CATCHLINE_CACHE`` names (``off``: nothing is kept, pairs are encoded in memory), else
``catchline`` in the user's folder of caches. Folders that nobody used for thirty days go when a new one is made.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property
from io import FileIO
from pathlib import Path
from typing import Any

import tokenizers

from catchline import __version__
from catchline.config.names import sources_of
from catchline.config.schema import SPLITS, DataConfig, TextConfig
from catchline.data.dataset import FACTS, EncodedDataset, Encoder, Pairs
from catchline.data.pieces import read_in_pieces
from catchline.data.readers import ReadOptions, SkipCounter, files_of
from catchline.data.subset import supported_share
from catchline.errors import ConfigError, DataError
from catchline.files import digest_of, replacing_folder, sha256, write_json
from catchline.jobs import Pieces, unasked_workers
from catchline.text.base import CONFIG_FILE, TOKENIZER_FILE, Tokenizer
from catchline.text.stretches import Split
from catchline.text.truecase import Casing, casing_of_pieces, sampling_step
from catchline.training.logging import ShowProgress
from catchline.types import Record

CACHE = "CATCHLINE_CACHE"
OFF = "off"
UNUSED_DAYS = 30
WORTH_KNOWING, SETTLED_SECONDS = 2**26, 5.0  # bytes whose digest takes a while; file systems count time coarsely
MANY_UNKNOWN = 0.25  # of the tokens of the documents: worth a note


class Corpus:
    """The pairs of one split: read, judged and written to a nameless file once, in pieces, when they are first needed.

    Training pairs of which the part that is read holds too little are left out (``data.min_supported``).

    Attributes:
        notes: what was chosen, skipped or left out, for the person who trains.
        left_out: pairs without support.
        digest: SHA-256 of the pairs in their order: each document, a byte 0, its summary, a byte 1.

    Raises:
        ConfigError: there is no training split.
        DataError: it is not usable, when it is read.
    """

    def __init__(self, data: DataConfig, split: str, max_source_tokens: int = 0) -> None:
        path = getattr(data, split)
        if path is None:
            raise ConfigError(f"The run names no {split}ing data: set data.{split}, or give --data DIR.")
        self.path, self.data = str(path), data
        self._most = data.max_train_records if split == "train" else data.max_validation_records
        self._least = data.min_supported if split == "train" else 0.0
        self._words = max_source_tokens
        self.notes: list[str] = []
        self.left_out, self.digest = 0, ""

    @property
    def pairs(self) -> Pieces[Record]:
        """The pairs, as they were written."""

        def read(piece: tuple[int, int, int]) -> Pairs:
            sides, rows, stretches = self._written.read(piece)
            records = [Record(document, summary, *row) for document, summary, row in zip(*sides, rows, strict=True)]
            return Pairs(records, [Split(side, *own) for side, own in zip(sides, stretches, strict=True)])

        return Pieces(lambda: self._written.pieces, read)

    @cached_property
    def _written(self) -> WrittenPairs:
        skipped, notes, digest = SkipCounter(), list[str](), hashlib.sha256()
        read, written = 0, WrittenPairs()
        options = ReadOptions.of(self.data)
        for count, own, texts in read_in_pieces(
            self.path, options, self._judged, most=self._most, on_skip=skipped, on_choice=notes.append
        ):
            read += count
            digest.update(texts)
            written.add(*own)
        if skipped.total:
            notes.append(f"{self.path}: {skipped.describe()}; for example: {skipped.examples[0]}")
        if self._least:
            notes.append(
                f"{self.path}: {read - written.pairs:,} of {read:,} pairs left out, because less than "
                f"{self._least:.0%} of the summary's words stand in the part that is read (data.min_supported)"
            )
        if read and not written.pairs:
            raise DataError(
                f"None of the {read:,} pairs of {self.path} is left: less than {self._least:.0%} of each summary's "
                "words stand in the part that is read (data.min_supported, text.max_source_tokens). Are the columns "
                "the right ones, and the summaries no labels? data.min_supported=0 (--set) learns from all."
            )
        if not read:
            raise DataError(f"{self.path} holds no records to train on.")
        self.notes, self.left_out, self.digest = notes, read - written.pairs, digest.hexdigest()
        return written

    def _judged(self, records: list[Record]) -> tuple[int, tuple[int, int, bytes], bytes]:
        """How many there are; of those that stay their number, their documents' characters, and themselves as bytes;
        and their texts."""
        least = self._least
        good = [pair for pair in records if not least or supported_share(pair, self._words) >= least]
        texts = "".join([f"{pair.document}\0{pair.summary}\1" for pair in good]).encode("utf-8", "surrogatepass")
        sides = Pairs.of(good).sides
        rows = [(pair.id, pair.references, pair.sentences, pair.origin) for pair in good]
        stretches = [(split.names, split.numbers, split.ends) for split in map(Split.of, sides)]
        data = marshal.dumps((sides, rows, stretches))  # type: ignore[arg-type]
        return len(records), (len(good), sum(map(len, sides[0])), data), texts

    def casing(self) -> Casing:
        """How the pairs write their words, with no more in memory than is counted of them."""
        step = sampling_step(self._written.characters)

        def texts(piece: tuple[int, int, int]) -> list[str]:
            documents, summaries = self._written.read(piece)[0]
            return documents[-piece[2] % step :: step] + summaries

        def pieces(read: Callable[[tuple[int, int, int]], list[str]]) -> Pieces[str]:
            return Pieces(lambda: self._written.pieces, read)

        return casing_of_pieces(pieces(texts), pieces(lambda piece: self._written.read(piece)[0][1]))

    @cached_property
    def content(self) -> str:
        """A digest of what is read: the files, and the settings that say which of it and how."""
        parts: list[Any] = [self.path, self._most, self._least and [self._least, self._words]]
        files = files_of(self.path, self.data.format)
        for file in files:
            if not file.is_file():
                raise DataError(f"{file} is a pipe or device; training reads its data more than once: name a file.")
            parts.append([str(file), known_digest(file)])
        if not files:  # a data set of the hub
            _ = self._written
            parts.append(self.digest)
        where = {*SPLITS, "max_train_records", "max_validation_records", "min_supported"}
        return _digest(parts, self.data.model_dump(mode="json", exclude=where))

    def facts(self) -> dict[str, Any]:
        """What reading set, as JSON."""
        return {"notes": self.notes, "left_out": self.left_out, "digest": self.digest}

    def recall(self, facts: dict[str, Any]) -> None:
        """Set what an earlier reading did."""
        self.notes, self.left_out, self.digest = (facts[name] for name in ("notes", "left_out", "digest"))


class WrittenPairs:
    """Pairs in a file without a name, which processes that are forked later read too: a piece of ``pieces`` is where it
    lies, its bytes, and the number of pairs before it. Pieces for which the disk has no room stay in memory."""

    def __init__(self) -> None:
        self._file = _nameless(cache_folder())
        self._kept: dict[int, bytes] = {}
        self.pieces: list[tuple[int, int, int]] = []
        self.pairs = self.characters = self._size = 0

    def add(self, pairs: int, characters: int, data: bytes) -> None:
        left = memoryview(data)
        with suppress(OSError):
            while left and not self._kept:
                left = left[self._file.write(left) :]
        if left:
            self._kept[self._size] = data
        self.pieces.append((self._size, len(data), self.pairs))
        self._size += len(data)
        self.pairs += pairs
        self.characters += characters

    def read(self, piece: tuple[int, int, int]) -> Any:
        """What was added as the bytes of `marshal`."""
        place, size, _ = piece
        if place in self._kept:
            data = self._kept[place]
        elif hasattr(os, "pread"):  # processes share the file's position
            data = os.pread(self._file.fileno(), size, place)
        else:
            self._file.seek(place)
            data = self._file.read(size)
        return marshal.loads(data)


def encoded(
    corpus: Corpus, name: str, tokenizer: Tokenizer, folder: Path, text: TextConfig, show: ShowProgress
) -> tuple[EncodedDataset, list[str]]:
    """The pairs encoded, from the cache or into it, and what there is to say of it; ``folder`` is the tokenizer's.

    Raises:
        DataError: a pair is not usable.
    """
    most, references = corpus.data.max_document_tokens, name == "validation"
    encoder = Encoder(tokenizer, text, most, references)
    done = 0

    def advance(amount: int) -> None:
        nonlocal done
        done += amount
        show(done)

    def make(place: Path) -> None:
        show(0, description=f"Encoding {name} data")
        encoder.store(place, encoder.parts(corpus.pairs, unasked_workers(), advance), corpus.facts)

    settings = text.model_dump(mode="json", exclude={"tokenizer", "vocabulary_from", "pretrained_embeddings"})
    files = (folder / TOKENIZER_FILE, folder / CONFIG_FILE, *sources_of(text.tokenizer))
    key = [tokenizer.vocab_size, *(digest_of(file) for file in files)]
    notes = []
    try:
        place = kept("encoded", _digest(corpus.content, key, settings, most, references), make)
        data = EncodedDataset.open(place, tokenizer, text)
        corpus.recall(json.loads((place / FACTS).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        if cache_folder() is not None:
            notes.append(f"{name} data: kept in memory only, for {cache_folder()} cannot be used ({error})")
        show(0, description=f"Encoding {name} data")
        data = EncodedDataset.of(encoder, encoder.parts(corpus.pairs, unasked_workers(), advance))
    if data.num_too_long:
        notes.append(
            f"{name} data: {data.num_too_long:,} of {len(data) + data.num_too_long:,} pairs left out, because the "
            f"document has more than {most:,} tokens (data.max_document_tokens); {len(data):,} are left"
        )
    if data.unknown_share > MANY_UNKNOWN:
        notes.append(
            f"{name} data: the vocabulary of {len(tokenizer.vocabulary):,} lacks {data.unknown_share:.0%} of the "
            "documents' tokens (text.tokenizer: max_vocabulary, min_frequency)"
        )
    return data, notes


# ------------------------------------------------------------------------------------------ the cache


def cache_folder() -> Path | None:
    """Where things are kept; none where nothing is."""
    given = os.environ.get(CACHE)
    if given == OFF:
        return None
    return Path(given or os.path.join(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "catchline"))


def known_digest(file: Path) -> str:
    """The SHA-256 digest of a file. Of a large one it is remembered, and taken for right as long as the file has the
    same size, place on the disk and times of change, of which the last is some seconds ago, as git and make do."""
    state = file.stat()
    if state.st_size < WORTH_KNOWING or time.time() - max(state.st_mtime, state.st_ctime) < SETTLED_SECONDS:
        return digest_of(file)
    same = [state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]
    try:
        key = _digest(str(file), same)
        place = kept("digest", key, lambda draft: write_json(draft / FACTS, {"sha256": digest_of(file)}))
        return str(json.loads((place / FACTS).read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, LookupError):
        return digest_of(file)


def _nameless(folder: Path | None) -> FileIO:
    """A file in ``folder`` or, where none can be, where the system has its temporary files."""
    with suppress(OSError):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            return tempfile.TemporaryFile(dir=folder, buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def kept(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder of that key; ``make`` fills it if it is not there.

    Raises:
        OSError: there is no cache, or it cannot be written.
    """
    cache = cache_folder()
    if cache is None:
        raise FileNotFoundError("there is no cache")
    folder = cache / f"{kind}-{key[:32]}"
    if not folder.is_dir():
        for other in cache.glob(f"*{kind}-{'[0-9a-f]' * 32}*"):  # nothing else that lies there, drafts of the dead too
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
    return sha256(b"".join(path.read_bytes() for path in files))


def _digest(*parts: Any) -> str:
    made_of = [_code(), __version__, tokenizers.__version__, *parts]
    return sha256(json.dumps(made_of, sort_keys=True).encode("utf-8", "surrogatepass"))
