"""Trained models as systems that can be evaluated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from laconic.config.loading import load_run
from laconic.config.shipped import place_of
from laconic.evaluation.systems import Progress
from laconic.summarizer import Summarizer
from laconic.types import Record, Summary


class ModelSystem:
    """A trained model; ``search`` changes its decoding settings."""

    def __init__(self, name: str, summarizer: Summarizer, identity: str, search: Mapping[str, Any]) -> None:
        self.name, self._summarizer, self._search = name, summarizer, dict(search)
        self.identity = _with_search(identity, self._search)
        tokenizer = summarizer.system.tokenizer  # type: ignore[attr-defined]
        self.unk_text: str | None = tokenizer.token(tokenizer.unk_id)

    def summarize(self, records: Sequence[Record], *, batch_size: int, progress: Progress) -> list[Summary]:
        return self._summarizer.summarize(
            records, explain=True, batch_size=batch_size, progress=progress, always_write=True, **self._search
        )


def open_model(
    place: str, *, device: str = "cpu", search: Mapping[str, Any] | None = None, name: str | None = None
) -> ModelSystem:
    """Open a model by its folder, its run's folder or its id on the hub.

    ``search`` are decoding settings, ``name`` is what tables call it (``place`` if not given). What is scored is the
    text as the model's run asks in ``evaluation.surface``, unless ``search`` says ``surface`` itself.

    Raises:
        ModelError: there is no such model, or it is damaged.
    """
    folder = model_folder(place)
    summarizer = Summarizer.from_pretrained(str(folder) if folder.is_dir() else place, device=device)
    return ModelSystem(name or place, summarizer, _identity(folder, place), _scored(folder, search or {}))


def model_identity(place: str, search: Mapping[str, Any] | None = None) -> str:
    """The ``identity`` that `open_model` would give, without loading the model."""
    folder = model_folder(place)
    return _with_search(_identity(folder, place), _scored(folder, search or {}))


def _scored(folder: Path, search: Mapping[str, Any]) -> dict[str, Any]:
    """``search`` with the surface that the run in ``folder`` wants scored."""
    recipe = folder / "recipe.yaml"
    surface = load_run(recipe).evaluation.surface if recipe.is_file() else None
    return ({} if surface is None else {"surface": surface}) | dict(search)


def model_folder(place: str) -> Path:
    """The model's own folder, where ``place`` is a run's folder or a model of the package; else ``place``."""
    folder = place_of(place)
    return folder / "model" if (folder / "model").is_dir() else folder


def _with_search(identity: str, search: Mapping[str, Any]) -> str:
    return json.dumps([identity, dict(search)], sort_keys=True)


def weights_identity(place: str) -> str:
    """As `model_identity`, but the decoding defaults that the model comes with do not count."""
    return _identity(model_folder(place), place, {*_NOT_IDENTITY, "generation_config.json"})


_NOT_IDENTITY = frozenset({"metrics.json", "environment.json"})


def _identity(folder: Path, name: str, without: Collection[str] = _NOT_IDENTITY) -> str:
    """A digest of a local model's files; the id of a model on the hub."""
    if not folder.is_dir():
        return name
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*")):
        if path.suffix in {".json", ".safetensors"} and path.name not in without:
            digest.update(path.name.encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
