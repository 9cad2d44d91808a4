"""What can be evaluated. Extractive methods are here; trained models, which need torch, in `models`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from laconic.config.loading import parse_overrides
from laconic.config.names import EXTRACTIVE, parse
from laconic.extractive.baselines import Oracle
from laconic.types import Record, Summary, references_of

Progress = Callable[[int], object]


class System(Protocol):
    """Something that turns records into summaries; ``progress`` is told the number of records just done.

    ``identity`` says everything that decides the summaries (two systems of equal identity write equal
    ones); ``unk_text`` is what a word outside the vocabulary looks like in its output, if it can occur.
    """

    @property
    def name(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def unk_text(self) -> str | None: ...

    def summarize(self, records: Sequence[Record], *, batch_size: int, progress: Progress) -> list[Summary]: ...


def method_spec(name: str) -> dict[str, Any]:
    """``lexrank``, ``lead-1`` (that many sentences) or ``lead:sentences=2,language=de`` as a component's spec."""
    method, colon, settings = name.partition(":")
    spec: dict[str, Any] = {"type": method}
    numbered = re.fullmatch(r"(.+)-(\d+)", method)
    if method not in EXTRACTIVE and numbered:
        spec = {"type": numbered[1], "sentences": int(numbered[2])}
    return spec | (parse_overrides(settings.split(",")) if colon else {})


class ExtractiveSystem:
    """A method of the table `EXTRACTIVE`; ``name`` may carry options, see `method_spec`, unless ``spec`` has them.

    The oracle sees the references; it is a bound, not a system.
    """

    unk_text = None

    def __init__(self, name: str, spec: Mapping[str, Any] | None = None) -> None:
        self.name = name
        cls, config = parse("extractive method", EXTRACTIVE, spec or method_spec(name))
        self._method = cls(config)
        self.identity = json.dumps(["extractive", name, config.model_dump(mode="json")])

    def summarize(self, records: Sequence[Record], *, batch_size: int, progress: Progress) -> list[Summary]:
        summaries = []
        for record in records:
            document = list(record.sentences) or record.document
            if isinstance(self._method, Oracle):
                text = self._method.text(document, references=references_of(record))
            else:
                text = self._method.text(document)
            summaries.append(Summary(text, id=record.id, model=self.name))
            progress(1)
        return summaries


def is_method(name: str) -> bool:
    """Is ``name`` an extractive method, with or without options?"""
    return method_spec(name)["type"] in EXTRACTIVE
