"""From a run's settings to what the loop works with: data, tokenizer, model, objectives, initial weights.

**Initial weights.** A run can start from a model that exists (``training.initial_weights``). Tensors that match by name
and shape are taken. What the new model has and the folder lacks (new gates, an opponent's branch) stays exactly as this
run's seed draws it, as if nothing had been loaded. Weights belong to the ids of a vocabulary, so the run takes the
folder's tokenizer too; a recipe that describes another one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from catchline.config.loading import first_difference
from catchline.config.names import MODELS, OBJECTIVES, TOKENIZERS, build, parse
from catchline.config.schema import RunConfig, Spec, TextConfig
from catchline.data.dataset import Collator, EncodedDataset
from catchline.data.embeddings import load_glove
from catchline.data.records import ReadOptions, read_with
from catchline.errors import ConfigError
from catchline.files import digest_of, replacing_folder, sha256
from catchline.models.base import SummarizationModel
from catchline.models.folder import LoadedModel, load_model_folder
from catchline.objectives.base import Objective
from catchline.text.base import TOKENIZER_FILE
from catchline.text.tokenizer import PretrainedTokenizer, Tokenizer
from catchline.training.data import Corpus, encoded
from catchline.training.log import ShowProgress

TOKENIZER_FOLDER = "tokenizer"
NAMES_SHOWN = 12


@dataclass
class Prepared:
    """What `catchline.training.loop.Trainer` needs. ``identity`` holds digests of what an exact continuation must have
    again: the texts (``data``, ``validation``) and the tokenizer. ``notes`` are for the person who trains."""

    tokenizer: Tokenizer
    model: SummarizationModel
    objectives: list[Objective]
    train_set: EncodedDataset
    validation_set: EncodedDataset | None
    collator: Collator
    identity: dict[str, str]
    notes: list[str]

    @property
    def facts(self) -> dict[str, dict[str, Any]]:
        """By split, how many pairs there are and the digest of their texts, for the model card."""
        sets = {"train": ("data", self.train_set), "validation": ("validation", self.validation_set)}
        return {name: {"pairs": len(data), "sha256": self.identity[key]} for name, (key, data) in sets.items() if data}


def prepare(
    run: RunConfig, out: Path, accelerator: Accelerator, show: ShowProgress, *, start: str | None = None
) -> Prepared:
    """Read the data, make (or, on resume, load) the tokenizer, encode, build the model and the objectives.

    The tokenizer is kept in the run folder, so a resumed run reads the same ids. ``start`` is the model folder, run
    folder or hub id whose weights (and, where the run has none yet, tokenizer) are taken.
    """
    initial = None if start is None else open_initial(start)
    show(description="Reading")
    corpora = {"training": Corpus(run.data, "train", run.text.max_source_tokens)}
    if run.data.validation:
        corpora["validation"] = Corpus(run.data, "validation")
    folder, reader = out / TOKENIZER_FOLDER, None
    if accelerator.is_main_process:
        reader = provide_tokenizer(out, run, corpora["training"], show, start, initial)
    accelerator.wait_for_everyone()
    tokenizer = Tokenizer.load(folder)
    reader = reader or tokenizer  # one that was trained has seen the texts already, and is not kept
    built: list[str] = []
    model = build_model(run.model, run.text, tokenizer, run.training.seed, built)
    for each in (reader, tokenizer):
        each.widen(model.vocab_size)  # a text's unknown words get the ids behind the model's rows
    data: dict[str, tuple[EncodedDataset, list[str]]] = {}
    for first in (True, False):  # the others find what the first process made
        if accelerator.is_main_process is first:
            for name, corpus in reversed(corpora.items()):
                data[name] = encoded(corpus, name, reader, folder, run.text, show)
        accelerator.wait_for_everyone()
    lines = [note for corpus in corpora.values() for note in corpus.facts["notes"]]
    lines += [*(note for name in corpora for note in data[name][1]), *built]
    if initial is not None:
        lines.append(take_weights(model, initial, tokenizer, str(start)))
    if run.training.lora is not None:
        lines.append(add_lora(model, run.training.lora))
    objectives = [build("objective", OBJECTIVES, spec) for spec in run.objectives]
    for objective in objectives:
        if {*objective.parameters()} - {*model.parameters()}:
            raise ConfigError(
                f"The objective '{objective.name}' has parameters which no optimizer changes: make them the model's."
            )
    digests = {name: corpus.facts["digest"] for name, corpus in corpora.items()}
    return Prepared(
        tokenizer=tokenizer,
        model=model,
        objectives=objectives,
        train_set=data["training"][0],
        validation_set=data["validation"][0] if "validation" in data else None,
        collator=Collator(tokenizer),
        identity={
            "data": digests["training"],
            "validation": digests.get("validation", sha256(b"")),
            "tokenizer": digest_of(folder / TOKENIZER_FILE),
        },
        notes=list(dict.fromkeys(lines)),
    )


def plan(run: RunConfig, parts: Prepared, accelerator: Accelerator) -> list[str]:
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


# ---------------------------------------------------------------------------- tokenizer, model, weights


def provide_tokenizer(
    out: Path, run: RunConfig, corpus: Corpus, show: ShowProgress, start: str | None, initial: LoadedModel | None = None
) -> Tokenizer | None:
    """Put the tokenizer into the run folder, unless it is there: that of the initial weights ``start`` (``initial``,
    where they are open already), a pretrained one, or one trained on the ``corpus``. How words are written is learnt
    from that in addition to what the tokenizer knew. Only the first process calls this; all load the result. One that
    was made here is returned."""
    folder, text = out / TOKENIZER_FOLDER, run.text
    if (folder / TOKENIZER_FILE).is_file():
        return None
    show(description="Reading")
    if run.data.validation:  # a mistake in it is better found now
        next(read_with(run.data.validation, ReadOptions.of(run.data)), None)
    if start is not None:
        tokenizer = adopted_tokenizer(initial or open_initial(start), text, start)
    else:
        tokenizer = build("tokenizer", TOKENIZERS, text.tokenizer)
        tokenizer.use_separator(text.sentence_separator)
        if not isinstance(tokenizer, PretrainedTokenizer):
            show(description="Training the tokenizer")
            tokenizer.train(corpus.vocabulary_texts(text))
    if tokenizer.lowercases:
        show(description="Learning names and capitals")
        tokenizer.casing = tokenizer.casing.adapted(corpus.casing())
    with replacing_folder(folder) as draft:  # half a tokenizer would be taken for a whole one when the run continues
        tokenizer.save(draft)
    return None if start or isinstance(tokenizer, PretrainedTokenizer) else tokenizer


def build_model(spec: Spec, text: TextConfig, tokenizer: Tokenizer, seed: int, notes: list[str]) -> SummarizationModel:
    """The model that ``spec`` describes for this vocabulary, with word vectors where ``text`` names them."""
    settings = dict(spec)
    if settings.get("chunking") == "sentence" and settings.get("separator_id") is None:
        if tokenizer.separator_id is None:
            raise ConfigError(
                "model.chunking 'sentence' needs a mark between sentences: set text.sentence_separator, such as <EOS>."
            )
        settings["separator_id"] = tokenizer.separator_id
    model: SummarizationModel = build("model", MODELS, settings, vocab_size=tokenizer.vocab_size, **tokenizer.ids)
    if (path := text.pretrained_embeddings) is not None:
        matrix, share = load_glove(path, tokenizer, seed)
        model.load_embeddings(torch.from_numpy(matrix))
        notes.append(f"{path}: vectors for {share:.1%} of the vocabulary")
    return model


def open_initial(place: str) -> LoadedModel:
    """The model of a model folder, a run folder or a hub id, opened as `load_model_folder` does; the random number
    generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        return load_model_folder(place)


