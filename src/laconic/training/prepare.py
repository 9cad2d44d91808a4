"""From a run's settings to what the loop works with: data, tokenizer, model, objectives, initial weights.

**Initial weights.** A run can start from a model that exists (``training.initial_weights``). Tensors that match by name
and shape are taken. What the new model has and the folder lacks (new gates, an opponent's branch) stays exactly as this
run's seed draws it, as if nothing had been loaded. Weights belong to the ids of a vocabulary, so the run takes the
folder's tokenizer too; a recipe that describes another one is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from laconic.config.names import MODELS, OBJECTIVES, TOKENIZERS, build, parse
from laconic.config.schema import DataConfig, RunConfig, Spec, TextConfig
from laconic.data.collate import Collator
from laconic.data.dataset import EncodedDataset
from laconic.data.embeddings import load_glove
from laconic.data.readers import SkipCounter, read_configured
from laconic.data.subset import supported_share
from laconic.errors import ConfigError, DataError
from laconic.models.base import SummarizationModel
from laconic.models.folder import LoadedModel, load_model_folder
from laconic.objectives.base import Objective
from laconic.text.casing import learn_casing
from laconic.text.sentences import without_gaps
from laconic.text.tokenizer import PretrainedTokenizer, Tokenizer
from laconic.training.logging import ShowProgress
from laconic.training.outlook import reading_table
from laconic.types import Record

TOKENIZER_FOLDER = "tokenizer"
MANY_UNKNOWN = 0.25  # of the tokens of the documents: worth a note
NAMES_SHOWN = 12


@dataclass
class Prepared:
    """What `laconic.training.loop.Trainer` needs. ``identity`` holds digests of what an exact continuation must have
    again: the texts (``data``, ``validation``) and the tokenizer. ``notes`` are for the person who trains."""

    tokenizer: Tokenizer
    model: SummarizationModel
    objectives: list[Objective]
    train_set: EncodedDataset
    validation_set: EncodedDataset | None
    collator: Collator
    identity: dict[str, str]
    notes: list[str]
    left_out: dict[str, int]  # by split, the pairs that the settings leave out

    @property
    def facts(self) -> dict[str, dict[str, Any]]:
        """By split, how many pairs there are and the digest of their texts, for the model card."""
        found = {"train": ("data", self.train_set), "validation": ("validation", self.validation_set)}
        return {
            split: {"pairs": len(pairs), "sha256": self.identity[key]} for split, (key, pairs) in found.items() if pairs
        }


def prepare(
    run: RunConfig, out: Path, accelerator: Accelerator, show: ShowProgress, *, start: str | None = None
) -> Prepared:
    """Read the data, make (or, on resume, load) the tokenizer, encode, build the model and the objectives.

    The tokenizer is kept in the run folder, so a resumed run reads the same ids. ``start`` is the model folder, run
    folder or hub id whose weights (and, where the run has none yet, tokenizer) are taken.

    Raises:
        ConfigError, DataError: the settings name no training data, or the data is not usable.
        ModelError: ``start`` cannot be opened.
    """
    initial = None if start is None else open_initial(start)
    show(description="Reading")
    notes: list[str] = []
    left_out: dict[str, int] = {}
    records = {
        "training": training_records(run.data, run.text.max_source_tokens, notes, left_out),
        "validation": read_split(run.data, "validation", run.data.max_validation_records, notes),
    }
    if accelerator.is_main_process:
        texts = partial(vocabulary_texts, records["training"], run.text)
        provide_tokenizer(out, run.text, texts, records["training"], show, start, initial)
    accelerator.wait_for_everyone()
    tokenizer = Tokenizer.load(out / TOKENIZER_FOLDER)
    limit = run.data.max_document_tokens
    encoded = {
        name: encode(found, tokenizer, run.text, limit, f"{name} data", show, notes)
        for name, found in records.items()
        if found
    }
    model = build_model(run.model, run.text, tokenizer, run.training.seed, notes)
    if initial is not None:
        notes.append(take_weights(model, initial, tokenizer, str(start)))
    objectives = [build("objective", OBJECTIVES, spec) for spec in run.objectives]
    for objective in objectives:
        objective.attach(model, tokenizer, run)
    return Prepared(
        tokenizer=tokenizer,
        model=model,
        objectives=objectives,
        train_set=encoded["training"],
        validation_set=encoded.get("validation"),
        collator=Collator(tokenizer),
        identity={
            "data": _digest(records["training"]),
            "validation": _digest(records["validation"]),
            "tokenizer": hashlib.sha256((out / TOKENIZER_FOLDER / "tokenizer.json").read_bytes()).hexdigest(),
        },
        notes=list(dict.fromkeys(notes)),
        left_out={name: left_out.get(name, 0) + data.num_too_long for name, data in encoded.items()},
    )


def plan(run: RunConfig, parts: Prepared, accelerator: Accelerator) -> list[str]:
    """What is going to be trained, in a few lines."""
    training, model = run.training, parts.model
    count = sum(p.numel() for p in model.parameters())
    validated = {"validation": parts.validation_set} if parts.validation_set else {}
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
        *reading_table({"training": parts.train_set, **validated}, parts.left_out),
    ]


# ------------------------------------------------------------------------------------------- the data


def training_records(
    data: DataConfig, max_source_tokens: int, notes: list[str], left_out: dict[str, int] | None = None
) -> list[Record]:
    """The training pairs, without those of which the part that is read holds too little (``data.min_supported``).

    Raises:
        ConfigError, DataError: the settings name no training data, or it is not usable.
    """
    records = read_split(data, "train", data.max_train_records, notes)
    read, least = len(records), data.min_supported
    if least:
        kept = [record for record in records if supported_share(record, max_source_tokens) >= least]
        notes.append(
            f"{data.train}: {len(records) - len(kept):,} of {len(records):,} pairs left out, because less than "
            f"{least:.0%} of the summary's words stand in the part that is read (data.min_supported)"
        )
        if left_out is not None:
            left_out["training"] = len(records) - len(kept)
        records = kept
    if read and not records:
        raise DataError(
            f"None of the {read:,} pairs of {data.train} is left: less than {least:.0%} of each summary's words stand "
            "in the part that is read (data.min_supported, text.max_source_tokens)."
        )
    if not records:
        raise DataError(f"{data.train} holds no records to train on.")
    return records


def read_split(data: DataConfig, split: str, most: int | None, notes: list[str]) -> list[Record]:
    """The records of one split; empty when the run names none. What was chosen or skipped goes to ``notes``.

    Raises:
        ConfigError: there is no training split.
    """
    path = getattr(data, split)
    if path is None:
        if split == "train":
            raise ConfigError("The run names no training data: set data.train, or give --data DIR.")
        return []
    skipped = SkipCounter()
    records = list(islice(read_configured(path, data, on_skip=skipped, on_choice=notes.append), most))
    if skipped.total:
        notes.append(f"{path}: {skipped.describe()}; for example: {skipped.examples[0]}")
    return records


def encode(
    records: list[Record],
    tokenizer: Tokenizer,
    text: TextConfig,
    limit: int | None,
    name: str,
    show: ShowProgress,
    notes: list[str],
) -> EncodedDataset:
    """Tokenize ``records`` once, with progress; what `DataConfig.max_document_tokens` leaves out goes to ``notes``."""
    done = 0

    def advance(amount: int) -> None:
        nonlocal done
        done += amount
        show(done)

    show(0, total=len(records), description=f"Encoding {name}")
    data = EncodedDataset.build(records, tokenizer, text, progress=advance, max_document_tokens=limit)
    if data.num_too_long:
        notes.append(
            f"{name}: {data.num_too_long:,} of {len(records):,} pairs left out, because the document has more "
            f"than {limit:,} tokens (data.max_document_tokens); {len(data):,} are left"
        )
    if data.unknown_share > MANY_UNKNOWN:
        notes.append(
            f"{name}: the vocabulary of {tokenizer.vocab_size:,} lacks {data.unknown_share:.0%} of the documents' "
            "tokens (text.tokenizer: max_vocabulary, min_frequency)"
        )
    return data


def _digest(records: list[Record]) -> str:
    """SHA-256 of the pairs in their order: each document, a byte 0, its summary, a byte 1."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(record.document.encode("utf-8", "surrogatepass") + b"\0")
        digest.update(record.summary.encode("utf-8", "surrogatepass") + b"\1")
    return digest.hexdigest()


