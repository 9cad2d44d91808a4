"""From a run's settings to the parts the loop works with: data, tokenizer, model, objectives."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from laconic.objectives.base import Objective
from laconic.text.separators import without_gaps
from laconic.text.tokenizer import Tokenizer
from laconic.training.logging import Reporter, Silent
from laconic.types import Record

TOKENIZER_FOLDER = "tokenizer"


@dataclass
class Parts:
    """What `laconic.training.loop.Trainer` needs; ``data_digest`` identifies the training texts."""

    tokenizer: Tokenizer
    model: SummarizationModel
    objectives: list[Objective]
    train_set: EncodedDataset
    validation_set: EncodedDataset | None
    collator: Collator
    data_digest: str = ""
    notes: list[str] = field(default_factory=list)


def prepare(run: RunConfig, out: Path, accelerator: Accelerator, reporter: Reporter | None = None) -> Parts:
    """Read the data, train (or, on resume, load) the tokenizer, encode, build the model and the objectives.

    The tokenizer is kept in the run folder, so a resumed run reads the same ids.

    Raises:
        ConfigError, DataError: the settings name no training data, or the data is not usable.
    """
    reporter = reporter or Silent()
    reporter.update(description="Reading")
    notes: list[str] = []
    train_records = read_split(run, "train", run.data.max_train_records, notes)
    validation_records = read_split(run, "validation", run.data.max_validation_records, notes)
    train_records = _supported(train_records, run, notes)
    if not train_records:
        raise DataError(f"{run.data.train} holds no records to train on.")
    tokenizer = _tokenizer(run, out, train_records, accelerator, reporter)
    train_set = encode(train_records, tokenizer, run, reporter, "training", notes)
    validation_set = (
        encode(validation_records, tokenizer, run, reporter, "validation", notes) if validation_records else None
    )
    return Parts(
        tokenizer=tokenizer,
        model=build_model(run, tokenizer, notes),
        objectives=[build("objective", OBJECTIVES, spec) for spec in run.objectives],
        train_set=train_set,
        validation_set=validation_set,
        collator=Collator(tokenizer, run.text),
        data_digest=_digest(train_records),
        notes=list(dict.fromkeys(notes)),
    )


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
    return data


def build_model(run: RunConfig, tokenizer: Tokenizer, notes: list[str]) -> SummarizationModel:
    """The model that ``run`` describes for this vocabulary, with pre-trained word vectors where it asks for them."""
    model: SummarizationModel = build(
        "model",
        MODELS,
        _with_separator(run, tokenizer),
        vocab_size=tokenizer.vocab_size,
        pad_id=tokenizer.pad_id,
        unk_id=tokenizer.unk_id,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )
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


def _tokenizer(
    run: RunConfig, out: Path, records: list[Record], accelerator: Accelerator, reporter: Reporter
) -> Tokenizer:
    """The first process trains and saves it, all load it: one tokenizer, whatever happens."""
    folder = out / TOKENIZER_FOLDER
    if accelerator.is_main_process and not (folder / "tokenizer.json").is_file():
        reporter.update(description="Training the tokenizer")
        tokenizer: Tokenizer = build("tokenizer", TOKENIZERS, run.text.tokenizer)
        tokenizer.use_separator(run.text.sentence_separator)
        tokenizer.train(_texts(records, run.text))
        tokenizer.save(folder)
    accelerator.wait_for_everyone()
    return Tokenizer.load(folder)


def _texts(records: list[Record], text: TextConfig) -> Iterator[str]:
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
