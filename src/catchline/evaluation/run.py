"""Decode a data set with a system, score it, and keep what was decoded.

result = evaluate_system(Contender("runs/a"), records, out=Path("runs/a/predictions.jsonl"))
result.rouge["1"].f, result.rouge["1"].low, result.signature

No tensor library is imported before a model has to write something.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from catchline.config.base import validate
from catchline.config.loading import load_run, merge, read_run
from catchline.config.names import sources_of, trusting
from catchline.config.schema import EvaluationConfig
from catchline.config.shipped import place_of
from catchline.data.records import Pairs, read_records, split_of
from catchline.errors import ConfigError, DataError
from catchline.evaluation.measures import measure, reading_measures
from catchline.evaluation.predictions import Journal, as_lines, fingerprint, prediction_of
from catchline.files import digest_of, write_text
from catchline.metrics.rouge import RougeResult
from catchline.metrics.scoring import RunScoring, Scoring, Shown, score_as, scoring, suited
from catchline.summarizer.extractive import ExtractiveSystem, Progress, is_method
from catchline.summarizer.summarize import BATCH, WINDOW_BATCHES, Summarizer, with_graphs
from catchline.text.unknown import restore_numbers
from catchline.types import Record, Summary, references_of

_NOT_IDENTITY = frozenset({"metrics.json", "environment.json", "card.json"})

# ------------------------------------------------------------------------------------------- systems


class Contender:
    """A system to evaluate: ``place`` is a run or model folder, a hub id or an extractive method, the oracle too.

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
        **changes: Any,
    ) -> list[Summary]:
        """What it writes, sure of it or not, of a model with the origin of each word; ``progress`` is given the number
        of records just done, ``changes`` are other decoding settings."""
        explain = None if self.is_method else True
        how = {"explain": explain, "batch_size": batch_size, "progress": progress, "always_write": True}
        return self.summarizer.summarize(records, **how, **merge(self._search, changes, revive=True))


def model_folder(place: str) -> Path:
    """The model's own folder, where ``place`` is a run's folder or a model of the package; else ``place``."""
    folder = place_of(place)
    return folder / "model" if (folder / "model").is_dir() else folder


def _identity(folder: Path, name: str) -> str:
    """A digest of a local model's files; the id of a model on the hub."""
    if not folder.is_dir():
        return name
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*")):
        if path.suffix in {".json", ".safetensors"} and path.name not in _NOT_IDENTITY:
            digest.update(path.name.encode())
            digest.update(bytes.fromhex(digest_of(path)))
    return digest.hexdigest()


# -------------------------------------------------------------------------------------------- scores


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """``kinds`` of ROUGE, counted as ``scoring`` says; ``batch_size`` is the number of records decoded at once (None:
    by their length). With ``restore_numbers`` what the system wrote as ``##`` is a number of the document before
    scoring; predictions stay as they were written."""

    kinds: tuple[str, ...] = ("1", "2", "L")
    scoring: Scoring = field(default_factory=Scoring)
    batch_size: int | None = None
    restore_numbers: bool = False


def options_of(config: EvaluationConfig, **rouge: Any) -> EvaluationOptions:
    """The options that a run's ``evaluation`` section asks for; ``rouge`` changes those of ROUGE once more.

    Raises:
        ConfigError: there is no such profile, option or kind.
    """
    asked = {**config.rouge, **rouge}
    validate(RunScoring.Config, {"profile": config.profile, "rouge": asked}, where="evaluation")
    way = scoring(config.profile, asked)
    kinds = way.rouge.get("kinds", EvaluationOptions().kinds)
    way = replace(way, rouge={name: value for name, value in way.rouge.items() if name != "kinds"})
    return EvaluationOptions(tuple(map(str, kinds)), way, config.batch_size, config.restore_numbers)


@dataclass(frozen=True, slots=True)
class RougeScore:
    """Means over documents, and the 95% bootstrap interval of the figure that is shown."""

    precision: float
    recall: float
    f: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The scores of one system on one data set.

    ``measures`` are means over documents (see `catchline.evaluation.measures`); ``shown`` is the figure of ROUGE that
    tables print (``f`` or ``recall``) and ``per_document`` has it for each document by kind, in the order of the
    records, for significance tests; ``flags`` says how the numbers are quoted; ``seconds`` is the time spent decoding.
    """

    system: str
    records: int
    rouge: dict[str, RougeScore]
    measures: dict[str, float]
    signature: str
    seconds: float
    per_document: dict[str, tuple[float, ...]] = field(repr=False)
    shown: Shown = "f"
    flags: str = ""

    def value(self, kind: str) -> float:
        """The mean of the figure that is shown."""
        return float(getattr(self.rouge[kind], self.shown))

    @property
    def counting(self) -> str:
        """``flags`` as a sentence, if there are any."""
        return f"How ROUGE counts: {self.flags.rstrip('.')}." if self.flags else ""

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready summary, documents left out."""
        left_out = ("per_document",)
        return {name: value for name, value in asdict(self).items() if name not in left_out} | {
            "seconds": round(self.seconds, 3)
        }


