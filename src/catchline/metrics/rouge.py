"""ROUGE without Perl: exact, fast, and signed (Lin 2004, as ROUGE-1.5.5 computes it).

A summary's sentences are its lines; they matter to ``Lsum`` only, which is what ROUGE-1.5.5 prints as ROUGE-L of a
summary of several lines. ``L`` reads the summary as one sentence. All profiles (`catchline.metrics.rouge_text.TEXTS`)
but ``google`` round recall and precision to five decimals before F is taken, and F again, because the tool does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from catchline.config.base import ConfigBase, validate
from catchline.errors import ConfigError, DataError, refuse_unknown
from catchline.metrics.overlap import lcs_length, ngram_counts, ngrams, overlap, union_hits
from catchline.metrics.rouge_text import TEXTS, RougeText
from catchline.metrics.significance import bootstrap_interval

# Part of the signature: raised when a number could change; 1 of profiles that are not here.
REVISIONS = {"unicode": 4}
# Where a profile's defaults differ from RougeOptions' own.
_PROFILE_DEFAULTS: dict[str, dict[str, Any]] = {
    "characters": {"stem": False, "exceptions": False},
    "google": {"exceptions": False, "multi": "max"},
    "plain": {"stem": False, "exceptions": False, "multi": "max"},
    "rouge155": {},
    "unicode": {"stem": False, "exceptions": False},
}
_KIND = re.compile(r"(?:rouge)?[-_]?(?:([1-9])|(Lsum|L))$", re.I)
_RESAMPLES = 1000


class RougeOptions(ConfigBase, strict=True):
    """The flags ``stem``, ``exceptions``, ``remove_stop_words``, ``max_bytes``, ``multi``, ``alpha`` and ``interval``.
    Each default is what ROUGE-1.5.5 does when run with ``-m``; profiles change some (above). The tool looks words up in
    WordNet's exception lists where it has its data; where its ``WordNet-2.0.exc.db`` was rebuilt with the usual
    three-argument recipe, the table is empty."""

    stem: bool = True  # Porter stemming of words longer than three characters (-m)
    exceptions: bool = True  # look words up in WordNet's exception lists before stemming
    remove_stop_words: bool = False  # drop SMART stop words (-s)
    max_bytes: Annotated[int, Field(ge=1, le=10**9)] | None = None  # cut hypothesis and references alike (-b)
    # several references: sum matches and lengths (-f A); that of the best recall (-f B); of the best F (rouge-score)
    multi: Literal["average", "best", "max"] = "average"
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5  # weight of precision in F (-p)
    interval: bool = False  # also the 95% bootstrap interval of each mean


def make_options(profile: str, given: dict[str, Any]) -> RougeOptions:
    """The profile's defaults, changed by what the caller gave (None means: not given)."""
    refuse_unknown("ROUGE profile", profile, TEXTS)
    options = _PROFILE_DEFAULTS[profile] | {name: value for name, value in given.items() if value is not None}
    return validate(RougeOptions, options, where="rouge")


class Kind(NamedTuple):
    """One measure: ``name`` is N, L or Lsum; ``order`` is the n of ROUGE-N."""

    label: str
    name: str
    order: int = 0


def parse_kind(text: str) -> Kind:
    """Read ``1``, ``rouge2``, ``L``, ``Lsum`` and the like; the label is as given."""
    match = _KIND.match(str(text))
    if match is None:
        raise ConfigError(f"Unknown ROUGE kind '{text}'. Known: 1 to 9, L, Lsum.")
    if match[1]:
        return Kind(str(text), "N", order=int(match[1]))
    return Kind(str(text), match[2].capitalize())


def signature(profile: str, options: RougeOptions, documents: int) -> str:
    """One line that pins everything the numbers depend on, in the manner of sacreBLEU."""
    parts = {
        "rouge": profile,
        "n": documents,
        "stem": ("porter+wordnet2.0" if options.exceptions else "porter") if options.stem else "no",
        "stop": "smart" if options.remove_stop_words else "kept",
        "limit": f"b{options.max_bytes}" if options.max_bytes else "no",
        "refs": options.multi,
        "alpha": f"{options.alpha:g}",
    }
    if options.interval:
        parts["ci"] = f"95%r{_RESAMPLES}"
    return "|".join(f"{name}:{value}" for name, value in parts.items()) + f"|catchline.r{REVISIONS.get(profile, 1)}"


