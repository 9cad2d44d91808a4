"""Fitting `catchline.metrics.confidence` to a model: decode validation records, say which summaries a reader would
accept, fit the regression, and check it on records it was not fitted on; before that the weights by which a model
whose search reranks chooses among its hypotheses.

**What counts as accepted.** What readers rated so (`Ratings`). Where nobody has read, a rule stands in for them:
ROUGE-1 F against the nearest reference of at least ``accept``, no content word twice, and no number or name that the
document does not hold. A few hundred records and ROUGE tell little of what readers look at, so a model that was
fine-tuned from one that they have rated keeps their weights, and the rule says how many are accepted (`adjusted`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu

from catchline.errors import DataError
from catchline.evaluation.confidence import (
    BY_READERS,
    LEAST_RECORDS,
    accepted,
    adjusted,
    fitted,
    parts,
    regression,
    rule_of,
    with_documents,
)
from catchline.metrics.confidence import (
    CHOOSING,
    FEATURES,
    SENTENCE,
    Calibration,
    Facts,
    sigmoid,
    telling_sentences,
    told_sentences,
)
from catchline.metrics.consensus import expected_utilities
from catchline.metrics.rouge import rouge
from catchline.metrics.scoring import Scoring, suited
from catchline.metrics.words import words
from catchline.summarizer import Summarizer
from catchline.summarizer.extractive import Progress
from catchline.text.sentences import markup, without
from catchline.types import Record, Summary, references_of
from catchline_study.judge import read_lines

BINS = 10
MOST_RERANKED = 1000  # records, where nobody compared lines
CHOOSING_RIDGE = 100.0


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
    record's id and its words.

    ``accept`` is the rating from which a line counts as accepted.
    """

    means: Mapping[tuple[str, tuple[str, ...]], float]
    accept: float

    @classmethod
    def read(cls, path: Path, accept: float | None = None) -> Ratings:
        """JSON lines with ``id``, ``summary`` and ``rating``; ``accept`` none is the highest rating of the file.

        Raises:
            DataError: the file cannot be read, or a line has no id or no rating.
        """
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

    def compared(self, records: Sequence[Record]) -> set[str]:
        """The texts of which several lines are rated, their own sentences not counted, if they are enough to learn from
        which lines are better."""
        sentences = {
            (one.id, tuple(words(form)))
            for one in records
            for span in telling_sentences(one.document)
            for form in _forms(one.document, span)
        }
        lines = Counter(name for name, said in self.means if (name, said) not in sentences)
        several = {name for name, count in lines.items() if count > 1}
        return several if len(several) >= LEAST_RECORDS else set()

    def of(self, name: str, line: str) -> float:
        """Of a line about the record ``name``; not a number where nobody rated it."""
        return self.means.get((name, tuple(words(line))), math.nan)


