"""The model card, README.md of a model folder: made of what the folder's other files say, and of ``card.json``.

``card.json`` holds what those cannot know: licence, language, data sets, words of a person, and scores. Every card is
made by `model_card`: that of a run, of a saved or uploaded model, of ``catchline card`` and of the model in the box.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from catchline.config.base import validate
from catchline.config.loading import read_run
from catchline.config.names import outside_names
from catchline.config.schema import RunConfig
from catchline.config.shipped import SHIPPED
from catchline.files import write_json, write_text
from catchline.metrics.confidence import Calibration
from catchline.text.base import read_json, read_json_if_there

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

FILE, README = "card.json", "README.md"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
ANYWHERE = "PATH_OR_HUB_ID"  # what stands for the model's name in examples
LIMITS = (
    "The summary may state what the document does not: look a number or a name up before you rely on it. "
    "`catchline explain` shows for each word whether it was copied and from where."
)


class CardScores(BaseModel, extra="ignore", frozen=True):
    """A table of systems on one data set, the model's row last: cells as they are printed, ``rouge`` by kind x 100."""

    data: str
    split: str = ""
    records: int = Field(ge=1)
    rouge: dict[str, float]
    figure: str = "F1"
    signature: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str] = Field(default_factory=list)


class Facts(BaseModel, extra="ignore", frozen=True):
    """``card.json``. ``notes`` and ``limits`` are Markdown."""

    license: str | None = Field(None, pattern=r"^[a-z0-9][a-z0-9.+-]*$")
    language: list[str] = Field(default_factory=list)
    datasets: list[str] = Field(default_factory=list)
    notes: str = ""
    limits: str = ""
    scores: list[CardScores] = Field(default_factory=list)

    @classmethod
    def of(cls, folder: Path) -> Facts:
        """Those of a model folder; empty where it has none.

        Raises:
            CatchlineError: the file is damaged.
        """
        return validate(cls, read_json_if_there(folder / FILE), where=FILE)

    def changed(self, **changes: Any) -> Facts:
        """With other values, checked; those of ``changes`` that are empty change nothing.

        Raises:
            ConfigError: a value that no card can have.
        """
        given = {name: value for name, value in changes.items() if value}
        return validate(Facts, self.model_dump() | given, where="")

    def with_scores(self, scores: CardScores) -> Facts:
        """With these in place of earlier ones on the same data."""
        place = (scores.data, scores.split)
        others = [one for one in self.scores if (one.data, one.split) != place]
        return self.model_copy(update={"scores": [*others, scores]})


def write_card(folder: Path, facts: Facts | None = None, *, opened_as: str = ANYWHERE) -> None:
    """Write ``card.json``, where facts are given, and ``README.md`` of a model folder."""
    if facts is not None and facts != Facts():
        write_json(folder / FILE, facts.model_dump(exclude_defaults=True), indent=2)
    write_text(folder / README, model_card(folder, opened_as=opened_as))


def model_card(folder: Path, *, opened_as: str = ANYWHERE) -> str:
    """The card of a model folder: metadata for the hub (with a model-index), use, training, data, scores, limits.

    Raises:
        CatchlineError: a file of the folder cannot be read.
    """
    facts = Facts.of(folder)
    config, search = read_json(folder / "config.json"), read_json(folder / "generation_config.json")
    metrics = read_json_if_there(folder / "metrics.json")
    run = read_run(folder / "recipe.yaml") if (folder / "recipe.yaml").is_file() else None
    built = [] if any(folder.glob("*.onnx")) else [config, run.model_dump() if run else {}]  # graphs need no class
    code = sorted(outside_names([config.get("text"), search, built]))
    python, option = (", trust_code=True", " --trust-code") if code else ("", "")
    kind = config["model"]["type"]
    title = config.get("name") or kind
    parts = [
        f"---\n{_metadata(title, kind, run, facts, opened_as).to_yaml()}\n---\n# {title}",
        run.description if run else "",
        _what_it_is(folder, kind, config, search),
        f"It is made with code that is not catchline's, `{'`, `'.join(code)}`: have it installed, or in the working "
        "directory, and say that you trust it."
        if code
        else "",
        f"```python\nfrom catchline import Summarizer\n\nsummarizer = "
        f'Summarizer.from_pretrained("{opened_as}"{python})\n'
        'print(summarizer.summarize("Your text.").text)\n```',
        f"```\ncatchline summarize {opened_as} article.txt{option}\n"
        f"catchline explain {opened_as} article.txt --html why.html{option}\n```",
        *_training(run, metrics, read_json_if_there(folder / "environment.json")),
        *_data(metrics.get("data"), facts),
        facts.notes.strip(),
        *_scores(facts.scores, metrics),
        "## Limits",
        facts.limits.strip() or LIMITS,
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _metadata(title: str, kind: str, run: RunConfig | None, facts: Facts, opened_as: str) -> ModelCardData:
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type="summarization",
            dataset_type=scores.data,
            dataset_name=scores.data,
            dataset_split=scores.split or None,
            metric_type="rouge",
            metric_name=f"ROUGE-{kind_of_rouge} {scores.figure} x 100",
            metric_value=value,
            metric_args={"signature": scores.signature, "records": scores.records},
        )
        for scores in facts.scores
        for kind_of_rouge, value in scores.rouge.items()
    ]
    start = _starts_from(run)
    return ModelCardData(
        license=facts.license,
        language=facts.language or None,
        library_name="catchline",
        pipeline_tag="summarization",
        tags=sorted({"summarization", "catchline", kind, *([run.name.replace("_", "-")] if run else [])}),
        datasets=facts.datasets or None,
        base_model=None if start == opened_as else start,  # no model is its own base
        metrics=["rouge"] if results else None,
        model_name=title,
        eval_results=results or None,
    )