def adopted_tokenizer(initial: LoadedModel, text: TextConfig, place: str) -> Tokenizer:
    """The folder's tokenizer, for a run whose settings describe that one; ConfigError says what to set."""
    tokenizer = initial.tokenizer
    cls, config = parse("tokenizer", TOKENIZERS, text.tokenizer)
    theirs, ours = tokenizer_settings(initial), {"type": cls.name, **config.model_dump(mode="json")}
    difference = first_difference(theirs, {"tokenizer": ours, "sentence_separator": text.sentence_separator}, "text")
    if isinstance(tokenizer, PretrainedTokenizer) and cls is type(tokenizer):
        tokenizer.use_prefix(ours["prefix"])
        # a path that is not there names no other vocabulary: the weights came with the one that was meant
        there = Path(ours["path"]).exists()
        same = not there or build("tokenizer", TOKENIZERS, text.tokenizer).vocabulary == tokenizer.vocabulary
        difference = None if same else f"the vocabulary of {ours['path']} is another one"
    if difference:
        settings = " ".join(f"'text.{key}={json.dumps(value, ensure_ascii=False)}'" for key, value in theirs.items())
        raise ConfigError(
            f"training.initial_weights: {place} was made with another tokenizer than this run describes ({difference})."
            f" Weights belong to their vocabulary, so describe its tokenizer: --set {settings}."
        )
    return tokenizer


