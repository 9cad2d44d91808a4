"""Decode a split with one system, score it, and keep what was decoded.

result = evaluate(open_system("runs/a/model"), records, out=Path("runs/a/predictions.jsonl"))
result.rouge["1"].f, result.rouge["1"].low, result.signature
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from laconic.errors import DataError
from laconic.evaluation.measures import measure
from laconic.evaluation.predictions import PredictionFile, fingerprint, prediction_of
from laconic.evaluation.systems import Progress, System
from laconic.metrics.rouge import RougeResult, rouge
from laconic.types import Record, references_of

WINDOW_BATCHES = 8  # so many batches are decoded (sorted by length) between two writes of predictions


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """``rouge`` are options of `laconic.rouge`; ``batch_size`` is the number of records decoded at once."""

    kinds: tuple[str, ...] = ("1", "2", "L")
    rouge: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 32


@dataclass(frozen=True, slots=True)
class RougeScore:
    """Means over documents, and the 95% bootstrap interval of F1."""

    precision: float
    recall: float
    f: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The scores of one system on one data set.

    ``measures`` are means over documents (see `laconic.evaluation.measures`); ``per_document`` the F1 of each
    document by kind, in the order of the records, for significance tests; ``seconds`` the time spent decoding.
    """

    system: str
    records: int
    rouge: dict[str, RougeScore]
    measures: dict[str, float]
    signature: str
    seconds: float
    per_document: dict[str, tuple[float, ...]] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready summary, documents left out."""
        return {
            "system": self.system,
            "records": self.records,
            "rouge": {
                kind: {"precision": s.precision, "recall": s.recall, "f": s.f, "low": s.low, "high": s.high}
                for kind, s in self.rouge.items()
            },
            "measures": self.measures,
            "signature": self.signature,
            "seconds": round(self.seconds, 3),
        }


def evaluate(
    system: System,
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
    options = options or EvaluationOptions()
    _refuse_unscorable(records)
    start = time.perf_counter()
    with PredictionFile(out, fingerprint(system.identity, records)) as predictions:
        done = len(predictions.lines)
        if progress is not None and done:
            progress(done)
        window = WINDOW_BATCHES * options.batch_size
        for first in range(done, len(records), window):
            chunk = records[first : first + window]
            summaries = system.summarize(chunk, batch_size=options.batch_size, progress=progress or _ignore)
            predictions.add(prediction_of(s, r) for s, r in zip(summaries, chunk, strict=True))
        predictions.finish()
        lines = predictions.lines
    seconds = time.perf_counter() - start
    return score(system.name, records, lines, options=options, unk_text=system.unk_text, seconds=seconds)


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
    references = [tuple(references_of(record)) for record in records]
    found = rouge(hypotheses, references, kinds=options.kinds, **{"interval": True, **options.rouge})
    p_gens = [float(line["p_gen"]) for line in predictions if line.get("p_gen") is not None]
    measures = measure([record.document for record in records], hypotheses, references, unk_text=unk_text)
    if p_gens:
        measures["p_gen"] = sum(p_gens) / len(p_gens)
    return EvaluationResult(
        system=name,
        records=len(records),
        rouge={kind: _rouge_score(found, kind) for kind in found.mean},
        measures=measures,
        signature=found.signature,
        seconds=seconds,
        per_document={kind: tuple(s.f for s in scores) for kind, scores in found.per_document.items()},
    )


def _ignore(count: int) -> None:
    return


def _rouge_score(found: RougeResult, kind: str) -> RougeScore:
    mean, interval = found.mean[kind], found.interval.get(kind)
    low, high = (interval.low.f, interval.high.f) if interval else (mean.f, mean.f)
    return RougeScore(mean.precision, mean.recall, mean.f, low, high)


def _refuse_unscorable(records: Sequence[Record]) -> None:
    if not records:
        raise DataError("There is nothing to evaluate: the data set has no records.")
    for record in records:
        if not any(text.strip() for text in references_of(record)):
            where = record.origin or record.id or "a record"
            raise DataError(f"{where} has no summary to compare with; evaluation needs one for every document.")
