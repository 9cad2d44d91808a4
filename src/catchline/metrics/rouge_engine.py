"""The arithmetic of ROUGE for one document at a time (Lin 2004, as ROUGE-1.5.5 computes it).

For each kind a hypothesis and a reference give a `Match`: hits, the size of the reference and of the
hypothesis. Recall is hits over the first, precision over the second; F weighs them by alpha. The profiles
``rouge155``, ``plain`` and ``unicode`` round recall and precision to five decimals before F is taken, and F
again, because the tool does; ``google`` rounds nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from catchline.errors import ConfigError, did_you_mean, refuse_unknown
from catchline.metrics.overlap import (
    lcs_length,
    ngram_counts,
    ngram_set,
    overlap,
    skip_bigram_counts,
    union_hits,
    weighted_hits,
)
from catchline.metrics.rouge_text import TEXTS, shared_text

# Part of the signature: raised when a number could change; 1 of profiles that are not here.
REVISIONS = {"unicode": 2}

# Where a profile's defaults differ from RougeOptions' own.
_PROFILE_DEFAULTS: dict[str, dict[str, Any]] = {
    "characters": {"stem": False, "exceptions": False},
    "google": {"exceptions": False, "multi": "max"},
    "plain": {"stem": False, "exceptions": False, "multi": "max"},
    "rouge155": {},
    "unicode": {"stem": False, "exceptions": False},
}
_MOST = 10**9  # bytes, words
# Of ROUGE-W, where a text of n words has the size n to the weight's square; below 1 runs would be worth less than their
# words and scores could be above 1.
_MOST_WEIGHT = 5
_KIND = re.compile(r"(?:rouge)?[-_]?(?:(?P<n>[1-9])|(?P<name>Lsum|L|W|SU|S)(?P<number>\*|\d+(?:\.\d+)?)?)$", re.I)
_NAMES = {"lsum": "Lsum", "l": "L", "w": "W", "su": "SU", "s": "S"}


@dataclass(frozen=True, slots=True)
class RougeOptions:
    """The flags. Each default is what ROUGE-1.5.5 does when run with ``-m``; profiles change some (below).

    Attributes:
        stem: Porter stemming of words longer than three characters (``-m``). Off in ``characters``,
            ``plain`` and ``unicode``.
        exceptions: look words up in WordNet's exception lists before stemming, as the tool with its data does.
            Installations whose ``WordNet-2.0.exc.db`` was rebuilt with the usual three-argument recipe hold an
            empty table; ``exceptions=False`` gives their numbers. Off in every profile but ``rouge155``.
        better: what "better" and "best" are in these lists, where an adverb and an adjective have them: ``well``, as in
            the tool's database, which takes the adverbs last, or ``good``, as in one that takes the adjectives last.
        remove_stop_words: drop SMART stop words (``-s``).
        max_bytes, max_words (between blanks): cut hypothesis and references alike (``-b``, ``-l``).
        multi: several references: ``average`` sums matches and lengths over them (``-f A``), ``best`` takes the
            one with the best recall (``-f B``), ``max`` the one with the best F (rouge-score), ``jackknife`` the
            mean over leave-one-out sets of ``best`` (Lin 2004), ``jackknife-average`` the same of ``average``.
        alpha: weight of precision in F (``-p``).
        weight: the exponent of ROUGE-W (``-w``), from 1 to 5.
        skip_distance: words that may stand between those of a skip-bigram (``-2``); negative: any number.
        interval: also compute the tool's bootstrap interval. ``confidence`` in percent, ``samples`` resamplings.
        processes: worker processes; 1 computes in this one.
    """

    stem: bool = True
    exceptions: bool = True
    better: Literal["well", "good"] = "well"
    remove_stop_words: bool = False
    max_bytes: Annotated[int, Field(ge=1, le=_MOST)] | None = None
    max_words: Annotated[int, Field(ge=1, le=_MOST)] | None = None
    multi: Literal["average", "best", "max", "jackknife", "jackknife-average"] = "average"
    alpha: Annotated[FiniteFloat, Field(ge=0, le=1)] = 0.5
    weight: Annotated[FiniteFloat, Field(ge=1, le=_MOST_WEIGHT)] = 1.2
    skip_distance: Annotated[int, Field(ge=-_MOST, le=_MOST)] = 4
    interval: bool = False
    confidence: Annotated[FiniteFloat, Field(gt=0, lt=100)] = 95.0
    samples: Annotated[int, Field(ge=2, le=10**6)] = 1000
    processes: Annotated[int, Field(ge=1, le=256)] = 1


_KINDS_OF_OPTIONS = get_type_hints(RougeOptions, include_extras=True)
_CHECKS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for name, kind in _KINDS_OF_OPTIONS.items()}


def make_options(profile: str, given: dict[str, Any]) -> RougeOptions:
    """The profile's defaults, changed by what the caller gave (None means: not given).

    Raises:
        ConfigError: unknown profile, unknown option or a value that does not fit.
    """
    refuse_unknown("ROUGE profile", profile, TEXTS)
    for name in given:
        if name not in _CHECKS:
            raise ConfigError(
                f"Unknown ROUGE option '{name}'.{did_you_mean(name, _CHECKS)} Known: {', '.join(sorted(_CHECKS))}."
            )
    chosen = _PROFILE_DEFAULTS[profile] | {name: value for name, value in given.items() if value is not None}
    for name, value in chosen.items():
        try:
            _CHECKS[name].validate_python(value, strict=True)
        except ValidationError as error:
            said = error.errors()[0]["msg"]
            raise ConfigError(f"ROUGE option '{name}': {said[:1].lower()}{said[1:]} (given: {value!r:.100}).") from None
    options = RougeOptions(**chosen)
    if options.max_bytes is not None and options.max_words is not None:
        raise ConfigError("ROUGE takes a limit in bytes or in words, not both; drop max_bytes or max_words.")
    return options


@dataclass(frozen=True, slots=True)
class Kind:
    """One measure: ``name`` is N, L, Lsum, W, S or SU; ``order`` is the n of ROUGE-N."""

    label: str
    name: str
    order: int = 0
    weight: float = 0.0
    distance: int = 0


def parse_kind(text: str, options: RougeOptions) -> Kind:
    """Read ``1``, ``rouge2``, ``L``, ``Lsum``, ``W``, ``W1.2``, ``S4``, ``SU*`` and the like; the label is as given.

    Raises:
        ConfigError: the kind is not known.
    """
    found = _KIND.match(str(text))
    if found is None:
        raise ConfigError(f"Unknown ROUGE kind '{text}'. Known: 1 to 9, L, Lsum, W, S, SU (also S4, SU*, W1.2).")
    label = str(text)
    if found["n"]:
        return Kind(label, "N", order=int(found["n"]))
    name, number = _NAMES[found["name"].lower()], found["number"]
    if name in ("L", "Lsum") and number:
        raise ConfigError(f"ROUGE kind '{text}' takes no number; write {name}.")
    if name == "W":
        weight = float(number) if number and number != "*" else options.weight
        if not 1 <= weight <= _MOST_WEIGHT:
            raise ConfigError(f"ROUGE kind '{label:.40}': the weight must be from 1 to {_MOST_WEIGHT}.")
        return Kind(label, name, weight=weight)
    if number is None or number == "*":
        return Kind(label, name, distance=-1 if number else options.skip_distance)
    if not number.isdecimal() or float(number) > _MOST:
        raise ConfigError(f"ROUGE kind '{label:.40}': the distance must be a whole number, at most {_MOST:,}, or *.")
    return Kind(label, name, distance=int(number))


def signature(profile: str, kinds: tuple[Kind, ...], options: RougeOptions, documents: int) -> str:
    """One line that pins everything the numbers depend on, in the manner of sacreBLEU."""
    stem = "porter" if options.stem else "no"
    if options.stem and options.exceptions:
        stem += "+wordnet2.0" if options.better == "well" else f"+wordnet2.0.{options.better}"
    limit = f"b{options.max_bytes}" if options.max_bytes else f"l{options.max_words}" if options.max_words else "no"
    parts = {
        "rouge": profile,
        "n": documents,
        "stem": stem,
        "stop": "smart" if options.remove_stop_words else "kept",
        "limit": limit,
        "refs": options.multi,
        "alpha": f"{options.alpha:g}",
    }
    parts |= {kind.label: f"{kind.weight:g}" for kind in kinds if kind.name == "W"}
    parts |= {kind.label: kind.distance if kind.distance >= 0 else "*" for kind in kinds if kind.name in ("S", "SU")}
    if options.interval:
        parts["ci"] = f"{options.confidence:g}%r{options.samples}"
    return "|".join(f"{name}:{value}" for name, value in parts.items()) + f"|catchline.r{REVISIONS.get(profile, 1)}"


# --------------------------------------------------------------------------------------------------------- one document

_SHORT = 400  # words up to which comparing sorted words is quicker than counting them
_BLANKS = re.compile(r"[ \t\n\r\f\v]+")
_bigrams = partial(ngram_set, n=2)


class Score(NamedTuple):
    """Precision, recall and F, from 0 to 1."""

    precision: float
    recall: float
    f: float


# What one reference contributes: hits, its size, the hypothesis's size, and the recall `multi="best"` chooses by
# (0 where nothing is chosen). A plain tuple, because millions are made.
Match = tuple[float, float, float, float]


@dataclass(slots=True)
class EncodedText:
    """A text as word ids: in one piece, by sentence, and as the single line that ROUGE-L reads.

    ``whole`` is what n-grams are counted on, ``lines`` what union LCS compares, ``line`` the text as one
    sentence; the three differ only under a length limit. ``memo`` keeps counters for the other references.
    """

    whole: list[int]
    lines: list[list[int]]
    line: list[int]
    memo: dict[Hashable, Any] = field(default_factory=dict)

    def kept(self, what: Hashable, make: Callable[[list[int]], Any]) -> Any:
        """``make`` of all words; ``what`` names it."""
        if what not in self.memo:
            self.memo[what] = make(self.whole)
        return self.memo[what]

    def counts(self, order: int) -> Counter:
        return self.kept(order, partial(ngram_counts, n=order))


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


def limit_words(lines: Sequence[str], limit: int) -> list[str]:
    """Cut to ``limit`` blank-separated words over all lines as ``-l`` does (a leading blank counts as a word)."""
    kept: list[str] = []
    used = 0
    for line in lines:
        words = _BLANKS.split(line)
        while words and not words[-1]:
            words.pop()
        if used + len(words) >= limit:
            kept.append(" ".join(words[: limit - used]))
            break
        kept.append(line)
        used += len(words)
    return kept


class RougeEngine:
    """Scores documents for fixed kinds, profile and options; one instance a process."""

    def __init__(self, kinds: Sequence[Kind], profile: str, options: RougeOptions) -> None:
        self.kinds = tuple(kinds)
        self.options = options
        self.rounded = profile != "google"
        self.text = shared_text(
            profile,
            stem=options.stem,
            exceptions=options.exceptions,
            remove_stop_words=options.remove_stop_words,
            better=options.better,
        )
        self._to_score = lru_cache(maxsize=20_000)(self._scored)  # few words give few different matches
        self._chooses = options.multi in ("best", "jackknife")
        self._by_sentence = any(kind.name in ("Lsum", "W") for kind in kinds)
        # the matcher of each kind, and the exponent of what is made of a match
        self._measures = [(self._matcher(kind), 1.0 / kind.weight if kind.weight else 1.0) for kind in kinds]

    def score(self, hypothesis: str, references: Sequence[str]) -> tuple[list[Score], bool, bool]:
        """The scores of one document, one a kind; and whether hypothesis and references hold any words."""
        self.text.memory.trim()
        system = self._encode(hypothesis)
        models = [self._encode(reference) for reference in references]
        if len(models) == 1:
            model = models[0]
            scores = [self._to_score(matcher(system, model), exponent) for matcher, exponent in self._measures]
        else:
            scores = [
                self._combine([matcher(system, model) for model in models], exponent, self.options.multi)
                for matcher, exponent in self._measures
            ]
        return scores, bool(system.whole), all([bool(model.whole) for model in models])

    def _encode(self, text: str) -> EncodedText:
        ids, options = self.text.ids, self.options
        if options.max_bytes is None and options.max_words is None:
            whole = ids(text)
            if self._by_sentence and "\n" in text:
                return EncodedText(whole, [ids(line) for line in text.split("\n") if line], whole)
            return EncodedText(whole, [whole], whole)
        lines = [line for line in text.split("\n") if line]
        joined = [" ".join(lines)] if lines else []
        if options.max_bytes is not None:
            summed, alone = limit_bytes(lines, options.max_bytes)
            single = limit_bytes(joined, options.max_bytes)[0]
        else:
            assert options.max_words is not None
            summed = alone = limit_words(lines, options.max_words)
            single = limit_words(joined, options.max_words)
        return EncodedText(ids(" ".join(summed)), [ids(line) for line in alone], ids(" ".join(single)))

    def _matcher(self, kind: Kind) -> Callable[[EncodedText, EncodedText], Match]:
        if kind.name == "N":
            return partial(self._match_ngrams, kind.order)
        if kind.name in ("S", "SU"):
            return partial(self._match_skips, kind.distance, kind.name == "SU")
        if kind.name == "W":
            return partial(self._match_weighted, kind.weight)
        return self._match_line if kind.name == "L" else self._match_sentences

    def _match_ngrams(self, order: int, system: EncodedText, model: EncodedText) -> Match:
        system_size, model_size = len(system.whole) - order + 1, len(model.whole) - order + 1
        if system_size <= 0 or model_size <= 0:
            return 0, max(model_size, 0), max(system_size, 0), 0.0
        hits = self._ngram_hits(order, system, model)
        return hits, model_size, system_size, round(hits / model_size, 5) if self._chooses else 0.0

    @staticmethod
    def _ngram_hits(order: int, system: EncodedText, model: EncodedText) -> int:
        """Clipped matches, by the quickest way that is exact for the order and the lengths."""
        if order == 1 and len(system.whole) <= _SHORT and len(model.whole) <= _SHORT:
            # of sorted lists: their common multiset
            return lcs_length(system.kept("sorted", sorted), model.kept("sorted", sorted))
        if order == 2:
            mine, theirs = system.kept("bigrams", _bigrams), model.kept("bigrams", _bigrams)
            # If either side repeats no bigram, every common one counts once.
            if len(mine) == len(system.whole) - 1 or len(theirs) == len(model.whole) - 1:
                return len(mine & theirs)
        return overlap(system.counts(order), model.counts(order))

    @staticmethod
    def _match_skips(distance: int, unigrams: bool, system: EncodedText, model: EncodedText) -> Match:
        key, make = (distance, unigrams), partial(skip_bigram_counts, distance=distance, unigrams=unigrams)
        (system_counts, system_size), (model_counts, model_size) = system.kept(key, make), model.kept(key, make)
        hits = overlap(system_counts, model_counts)
        return hits, model_size, system_size, round(hits / model_size, 5) if model_size else 0.0

    def _match_line(self, system: EncodedText, model: EncodedText) -> Match:
        hits = lcs_length(model.line, system.line)
        size = len(model.line)
        return hits, size, len(system.line), hits / size if size else 0.0

    def _match_sentences(self, system: EncodedText, model: EncodedText) -> Match:
        size = sum(map(len, model.lines))
        if len(system.lines) == 1 and len(model.lines) == 1 and system.line is system.whole:
            hits = lcs_length(model.lines[0], system.lines[0])
        else:
            hits = union_hits(model.lines, system.lines, model.counts(1), system.counts(1))
        return hits, size, len(system.whole), hits / size if size else 0.0

    def _match_weighted(self, weight: float, system: EncodedText, model: EncodedText) -> Match:
        # ROUGE-1.5.5 weighs the reference twice: each sentence's length, and then their sum.
        size = sum(len(line) ** weight for line in model.lines)
        hits = weighted_hits(model.lines, system.lines, (model.counts(1), system.counts(1)), weight)
        recall = (hits / size) ** (1.0 / weight) if size else 0.0
        return hits, size**weight, len(system.whole) ** weight, recall

    def _scored(self, match: Match, exponent: float) -> Score:
        hits, reference_size, hypothesis_size, _ = match
        recall = hits / reference_size if reference_size else 0.0
        precision = hits / hypothesis_size if hypothesis_size else 0.0
        if exponent != 1.0:
            recall, precision = recall**exponent, precision**exponent
        if self.rounded:
            recall, precision = round(recall, 5), round(precision, 5)
        alpha = self.options.alpha
        below = (1.0 - alpha) * precision + alpha * recall
        f = precision * recall / below if below > 0 else 0.0
        return Score(precision, recall, round(f, 5) if self.rounded else f)

    def _combine(self, matches: Sequence[Match], exponent: float, multi: str) -> Score:
        """One score of the matches with several references; ``multi`` as in `RougeOptions`."""
        if multi == "average":
            hits, reference_size, hypothesis_size, _ = map(sum, zip(*matches, strict=True))
            return self._to_score((hits, reference_size, hypothesis_size, 0.0), exponent)
        if multi == "best":
            return self._to_score(max(matches, key=itemgetter(3)), exponent)
        if multi == "max":
            return max([self._to_score(match, exponent) for match in matches], key=attrgetter("f"))
        each = "average" if multi == "jackknife-average" else "best"
        sets = [[*matches[:left_out], *matches[left_out + 1 :]] for left_out in range(len(matches))]
        scores = [self._combine(chosen, exponent, each) for chosen in sets]
        means = [sum(values) / len(scores) for values in zip(*scores, strict=True)]
        return Score(*(round(value, 5) for value in means)) if self.rounded else Score(*means)