def _starts_from(run: RunConfig | None) -> str | None:
    """The model whose weights the training began with, where its name says something to others."""
    start = run.training.initial_weights if run else None
    return start if start in SHIPPED or (start and HUB_ID.fullmatch(start)) else None


def _what_it_is(folder: Path, kind: str, config: Mapping[str, Any], search: Mapping[str, Any]) -> str:
    # where weights have eight bits, scales stand beside them
    size = read_json_if_there(folder / "export.json").get("parameters")
    if not isinstance(size, int):
        with (folder / "model.safetensors").open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        size = sum(prod(one["shape"]) for name, one in header.items() if not name.endswith(("__metadata__", ".scales")))
    lines = [
        f"A `{kind}` summarizer with {size:,} parameters, made with catchline "
        f"{config['catchline'].get('version', '')}.",
        f"It reads up to {config['text']['max_source_tokens']} tokens of a document and writes up to "
        f"{search['max_length']} (beam {search['beam_size']}).",
    ]
    if calibration := Calibration.load(folder):
        lines.append(
            f"Below a confidence of {calibration.threshold:.2f}, of texts unlike those it knows"
            f"{', and where it is likelier to do' * bool(calibration.sentence)}, the answer is the sentence of the "
            "document that is likeliest to say what it is about."
        )
    return "\n".join(lines)


def _training(run: RunConfig | None, metrics: Mapping[str, Any], environment: Mapping[str, Any]) -> list[str]:
    if run is None:
        return []
    training, optimizer = run.training, run.training.optimizer
    named = ", ".join(f"{what} `{name}`" for what in ("row", "size") if (name := getattr(run, what)))
    named = f"Recipe `{run.name}`{f', {named}' if named else ''}"
    done = f"{metrics['update']:,} updates" if isinstance(metrics.get("update"), int) else "batches"
    batch = f"{training.batch_tokens:,} tokens" if training.batch_tokens else f"{training.batch_size} pairs"
    known = _starts_from(run) or ("an earlier model" if training.initial_weights else "")
    start = f" It started from the weights of {known}." if known else ""
    versions = ", ".join(f"{name} {environment[name]}" for name in ("python", "torch") if name in environment)
    return [
        "## Training",
        f"{named}: {done} of {batch} with {optimizer.type}, learning rate {optimizer.learning_rate:g}, seed "
        f"{training.seed}, {training.precision}.{start}\n`recipe.yaml` holds every setting, `environment.json` the "
        f"versions{f' ({versions})' if versions else ''}.",
    ]


def _data(data: Any, facts: Facts) -> list[str]:
    lines = [f"Data sets: {', '.join(facts.datasets)}."] if facts.datasets else []
    rows = [
        [str(split), f"{part['pairs']:,}", f"`{part['sha256']}`"]
        for split, part in (data.items() if isinstance(data, Mapping) else ())
        if isinstance(part, Mapping) and isinstance(part.get("pairs"), int) and "sha256" in part
    ]
    if rows:
        lines.append(_table(["data", "pairs", "SHA-256 of the texts"], rows))
    stated = f"Licence of the model: {facts.license}." if facts.license else "No licence is stated."
    return ["## Data and licence", *lines, stated]


def _scores(scores: Sequence[CardScores], metrics: Mapping[str, Any]) -> list[str]:
    """One table a data set, with the notes of all; the figures of validation while it was trained."""
    parts = ["## Scores"]
    for one in scores:
        first = f"{one.data}{f' ({one.split})' if one.split else ''}, {one.records:,} records"
        parts.append(_table([first, *one.header[1:]], one.rows))
    if notes := list(dict.fromkeys(note for one in scores for note in one.notes)):
        parts.append("\n".join(notes))
    validation = metrics.get("validation")
    if isinstance(validation, Mapping) and validation:
        numbers = {str(name): value for name, value in validation.items() if isinstance(value, int | float)}
        figures = ", ".join(_figure(name, value) for name, value in numbers.items())
        signature = f" ({metrics['signature']})" if "signature" in metrics else ""
        parts.append(f"Validation while it was trained, at update {metrics.get('update')}: {figures}{signature}.")
    if len(parts) == 1:
        parts.append(f"None yet: `catchline card {ANYWHERE} --data FILE` scores it beside the first sentence.")
    return parts


def _figure(name: str, value: Any) -> str:
    """ROUGE as tables have it, 0 to 100; losses as they are."""
    if name.startswith("rouge"):
        return f"ROUGE-{name.removeprefix('rouge')} {100 * value:.2f}"
    return f"{name} {value:.4g}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.strip().replace("|", "\\|") for cell in line) + " |" for line in lines)