class Score(NamedTuple):
    """Precision, recall and F, from 0 to 1."""

    precision: float
    recall: float
    f: float


class RougeInterval(NamedTuple):
    """The ends of the 95% percentile bootstrap interval of a mean over documents."""

    low: Score
    high: Score


@dataclass(frozen=True, slots=True)
class RougeCounts:
    """How many documents were scored, and how many of them have a hypothesis or a reference without a word that the
    profile counts (empty, an emoji, Chinese under ``rouge155``), which scores zero."""

    documents: int
    wordless_hypotheses: int
    wordless_references: int

    @property
    def uncounted(self) -> str:
        """What a reader of the numbers should know of references without words, or nothing."""
        if not self.wordless_references:
            return ""
        return (
            f"{self.wordless_references} of {self.documents} documents have a reference without a word that this "
            "profile counts. Other scripts than Latin count with profile unicode or, by character, profile characters."
        )


@dataclass(frozen=True, slots=True)
class RougeResult:
    """Scores from 0 to 1 by kind, keyed as they were asked for; ``mean`` is over documents. ``signature`` goes with
    every number that is quoted."""

    mean: dict[str, Score]
    per_document: dict[str, list[Score]]
    signature: str
    counts: RougeCounts
    interval: dict[str, RougeInterval] = field(default_factory=dict)

    def as_dict(self, per_document: bool = False) -> dict[str, Any]:
        """A JSON-ready summary: means, intervals, counts and signature, documents only if asked for."""
        values: dict[str, Any] = {
            "scores": {kind: score._asdict() for kind, score in self.mean.items()},
            "signature": self.signature,
            "counts": asdict(self.counts),
        }
        if self.interval:
            ends = {kind: interval._asdict() for kind, interval in self.interval.items()}
            values["intervals"] = {kind: {name: end._asdict() for name, end in of.items()} for kind, of in ends.items()}
        if per_document:
            rows = zip(*self.per_document.values(), strict=True)
            values["per_document"] = [
                {kind: score._asdict() for kind, score in zip(self.per_document, row, strict=True)} for row in rows
            ]
        return values


def rouge(
    hypotheses: Iterable[str],
    references: Iterable[str | Sequence[str]],
    *,
    kinds: Sequence[str] | Mapping[str, str] = ("1", "2", "L"),
    profile: str = "rouge155",
    **options: Any,
) -> RougeResult:
    """Score ``hypotheses`` against ``references`` (a string, or several for one document). ``kinds`` are ``1`` to
    ``9``, ``L``, ``Lsum`` (also ``rouge1``, ``ROUGE-L``), by other names in a mapping; ``profile`` is ``rouge155``,
    ``google``, ``plain``, ``unicode`` or ``characters``; ``options`` are fields of `RougeOptions`.
    Raises ConfigError: no kind, or an unknown kind, profile or option; DataError: no documents, different numbers of
    hypotheses and references, or a document without reference."""
    flags = make_options(profile, options)
    listed = [kinds] if isinstance(kinds, str) else kinds
    named = dict(listed) if isinstance(listed, Mapping) else {str(kind): kind for kind in listed}
    parsed = tuple(parse_kind(kind)._replace(label=label) for label, kind in named.items())
    if not parsed:
        raise ConfigError("There is nothing to compute: name a ROUGE kind at least, such as 1, 2 or L.")
    pairs, engine = _pairs(hypotheses, references), RougeEngine(parsed, profile, flags)
    rows, system_words, model_words = zip(*[engine.score(*pair) for pair in pairs], strict=True)
    per_document = {kind.label: [row[place] for row in rows] for place, kind in enumerate(parsed)}
    intervals = {}
    if flags.interval:
        lows, highs = bootstrap_interval(np.array(rows).reshape(len(pairs), -1), _RESAMPLES)
        for label, low, high in zip(per_document, lows.reshape(-1, 3), highs.reshape(-1, 3), strict=True):
            intervals[label] = RougeInterval(Score(*low.tolist()), Score(*high.tolist()))
    return RougeResult(
        mean={label: _mean(scores) for label, scores in per_document.items()},
        per_document=per_document,
        signature=signature(profile, flags, len(pairs)),
        counts=RougeCounts(len(pairs), system_words.count(False), model_words.count(False)),
        interval=intervals,
    )


