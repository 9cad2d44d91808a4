"""Scores taken apart: by the length of the documents (does a mechanism help where they are long?), and of an extractive
method by its size (which k of lead-k, which N of the first N words, is best)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from catchline.config.names import EXTRACTIVE, resolve
from catchline.errors import ConfigError
from catchline.evaluation.run import EvaluationResult, score
from catchline.metrics.words import words
from catchline.types import Record

_SPEC = re.compile(r"(?P<method>[a-z_]+):(?P<first>\d{1,9})-(?P<last>\d{1,9})(?::(?P<step>\d{1,9}))?\Z")
_SIZES = ("characters", "words", "max_words", "sentences")  # a method counts the first of these that it has


@dataclass(frozen=True, slots=True)
class Bucket:
    """Documents of ``low`` to ``high`` words, by their places among the records."""

    low: int
    high: int
    mean: float
    places: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.low:,} to {self.high:,}" if self.high > self.low else f"{self.low:,}"


def buckets(records: Sequence[Record], spec: str) -> list[Bucket]:
    """Sort the records into buckets by their documents' length in words, punctuation left out.

    ``spec`` is the number of buckets of equal size (``4``; of equal lengths the earlier record comes first), or the
    lengths at which a new bucket begins (``200,400``; a single one ends in a comma). Empty buckets are left out.

    Raises:
        ConfigError: ``spec`` is neither.
    """
    lengths = [len(words(record.document)) for record in records]
    parts = [part.strip() for part in spec.split(",")]
    if not all(part.isdecimal() and len(part) < 10 for part in parts if part) or not parts[0]:
        raise ConfigError(f"--by-length '{spec}' is neither a number of buckets nor lengths such as 200,400.")
    groups: list[list[int]]
    if len(parts) == 1:
        count = int(parts[0])
        if not 1 <= count <= len(records):
            raise ConfigError(f"--by-length {count}: there are {len(records):,} documents; choose 1 to so many.")
        order = sorted(range(len(records)), key=lambda place: lengths[place])
        ends = [round(number * len(order) / count) for number in range(count + 1)]
        groups = [order[start:end] for start, end in pairwise(ends)]
    else:
        edges = [int(part) for part in parts if part]
        if edges != sorted(set(edges)):
            raise ConfigError(f"--by-length '{spec}': the lengths must grow.")
        groups = [[] for _ in range(len(edges) + 1)]
        for place, length in enumerate(lengths):
            groups[bisect_right(edges, length)].append(place)
    found = []
    for group in filter(None, groups):
        own = [lengths[place] for place in group]
        found.append(Bucket(min(own), max(own), sum(own) / len(own), tuple(sorted(group))))
    return found


def by_length(
    name: str, records: Sequence[Record], predictions: Sequence[Mapping[str, Any]], found: Sequence[Bucket], **how: Any
) -> list[EvaluationResult]:
    """Score one system's predictions bucket by bucket; ``how`` is of `catchline.evaluation.run.score`."""
    return [
        score(name, [records[place] for place in bucket.places], [predictions[place] for place in bucket.places], **how)
        for bucket in found
    ]


def as_dicts(found: Sequence[Bucket], scores: Mapping[str, Sequence[EvaluationResult]]) -> list[dict[str, Any]]:
    """JSON-ready: one entry a bucket with the scores of every system."""
    return [
        {
            "from": bucket.low,
            "to": bucket.high,
            "mean_words": bucket.mean,
            "records": len(bucket.places),
            "systems": [results[place].as_dict() for results in scores.values()],
        }
        for place, bucket in enumerate(found)
    ]


# ----------------------------------------------------------------------------------------------- by size


def sweep_names(spec: str) -> list[str]:
    """``lead:1-5`` -> ``lead-1`` to ``lead-5``; ``first_words:10-50:10`` -> ``first_words:words=10``, ``...=20``, ...

    Raises:
        ConfigError: not of this form, an unknown method, or no size in the range.
    """
    parts = _SPEC.fullmatch(spec)
    if parts is None:
        raise ConfigError(
            f"--sweep '{spec}' is not of the form METHOD:FROM-TO, for example lead:1-5 (step: :10 behind)."
        )
    fields = resolve("extractive method", EXTRACTIVE, parts["method"]).Config.model_fields
    setting = next(name for name in _SIZES if name in fields)
    first, last, step = int(parts["first"]), int(parts["last"]), int(parts["step"] or 1)
    sizes = range(first, last + 1, step) if step else range(0)
    if first < 1 or not sizes:
        raise ConfigError(f"--sweep '{spec}' holds no size; write the smaller number, at least 1, first.")
    dash = setting == "sentences"
    return [f"{parts['method']}-{size}" if dash else f"{parts['method']}:{setting}={size}" for size in sizes]


def best_of(results: Sequence[EvaluationResult]) -> dict[str, str]:
    """By kind of ROUGE, and for their mean, the system with the highest figure; of equals the first."""
    best = {kind: max(results, key=lambda result: result.value(kind)) for kind in results[0].rouge}
    best["mean"] = max(results, key=lambda result: sum(map(result.value, result.rouge)))
    return {kind: result.system for kind, result in best.items()}


def best_lines(best: Mapping[str, Mapping[str, str]], results: Mapping[str, EvaluationResult]) -> list[str]:
    """One line a sweep: the best size by each kind."""
    lines = []
    for spec, winners in best.items():
        shown: dict[str, list[str]] = {}
        for kind, system in winners.items():
            text = kind if kind == "mean" else f"ROUGE-{kind} {100 * results[system].value(kind):.2f}"
            shown.setdefault(system, []).append(text)
        lines.append(f"{spec}: best " + "; ".join(f"{system} ({', '.join(by)})" for system, by in shown.items()))
    return lines
