"""ROUGE without Perl: exact, fast, and signed.

``rouge(hypotheses, references)`` scores one summary against one or several references, a document each.
A summary's sentences are its lines; they matter to ``Lsum`` and ``W`` only. What ROUGE-1.5.5 prints as
ROUGE-L is ``Lsum`` here when a summary has several lines; ``L`` reads the summary as one sentence.

`catchline.metrics.rouge_text.TEXTS` has the profiles, `catchline.metrics.scoring` the settings of data sets.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from catchline.errors import ConfigError, DataError
from catchline.jobs import forked
from catchline.metrics.rouge_engine import Kind, RougeEngine, RougeOptions, Score, make_options, parse_kind, signature

__all__ = ["RougeCounts", "RougeInterval", "RougeOptions", "RougeResult", "Score", "rouge"]

Pair = tuple[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class RougeCounts:
    """How many documents were scored, and how many of them could not score.

    ``empty`` texts have no characters but blanks; ``wordless`` ones have text but nothing the profile counts as
    a word (an emoji, Chinese under ``rouge155``). Both score zero; neither is dropped.
    """

    documents: int
    empty_hypotheses: int
    empty_references: int
    wordless_hypotheses: int
    wordless_references: int

    @property
    def uncounted(self) -> str:
        """What a reader of the numbers should know of references without words, or nothing."""
        if not self.wordless_references:
            return ""
        return (
            f"{self.wordless_references} of {self.documents} documents have a reference without a word that this "
            "profile counts; they were scored, not dropped. Words of other scripts than Latin count with profile "
            "unicode, characters with profile characters."
        )


@dataclass(frozen=True, slots=True)
class RougeResult:
    """Scores from 0 to 1 by kind, keyed as they were asked for.

    ``mean`` is the mean over documents; ``interval`` (when asked for) has the tool's bootstrap ends and its
    resampled mean; ``signature`` goes with every number that is quoted.
    """

    mean: dict[str, Score]
    per_document: dict[str, list[Score]]
    signature: str
    counts: RougeCounts
    interval: dict[str, RougeInterval] = field(default_factory=dict)

    def as_dict(self, per_document: bool = False) -> dict[str, Any]:
        """A JSON-ready summary: means, intervals, counts and signature, documents only if asked for."""
        result: dict[str, Any] = {
            "scores": {kind: score._asdict() for kind, score in self.mean.items()},
            "signature": self.signature,
            "counts": asdict(self.counts),
        }
        if self.interval:
            result["intervals"] = {
                kind: {name: getattr(ends, name)._asdict() for name in RougeInterval.__slots__}
                for kind, ends in self.interval.items()
            }
        if per_document:
            result["per_document"] = [
                {kind: scores[place]._asdict() for kind, scores in self.per_document.items()}
                for place in range(self.counts.documents)
            ]
        return result


def rouge(
    hypotheses: Iterable[str],
    references: Iterable[str | Sequence[str]],
    *,
    kinds: Sequence[str] = ("1", "2", "L"),
    profile: str = "rouge155",
    **options: Any,
) -> RougeResult:
    """Score ``hypotheses`` against ``references`` (a string, or several for one document).

    Args:
        kinds: ``1`` to ``9``, ``L``, ``Lsum``, ``W``, ``S``, ``SU`` (also ``rouge1``, ``S4``, ``SU*``, ``W1.2``).
        profile: ``rouge155``, ``google``, ``plain``, ``unicode`` or ``characters``.
        options: fields of `RougeOptions` (``stem``, ``max_bytes``, ``multi``, ``interval``, ``processes``, ...).

    Raises:
        ConfigError: no kind, or an unknown kind, profile or option.
        DataError: no documents, different numbers of hypotheses and references, or a document without reference.
    """
    chosen = make_options(profile, options)
    parsed = tuple(parse_kind(kind, chosen) for kind in ([kinds] if isinstance(kinds, str) else kinds))
    if not parsed:
        raise ConfigError("There is nothing to compute: name a ROUGE kind at least, such as 1, 2 or L.")
    pairs = _pairs(hypotheses, references)
    scores, system_words, model_words = _score_all(parsed, profile, chosen, pairs)
    per_document = dict(zip([kind.label for kind in parsed], scores, strict=True))
    intervals = {}
    if chosen.interval:
        found = rouge_intervals(list(per_document.values()), chosen.confidence, chosen.samples, chosen.processes)
        intervals = dict(zip(per_document, found, strict=True))
    return RougeResult(
        mean={label: _mean(scores) for label, scores in per_document.items()},
        per_document=per_document,
        signature=signature(profile, parsed, chosen, len(pairs)),
        counts=_counts(pairs, system_words, model_words),
        interval=intervals,
    )


def _pairs(hypotheses: Iterable[str], references: Iterable[str | Sequence[str]]) -> list[Pair]:
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise DataError("rouge() takes lists of texts, one entry a document; wrap a single text in a list.")
    systems = list(hypotheses)
    models = [
        tuple(entry) if isinstance(entry, Iterable) and not isinstance(entry, str) else (entry,) for entry in references
    ]
    if len(systems) != len(models):
        raise DataError(
            f"There are {len(systems)} hypotheses but {len(models)} references; each document needs one of both."
        )
    if not systems:
        raise DataError("There is nothing to score: no hypotheses were given.")
    for number, (system, model) in enumerate(zip(systems, models, strict=True), 1):
        if not model:
            raise DataError(f"Document {number} has no reference; give at least one, even an empty text.")
        if other := [text for text in (system, *model) if not isinstance(text, str)]:
            kind = type(other[0]).__name__
            raise DataError(f"Document {number}: hypothesis and references must be texts, not {kind}.")
    return list(zip(systems, models, strict=True))


def _score_all(
    kinds: tuple[Kind, ...], profile: str, options: RougeOptions, pairs: list[Pair]
) -> tuple[list[list[Score]], list[bool], list[bool]]:
    """The scores of each kind, and which hypotheses and references have words; one entry a document."""
    processes, engine = min(options.processes, len(pairs)), RougeEngine(kinds, profile, options)
    # Several chunks a process even out long documents; forked, the workers have the texts already.
    size = -(-len(pairs) // (processes * 4))

    def work(start: int) -> bytes:
        """As raw numbers, which travel between processes many times faster than objects."""
        rows = [engine.score(*pair) for pair in pairs[start : start + size]]
        return array("d", [value for row in rows for part in (*row[0], row[1:]) for value in part]).tobytes()

    scores: list[list[Score]] = [[] for _ in kinds]
    words: list[list[bool]] = [[], []]
    for part in forked(work, range(0, len(pairs), size), processes, option="processes"):
        table = np.frombuffer(part).reshape(-1, 3 * len(kinds) + 2)
        for place, column in enumerate(scores):
            column.extend(map(_as_score, table[:, 3 * place : 3 * place + 3].tolist()))
        for of_side, flags in zip(words, table[:, -2:].astype(bool).T.tolist(), strict=True):
            of_side += flags
    return scores, words[0], words[1]


_as_score = partial(tuple.__new__, Score)  # what `Score._make` does, in half the time


def _mean(scores: Sequence[Score]) -> Score:
    # column by column: unpacking every score into one call takes longer than adding them up
    return Score(*(sum(map(itemgetter(column), scores)) / len(scores) for column in range(3)))


def _counts(pairs: Sequence[Pair], system_words: Sequence[bool], model_words: Sequence[bool]) -> RougeCounts:
    empty_system = [not hypothesis.strip() for hypothesis, _ in pairs]
    empty_model = [not all(reference.strip() for reference in references) for _, references in pairs]
    return RougeCounts(
        documents=len(pairs),
        empty_hypotheses=sum(empty_system),
        empty_references=sum(empty_model),
        wordless_hypotheses=sum(not (has or no) for has, no in zip(system_words, empty_system, strict=True)),
        wordless_references=sum(not (has or no) for has, no in zip(model_words, empty_model, strict=True)),
    )


# -------------------------------------------------------------------------------------------------- the tool's interval


_MULTIPLIER, _INCREMENT, _START = 0x5DEECE66D, 0xB, 0x330E  # drand48, which Perl's rand is
_FEW = 5000  # documents for which one process draws


@dataclass(frozen=True, slots=True)
class RougeInterval:
    """``low`` and ``high`` ends, and the ``mean`` of the resampled averages that the tool prints."""

    low: Score
    high: Score
    mean: Score


def rouge_intervals(
    kinds: Sequence[Sequence[Score]], confidence: float = 95.0, samples: int = 1000, processes: int = 1
) -> list[RougeInterval]:
    """The tool's interval of each kind's scores of the same documents (document 1 first), which it draws alike.

    The tool keeps its documents in the order of their numbers as text ("1", "10", "11", "2", ...); so does this.
    """
    total = len(kinds[0])
    order = sorted(range(total), key=lambda position: f"{position + 1}.")
    # (documents, 3 a kind)
    values = np.concatenate([np.asarray(scores, dtype=np.float64)[order] for scores in kinds], axis=1)

    def drawn(some: np.ndarray) -> np.ndarray:
        state = (some << np.uint64(16)) + np.uint64(_START)
        multiplier, increment, mask = map(np.uint64, (_MULTIPLIER, _INCREMENT, (1 << 48) - 1))
        sums, chosen = np.zeros((2, len(some), values.shape[1]))
        for _ in range(total):  # arithmetic modulo 2**64 is exact modulo 2**48
            state = (state * multiplier + increment) & mask
            # none is clipped, but to make sure of it takes longer
            sums += values.take((state * (total / (1 << 48))).astype(np.int64), axis=0, out=chosen, mode="clip")
        return sums

    parts = np.array_split(np.arange(samples, dtype=np.uint64), min(processes, samples) if total > _FEW else 1)
    sums = np.concatenate(list(forked(drawn, parts, len(parts), option="processes")))
    averages = np.sort(sums / total, axis=0)
    delta = samples * ((100.0 - confidence) / 2.0) / 100.0
    upper = min(int(samples - delta - 1), samples - 2)
    lower = min(int(delta), samples - 2)
    share = samples - delta - 1 - upper
    low = averages[lower] + (averages[lower + 1] - averages[lower]) * share
    high = averages[upper] + (averages[upper + 1] - averages[upper]) * share
    places = range(0, 3 * len(kinds), 3)
    # each kind by itself, so that its mean is the same whatever stands beside it
    mean = np.concatenate([averages[:, first : first + 3].copy().sum(axis=0) for first in places]) / samples
    ends = [[round(value, 5) for value in row.tolist()] for row in (low, high, mean)]
    return [RougeInterval(*(Score(*row[first : first + 3]) for row in ends)) for first in places]