def compute(
    *,
    predictions: Iterable[str],
    references: Iterable[str | Sequence[str]],
    rouge_types: Sequence[str] = ("rouge1", "rouge2", "rougeL", "rougeLsum"),
    use_aggregator: bool = True,
    use_stemmer: bool = False,
) -> dict[str, Any]:
    """ROUGE in the shape of the metrics of the library ``evaluate``: F by type, from 0 to 1, the mean or, without
    ``use_aggregator``, a list. Words and F are those of rouge-score. Raises as `rouge` does."""
    kinds = {kind: kind.removeprefix("rouge") for kind in rouge_types}
    found = rouge(predictions, references, kinds=kinds, profile="google", stem=use_stemmer)
    if use_aggregator:
        return {kind: score.f for kind, score in found.mean.items()}
    return {kind: [score.f for score in scores] for kind, scores in found.per_document.items()}


def _pairs(hypotheses: Iterable[str], references: Iterable[str | Sequence[str]]) -> list[tuple[str, Sequence[str]]]:
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise DataError("rouge() takes lists of texts, one entry per document; wrap a single text in a list.")
    systems = list(hypotheses)
    models = [
        tuple(entry) if isinstance(entry, Iterable) and not isinstance(entry, str) else (entry,) for entry in references
    ]
    if len(systems) != len(models) or not systems:
        raise DataError(
            f"There are {len(systems)} hypotheses and {len(models)} references; each document needs one of both."
        )
    for number, (system, model) in enumerate(zip(systems, models, strict=True), 1):
        if not model:
            raise DataError(f"Document {number} has no reference; give at least one, even an empty text.")
        if other := [text for text in (system, *model) if not isinstance(text, str)]:
            kind = type(other[0]).__name__
            raise DataError(f"Document {number}: hypothesis and references must be texts, not {kind}.")
    return list(zip(systems, models, strict=True))


def _mean(scores: Sequence[Score]) -> Score:
    return Score(*(sum(map(itemgetter(column), scores)) / len(scores) for column in range(3)))


# --------------------------------------------------------------------------------------------------------- one document

_SHORT = 400  # words up to which comparing sorted words is quicker than counting them
Match = tuple[int, int, int]  # hits, size of the reference, size of the hypothesis


@dataclass(slots=True)
class EncodedText:
    """A text as word ids: ``whole`` for n-grams, ``lines`` for union LCS, ``line`` for the LCS of one sentence; the
    three differ only under a length limit."""

    whole: list[int]
    lines: list[list[int]]
    line: list[int]
    _counts: dict[int, Counter] = field(default_factory=dict)

    def counts(self, order: int) -> Counter:
        """The n-grams of all words, counted once for all references."""
        if order not in self._counts:
            self._counts[order] = ngram_counts(self.whole, order)
        return self._counts[order]


def limit_bytes(lines: Sequence[str], limit: int) -> tuple[list[str], list[str]]:
    """Cut to ``limit`` UTF-8 bytes as ``-b`` does; returns the lines for n-grams and those for LCS. For n-grams the
    lines' bytes add up, and the line that reaches the limit is cut, mid-word if need be. For LCS the tool forgets to
    add them up: the first line that reaches the limit by itself is cut and is the last."""
    summed: list[str] = []
    alone: list[str] = []
    left, alone_open = limit, True
    for line in lines:
        data = line.encode("utf-8", "replace")
        if left > 0:
            summed.append(line if len(data) < left else data[:left].decode("utf-8", "ignore"))
            left -= len(data)
        if alone_open:
            alone_open = len(data) < limit
            alone.append(line if alone_open else data[:limit].decode("utf-8", "ignore"))
    return summed, alone


