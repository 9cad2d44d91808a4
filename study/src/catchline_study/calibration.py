"""Fitting `catchline.metrics.confidence` to a model: decode validation records, see which summaries readers accept, fit
the regression, and check it on records it was not fitted on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu

from catchline.errors import DataError
from catchline.metrics.confidence import Calibration, Facts
from catchline.metrics.words import words
from catchline.summarizer import Summarizer
from catchline.summarizer.confidence import LEAST_RECORDS, regression, with_domain
from catchline.summarizer.extractive import Progress
from catchline.types import Record
from catchline_study.judge import read_lines

BINS, FOLDS = 10, 5


@dataclass(frozen=True, slots=True)
class Reliability:
    """How well confidence says what share is accepted, on records that the regression was not fitted on.

    ``bins`` has for each tenth of the scale (mean confidence, share accepted, number of records), empty ones left out;
    ``error`` is the expected calibration error, ``brier`` the mean squared error, ``auc`` the chance that an accepted
    summary has more confidence than another one; ``base_rate`` the share accepted.
    """

    bins: tuple[tuple[float, float, int], ...]
    error: float
    brier: float
    auc: float
    base_rate: float


@dataclass(frozen=True, slots=True)
class Ratings:
    """What readers said of lines that the model wrote, and of sentences of the texts: the mean rating of each, by its
    record's id and its words. ``accept`` is the rating from which a line counts as accepted."""

    means: Mapping[tuple[str, tuple[str, ...]], float]
    accept: float

    @classmethod
    def read(cls, path: Path, accept: float | None = None) -> Ratings:
        """JSON lines with ``id``, ``summary`` and ``rating``; ``accept`` none is the highest rating of the file. Raises
        DataError: the file cannot be read, or a line has no id or no rating."""
        given: dict[tuple[str, tuple[str, ...]], list[float]] = {}
        for number, line in enumerate(read_lines(path, "`catchline judge analyse --lines`"), 1):
            name, rating = line.get("id") or "", line.get("rating")
            named = isinstance(name, str) and name
            if not named or isinstance(rating, bool) or not isinstance(rating, int | float) or not abs(rating) < 1e300:
                raise DataError(f"{path}: rating {number} needs an 'id', a text, and a 'rating', a number.")
            given.setdefault((name, tuple(words(line["summary"]))), []).append(rating)
        if not given:
            raise DataError(f"{path} has no ratings.")
        means = {place: fmean(ratings) for place, ratings in given.items()}
        return cls(means, max(means.values()) if accept is None else accept)

    def of(self, name: str, line: str) -> float:
        """Of a line about the record ``name``; not a number where nobody rated it."""
        return self.means.get((name, tuple(words(line))), math.nan)


def calibrate(
    summarizer: Summarizer,
    records: Sequence[Record],
    ratings: Ratings,
    *,
    threshold: float = 0.5,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> tuple[Calibration, Reliability]:
    """Decode ``records`` and fit the confidence of the summarizer's model to what readers said of its lines;
    ``threshold`` is the confidence below which a sentence answers. Raises DataError: too few of the lines are rated."""
    system: Any = summarizer.system
    system.calibration = Calibration.blank()
    made = summarizer.summarize(records, batch_size=batch_size, progress=progress)
    said = [ratings.of(record.id, summary.text) for record, summary in zip(records, made, strict=True)]
    judged = [summary.facts for summary, rating in zip(made, said, strict=True) if not math.isnan(rating)]
    good = [rating >= ratings.accept for rating in said if not math.isnan(rating)]
    if len(judged) < LEAST_RECORDS:
        which = "records or more of which readers rated the line that the model writes"
        raise DataError(f"A calibration needs {LEAST_RECORDS} {which}; here are {len(judged)}.")
    calibration, found = fit(judged, good)
    calibration = replace(calibration, threshold=threshold, accepted=f"rated {ratings.accept:g} or more by readers")
    return with_domain(calibration, system, [record.document for record in records]), found


def fit(found: Sequence[Facts], good: Sequence[bool]) -> tuple[Calibration, Reliability]:
    """The calibration for the facts of R summaries and whether each is accepted, fitted on all; its reliability is
    measured by cross-validation over ``FOLDS`` parts."""
    order, predicted = np.random.default_rng(1).permutation(len(found)), np.zeros(len(found))
    for part in (order[fold::FOLDS] for fold in range(FOLDS)):
        others = np.setdiff1d(order, part)
        calibration = regression([found[place] for place in others], [good[place] for place in others])
        predicted[part] = [calibration.confidence(found[place]) for place in part]
    return regression(found, good), reliability(predicted, np.array(good, dtype=np.float64))


def reliability(predicted: np.ndarray, accepted: np.ndarray) -> Reliability:
    """That of probabilities (R,), given what came of them."""
    bins, error = [], 0.0
    place = np.minimum((predicted * BINS).astype(int), BINS - 1)
    for index in range(BINS):
        if count := int((place == index).sum()):
            said, came = float(predicted[place == index].mean()), float(accepted[place == index].mean())
            bins.append((said, came, count))
            error += count / len(predicted) * abs(said - came)
    brier, base_rate = float(((predicted - accepted) ** 2).mean()), float(accepted.mean())
    good, bad = predicted[accepted == 1], predicted[accepted == 0]
    auc = float(mannwhitneyu(good, bad).statistic) / (len(good) * len(bad)) if len(good) and len(bad) else 0.5
    return Reliability(tuple(bins), error, brier, auc, base_rate)


def describe(calibration: Calibration, found: Reliability) -> list[str]:
    """What is printed of a calibration."""
    kept = sum(count for said, _, count in found.bins if said >= calibration.threshold)
    total = sum(count for _, _, count in found.bins)
    return [
        f"{calibration.records:,} records, {found.base_rate:.1%} accepted ({calibration.accepted}).",
        f"Held out: calibration error {found.error:.3f}, Brier {found.brier:.3f}, AUC {found.auc:.3f}.",
        f"About {kept / total:.0%} of the summaries reach the threshold {calibration.threshold:.2f}.",
    ]
