"""What `Summarizer` drives, a `System`; the grammar of the names of extractive methods, and such a method as a system.

A name is ``lexrank``, ``lead-1`` (that many sentences) or ``concept_ilp:max_words=50,sentences=9`` (any settings); a
class of one's own is ``my_package.module:Mine``, with ``-1`` or settings behind it likewise. A name means the same in
every command and in Python.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar

from catchline.config.base import LONGEST_NUMBER, validate
from catchline.config.names import EXTRACTIVE, SHIPPED, parse, place_of, resolve
from catchline.config.schema import LengthConfig
from catchline.errors import ConfigError, ModelError, did_you_mean
from catchline.explain.provenance import extractive_summary
from catchline.jobs import threaded
from catchline.metrics.confidence import Calibration
from catchline.search.scorers import Length
from catchline.types import Record, Summary, references_of

if TYPE_CHECKING:
    from catchline.extractive.base import Extractor

Progress = Callable[[int], object]  # receives the number of documents just done
PARSE_OVERRIDES = "catchline.config.loading:parse_overrides"  # few names have settings, and YAML takes time to import
OnText = Callable[[int, str], object]  # receives the place of a document and its summary so far
# ``my_package.module:Mine`` or ``my_module:Mine-2``; a drive is one letter, ``hub:`` is before data, ``openai:`` models
_OUTSIDE = re.compile(r"(?!hub:|openai:)[^\W\d]\w+(\.\w+)*:[A-Z]\w*(-\d+)?(?=$|:)")


class System(ABC):
    """A way to summarize a batch. What is here is that of a system without weights or probabilities."""

    name: str
    calibration: Calibration | None = None
    batch: ClassVar[int] = 16  # documents of a batch where nobody says how many; results are kept by 8 batches
    unk_text: str | None = None  # what a word outside the vocabulary looks like in the output, if it can occur

    @abstractmethod
    def options(self, overrides: Mapping[str, Any]) -> Any:
        """The settings changed by ``overrides``. Raises ConfigError: an unknown setting or a wrong value."""

    @abstractmethod
    def describe(self, options: Any) -> dict[str, Any]:
        """The settings, for records of results."""

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """What kind of system this is, for those who choose one: family, whether it copies, its size and limits."""

    @abstractmethod
    def summarize_batch(
        self,
        records: Sequence[Record],
        *,
        explain: bool | None,
        options: Any,
        on_step: Callable[[], object] | None = None,
        on_text: OnText | None = None,
    ) -> list[Summary]:
        """Summarize the documents. ``on_step()`` is called before each step or document; what it raises ends the work.
        ``on_text(i, text)`` receives the summary of document i so far."""

    def set_defaults(self, overrides: Mapping[str, Any]) -> None:
        """Change the settings that are used when nothing else is asked for; of a method its name has them."""
        return

    def documents_at_once(self, longest: str) -> int:
        """How many documents, none longer than this one, are best worked on together."""
        return 16

    def batches_at_once(self, documents: int, options: Any) -> int:
        """How many parts of this many documents are best worked on `in_threads`."""
        return 1

    in_threads = staticmethod(threaded)  # work on each batch, in order, by threads of this process

    def score(self, records: Sequence[Record], batch_size: int, progress: Progress | None) -> list[float]:
        """log P(summary | document) of each record, END included."""
        raise ConfigError(f"'{self.name}' has no probabilities; score with a trained model.")

    def to(self, device: Any) -> None:
        """Move the weights. Raises ConfigError: there is no such device."""
        return

    def save_pretrained(self, folder: str | Path) -> None:
        raise ConfigError(f"'{self.name}' has no weights, so there is nothing to save; its name opens it anywhere.")

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        raise ConfigError(f"'{self.name}' has no weights, so there is nothing to upload; its name opens it anywhere.")


def method_spec(name: str) -> dict[str, Any]:
    """The spec of a component (``type`` and settings) that a name means, whether there is such a method or not. Raises
    ConfigError: settings that cannot be read."""
    method, colon, settings = name.partition(":")
    if method not in EXTRACTIVE and (outside := _OUTSIDE.match(name)):
        method, colon, settings = outside[0], *name[outside.end() :].partition(":")[1:]
    spec: dict[str, Any] = {"type": method}
    numbered = re.fullmatch(r"(.+)-(\d+)", method)
    if method not in EXTRACTIVE and numbered:
        if len(numbered[2]) > LONGEST_NUMBER:
            raise ConfigError(f"'{name:.40}...' asks for a number of {len(numbered[2]):,} digits; write fewer.")
        spec = {"type": numbered[1], "sentences": int(numbered[2])}
    if not colon or not (spec["type"] in EXTRACTIVE or ":" in spec["type"]):
        return spec
    if not settings.strip():
        raise ConfigError(f"'{name}' has no setting after the colon: remove it, or write {method}:language=de.")
    return spec | resolve_name(PARSE_OVERRIDES)(settings.split(","))


def is_method(name: str) -> bool:
    """Is ``name`` an extractive method, with or without settings? (A folder of such a name is ``./lead-1``.)"""
    return (kind := method_spec(name)["type"]) in EXTRACTIVE or ":" in kind


def meaning(name: str) -> str:
    """Equal for names of one system, however it is spelled (``lead-1``, ``lead:sentences=1``; ``run``, ``run/``)."""
    found: object = method_spec(name) if is_method(name) else place_of(name).expanduser().resolve()
    return str(found).removesuffix("/model")


def check_name(name: str, recipes: Sequence[str] = ()) -> bool:
    """Whether ``name`` is a method rather than a model, found out before anything runs; ``recipes`` are what it could
    have meant too. Raises ModelError: it can be neither; ConfigError: settings that the method does not have."""
    if is_method(name):
        ExtractiveSystem(name)
        return True
    if name.startswith("openai:"):
        resolve_name("catchline.summarizer.llm:LanguageModelSystem")(name)
        return False
    place = place_of(name).expanduser()
    if not place.exists() and "/" not in name:
        meant = did_you_mean(name, [*recipes, *SHIPPED, *EXTRACTIVE])
        known = f"Recipes: {', '.join(recipes)}. " if recipes else ""
        raise ModelError(
            f"'{name}' is neither {'a recipe, ' if recipes else ''}a model nor an extractive method.{meant} "
            f"{known}Methods: {', '.join(sorted(EXTRACTIVE))}."
        )
    if place.parent.is_dir() and not any((at / "config.json").is_file() for at in (place, place / "model")):
        resolve_name("catchline.models.folder:find_folder")(name)  # no id of the hub: it says what this is instead
    return False


class ExtractiveSystem(System):
    """The method ``name`` with further ``settings``, or, where these have a ``type``, the method they describe; its
    provenance is the place of each sentence."""

    def __init__(self, name: str, settings: Mapping[str, Any] | None = None) -> None:
        self.name = name
        given = dict(settings or {})
        self._spec = given if "type" in given else method_spec(name) | given
        self._extractor = self.options({})

    @property
    def needs_reference(self) -> bool:
        """Does the method pick by the reference summary? It can be evaluated, not used."""
        return self._extractor.needs_reference

    def options(self, overrides: Mapping[str, Any]) -> Extractor:
        """The method with its settings changed by ``overrides``. Raises ConfigError: no such method, an unknown
        setting, or a value that does not fit."""
        known = resolve("extractive method", EXTRACTIVE, self._spec["type"]).Config.model_fields
        bounds = LengthConfig.model_fields.keys() - known
        for key in overrides:
            if key not in (own := [*known, *bounds]):
                raise ConfigError(f"'{self.name}' is extractive and has no setting '{key}'; it has {', '.join(own)}.")
        given = {**self._spec, **overrides}
        asked = validate(LengthConfig, {key: given.pop(key) for key in bounds & given.keys()}, where="")
        cls, config = parse("extractive method", EXTRACTIVE, given)
        method: Extractor = cls(config)
        method.length = Length.of(asked)
        if method.length and method.length.least:
            raise ConfigError(f"'{self.name}' picks whole sentences: give only a maximum of words, such as 12.")
        return method

    def describe(self, options: Extractor) -> dict[str, Any]:
        bounds = {} if options.length is None else asdict(options.length)
        shown = {key: value for key, value in bounds.items() if value and key != "sentences"}
        return {"method": self._spec["type"], **options.config.model_dump(mode="json"), **shown}

    def summarize_batch(
        self,
        records: Sequence[Record],
        *,
        explain: bool | None,
        options: Extractor,
        on_step: Callable[[], object] | None = None,
        on_text: OnText | None = None,
    ) -> list[Summary]:
        """Pick the sentences of each document. Words have their places unless ``explain`` is None."""
        summaries = []
        for index, record in enumerate(records):
            if on_step:
                on_step()
            summary = self._one(record, options, words=explain is not None)
            summaries.append(options.length.cut(summary) if options.length else summary)
            if on_text:
                on_text(index, summaries[-1].text)
        return summaries

    def about(self) -> dict[str, Any]:
        return {
            "family": self._spec["type"],
            "in_short": self._extractor.in_short,
            "copies": True,
            "parameters": None,
            "max_source_tokens": None,
            "max_summary_tokens": None,
        }

    def _one(self, record: Record, extractor: Extractor, *, words: bool) -> Summary:
        document = record.document
        given = list(record.sentences) or document
        sentences = extractor.sentences(given)
        asked = {"references": references_of(record)} if extractor.needs_reference else {}
        picked = range(len(sentences)) if extractor.cuts else extractor.summarize(sentences, **asked)
        places = locate(document, sentences[: max(picked, default=-1) + 1])
        spans = [place for index in picked if (place := places[index]) is not None]
        if len(spans) < len(picked):  # the split that came with the text is of another writing of it
            text = extractor.text(given) if extractor.cuts else " ".join(sentences[index] for index in picked)
            return Summary(" ".join(text.split()), id=record.id, model=self.name, document=document)
        if extractor.cuts:
            spans = shorten(document, spans, len("".join(extractor.text(given).split())))
        return extractive_summary(document, spans, model_name=self.name, record_id=record.id, with_words=words)


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