# ---------------------------------------------------------------------------- tokenizer, model, weights


def provide_tokenizer(
    out: Path,
    text: TextConfig,
    texts: Callable[[], Iterable[str]],
    pairs: Sequence[Record],
    show: ShowProgress,
    start: str | None,
    initial: LoadedModel | None = None,
) -> None:
    """Put the tokenizer into the run folder, unless it is there: that of the initial weights ``start`` (``initial``,
    where they are open already), a pretrained one, or one trained on ``texts()``. How words are written
    is learnt from ``pairs``, in addition to what the tokenizer knew. Only the first process calls this; all load the
    result.

    Raises:
        ConfigError: the initial weights have another tokenizer than ``text`` describes.
    """
    folder = out / TOKENIZER_FOLDER
    if (folder / "tokenizer.json").is_file():
        return
    if start is not None:
        tokenizer = adopted_tokenizer(initial or open_initial(start), text, start)
    else:
        tokenizer = build("tokenizer", TOKENIZERS, text.tokenizer)
        tokenizer.use_separator(text.sentence_separator)
        if not isinstance(tokenizer, PretrainedTokenizer):
            show(description="Training the tokenizer")
            tokenizer.train(texts())
    if tokenizer.lowercases:
        show(description="Learning names and capitals")
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


def build_model(spec: Spec, text: TextConfig, tokenizer: Tokenizer, seed: int, notes: list[str]) -> SummarizationModel:
    """The model that ``spec`` describes for this vocabulary, with pre-trained word vectors where ``text`` names them.

    Raises:
        ConfigError: it does not fit into memory.
    """
    try:
        settings = _with_separator(spec, tokenizer)
        model: SummarizationModel = build("model", MODELS, settings, vocab_size=tokenizer.vocab_size, **tokenizer.ids)
    except (RuntimeError, MemoryError) as error:
        if "memory" not in str(error).lower() and not isinstance(error, MemoryError):
            raise
        raise ConfigError(f"The model does not fit into memory; make its sizes smaller ({spec}).") from None
    if (path := text.pretrained_embeddings) is not None:
        matrix, share = load_glove(path, tokenizer, missing=text.pretrained_missing, seed=seed)
        model.load_embeddings(torch.from_numpy(matrix))
        notes.append(f"{path}: vectors for {share:.1%} of the vocabulary")
    return model


