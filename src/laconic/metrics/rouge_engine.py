"""The arithmetic of ROUGE for one document at a time (Lin 2004, as ROUGE-1.5.5 computes it).

For each kind a hypothesis and a reference give a `Match`: hits, the size of the reference and of the
hypothesis. Recall is hits over the first, precision over the second; F weighs them by alpha. The profiles
``rouge155``, ``plain`` and ``unicode`` round recall and precision to five decimals before F is taken, and F
again, because the tool does; ``google`` rounds nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from laconic.metrics.lcs import lcs_length, union_hits, weighted_hits
from laconic.metrics.ngrams import ngram_counts, overlap, skip_bigram_counts, sorted_overlap
from laconic.metrics.rouge_options import Kind, RougeOptions
from laconic.metrics.rouge_text import RougeText, TextOptions, shared_text

_SHORT = 400  # words up to which comparing sorted words is quicker than counting them
_BLANKS = re.compile(r"[ \t\n\r\f\v]+")


class Score(NamedTuple):
    """Precision, recall and F, from 0 to 1."""

    precision: float
    recall: float
    f: float


# What one reference contributes: hits, its size, the hypothesis's size, and the recall `multi="best"` chooses by
# (0 where nothing is chosen). A plain tuple, because millions are made.
Match = tuple[float, float, float, float]


class Encoded:
    """A text as word ids: in one piece, by sentence, and as the single line that ROUGE-L reads.

    ``whole`` is what n-grams are counted on, ``lines`` what union LCS compares, ``line`` the text as one
    sentence; the three differ only under a length limit. ``memo`` keeps counters for the other references.
    """

    __slots__ = ("line", "lines", "memo", "whole")

    def __init__(self, whole: list[int], lines: list[list[int]], line: list[int]) -> None:
        self.whole = whole
        self.lines = lines
        self.line = line
        self.memo: dict[Any, Any] = {}

    def counts(self, order: int) -> Counter:
        if order not in self.memo:
            self.memo[order] = ngram_counts(self.whole, order)
        return self.memo[order]

    def sorted_words(self) -> list[int]:
        if "sorted" not in self.memo:
            self.memo["sorted"] = sorted(self.whole)
        return self.memo["sorted"]

    def bigrams(self) -> set[tuple[int, int]]:
        if "bigrams" not in self.memo:
            self.memo["bigrams"] = set(pairwise(self.whole))
        return self.memo["bigrams"]

    def skips(self, distance: int, unigrams: bool) -> tuple[Counter, int]:
        key = (distance, unigrams)
        if key not in self.memo:
            counts = skip_bigram_counts(self.whole, distance, unigrams)
            self.memo[key] = counts, counts.total()
        return self.memo[key]


# ----------------------------------------------------------------------------------------- limits


def limit_bytes(lines: Sequence[str], limit: int) -> tuple[list[str], list[str]]:
    """Cut to ``limit`` UTF-8 bytes as ``-b`` does; returns the lines for n-grams and those for LCS.

    For n-grams the lines' bytes add up (without the breaks) and the line that reaches the limit is cut,
    mid-word if need be. For LCS the tool forgets to add them up: each line is held against the limit by
    itself, and the first that reaches it is cut and is the last.
    """
    summed: list[str] = []
    alone: list[str] = []
    used, alone_open, summed_open = 0, True, True
    for line in lines:
        data = line.encode("utf-8", "replace")
        if summed_open:
            summed_open = used + len(data) < limit
            summed.append(line if summed_open else data[: limit - used].decode("utf-8", "ignore"))
            used += len(data)
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


# ----------------------------------------------------------------------------------------- engine


class RougeEngine:
    """Scores documents for fixed kinds, profile and options; one instance a process."""

    def __init__(self, kinds: Sequence[Kind], profile: str, options: RougeOptions) -> None:
        self.kinds = tuple(kinds)
        self.options = options
        self.rounded = profile != "google"
        text_options = TextOptions(options.stem, options.exceptions, options.remove_stop_words, options.better)
        self.text: RougeText = shared_text(profile, text_options)
        self._chooses = options.multi in ("best", "jackknife")
        self._exponents = [1.0 / kind.weight if kind.weight else 1.0 for kind in kinds]
        self._by_sentence = any(kind.name in ("Lsum", "W") for kind in kinds)
        self._matchers: list[Callable[[Encoded, Encoded], Match]] = [self._matcher(kind) for kind in kinds]
        self._combine = getattr(self, "_" + options.multi.replace("-", "_"))

    def score(self, hypothesis: str, references: Sequence[str]) -> tuple[list[Score], bool, bool]:
        """The scores of one document, one a kind; and whether hypothesis and references hold any words."""
        self.text.memory.trim()
        system = self._encode(hypothesis)
        models = [self._encode(reference) for reference in references]
        if len(models) == 1:
            model = models[0]
            scores = [
                self._to_score(matcher(system, model), exponent)
                for matcher, exponent in zip(self._matchers, self._exponents, strict=True)
            ]
        else:
            scores = [
                self._combine([matcher(system, model) for model in models], exponent)
                for matcher, exponent in zip(self._matchers, self._exponents, strict=True)
            ]
        return scores, bool(system.whole), all([bool(model.whole) for model in models])

    def _encode(self, text: str) -> Encoded:
        ids, options = self.text.ids, self.options
        if options.max_bytes is None and options.max_words is None:
            whole = ids(text)
            if self._by_sentence and "\n" in text:
                return Encoded(whole, [ids(line) for line in text.split("\n") if line], whole)
            return Encoded(whole, [whole], whole)
        lines = [line for line in text.split("\n") if line]
        joined = [" ".join(lines)] if lines else []
        if options.max_bytes is not None:
            summed, alone = limit_bytes(lines, options.max_bytes)
            single = limit_bytes(joined, options.max_bytes)[0]
        else:
            assert options.max_words is not None
            summed = alone = limit_words(lines, options.max_words)
            single = limit_words(joined, options.max_words)
        return Encoded(ids(" ".join(summed)), [ids(line) for line in alone], ids(" ".join(single)))

    # ------------------------------------------------------------------------------------- kinds

    def _matcher(self, kind: Kind) -> Callable[[Encoded, Encoded], Match]:
        if kind.name == "N":
            return partial(self._match_ngrams, kind.order)
        if kind.name in ("S", "SU"):
            return partial(self._match_skips, kind)
        if kind.name == "W":
            return partial(self._match_weighted, kind.weight)
        return self._match_line if kind.name == "L" else self._match_sentences

    def _match_ngrams(self, order: int, system: Encoded, model: Encoded) -> Match:
        system_size, model_size = len(system.whole) - order + 1, len(model.whole) - order + 1
        if system_size <= 0 or model_size <= 0:
            return 0, max(model_size, 0), max(system_size, 0), 0.0
        hits = self._ngram_hits(order, system, model)
        return hits, model_size, system_size, round(hits / model_size, 5) if self._chooses else 0.0

    @staticmethod
    def _ngram_hits(order: int, system: Encoded, model: Encoded) -> int:
        """Clipped matches, by the quickest way that is exact for the order and the lengths."""
        if order == 1 and len(system.whole) <= _SHORT and len(model.whole) <= _SHORT:
            return sorted_overlap(system.sorted_words(), model.sorted_words())
        if order == 2:
            mine, theirs = system.bigrams(), model.bigrams()
            # If either side repeats no bigram, every common one counts once.
            if len(mine) == len(system.whole) - 1 or len(theirs) == len(model.whole) - 1:
                return len(mine & theirs)
        return overlap(system.counts(order), model.counts(order))

    def _match_skips(self, kind: Kind, system: Encoded, model: Encoded) -> Match:
        system_counts, system_size = system.skips(kind.distance, kind.name == "SU")
        model_counts, model_size = model.skips(kind.distance, kind.name == "SU")
        hits = overlap(system_counts, model_counts)
        return hits, model_size, system_size, round(hits / model_size, 5) if model_size else 0.0

    def _match_line(self, system: Encoded, model: Encoded) -> Match:
        hits = lcs_length(model.line, system.line)
        size = len(model.line)
        return hits, size, len(system.line), hits / size if size else 0.0

    def _match_sentences(self, system: Encoded, model: Encoded) -> Match:
        size = sum(map(len, model.lines))
        if len(system.lines) == 1 and len(model.lines) == 1 and system.line is system.whole:
            hits = lcs_length(model.lines[0], system.lines[0])
        else:
            hits = union_hits(model.lines, system.lines, model.counts(1), system.counts(1))
        return hits, size, len(system.whole), hits / size if size else 0.0

    def _match_weighted(self, weight: float, system: Encoded, model: Encoded) -> Match:
        # ROUGE-1.5.5 weighs the reference twice: each sentence's length, and then their sum.
        size = sum(len(line) ** weight for line in model.lines)
        hits = weighted_hits(model.lines, system.lines, (model.counts(1), system.counts(1)), weight)
        recall = (hits / size) ** (1.0 / weight) if size else 0.0
        return hits, size**weight, len(system.whole) ** weight, recall

    # -------------------------------------------------------------------------------- references

    def _to_score(self, match: Match, exponent: float) -> Score:
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

    def _average(self, matches: Sequence[Match], exponent: float) -> Score:
        hits, reference_size, hypothesis_size, _ = map(sum, zip(*matches, strict=True))
        return self._to_score((hits, reference_size, hypothesis_size, 0.0), exponent)

    def _best(self, matches: Sequence[Match], exponent: float) -> Score:
        return self._to_score(max(matches, key=lambda match: match[3]), exponent)

    def _max(self, matches: Sequence[Match], exponent: float) -> Score:
        return max([self._to_score(match, exponent) for match in matches], key=lambda score: score.f)

    def _jackknife(self, matches: Sequence[Match], exponent: float) -> Score:
        return self._leave_one_out(self._best, matches, exponent)

    def _jackknife_average(self, matches: Sequence[Match], exponent: float) -> Score:
        return self._leave_one_out(self._average, matches, exponent)

    def _leave_one_out(self, combine: Callable[..., Score], matches: Sequence[Match], exponent: float) -> Score:
        sets = [[*matches[:left_out], *matches[left_out + 1 :]] for left_out in range(len(matches))]
        scores = [combine(chosen, exponent) for chosen in sets]
        means = [sum(values) / len(scores) for values in zip(*scores, strict=True)]
        return Score(*(round(value, 5) for value in means)) if self.rounded else Score(*means)