def _ngram_hits(order: int, system: EncodedText, model: EncodedText) -> int:
    """Clipped matches, by the quickest way that is exact for the order and the lengths."""
    if order == 1 and len(system.whole) <= _SHORT and len(model.whole) <= _SHORT:
        return lcs_length(sorted(system.whole), sorted(model.whole))  # their common multiset
    if order == 2:
        mine, theirs = set(ngrams(system.whole, 2)), set(ngrams(model.whole, 2))
        # If either side repeats no bigram, every common one counts once.
        if len(mine) == len(system.whole) - 1 or len(theirs) == len(model.whole) - 1:
            return len(mine & theirs)
    return overlap(system.counts(order), model.counts(order))


def _match_line(system: EncodedText, model: EncodedText) -> Match:
    return lcs_length(model.line, system.line), len(model.line), len(system.line)


def _match_sentences(system: EncodedText, model: EncodedText) -> Match:
    if len(system.lines) == 1 and len(model.lines) == 1 and system.line is system.whole:
        hits = lcs_length(model.lines[0], system.lines[0])
    else:
        hits = union_hits(model.lines, system.lines, model.counts(1), system.counts(1))
    return hits, sum(map(len, model.lines)), len(system.whole)


def _match_ngrams(order: int, system: EncodedText, model: EncodedText) -> Match:
    system_size, model_size = (max(0, len(text.whole) - order + 1) for text in (system, model))
    return _ngram_hits(order, system, model) if system_size and model_size else 0, model_size, system_size


class RougeEngine:
    """Scores documents for fixed kinds, profile and options; one instance a process."""

    def __init__(self, kinds: Sequence[Kind], profile: str, options: RougeOptions) -> None:
        self.kinds = tuple(kinds)
        self.options = options
        self.rounded = profile != "google"
        self.text = RougeText(profile, options.stem, options.exceptions, options.remove_stop_words)
        self._to_score = lru_cache(maxsize=20_000)(self._scored)  # few words give few different matches
        self._by_sentence = any(kind.name == "Lsum" for kind in kinds)
        matchers = {"L": _match_line, "Lsum": _match_sentences}
        self._matchers = [matchers.get(kind.name) or partial(_match_ngrams, kind.order) for kind in kinds]

    def score(self, hypothesis: str, references: Sequence[str]) -> tuple[list[Score], bool, bool]:
        """The scores of one document, one a kind; and whether hypothesis and references have words."""
        system = self._encode(hypothesis)
        models = [self._encode(reference) for reference in references]
        scores = [self._combine([matcher(system, model) for model in models]) for matcher in self._matchers]
        return scores, bool(system.whole), all([bool(model.whole) for model in models])

    def _encode(self, text: str) -> EncodedText:
        ids, limit = self.text.ids, self.options.max_bytes
        if limit is None:
            whole = ids(text)
            if self._by_sentence and "\n" in text:
                return EncodedText(whole, [ids(line) for line in text.split("\n") if line], whole)
            return EncodedText(whole, [whole], whole)
        lines = [line for line in text.split("\n") if line]
        summed, alone = limit_bytes(lines, limit)
        single = limit_bytes([" ".join(lines)], limit)[0]
        return EncodedText(ids(" ".join(summed)), [ids(line) for line in alone], ids(" ".join(single)))

    def _scored(self, match: Match) -> Score:
        hits, reference_size, hypothesis_size = match
        recall = hits / reference_size if reference_size else 0.0
        precision = hits / hypothesis_size if hypothesis_size else 0.0
        if self.rounded:
            recall, precision = round(recall, 5), round(precision, 5)
        alpha = self.options.alpha
        below = (1.0 - alpha) * precision + alpha * recall
        f = precision * recall / below if below > 0 else 0.0
        return Score(precision, recall, round(f, 5) if self.rounded else f)

    def _combine(self, matches: Sequence[Match]) -> Score:
        """One score of the matches with all references; see ``multi`` of `RougeOptions`."""
        if len(matches) == 1:
            return self._to_score(matches[0])
        if self.options.multi == "average":
            hits, reference_size, hypothesis_size = map(sum, zip(*matches, strict=True))
            return self._to_score((hits, reference_size, hypothesis_size))
        return max(map(self._to_score, matches), key=attrgetter("recall" if self.options.multi == "best" else "f"))
