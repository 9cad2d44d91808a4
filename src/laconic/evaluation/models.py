"""Trained models as systems that can be evaluated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from laconic.evaluation.systems import Progress
from laconic.summarizer import Summarizer
from laconic.types import Record, Summary


class ModelSystem:
    """A trained model; ``search`` changes its decoding settings."""

    def __init__(self, name: str, summarizer: Summarizer, identity: str, search: Mapping[str, Any]) -> None:
        self.name, self._summarizer, self._search = name, summarizer, dict(search)
        self.identity = json.dumps([identity, self._search], sort_keys=True)
        tokenizer = summarizer.system.tokenizer  # type: ignore[attr-defined]
        self.unk_text: str | None = tokenizer.token(tokenizer.unk_id)

    def summarize(self, records: Sequence[Record], *, batch_size: int, progress: Progress) -> list[Summary]:
        return self._summarizer.summarize(
            records, explain=True, batch_size=batch_size, progress=progress, **self._search
        )


def open_model(
    place: str, *, device: str = "cpu", search: Mapping[str, Any] | None = None, name: str | None = None
) -> ModelSystem:
    """Open a model by its folder, its run's folder or its id on the hub.

    ``search`` are decoding settings, ``name`` is what tables call it (``place`` if not given).

    Raises:
        ModelError: there is no such model, or it is damaged.
    """
    folder = Path(place)
    if (folder / "model").is_dir():
        folder = folder / "model"
    summarizer = Summarizer.from_pretrained(str(folder) if folder.is_dir() else place, device=device)
    return ModelSystem(name or place, summarizer, _identity(folder, place), search or {})


def _identity(folder: Path, name: str) -> str:
    """A digest of a local model's files; the id of a model on the hub."""
    if not folder.is_dir():
        return name
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*")):
        if path.suffix in {".json", ".safetensors"} and path.name not in {"metrics.json", "environment.json"}:
            digest.update(path.name.encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
