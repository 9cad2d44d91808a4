"""What can be evaluated: whatever `Summarizer` opens, by the same names, and what identifies it.

No tensor library is imported before a model has to write something.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from catchline.config.loading import load_run, merge, read_run
from catchline.config.names import sources_of
from catchline.config.shipped import place_of
from catchline.files import digest_of
from catchline.summarizer.extractive import ExtractiveSystem, Progress, is_method
from catchline.summarizer.summarize import Summarizer, with_graphs
from catchline.types import Record, Summary


class Contender:
    """A system in an evaluation: ``place`` is a run or model folder, a hub id or an extractive method, the oracle too.

    ``settings`` are decoding settings or those of the method (the whole spec of a component, where they have a
    ``type``), ``name`` is what tables call it (``place`` if not given). Of a model the text is scored that its run asks
    for in ``evaluation.surface``, unless ``settings`` say ``surface`` themselves. ``identity`` says everything that
    decides the summaries: contenders of equal identity write equal ones. A model is opened when it first has to write.

    Raises:
        ConfigError: settings that the method does not have.
    """

    def __init__(
        self, place: str, *, name: str | None = None, settings: Mapping[str, Any] | None = None, device: str = "cpu"
    ) -> None:
        self.name, self._place, self._device = name or place, place, device
        self._method: ExtractiveSystem | None = None
        self._search: dict[str, Any] = {}
        if is_method(place) or "type" in (settings or {}):
            self._method = ExtractiveSystem(place, settings)
            described = self._method.describe(self._method.options({}))
            code = map(digest_of, sources_of({"type": described["method"]}))
            self.identity = json.dumps(["extractive", self.name, described, *code])
            return
        folder = model_folder(place)
        recipe = folder / "recipe.yaml"
        graphs = device in ("cpu", "auto") and with_graphs(place) is not None  # of the recipe nothing is built then
        run = (read_run if graphs else load_run)(recipe) if recipe.is_file() else None
        surface = run and run.evaluation.surface
        self._search = ({} if surface is None else {"surface": surface}) | dict(settings or {})
        code = map(digest_of, sources_of([run and not graphs and run.model_dump(), self._search]))
        self.identity = json.dumps([_identity(folder, place), self._search, *code], sort_keys=True)

    @cached_property
    def summarizer(self) -> Summarizer:
        """Opened now if it was not before.

        Raises:
            ModelError: there is no such model, or it is damaged.
        """
        if self._method is not None:
            return Summarizer(self._method)
        folder = model_folder(self._place)
        return Summarizer.from_pretrained(str(folder) if folder.is_dir() else self._place, device=self._device)

    @property
    def is_method(self) -> bool:
        """Does it pick sentences?"""
        return self._method is not None

    @property
    def unk_text(self) -> str | None:
        """What a word outside the vocabulary looks like in the output, if it can occur."""
        return self.summarizer.system.unk_text

    def summarize(
        self,
        records: Sequence[Record],
        *,
        batch_size: int | None = None,
        progress: Progress | None = None,
        words: bool = True,
        **changes: Any,
    ) -> list[Summary]:
        """What it writes, sure of it or not, with the origin of each word (of a method's only where ``words`` are asked
        for); ``progress`` is told the number of records just done. ``changes`` are other decoding settings."""
        explain = None if self.is_method and not words else True
        how = {"explain": explain, "batch_size": batch_size, "progress": progress, "always_write": True}
        return self.summarizer.summarize(records, **how, **merge(self._search, changes, revive=True))


def model_folder(place: str) -> Path:
    """The model's own folder, where ``place`` is a run's folder or a model of the package; else ``place``."""
    folder = place_of(place)
    return folder / "model" if (folder / "model").is_dir() else folder


def weights_identity(place: str) -> str:
    """What identifies a model, the decoding defaults that it comes with left out."""
    return _identity(model_folder(place), place, {*_NOT_IDENTITY, "generation_config.json"})


_NOT_IDENTITY = frozenset({"metrics.json", "environment.json", "card.json"})


def _identity(folder: Path, name: str, without: Collection[str] = _NOT_IDENTITY) -> str:
    """A digest of a local model's files; the id of a model on the hub."""
    if not folder.is_dir():
        return name
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*")):
        if path.suffix in {".json", ".safetensors"} and path.name not in without:
            digest.update(path.name.encode())
            digest.update(bytes.fromhex(digest_of(path)))
    return digest.hexdigest()
