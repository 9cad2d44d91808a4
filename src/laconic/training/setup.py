"""From a run's settings to the parts the loop works with: data, tokenizer, model, objectives."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from laconic.config.names import MODELS, OBJECTIVES, TOKENIZERS, build
from laconic.config.schema import RunConfig, TextConfig
from laconic.data.collate import Collator
from laconic.data.dataset import EncodedDataset
from laconic.data.embeddings import load_glove
from laconic.data.readers import SkipCounter, read_configured
from laconic.data.selection import supported_share
from laconic.errors import ConfigError, DataError
from laconic.models.base import SummarizationModel
from laconic.models.folder import LoadedModel
from laconic.objectives.base import Objective
from laconic.text.casing import learn_casing
from laconic.text.sentences import without_gaps
from laconic.text.tokenizer import PretrainedTokenizer, Tokenizer
from laconic.training.initial import adopted_tokenizer, open_initial, take_weights
from laconic.training.logging import Reporter, Silent
from laconic.types import Record

TOKENIZER_FOLDER = "tokenizer"
MANY_UNKNOWN = 0.25  # of the tokens of the documents: worth a note


@dataclass
class Parts:
    """What `laconic.training.loop.Trainer` needs. ``identity`` holds digests of what an exact continuation must have
    again: the texts (``data``, ``validation``) and the tokenizer."""

    tokenizer: Tokenizer
    model: SummarizationModel
    objectives: list[Objective]
    train_set: EncodedDataset
    validation_set: EncodedDataset | None
    collator: Collator
    identity: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def prepare(
    run: RunConfig,
    out: Path,
    accelerator: Accelerator,
    reporter: Reporter | None = None,
    *,
    start: str | None = None,
) -> Parts:
    """Read the data, make (or, on resume, load) the tokenizer, encode, build the model and the objectives.

    The tokenizer is kept in the run folder, so a resumed run reads the same ids. ``start`` is the model folder, run
    folder or hub id whose weights (and, where the run has none yet, tokenizer) are taken.

    Raises:
        ConfigError, DataError: the settings name no training data, or the data is not usable.
        ModelError: ``start`` cannot be opened.
    """
    reporter = reporter or Silent()
    initial = None if start is None else open_initial(start)
    reporter.update(description="Reading")
    notes: list[str] = []
    train_records = training_records(run, notes)
    validation_records = read_split(run, "validation", run.data.max_validation_records, notes)
    if accelerator.is_main_process:
        texts = partial(vocabulary_texts, train_records, run.text)
        provide_tokenizer(run, out, reporter, texts, train_records, start, initial)
    accelerator.wait_for_everyone()
    tokenizer = Tokenizer.load(out / TOKENIZER_FOLDER)
    train_set = encode(train_records, tokenizer, run, reporter, "training", notes)
    validation_set = (
        encode(validation_records, tokenizer, run, reporter, "validation", notes) if validation_records else None
    )
    model = build_model(run, tokenizer, notes)
    if initial is not None:
        notes.append(take_weights(model, initial, tokenizer, str(start)))
    objectives = [build("objective", OBJECTIVES, spec) for spec in run.objectives]
    for objective in objectives:
        objective.attach(model, tokenizer, run)
    return Parts(
        tokenizer=tokenizer,
        model=model,
        objectives=objectives,
        train_set=train_set,
        validation_set=validation_set,
        collator=Collator(tokenizer, run.text),
        identity={
            "data": _digest(train_records),
            "validation": _digest(validation_records),
            "tokenizer": hashlib.sha256((out / TOKENIZER_FOLDER / "tokenizer.json").read_bytes()).hexdigest(),
        },
        notes=list(dict.fromkeys(notes)),
    )


def plan(run: RunConfig, parts: Parts, accelerator: Accelerator) -> list[str]:
    """What is going to be trained, in a few lines."""
    training, model = run.training, parts.model
    count = sum(p.numel() for p in model.parameters())
    validation = f", validate on {len(parts.validation_set):,}" if parts.validation_set else ", no validation data"
    processes = f", {accelerator.num_processes} processes" if accelerator.num_processes > 1 else ""
    size = f"{training.batch_tokens:,} tokens" if training.batch_tokens else str(training.batch_size)
    batch = f"batches of {size}" + (f" x {training.accumulation}" if training.accumulation > 1 else "")
    ends = {name: getattr(training, name) for name in ("max_updates", "max_epochs", "max_minutes")}
    until = " or ".join(f"{value:,} {name.removeprefix('max_')}" for name, value in ends.items() if value)
    return [
        *parts.notes,
        f"Run:   {' / '.join(part for part in (run.name, run.row, run.size) if part)}, {until}",
        f"Data:  train on {len(parts.train_set):,} pairs{validation}; {batch}{processes}",
        f"Model: {type(model).__name__}, {count:,} parameters, vocabulary of {parts.tokenizer.vocab_size:,}, "
        f"on {accelerator.device} in {training.precision}",
    ]


def training_records(run: RunConfig, notes: list[str]) -> list[Record]:
    """The pairs that ``run`` trains on.

    Raises:
        ConfigError, DataError: the settings name no training data, or it is not usable.
    """
    records = _supported(read_split(run, "train", run.data.max_train_records, notes), run, notes)
    if not records:
        raise DataError(f"{run.data.train} holds no records to train on.")
    return records


def read_split(run: RunConfig, split: str, most: int | None, notes: list[str]) -> list[Record]:
    """The records of one split; empty when the run names none. What was chosen or skipped goes to ``notes``.

    Raises:
        ConfigError: there is no training split.
    """
    path = getattr(run.data, split)
    if path is None:
        if split == "train":
            raise ConfigError("The run names no training data: set data.train, or give --data DIR.")
        return []
    skipped = SkipCounter()
    records = list(islice(read_configured(path, run.data, on_skip=skipped, on_choice=notes.append), most))
    if skipped.total:
        notes.append(f"{path}: {skipped.describe()}; for example: {skipped.examples[0]}")
    return records


def _supported(records: list[Record], run: RunConfig, notes: list[str]) -> list[Record]:
    """Leave out training pairs of which the document holds too little (``data.min_supported``), and say how many."""
    least = run.data.min_supported
    if not least:
        return records
    kept = [record for record in records if supported_share(record, run.text.max_source_tokens) >= least]
    notes.append(
        f"{run.data.train}: {len(records) - len(kept):,} of {len(records):,} pairs left out, because less than "
        f"{least:.0%} of the summary's words stand in the part that is read (data.min_supported)"
    )
    return kept


def encode(
    records: list[Record], tokenizer: Tokenizer, run: RunConfig, reporter: Reporter, name: str, notes: list[str]
) -> EncodedDataset:
    """Tokenize ``records`` once, with progress; what `DataConfig.max_document_tokens` leaves out goes to ``notes``."""
    done = 0

    def advance(amount: int) -> None:
        nonlocal done
        done += amount
        reporter.update(done)

    reporter.update(0, total=len(records), description=f"Encoding {name} data")
    limit = run.data.max_document_tokens
    data = EncodedDataset.build(records, tokenizer, run.text, progress=advance, max_document_tokens=limit)
    if data.num_too_long:
        notes.append(
            f"{name} data: {data.num_too_long:,} of {len(records):,} pairs left out, because the document has more "
            f"than {limit:,} tokens (data.max_document_tokens); {len(data):,} are left"
        )
    if data.unknown_share > MANY_UNKNOWN:
        notes.append(
            f"{name} data: the vocabulary of {tokenizer.vocab_size:,} lacks {data.unknown_share:.0%} of the documents' "
            "tokens (text.tokenizer: max_vocabulary, min_frequency)"
        )
    return data


def build_model(run: RunConfig, tokenizer: Tokenizer, notes: list[str]) -> SummarizationModel:
    """The model that ``run`` describes for this vocabulary, with pre-trained word vectors where it asks for them.

    Raises:
        ConfigError: it does not fit into memory.
    """
    ids = {name: getattr(tokenizer, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
    try:
        settings = _with_separator(run, tokenizer)
        model: SummarizationModel = build("model", MODELS, settings, vocab_size=tokenizer.vocab_size, **ids)
    except (RuntimeError, MemoryError) as error:
        if "memory" not in str(error).lower() and not isinstance(error, MemoryError):
            raise
        raise ConfigError(f"The model does not fit into memory; make its sizes smaller ({run.model}).") from None
    if run.text.pretrained_embeddings is not None:
        path, missing = run.text.pretrained_embeddings, run.text.pretrained_missing
        matrix, share = load_glove(path, tokenizer, missing=missing, seed=run.training.seed)
        model.load_embeddings(torch.from_numpy(matrix))
        notes.append(f"{path}: vectors for {share:.1%} of the vocabulary")
    return model


def _with_separator(run: RunConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    """The model's settings; one whose chunks are sentences learns which token ends them.

    Raises:
        ConfigError: nothing stands between the sentences.
    """
    settings = dict(run.model)
    if settings.get("chunking") == "sentence" and settings.get("separator_id") is None:
        if tokenizer.separator_id is None:
            raise ConfigError(
                "model.chunking 'sentence' needs a mark between sentences: set text.sentence_separator, such as <EOS>."
            )
        settings["separator_id"] = tokenizer.separator_id
    return settings


def provide_tokenizer(
    run: RunConfig,
    out: Path,
    reporter: Reporter,
    texts: Callable[[], Iterable[str]],
    pairs: Sequence[Record],
    start: str | None,
    initial: LoadedModel | None = None,
) -> None:
    """Put the tokenizer into the run folder, unless it is there: that of the initial weights ``start`` (``initial``,
    where they are open already), one that somebody else trained, or one trained on ``texts()``. How words are written
    is learnt from ``pairs``, in addition to what the tokenizer knew. Only the first process calls this; all load the
    result.

    Raises:
        ConfigError: the initial weights have another tokenizer than the run describes.
    """
    folder = out / TOKENIZER_FOLDER
    if (folder / "tokenizer.json").is_file():
        return
    if start is not None:
        tokenizer = adopted_tokenizer(initial or open_initial(start), run.text, start)
    else:
        tokenizer = build("tokenizer", TOKENIZERS, run.text.tokenizer)
        tokenizer.use_separator(run.text.sentence_separator)
        if not isinstance(tokenizer, PretrainedTokenizer):
            reporter.update(description="Training the tokenizer")
            tokenizer.train(texts())
    if tokenizer.lowercases:
        reporter.update(description="Learning names and capitals")
        learnt = learn_casing([pair.document for pair in pairs], [pair.summary for pair in pairs])
        tokenizer.casing = tokenizer.casing.adapted(learnt)
    # Beside and renamed: half a tokenizer would be taken for a whole one when the run goes on.
    draft = out / f".draft-{TOKENIZER_FOLDER}"
    shutil.rmtree(draft, ignore_errors=True)
    tokenizer.save(draft)
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(draft, folder)


def vocabulary_texts(records: list[Record], text: TextConfig) -> Iterator[str]:
    """What the vocabulary is learnt from; a separator that the data spells out is not part of it."""
    separator = text.sentence_separator
    for record in records:
        for side in (record.document, record.summary)[: 1 if text.vocabulary_from == "documents" else 2]:
            yield " ".join(without_gaps(side, separator)) if separator and separator in side else side


def _digest(records: list[Record]) -> str:
    digest = hashlib.sha256()
    for record in records:
        digest.update(record.document.encode("utf-8", "surrogatepass") + b"\0")
        digest.update(record.summary.encode("utf-8", "surrogatepass") + b"\1")
    return digest.hexdigest()
