"""The model card, README.md of a model folder; ``card.json`` holds what its other files do not know."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from pydantic import BaseModel, Field

from catchline.config.base import validate
from catchline.config.loading import read_run
from catchline.config.names import SHIPPED
from catchline.config.schema import RunConfig
from catchline.files import write_json, write_text
from catchline.metrics.confidence import Calibration
from catchline.text.base import read_json

FILE, README = "card.json", "README.md"
DEFAULTS = "catchline_defaults"  # the key of a plain checkpoint's config.json with text limits and decoding
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


class CardScores(BaseModel, extra="ignore", frozen=True):
    """A table of systems on one data set, the model's row last: cells as they are printed, ``rouge`` by kind x 100."""

    data: str
    split: str = ""
    records: int = Field(ge=1)
    rouge: dict[str, float]
    signature: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str] = Field(default_factory=list)


class Card(BaseModel, extra="ignore", frozen=True):
    """``card.json``. ``notes`` and ``limits`` are Markdown."""

    license: str | None = Field(None, pattern=r"^[a-z0-9][a-z0-9.+-]*$")
    language: list[str] = Field(default_factory=list)
    datasets: list[str] = Field(default_factory=list)
    notes: str = ""
    limits: str = ""
    scores: list[CardScores] = Field(default_factory=list)

    @classmethod
    def of(cls, folder: Path) -> Card:
        """That of a model folder; empty where it has none."""
        return validate(cls, read_json(folder / FILE, optional=True), where=FILE)

    def with_scores(self, scores: CardScores) -> Card:
        others = [one for one in self.scores if (one.data, one.split) != (scores.data, scores.split)]
        return self.model_copy(update={"scores": [*others, scores]})


def write_card(folder: Path, card: Card | None = None) -> None:
    """Write ``card.json``, where a card is given, and ``README.md`` of a model folder."""
    if card is not None and card != Card():
        write_json(folder / FILE, card.model_dump(exclude_defaults=True), indent=2)
    write_text(folder / README, model_card(folder))


@contextmanager
def card_follows(folder: Path) -> Iterator[None]:
    """The card of a model folder says what the block has changed; one that was written by hand stays."""
    path = folder / README
    same = path.is_file() and path.read_text(encoding="utf-8") == model_card(folder)
    yield
    if same:
        write_card(folder)


def model_card(folder: Path) -> str:
    """The card of a model folder: metadata for the hub (with a model-index), use, training, data, scores, limits."""
    config, card = read_json(folder / "config.json"), Card.of(folder)
    search = read_json(folder / "generation_config.json")
    if plain := config.get(DEFAULTS):  # a checkpoint of transformers
        config |= {"model": {"type": config["model_type"]}, "text": plain["text"], "catchline": plain}
        search = plain["search"]
    run = read_run(folder / "recipe.yaml") if (folder / "recipe.yaml").is_file() else None
    start = run.training.initial_weights if run else None  # on the hub, if its name says so
    base = start if start in SHIPPED or (start and HUB_ID.fullmatch(start)) else None
    loader = PackageLoader("catchline.models", ".")
    template = Environment(loader=loader, trim_blocks=True, keep_trailing_newline=True).get_template("card.md.jinja")
    return template.render(
        metadata=_metadata(config, run, card, base),
        config=config,
        run=run,
        card=card,
        base=base,
        search=search,
        metrics=read_json(folder / "metrics.json", optional=True),
        parameters=_parameters(folder),
        calibration=Calibration.load(folder),
    )


def _parameters(folder: Path) -> int:
    size = read_json(folder / "export.json", optional=True).get("parameters")
    if isinstance(size, int):
        return size
    with (folder / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    # where weights have eight bits, scales stand beside them
    return sum(prod(one["shape"]) for name, one in header.items() if not name.endswith(("__metadata__", ".scales")))


def _metadata(config: Mapping[str, Any], run: RunConfig | None, card: Card, base: str | None) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    kind, task = config["model"]["type"], "summarization"
    results = [
        EvalResult(task, one.data, one.data, "rouge", value, dataset_split=one.split, metric_name=f"ROUGE-{name}")
        for one in card.scores
        for name, value in one.rouge.items()
    ]
    metadata = ModelCardData(
        license=card.license,
        language=card.language or None,
        library_name="catchline",
        pipeline_tag=task,
        tags=sorted({task, "catchline", kind, *([run.name.replace("_", "-")] if run else [])}),
        datasets=card.datasets or None,
        base_model=base,
        model_name=config.get("name") or kind,
        eval_results=results or None,
    )
    return str(metadata.to_yaml())