def _with_separator(spec: Spec, tokenizer: Tokenizer) -> Spec:
    """The model's settings; one whose chunks are sentences learns which token ends them.

    Raises:
        ConfigError: nothing stands between the sentences.
    """
    settings = dict(spec)
    if settings.get("chunking") == "sentence" and settings.get("separator_id") is None:
        if tokenizer.separator_id is None:
            raise ConfigError(
                "model.chunking 'sentence' needs a mark between sentences: set text.sentence_separator, such as <EOS>."
            )
        settings["separator_id"] = tokenizer.separator_id
    return settings


def open_initial(place: str) -> LoadedModel:
    """The model of a model folder, a run folder or a hub id; the random number generator is left as it was.

    Raises:
        ModelError: there is no such model, or it is damaged.
    """
    with torch.random.fork_rng(devices=[]):
        return load_model_folder(place)


def adopted_tokenizer(initial: LoadedModel, text: TextConfig, place: str) -> Tokenizer:
    """The folder's tokenizer, for a run whose settings describe that one.

    Raises:
        ConfigError: the settings differ; says in what, and what to set.
    """
    tokenizer = initial.tokenizer
    cls, config = parse("tokenizer", TOKENIZERS, text.tokenizer)
    theirs = _described(tokenizer)
    ours = {"type": cls.name, **config.model_dump(mode="json")}
    if isinstance(tokenizer, PretrainedTokenizer) and cls is type(tokenizer):
        # a path that is not there names no other vocabulary: the weights came with the one that was meant
        same = not Path(ours["path"]).exists() or list(tokenizer.vocabulary) == list(
            build("tokenizer", TOKENIZERS, text.tokenizer).vocabulary
        )
        found = "" if same else f"the vocabulary of {ours['path']} is another one"
    else:
        found = "; ".join(
            f"{key} is {json.dumps(theirs.get(key))} there, {json.dumps(ours.get(key))} here"
            for key in dict.fromkeys((*theirs, *ours))
            if theirs.get(key) != ours.get(key)
        )
    if found:
        raise ConfigError(
            f"training.initial_weights: {place} was made with another tokenizer than this run describes ({found}). "
            f"Weights belong to their vocabulary, so describe its tokenizer: --set 'text.tokenizer={_inline(theirs)}'."
        )
    if _separator(tokenizer) != text.sentence_separator:
        raise ConfigError(
            f"training.initial_weights: text.sentence_separator is {_separator(tokenizer) or 'none'} in {place}, "
            f"{text.sentence_separator or 'none'} here; set it to that of the folder."
        )
    return tokenizer


