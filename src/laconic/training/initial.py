"""Initial weights: a run that starts from a model that exists (``training.initial_weights``).

Tensors that match by name and shape are taken. What the new model has and the folder lacks (new gates, an opponent's
branch) stays exactly as this run's seed draws it, as if nothing had been loaded. Weights belong to the ids of a
vocabulary, so the run takes the folder's tokenizer too; a recipe that describes another one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from laconic.config.names import TOKENIZERS, build, parse
from laconic.config.schema import TextConfig
from laconic.errors import ConfigError
from laconic.models.folder import LoadedModel, load_model_folder
from laconic.text.tokenizer import PretrainedTokenizer, Tokenizer

NAMES_SHOWN = 12


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