def calibrate(
    summarizer: Summarizer,
    records: Sequence[Record],
    *,
    accept: float,
    threshold: float,
    ratings: Ratings | None = None,
    known: Calibration | None = None,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> tuple[Calibration, Reliability]:
    """Decode ``records`` and fit the confidence of the summarizer's model to them, and where its search reranks the
    weights of that.

    ``progress`` is told of `decoded_by_calibration` summaries. ``accept`` is the ROUGE-1 F of the rule above, in whose
    place ``ratings`` come; ``threshold`` the confidence below which the model declines. Without ratings, ``known`` is
    adjusted to the rule: what readers taught the model that this one was trained from.

    Raises:
        DataError: too few records, or all summaries of one kind.
    """
    system: Any = summarizer.system
    _check_enough(len(records))
    choosing = _kept_choosing(system.calibration, records, ratings)
    system.calibration = Calibration.blank()
    if system.search.choose == "rerank":
        some = _some(records, ratings)
        choosing = choosing or fit_choosing(summarizer, system.search.beam_size, some, batch_size, progress, ratings)
        system.calibration = replace(system.calibration, choosing=choosing)
    made = summarizer.summarize(records, batch_size=batch_size, progress=progress)
    texts, facts = [summary.text for summary in made], [summary.facts for summary in made]
    if ratings is None:
        judged, good = facts, accepted(texts, records, accept)
        rule = rule_of(records, accept, known)
    else:
        said = [ratings.of(record.id, text) for record, text in zip(records, texts, strict=True)]
        judged = [one for one, rating in zip(facts, said, strict=True) if not math.isnan(rating)]
        good = [rating >= ratings.accept for rating in said if not math.isnan(rating)]
        _check_enough(len(judged), " of which readers rated the line that the model writes")
        rule = f"rated {ratings.accept:g} or more {BY_READERS}"
    calibration, found = fit(judged, good, threshold, rule, known if ratings is None else None)
    sentence = () if ratings is None else fit_sentence(calibration, made, ratings)
    calibration = with_documents(calibration, facts, system, records)
    return replace(calibration, choosing=system.calibration.choosing, sentence=sentence), found


def decoded_by_calibration(summarizer: Summarizer, records: Sequence[Record], ratings: Ratings | None = None) -> int:
    """How many summaries `calibrate` makes."""
    system: Any = summarizer.system
    learns = system.search.choose == "rerank" and not _kept_choosing(system.calibration, records, ratings)
    return len(records) + (len(_some(records, ratings)) if learns else 0)


def _kept_choosing(before: Calibration | None, records: Sequence[Record], ratings: Ratings | None) -> tuple[float, ...]:
    """The weights by which the rated lines were chosen, unless the ratings say of several lines of a text which is
    better."""
    return before.choosing if before and ratings and not ratings.compared(records) else ()


def _check_enough(count: int, kind: str = "") -> None:
    if count < LEAST_RECORDS:
        raise DataError(f"A calibration needs {LEAST_RECORDS} records or more{kind}; here are {count}.")


def _some(records: Sequence[Record], ratings: Ratings | None) -> Sequence[Record]:
    """Enough to fit a few weights, from the whole length; where readers compared lines, all of which they did."""
    compared = ratings.compared(records) if ratings else set()
    chosen = [record for record in records if record.id in compared]
    return chosen if len(chosen) >= LEAST_RECORDS else records[:: math.ceil(len(records) / MOST_RERANKED) or 1]


def fit_choosing(
    summarizer: Summarizer,
    beam_size: int,
    records: Sequence[Record],
    batch_size: int | None,
    progress: Progress | None = None,
    ratings: Ratings | None = None,
) -> tuple[float, ...]:
    """The weights of `CHOOSING`: least squares with a ridge of the points by which a hypothesis's ROUGE F (the mean of
    1, 2 and L) is above the mean over its document's hypotheses, on how its facts differ from theirs.

    With ``ratings`` of several hypotheses of enough documents, whether readers accept them counts in place of ROUGE.
    """
    settings = {"num_return": beam_size, "choose": "best", "revisions": 0}
    if ratings is None:  # else the lines are needed as readers saw them
        settings["surface"] = "raw"
    made = summarizer.summarize(records, batch_size=batch_size, always_write=True, progress=progress, **settings)
    design, points, rated = [], [], []
    counted = suited(Scoring(), map(references_of, records)).rouge
    for record, best in zip(records, made, strict=True):
        every = [best, *best.alternatives]
        texts = [one.text for one in every]
        agreement = expected_utilities(texts, [one.score for one in every])
        facts = [one.facts | {"agreement": utility} for one, utility in zip(every, agreement, strict=True)]
        values = np.array([[one[name] for name in CHOOSING] for one in facts])
        found = rouge(texts, [references_of(record)] * len(texts), kinds=("1", "2", "L"), **counted).per_document
        scores = np.mean([[100 * score.f for score in kind] for kind in found.values()], axis=0)
        design.append(values - values.mean(0))
        points.append(scores - scores.mean())
        if ratings is not None:
            said = np.array([ratings.of(record.id, text) for text in texts])
            known = ~np.isnan(said)
            good = (said[known] >= ratings.accept).astype(float)
            if len(good) > 1:
                rated.append((values[known] - values[known].mean(0), good - good.mean()))
    if len(rated) >= LEAST_RECORDS:
        design, points = map(list, zip(*rated, strict=True))
    x, y = np.vstack(design), np.concatenate(points)
    deviation = x.std(0)
    deviation[deviation < 1e-12] = 1.0
    x = x / deviation
    weight = np.linalg.solve(x.T @ x + CHOOSING_RIDGE * np.eye(len(CHOOSING)), x.T @ y)
    return tuple((weight / deviation).tolist())


def fit_sentence(calibration: Calibration, made: Sequence[Summary], ratings: Ratings) -> tuple[float, ...]:
    """`Calibration.sentence`, a regression as that of confidence, from what readers said of sentences (shortened, or
    whole) of the texts that ``made`` are the summaries of; none where they rated fewer than ``LEAST_RECORDS``, or all
    of one kind."""
    facts, good = [], []
    for summary in made:
        confidence = calibration.confidence(summary.facts)
        for span, known in told_sentences(summary.document, summary.text):
            said = [ratings.of(summary.id, form) for form in _forms(summary.document, span)]
            for rating in [one for one in said if not math.isnan(one)][:1]:
                values = known | {"confidence": confidence}
                facts.append([values[name] for name in SENTENCE])
                good.append(rating >= ratings.accept)
    if len(facts) < LEAST_RECORDS or len(set(good)) < 2:
        return ()
    mean, deviation, weight, bias = regression(np.array(facts), np.array(good, dtype=np.float64))
    return *(weight / deviation).tolist(), bias - float(weight @ (mean / deviation))


def _forms(document: str, span: tuple[int, int, int]) -> tuple[str, str, str]:
    """As what readers may have seen a sentence: made a line (with its markup, too), and whole."""
    begins, start, end = span
    line = document[start:end]
    return without(line, markup(line)), line, document[begins:end]


def fit(
    found: Sequence[Facts], good: Sequence[bool], threshold: float, rule: str, known: Calibration | None = None
) -> tuple[Calibration, Reliability]:
    """The calibration for the facts of R summaries and whether each is accepted, fitted on all (or ``known`` adjusted);
    its reliability is measured by cross-validation over ``FOLDS`` parts.

    Raises:
        DataError: all are of one kind.
    """
    calibration = fitted(found, good, threshold, rule, known)
    facts, accepted = np.array([[one[name] for name in FEATURES] for one in found]), np.array(good, dtype=np.float64)
    learn = partial(adjusted, known) if known else regression
    predicted = np.empty(len(facts))
    for held in parts(len(facts)):
        rest = np.setdiff1d(np.arange(len(facts)), held)
        mean, deviation, weight, bias = learn(facts[rest], accepted[rest])
        predicted[held] = sigmoid((facts[held] - mean) / deviation @ weight + bias)
    return calibration, reliability(predicted, accepted)


def reliability(predicted: np.ndarray, accepted: np.ndarray) -> Reliability:
    """Compare probabilities (R,) with what came (R,) of zeros and ones."""
    places = np.minimum((predicted * BINS).astype(int), BINS - 1)
    bins, error = [], 0.0
    for place in range(BINS):
        inside = places == place
        if count := int(inside.sum()):
            said, came = float(predicted[inside].mean()), float(accepted[inside].mean())
            bins.append((said, came, count))
            error += count / len(predicted) * abs(said - came)
    brier, base_rate = float(((predicted - accepted) ** 2).mean()), float(accepted.mean())
    good, bad = predicted[accepted == 1], predicted[accepted == 0]
    auc = float(mannwhitneyu(good, bad).statistic) / (len(good) * len(bad))
    return Reliability(tuple(bins), error, brier, auc, base_rate)


def describe(calibration: Calibration, found: Reliability) -> list[str]:
    kept = sum(count for said, _, count in found.bins if said >= calibration.threshold)
    total = sum(count for _, _, count in found.bins)
    heavy = sorted(zip(FEATURES, calibration.weight, strict=True), key=lambda pair: -math.fabs(pair[1]))
    return [
        f"{calibration.records:,} records, {found.base_rate:.1%} accepted ({calibration.accepted}).",
        f"Held out: calibration error {found.error:.3f}, Brier {found.brier:.3f}, AUC {found.auc:.3f}.",
        f"About {kept / total:.0%} of the summaries reach the threshold {calibration.threshold:g}.",
        *(["Where a sentence of the text is likelier to do, it is given."] if calibration.sentence else []),
        "Weights: " + ", ".join(f"{name} {weight:+.2f}" for name, weight in heavy) + ".",
    ]