def tokenizer_settings(initial: LoadedModel) -> dict[str, Any]:
    """Keys of a run's text section that describe the folder's tokenizer."""
    tokenizer = initial.tokenizer
    return {"tokenizer": _described(tokenizer), "sentence_separator": _separator(tokenizer)}


def take_weights(model: nn.Module, initial: LoadedModel, tokenizer: Tokenizer, place: str) -> str:
    """Copy what matches into ``model``; the result says what was taken and what was not.

    Raises:
        ConfigError: another vocabulary, a tensor of another shape, or nothing that matches.
    """
    if list(initial.tokenizer.vocabulary) != list(tokenizer.vocabulary):
        raise ConfigError(
            f"The tokenizer of this run is not that of {place}, so its weights mean other words; "
            "train into a new folder, which takes the tokenizer from there."
        )
    own, given = model.state_dict(), initial.model.state_dict()
    shared = [name for name in own if name in given]
    if not shared:
        raise ConfigError(
            f"Nothing in {place}, a {type(initial.model).__name__}, has the name of anything in this run's "
            f"{type(model).__name__}; name a model of the same type."
        )
    other = [
        f"{name} is {_shape(given[name])} there, {_shape(own[name])} here"
        for name in shared
        if own[name].shape != given[name].shape
    ]
    if other:
        more = f", and {len(other) - 3} more" if len(other) > 3 else ""
        raise ConfigError(
            f"The {type(initial.model).__name__} of {place} has other sizes than this run's {type(model).__name__}: "
            f"{'; '.join(other[:3])}{more}. Make the settings below 'model' equal (its recipe.yaml has them)."
        )
    with torch.no_grad():
        for name in shared:
            own[name].copy_(given[name])
    torn = [name for name in shared if not torch.equal(own[name], given[name].to(own[name].dtype))]
    if torn:
        raise ConfigError(
            f"This run's model has one tensor for what {place} has several for ({_listed(torn)}); "
            "share embeddings in both or in neither."
        )
    return _note(place, shared, [n for n in own if n not in given], [n for n in given if n not in own])


def _note(place: str, shared: Sequence[str], new: Sequence[str], left: Sequence[str]) -> str:
    parts = [f"{place}: {len(shared)} tensors taken as initial weights"]
    if new:
        parts.append(f"{len(new)} that it lacks start as drawn ({_listed(new)})")
    if left:
        parts.append(f"{len(left)} that this model lacks are left out ({_listed(left)})")
    return "; ".join(parts)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def _shape(tensor: torch.Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "a number"


def _described(tokenizer: Tokenizer) -> dict[str, Any]:
    return {"type": tokenizer.name, **tokenizer.config.model_dump(mode="json")}


def _separator(tokenizer: Tokenizer) -> str | None:
    return None if tokenizer.separator_id is None else tokenizer.token(tokenizer.separator_id)


def _inline(values: dict[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False)
