"""How much of a summary is copied, and how much it repeats; of sequences of words (`catchline.metrics.words.words`)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, compress
from operator import eq

from catchline.metrics.overlap import ngram_set, ngrams
from catchline.metrics.words import is_stop_word

Words = Sequence[str]
Runs = Sequence[int]
_NEAR = 3  # words within which a content word that comes again is heard
_PHRASE = 4  # words of a phrase that is heard wherever it comes again


def shared_runs(summary: Words, other: Words) -> Runs:
    """Of each word of the summary, how many words from there on are in a row in the other text: 0 if it lacks the word,
    all that are left if the other text is the summary (``is``)."""
    if summary is other:
        return range(len(summary), 0, -1)
    held = bytes(map(set(other).__contains__, summary)) + b"\0"
    runs, end = list(held[:-1]), 0
    start = held.find(b"\1\1")  # where a run may be longer than a word
    if start < 0:
        return runs
    mine, theirs = f" {' '.join(summary)} ", f" {' '.join(other)} "
    blanks = list(accumulate((len(word) + 1 for word in summary), initial=0))  # where they are in the first of the two
    while start >= 0:
        # the rest of a run is one, and a longer run is nowhere before a shorter one
        end, place = max(end, start + 1), 0
        while held[end] and (place := theirs.find(mine[blanks[start] : blanks[end + 1] + 1], place)) >= 0:
            end += 1
        runs[start] = end - start
        start = held.find(b"\1\1", start + 1)
    return runs


def novel_rate(summary: Words, runs: Runs, n: int) -> float | None:
    """The share of its distinct n-grams that the source, in which the summary has ``runs``, lacks; None without any."""
    if len(summary) < n:
        return None
    novel = {gram for gram, run in zip(ngrams(summary, n), runs, strict=False) if run < n}
    return len(novel) / len(ngram_set(summary, n)) if novel else 0.0


def coverage_and_density(runs: Runs) -> tuple[float, float] | None:
    """The share of a summary's words in fragments shared with the source, and the sum of squared lengths of fragments
    over the summary's words; None for an empty summary. After Grusky et al. 2018, but that the fragment at a word is
    the longest run that the source has: their Figure 3 skips what a shorter match covers and may miss it."""
    lengths, end = [], 0
    for start, length in enumerate(runs):
        if length and start >= end:
            lengths.append(length)
            end = start + length
    return (sum(lengths) / len(runs), sum([length * length for length in lengths]) / len(runs)) if runs else None


def correct_counts(in_source: Runs, in_reference: Runs, longest: int) -> list[tuple[int, int]]:
    """CoCoNet's figure 4, for n up to ``longest``: the summary's n-grams that source and reference have, and all."""
    both = sorted(map(min, in_source, in_reference))
    return [(len(both) - bisect_left(both, n), max(0, len(both) - n + 1)) for n in range(1, longest + 1)]


def over_copied(summary: Words, in_source: Runs, in_reference: Runs) -> list[str]:
    """Words of the summary that the source has and the reference has not (CoCoNet section 5, our reading)."""
    return [word for word, run, known in zip(summary, in_source, in_reference, strict=True) if run and not known]


def repeated_ngram_rate(summary: Words, n: int) -> float | None:
    """1 - (distinct n-grams / n-grams): 0 when none repeats; None when there is none."""
    total = len(summary) - n + 1
    return 1.0 - len(ngram_set(summary, n)) / total if total > 0 else None


def repeated_ngram_rates(summary: Words, longest: int) -> list[float | None]:
    """Those of every n up to ``longest``; where no n-gram comes twice, no longer one does."""
    rates: list[float | None] = []
    for n in range(1, longest + 1):
        rates.append(0.0 if 0.0 in rates and len(summary) >= n else repeated_ngram_rate(summary, n))
    return rates


def repeats(summary: Words, again: float | None = None) -> bool:
    """Would a reader say that these lower-cased words repeat themselves: a word or phrase right behind itself, a
    content word again within three words, a phrase of four again anywhere? Function words count in phrases with others
    only, and a number may come again. ``again`` is the `repeated_ngram_rate` of four words, where it is known."""
    # a phrase shorter than _PHRASE right behind itself has its words within _NEAR as well
    near = [word for apart in range(1, _NEAR + 1) for word in compress(summary, map(eq, summary, summary[apart:]))]
    if near and (any(map(_is_heard, near)) or _stutters(summary)):
        return True
    if again == 0.0:
        return False
    seen: set[Words] = set()
    for phrase in zip(*(summary[start:] for start in range(_PHRASE)), strict=False):
        if phrase in seen and any(map(_is_heard, phrase)):
            return True
        seen.add(phrase)
    return False


def _is_heard(word: str) -> bool:
    return not is_stop_word(word) and word.isalpha() and len(word) > 1


def _stutters(words: Words) -> bool:
    """A word or phrase right behind itself; of four words and more it is a phrase that comes again."""
    for length in range(1, min(_PHRASE, len(words) // 2 + 1)):
        run = 0  # how many words in a row equal the one `length` before
        for place, equal in enumerate(map(eq, words[length:], words), length):
            run = run + 1 if equal else 0
            if run == length and any(word.isalpha() for word in words[place - length + 1 : place + 1]):
                return True
    return False
