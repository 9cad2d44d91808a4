"""ROUGE without Perl: exact, fast, and signed (Lin 2004, as ROUGE-1.5.5 computes it).

``rouge(hypotheses, references)`` scores one summary against one or several references, a document each.
A summary's sentences are its lines; they matter to ``Lsum`` only. What ROUGE-1.5.5 prints as ROUGE-L is ``Lsum``
here when a summary has several lines; ``L`` reads the summary as one sentence.

For each kind a hypothesis and a reference give hits, the size of the reference and that of the hypothesis. Recall is
hits over the first size, precision over the second; F weighs them by alpha. All profiles but ``google`` round recall
and precision to five decimals before F is taken, and F again, because the tool does.

`catchline.metrics.rouge_text.TEXTS` has the profiles, `catchline.metrics.scoring` the settings of data sets.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from catchline.config.base import ConfigBase, validate
from catchline.errors import ConfigError, DataError, refuse_unknown
from catchline.jobs import parallel
from catchline.metrics.overlap import lcs_length, ngram_counts, ngram_set, overlap, union_hits
from catchline.metrics.rouge_text import TEXTS, shared_text
from catchline.metrics.significance import bootstrap_interval

__all__ = ["RougeCounts", "RougeInterval", "RougeOptions", "RougeResult", "Score", "rouge"]

# Part of the signature: raised when a number could change; 1 of profiles that are not here.
REVISIONS = {"unicode": 3}
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
Pair = tuple[str, Sequence[str]]


class RougeOptions(ConfigBase, strict=True):
    """The flags. Each default is what ROUGE-1.5.5 does when run with ``-m``; profiles change some (below).

    Attributes:
        stem: Porter stemming of words longer than three characters (``-m``). Off in ``characters``,
            ``plain`` and ``unicode``.
        exceptions: look words up in WordNet's exception lists before stemming, as the tool with its data does.
            Installations whose ``WordNet-2.0.exc.db`` was rebuilt with the usual three-argument recipe hold an
            empty table; ``exceptions=False`` gives their numbers. Off in every profile but ``rouge155``.
        remove_stop_words: drop SMART stop words (``-s``).
        max_bytes: cut hypothesis and references alike (``-b``).
        multi: several references: ``average`` sums matches and lengths over them (``-f A``), ``best`` takes the
            one with the best recall (``-f B``), ``max`` the one with the best F (rouge-score).
        alpha: weight of precision in F (``-p``).
        interval: also compute the 95% bootstrap interval of each mean.
        processes: worker processes; 1 computes in this one.
    """

    stem: bool = True
    exceptions: bool = True
    remove_stop_words: bool = False
    max_bytes: Annotated[int, Field(ge=1, le=10**9)] | None = None
    multi: Literal["average", "best", "max"] = "average"
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    interval: bool = False
    processes: Annotated[int, Field(ge=1, le=256)] = 1


def make_options(profile: str, given: dict[str, Any]) -> RougeOptions:
    """The profile's defaults, changed by what the caller gave (None means: not given).

    Raises:
        ConfigError: unknown profile, unknown option or a value that does not fit.
    """
    refuse_unknown("ROUGE profile", profile, TEXTS)
    options = _PROFILE_DEFAULTS[profile] | {name: value for name, value in given.items() if value is not None}
    return validate(RougeOptions, options, where="rouge")


class Kind(NamedTuple):
    """One measure: ``name`` is N, L or Lsum; ``order`` is the n of ROUGE-N."""

    label: str
    name: str
    order: int = 0


def parse_kind(text: str) -> Kind:
    """Read ``1``, ``rouge2``, ``L``, ``Lsum`` and the like; the label is as given.

    Raises:
        ConfigError: the kind is not known.
    """
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


# -------------------------------------------------------------------------------------------------------------- results


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
    """Scores from 0 to 1 by kind, keyed as they were asked for; ``mean`` is over documents.

    ``signature`` goes with every number that is quoted."""

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
                kind: {name: end._asdict() for name, end in ends._asdict().items()}
                for kind, ends in self.interval.items()
            }
        if per_document:
            result["per_document"] = [
                {kind: scores[position]._asdict() for kind, scores in self.per_document.items()}
                for position in range(self.counts.documents)
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
        kinds: ``1`` to ``9``, ``L``, ``Lsum`` (also ``rouge1``, ``ROUGE-L``).
        profile: ``rouge155``, ``google``, ``plain``, ``unicode`` or ``characters``.
        options: fields of `RougeOptions` (``stem``, ``max_bytes``, ``multi``, ``interval``, ``processes``, ...).

    Raises:
        ConfigError: no kind, or an unknown kind, profile or option.
        DataError: no documents, different numbers of hypotheses and references, or a document without reference.
    """
    flags = make_options(profile, options)
    parsed = tuple(parse_kind(kind) for kind in ([kinds] if isinstance(kinds, str) else kinds))
    if not parsed:
        raise ConfigError("There is nothing to compute: name a ROUGE kind at least, such as 1, 2 or L.")
    pairs = _pairs(hypotheses, references)
    scores, system_words, model_words = _score_all(RougeEngine(parsed, profile, flags), pairs)
    per_document = dict(zip([kind.label for kind in parsed], scores, strict=True))
    intervals = {}
    if flags.interval:
        lows, highs = bootstrap_interval(np.concatenate([np.array(column) for column in scores], axis=1), _RESAMPLES)
        for label, low, high in zip(per_document, lows.reshape(-1, 3), highs.reshape(-1, 3), strict=True):
            intervals[label] = RougeInterval(Score(*low.tolist()), Score(*high.tolist()))
    return RougeResult(
        mean={label: _mean(scores) for label, scores in per_document.items()},
        per_document=per_document,
        signature=signature(profile, flags, len(pairs)),
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


def _score_all(engine: RougeEngine, pairs: list[Pair]) -> tuple[list[list[Score]], list[bool], list[bool]]:
    """The scores of each kind, and which hypotheses and references have words; one entry a document."""
    processes, total = min(engine.options.processes, len(pairs)), len(engine.kinds)
    # Several chunks a process even out long documents; forked, the workers have the texts already.
    size = -(-len(pairs) // (processes * 4))

    def work(start: int) -> bytes:
        """As raw numbers, which travel between processes many times faster than objects."""
        rows = [engine.score(*pair) for pair in pairs[start : start + size]]
        return array("d", [value for row in rows for part in (*row[0], row[1:]) for value in part]).tobytes()

    scores: list[list[Score]] = [[] for _ in range(total)]
    words: list[list[bool]] = [[], []]
    for part in parallel(work, range(0, len(pairs), size), processes, option="processes"):
        table = np.frombuffer(part).reshape(-1, 3 * total + 2)
        for position, column in enumerate(scores):
            column.extend(map(_as_score, table[:, 3 * position : 3 * position + 3].tolist()))
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


# --------------------------------------------------------------------------------------------------------- one document

_SHORT = 400  # words up to which comparing sorted words is quicker than counting them
# What one reference contributes: hits, its size, the hypothesis's size, and the recall `multi="best"` chooses by
# (0 where nothing is chosen). A plain tuple, because millions are made.
Match = tuple[int, int, int, float]


@dataclass(slots=True)
class EncodedText:
    """A text as word ids: in one piece, by sentence, and as the single line that ROUGE-L reads.

    ``whole`` is what n-grams are counted on, ``lines`` what union LCS compares, ``line`` the text as one
    sentence; the three differ only under a length limit.
    """

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
    """Cut to ``limit`` UTF-8 bytes as ``-b`` does; returns the lines for n-grams and those for LCS.

    For n-grams the lines' bytes add up (without the breaks) and the line that reaches the limit is cut,
    mid-word if need be. For LCS the tool forgets to add them up: each line is held against the limit by
    itself, and the first that reaches it is cut and is the last.
    """
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
        mine, theirs = ngram_set(system.whole, 2), ngram_set(model.whole, 2)
        # If either side repeats no bigram, every common one counts once.
        if len(mine) == len(system.whole) - 1 or len(theirs) == len(model.whole) - 1:
            return len(mine & theirs)
    return overlap(system.counts(order), model.counts(order))


def _match_line(system: EncodedText, model: EncodedText) -> Match:
    hits, size = lcs_length(model.line, system.line), len(model.line)
    return hits, size, len(system.line), hits / size if size else 0.0


def _match_sentences(system: EncodedText, model: EncodedText) -> Match:
    size = sum(map(len, model.lines))
    if len(system.lines) == 1 and len(model.lines) == 1 and system.line is system.whole:
        hits = lcs_length(model.lines[0], system.lines[0])
    else:
        hits = union_hits(model.lines, system.lines, model.counts(1), system.counts(1))
    return hits, size, len(system.whole), hits / size if size else 0.0


class RougeEngine:
    """Scores documents for fixed kinds, profile and options; one instance a process."""

    def __init__(self, kinds: Sequence[Kind], profile: str, options: RougeOptions) -> None:
        self.kinds = tuple(kinds)
        self.options = options
        self.rounded = profile != "google"
        self.text = shared_text(
            profile, stem=options.stem, exceptions=options.exceptions, remove_stop_words=options.remove_stop_words
        )
        self._to_score = lru_cache(maxsize=20_000)(self._scored)  # few words give few different matches
        self._by_sentence = any(kind.name == "Lsum" for kind in kinds)
        matchers = {"L": _match_line, "Lsum": _match_sentences}
        self._matchers = [matchers.get(kind.name) or partial(self._match_ngrams, kind.order) for kind in kinds]

    def score(self, hypothesis: str, references: Sequence[str]) -> tuple[list[Score], bool, bool]:
        """The scores of one document, one a kind; and whether hypothesis and references hold any words."""
        self.text.memory.trim()
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

    def _match_ngrams(self, order: int, system: EncodedText, model: EncodedText) -> Match:
        system_size, model_size = len(system.whole) - order + 1, len(model.whole) - order + 1
        if system_size <= 0 or model_size <= 0:
            return 0, max(model_size, 0), max(system_size, 0), 0.0
        hits = _ngram_hits(order, system, model)
        return hits, model_size, system_size, round(hits / model_size, 5) if self.options.multi == "best" else 0.0

    def _scored(self, match: Match) -> Score:
        hits, reference_size, hypothesis_size, _ = match
        recall = hits / reference_size if reference_size else 0.0
        precision = hits / hypothesis_size if hypothesis_size else 0.0
        if self.rounded:
            recall, precision = round(recall, 5), round(precision, 5)
        alpha = self.options.alpha
        below = (1.0 - alpha) * precision + alpha * recall
        f = precision * recall / below if below > 0 else 0.0
        return Score(precision, recall, round(f, 5) if self.rounded else f)

    def _combine(self, matches: Sequence[Match]) -> Score:
        """One score of the matches with several references; see ``multi`` of `RougeOptions`."""
        if len(matches) == 1:
            return self._to_score(matches[0])
        if self.options.multi == "best":
            return self._to_score(max(matches, key=itemgetter(3)))
        if self.options.multi == "max":
            return max(map(self._to_score, matches), key=attrgetter("f"))
        hits, reference_size, hypothesis_size, _ = map(sum, zip(*matches, strict=True))
        return self._to_score((hits, reference_size, hypothesis_size, 0.0))
