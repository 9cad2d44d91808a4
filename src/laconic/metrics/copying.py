"""How much of a summary is copied, and how much it repeats: novel n-grams, extractive fragments, correct n-grams,
over-copied words, repeated n-grams, and what a reader calls repetition.

All functions take sequences of words (`laconic.metrics.words.words`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import eq

from laconic.metrics.overlap import ngram_set, ngrams
from laconic.metrics.words import is_stop_word

Words = Sequence[str]


def novel_ngram_rate(summary: Words, source: Words, n: int) -> float | None:
    """The share of the summary's distinct n-grams that the source does not contain; None without n-grams."""
    if summary is source:
        return 0.0 if len(summary) >= n else None
    mine = ngram_set(summary, n)
    return len(mine.difference(ngrams(source, n))) / len(mine) if mine else None


def extractive_fragments(summary: Words, source: Words) -> list[tuple[int, int]]:
    """The greedy fragments of the summary that stand in the source, as (start in the summary, length).

    From the left, at each summary word the longest stretch that the source contains is taken.
    """
    if summary == source:  # found quickly
        return [(0, len(summary))] if summary else []
    places: dict[str, list[int]] = {word: [] for word in summary}
    for position, word in enumerate(source):
        if word in places:
            places[word].append(position)
    fragments = []
    start = 0
    while start < len(summary):
        longest = 0
        for position in places[summary[start]]:
            most = min(len(summary) - start, len(source) - position)
            if most <= longest or summary[start + longest] != source[position + longest]:
                continue  # no longer than the longest
            length = 1
            while length < most and summary[start + length] == source[position + length]:
                length += 1
            longest = max(longest, length)
        if longest:
            fragments.append((start, longest))
        start += max(longest, 1)
    return fragments


def coverage_and_density(summary: Words, source: Words) -> tuple[float, float] | None:
    """Grusky et al. 2018: the share of the summary's words in fragments shared with the source, and the mean squared
    length of a fragment over the summary's words; None for an empty summary.

    A single word is a fragment too, so that coverage is the share of the summary's words that the source holds.
    """
    if not summary:
        return None
    lengths = [length for _, length in extractive_fragments(summary, source)]
    return sum(lengths) / len(summary), sum(length * length for length in lengths) / len(summary)


def correct_ngram_counts(summary: Words, source: Words, reference: Words, longest: int) -> list[tuple[int, int]]:
    """CoCoNet's figure 4, for n up to ``longest``: the summary's n-grams that source and reference have, and all."""
    counts, hits = [], 2
    for n in range(1, longest + 1):
        # in a longer n-gram that is correct are two shorter ones
        known = ngram_set(reference, n) if hits > 1 else set()
        if known and summary is not source:
            known = known.intersection(ngrams(summary, n)).intersection(ngrams(source, n))
        hits = sum(map(known.__contains__, ngrams(summary, n))) if known else 0
        counts.append((hits, max(0, len(summary) - n + 1)))
    return counts


def over_copied_words(summary: Words, source: Words, reference: Words) -> list[str]:
    """Words of the summary that the source has and the reference has not (CoCoNet section 5, our reading)."""
    over = (set(summary) if summary is source else set(summary).intersection(source)).difference(reference)
    return [word for word in summary if word in over]


# ----------------------------------------------------------------------------------------------------------- repetition


_NEAR = 3  # words within which a content word that comes again is heard
_PHRASE = 4  # words of a phrase that is heard wherever it comes again


def repeated_ngram_rate(summary: Sequence[str], n: int) -> float | None:
    """1 - (distinct n-grams / n-grams): 0 when none repeats; None when there is none."""
    total = len(summary) - n + 1
    return 1.0 - len(ngram_set(summary, n)) / total if total > 0 else None


def repeated_ngram_rates(summary: Sequence[str], longest: int) -> list[float | None]:
    """Those of every n up to ``longest``; where no n-gram comes twice, no longer one does, and none is made."""
    rates: list[float | None] = []
    for n in range(1, longest + 1):
        once = 0.0 in rates and len(summary) >= n
        rates.append(0.0 if once else repeated_ngram_rate(summary, n))
    return rates


def repeats(summary: Sequence[str], again: float | None = None) -> bool:
    """Would a reader say that these lower-cased words repeat themselves?

    They do if a word stands twice in a row, a phrase right behind itself, a content word again within three words, or
    a phrase of four words again anywhere. Function words count in phrases with others only ("the ... the" is
    nothing), and a number may come again. ``again`` is the `repeated_ngram_rate` of four words, where it is known.
    """
    # a phrase shorter than _PHRASE that stands behind itself has its words within _NEAR as well
    near = [word for apart in range(1, _NEAR + 1) for word in compress(summary, map(eq, summary, summary[apart:]))]
    if near and (any(map(_is_told, near)) or _stutters(summary)):
        return True
    return again != 0.0 and _phrase_comes_again(summary)


def _is_told(word: str) -> bool:
    """Is it heard when it comes again?"""
    return not is_stop_word(word) and word.isalpha() and len(word) > 1


def _stutters(words: Sequence[str]) -> bool:
    """A word or phrase right behind itself; of four words and more it is a phrase that comes again."""
    for length in range(1, min(_PHRASE, len(words) // 2 + 1)):
        run = 0  # how many words in a row equal the one `length` before
        for place, equal in enumerate(map(eq, words[length:], words), length):
            run = run + 1 if equal else 0
            if run == length and any(word.isalpha() for word in words[place - length + 1 : place + 1]):
                return True
    return False


def _phrase_comes_again(words: Sequence[str]) -> bool:
    """Does a phrase with a word that is told come again?"""
    seen: set[Words] = set()
    for phrase in ngrams(words, _PHRASE):
        if phrase in seen and any(map(_is_told, phrase)):
            return True
        seen.add(phrase)
    return False