def tokenizer_settings(initial: LoadedModel) -> dict[str, Any]:
    """Keys of a run's text section that describe the folder's tokenizer."""
    tokenizer = initial.tokenizer
    settings = {"type": tokenizer.name, **tokenizer.config.model_dump(mode="json")}
    return {"tokenizer": settings, "sentence_separator": tokenizer.separator}


def take_weights(model: nn.Module, initial: LoadedModel, tokenizer: Tokenizer, place: str) -> str:
    """Copy what matches into ``model``; the result says what was taken and what was not."""
    if initial.tokenizer.vocabulary != tokenizer.vocabulary:
        raise ConfigError(
            f"The tokenizer of this run is not that of {place}, so its weights mean other words; "
            "train into a new folder, which takes the tokenizer from there."
        )
    own, given = model.state_dict(), initial.model.state_dict()
    shared = [name for name in own if name in given]
    other = [name for name in shared if own[name].shape != given[name].shape]
    if other or not shared:
        shapes = "; ".join(f"{name} {list(given[name].shape)} and {list(own[name].shape)}" for name in other[:3])
        raise ConfigError(
            f"{place}, a {type(initial.model).__name__}, and this run's {type(model).__name__} differ in "
            f"{shapes or 'every tensor'}. Make the settings below 'model' equal (its recipe.yaml has them)."
        )
    with torch.no_grad():
        for name in shared:
            own[name].copy_(given[name])
    if torn := [name for name in shared if not torch.equal(own[name], given[name].to(own[name].dtype))]:
        raise ConfigError(
            f"This run's model has one tensor for what {place} has several for ({_listed(torn)}); "
            "share embeddings in both or in neither."
        )
    note = f"{place}: {len(shared)} tensors taken as initial weights"
    if new := [name for name in own if name not in given]:
        note += f"; {len(new)} that it lacks start as drawn ({_listed(new)})"
    if left := [name for name in given if name not in own]:
        note += f"; {len(left)} that this model lacks are left out ({_listed(left)})"
    return note


def add_lora(model: nn.Module, rank: int) -> str:
    """Put the matrices of LoRA (Hu et al. 2022) beside the frozen linear layers of a checkpoint's network, by peft; a
    head of ours is trained in full. Returns a note for the person who trains."""
    network: Any = getattr(model, "network", None)
    if network is None:
        raise ConfigError(
            "training.lora is for checkpoints of transformers: name one with --from, or leave training.lora out."
        )
    peft = import_module("peft")
    options = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    peft.inject_adapter_in_model(options, network)
    whole, trained = (sum(p.numel() for p in model.parameters() if p.requires_grad or all) for all in (True, False))
    return f"LoRA of rank {rank}: {trained:,} of {whole:,} parameters are trained"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
