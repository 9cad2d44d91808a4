"""An extractive method behind the interface of `Summarizer`: its provenance is the place of each sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from laconic.config.names import EXTRACTIVE, parse, resolve
from laconic.errors import ConfigError
from laconic.explain.provenance import extractive_summary
from laconic.extractive.base import Extractor
from laconic.types import Record, Summary

Progress = Callable[[int], object]
OnText = Callable[[int, str], object]


class ExtractiveSystem:
    """``name`` is an entry of the table EXTRACTIVE, ``settings`` its options."""

    calibration = None  # its words are the document's own

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.settings = dict(settings)
        self.options({})

    def options(self, overrides: Mapping[str, Any]) -> Extractor:
        """The method with its settings changed by ``overrides``.

        Raises:
            ConfigError: an unknown option, or the oracle, which needs the reference.
        """
        known = resolve("extractive method", EXTRACTIVE, self.name).Config.model_fields
        for key in overrides:
            if key not in known:
                raise ConfigError(f"'{self.name}' is extractive and has no setting '{key}'; it has {', '.join(known)}.")
        cls, config = parse("extractive method", EXTRACTIVE, {"type": self.name, **self.settings, **overrides})
        if getattr(cls, "needs_reference", self.name == "oracle"):
            raise ConfigError(f"'{self.name}' picks by the reference summary: it can be evaluated, not used.")
        return cls(config)

    def describe(self, options: Extractor) -> dict[str, Any]:
        """The settings, for records of results."""
        return {"method": self.name, **options.config.model_dump(mode="json")}

    def summarize_batch(
        self,
        records: Sequence[Record],
        *,
        explain: bool,
        options: Extractor,
        on_step: Callable[[], object] | None = None,
        on_text: OnText | None = None,
    ) -> list[Summary]:
        """Pick the sentences of each document.

        ``on_step()`` is called before each document; what it raises ends the work. ``on_text(i, text)`` is given
        the summary of document i, which an extractive method has all at once.
        """
        summaries = []
        for index, record in enumerate(records):
            if on_step:
                on_step()
            summaries.append(self._one(record, options))
            if on_text:
                on_text(index, summaries[-1].text)
        return summaries

    def about(self) -> dict[str, Any]:
        """What kind of thing this is, for those who choose one: it copies sentences and has no weights."""
        return {
            "family": self.name,
            "copies": True,
            "parameters": None,
            "max_source_tokens": None,
            "max_summary_tokens": None,
        }

    def _one(self, record: Record, extractor: Extractor) -> Summary:
        document = record.document
        given: str | list[str] = list(record.sentences) if record.sentences else document
        sentences = extractor.sentences(given)
        places = locate(document, sentences)
        if record.sentences and None in places:  # a split that does not fit the text: use our own
            given, sentences = document, extractor.sentences(document)
            places = locate(document, sentences)
        picked = [places[index] for index in extractor.pick_from(sentences)]
        spans = [place for place in picked if place is not None]
        spans = shorten(document, spans, len("".join(extractor.text(given).split())))
        return extractive_summary(document, spans, model_name=self.name, record_id=record.id)

    def score(self, records: Sequence[Record], batch_size: int, progress: Progress | None) -> list[float]:
        """Refuse: there is no probability model."""
        raise ConfigError(f"'{self.name}' is extractive and gives summaries no probability; score with a model.")

    def to(self, device: Any) -> None:
        """Nothing to move."""


def locate(document: str, sentences: Sequence[str]) -> list[tuple[int, int] | None]:
    """The span of each sentence in the document, in order; ``None`` for what does not stand there."""
    places: list[tuple[int, int] | None] = []
    position = 0
    for sentence in sentences:
        text = sentence.strip()
        start = document.find(text, position) if text else -1
        if start < 0:
            places.append(None)
            continue
        position = start + len(text)
        places.append((start, position))
    return places


def shorten(document: str, spans: Sequence[tuple[int, int]], num_characters: int) -> list[tuple[int, int]]:
    """The spans up to their ``num_characters``-th visible character (methods that count words or characters cut the
    last sentence)."""
    kept: list[tuple[int, int]] = []
    for start, end in spans:
        visible = [place for place in range(start, end) if not document[place].isspace()]
        if num_characters > 0 and visible:
            kept.append((start, end if len(visible) <= num_characters else visible[num_characters - 1] + 1))
        num_characters -= len(visible)
    return kept
