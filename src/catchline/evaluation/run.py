"""Decode a split with one system, score it, and keep what was decoded.

result = evaluate(Contender("runs/a"), records, out=Path("runs/a/predictions.jsonl"))
result.rouge["1"].f, result.rouge["1"].low, result.signature
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from catchline.config.base import validate
from catchline.config.schema import EvaluationConfig
from catchline.errors import DataError
from catchline.evaluation.measures import measure, reading_measures
from catchline.evaluation.predictions import Journal, as_lines, fingerprint, prediction_of
from catchline.evaluation.systems import Contender
from catchline.files import write_text
from catchline.jobs import forked
from catchline.metrics.rouge import RougeResult
from catchline.metrics.scoring import RunScoring, Scoring, Shown, score_as, scoring, suited
from catchline.summarizer.extractive import Progress
from catchline.summarizer.summarize import BATCH, WINDOW_BATCHES
from catchline.text.unknown import restore_numbers
from catchline.types import Record, Summary, references_of

Watch = Callable[[Record, Summary], object]  # is shown what the system writes


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """``kinds`` of ROUGE, counted as ``scoring`` says; ``batch_size`` is the number of records decoded at once (None:
    by their length). With ``restore_numbers`` what the system wrote as ``##`` is a number of the document before
    scoring; predictions stay as they were written. ``processes`` of this machine score, and pick sentences where the
    system is a method.
    """

    kinds: tuple[str, ...] = ("1", "2", "L")
    scoring: Scoring = field(default_factory=Scoring)
    batch_size: int | None = None
    restore_numbers: bool = False
    processes: int = 1


def options_of(config: EvaluationConfig, **rouge: Any) -> EvaluationOptions:
    """The options that a run's ``evaluation`` section asks for; ``rouge`` changes those of ROUGE once more.

    Raises:
        ConfigError: there is no such profile, option or kind.
    """
    asked = {**config.rouge, **rouge}
    validate(RunScoring.Config, {"profile": config.profile, "rouge": asked}, where="evaluation")
    way = scoring(config.profile, asked)
    kinds = way.rouge.get("kinds", EvaluationOptions().kinds)
    return EvaluationOptions(
        kinds=tuple(map(str, kinds)),
        scoring=replace(way, rouge={name: value for name, value in way.rouge.items() if name != "kinds"}),
        batch_size=config.batch_size,
        restore_numbers=config.restore_numbers,
    )


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
        return {
            "system": self.system,
            "records": self.records,
            "rouge": {kind: asdict(score) for kind, score in self.rouge.items()},
            "measures": self.measures,
            "shown": self.shown,
            "flags": self.flags,
            "signature": self.signature,
            "seconds": round(self.seconds, 3),
        }


def evaluate(
    system: Contender,
    records: Sequence[Record],
    *,
    options: EvaluationOptions | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
) -> EvaluationResult:
    """Summarize every record and compare with its references (all of them count).

    ``out`` is where the predictions go; they are written beside it, renamed when complete, and an interrupted
    call with the same system, settings and records goes on where it stopped. ``progress`` is called with the
    number of records just done.

    Raises:
        DataError: no records, or a record without a summary to compare with.
    """
    lines, seconds = predict(system, records, options=options, out=out, progress=progress)
    return score(system.name, records, lines, options=options, unk_text=system.unk_text, seconds=seconds)


def predict(
    system: Contender,
    records: Sequence[Record],
    *,
    options: EvaluationOptions | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
    keep: Callable[[Path], object] = Path.unlink,
) -> tuple[list[dict[str, Any]], float]:
    """The first half of `evaluate`: the predictions, and the seconds it took; 0 where an earlier call had made some.
    ``watch`` is called with each record and its summary, ``keep`` with the file that an interrupted call goes on with,
    when ``out`` is complete: a caller with more systems to come keeps it, so that this one is not decoded again."""
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
        workers = options.processes if system.is_method and watch is None else 1
        inside = progress if workers == 1 else None

        def made(first: int) -> list[dict[str, Any]]:
            chunk = records[first : first + window]
            summaries = system.summarize(chunk, batch_size=options.batch_size, progress=inside, words=watch is not None)
            if watch is not None:
                for record, summary in zip(chunk, summaries, strict=True):
                    watch(record, summary)
            return [prediction_of(summary, record) for summary, record in zip(summaries, chunk, strict=True)]

        for lines in forked(made, range(done, len(records), window), workers, option="--processes"):
            predictions.add(lines)
            if progress is not None and inside is None:
                progress(len(lines))
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
    found = score_as(way, hypotheses, references, options.kinds, interval=True, processes=options.processes)
    p_gens = [float(line["p_gen"]) for line in predictions if line.get("p_gen") is not None]
    documents = [record.document for record in records]
    measures = measure(documents, hypotheses, references, unk_text=unk_text, processes=options.processes)
    measures |= reading_measures([line.get("reading") or {} for line in predictions])
    if p_gens:
        measures["p_gen"] = sum(p_gens) / len(p_gens)
    return EvaluationResult(
        system=name,
        records=len(records),
        rouge={kind: _rouge_score(found, kind, way.shown) for kind in found.mean},
        measures=measures,
        signature=found.signature,
        seconds=seconds,
        per_document={
            kind: tuple(getattr(s, way.shown) for s in scores) for kind, scores in found.per_document.items()
        },
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