def evaluate(
    systems: str | Path | Sequence[str | Path],
    data: Pairs,
    *,
    split: str = "test",
    max_records: int | None = None,
    profile: str | None = None,
    decoding: Mapping[str, Any] | None = None,
    device: str = "cpu",
    trust_code: bool = False,
) -> dict[str, EvaluationResult]:
    """Score systems on a data set, as ``catchline evaluate`` does.

    ::

        scores = catchline.evaluate(["lead-1", "runs/mine"], "my_pairs/")
        print(scores["runs/mine"].rouge["L"].f)

    ``systems`` are run or model folders, hub ids, extractive methods; ``data`` a folder with splits, or pairs in a file
    or in memory (`catchline.read_records`); ``profile`` says how ROUGE is computed (`catchline evaluate --help`);
    ``decoding`` are settings of the models' search, such as ``{"beam_size": 8}``; with ``trust_code`` Python classes
    that the folders name are run, which can do anything. Returns the result of each system by its name.

    Raises:
        DataError: the data cannot be read, is empty, or has records without a summary.
        ModelError: there is no such model or method, or one names code that is not trusted.
        ConfigError: ``max_records`` or ``profile`` does not fit.
    """
    config = validate(EvaluationConfig, {"profile": profile, "max_records": max_records}, where="")
    names = [systems] if isinstance(systems, str) or not isinstance(systems, Iterable) else list(systems)
    for other in (one for one in names if not isinstance(one, str | Path)):
        raise ConfigError(f"A system is a folder, a hub id or an extractive method by name, no {type(other).__name__}.")
    source = split_of(data, split) if isinstance(data, str | Path) else data
    records = list(islice(read_records(source), config.max_records))
    found = {}
    with trusting(trust_code):
        for name in map(str, names):
            system = Contender(name, settings={} if is_method(name) else decoding, device=device)
            found[name] = evaluate_system(system, records, options=options_of(config))
    return found


def evaluate_system(
    system: Contender,
    records: Sequence[Record],
    *,
    options: EvaluationOptions | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
) -> EvaluationResult:
    """Summarize every record and compare with its references (all of them count); see `predict` and `score`."""
    lines, seconds = predict(system, records, options=options, out=out, progress=progress)
    return score(system.name, records, lines, options=options, unk_text=system.unk_text, seconds=seconds)


def predict(
    system: Contender,
    records: Sequence[Record],
    *,
    options: EvaluationOptions | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
    keep: Callable[[Path], object] = Path.unlink,
) -> tuple[list[dict[str, Any]], float]:
    """The predictions, and the seconds it took; 0 where an earlier call had made some.

    ``out`` is where they go; they are written beside it, renamed when complete, and an interrupted call with the same
    system, settings and records continues. Then ``keep`` is called with the file of the partial predictions, which a
    caller with more systems to come keeps, so that this one is not decoded again. ``progress`` is called with the
    number of records just done.

    Raises:
        DataError: no records, or a record without a summary to compare with.
    """
    refuse_unscorable(records, "evaluate")
    options = options or EvaluationOptions()
    start = time.perf_counter()
    partial = None if out is None else out.with_name(out.name + ".partial")
    header = None if out is None else {"predictions_of": fingerprint(system.identity, records)}
    with Journal(partial, header) as predictions:
        done = len(predictions.lines)
        if progress is not None and done:
            progress(done)
        window = WINDOW_BATCHES * (options.batch_size or BATCH)
        for first in range(done, len(records), window):
            chunk = records[first : first + window]
            summaries = system.summarize(chunk, batch_size=options.batch_size, progress=progress)
            predictions.add(prediction_of(summary, record) for summary, record in zip(summaries, chunk, strict=True))
    if out is not None and partial is not None:
        write_text(out, as_lines(predictions.lines))  # only a finished file gets its name
        keep(partial)
    return predictions.lines, 0.0 if done else time.perf_counter() - start


def score(
    name: str,
    records: Sequence[Record],
    predictions: Sequence[Mapping[str, Any]],
    *,
    options: EvaluationOptions | None = None,
    unk_text: str | None = None,
    seconds: float = 0.0,
) -> EvaluationResult:
    """Score predictions that exist already, line by line against ``records``."""
    options = options or EvaluationOptions()
    if len(predictions) != len(records):
        raise DataError(f"There are {len(predictions)} predictions for {len(records)} records.")
    hypotheses = [str(line["summary"]) for line in predictions]
    if options.restore_numbers:
        hypotheses = [restore_numbers(text, r.document) for text, r in zip(hypotheses, records, strict=True)]
    references = [tuple(references_of(record)) for record in records]
    way = suited(options.scoring, references)
    found = score_as(way, hypotheses, references, options.kinds, interval=True)
    documents = [record.document for record in records]
    measures = measure(documents, hypotheses, references, unk_text)
    measures |= reading_measures([line.get("reading") or {} for line in predictions])
    if p_gens := [float(line["p_gen"]) for line in predictions if line.get("p_gen") is not None]:
        measures["p_gen"] = sum(p_gens) / len(p_gens)
    per_document = {kind: tuple(getattr(s, way.shown) for s in scores) for kind, scores in found.per_document.items()}
    return EvaluationResult(
        system=name,
        records=len(records),
        rouge={kind: _rouge_score(found, kind, way.shown) for kind in found.mean},
        measures=measures,
        signature=found.signature,
        seconds=seconds,
        per_document=per_document,
        shown=way.shown,
        flags="; ".join(filter(None, [way.flags, found.counts.uncounted])),
    )


def _rouge_score(found: RougeResult, kind: str, shown: Shown) -> RougeScore:
    mean, interval = found.mean[kind], found.interval.get(kind)
    ends = (interval.low, interval.high) if interval else (mean, mean)
    low, high = (float(getattr(end, shown)) for end in ends)
    return RougeScore(mean.precision, mean.recall, mean.f, low, high)


def refuse_unscorable(records: Sequence[Record], to: str) -> None:
    """Records with references are needed ``to`` do something.

    Raises:
        DataError: there are none, or one has no summary.
    """
    if not records:
        raise DataError(f"There is nothing to {to}: the data set has no records.")
    for record in records:
        if not any(text.strip() for text in references_of(record)):
            where = record.origin or record.id or "a record"
            raise DataError(f"{where} has no summary to compare with; every document needs one.")
