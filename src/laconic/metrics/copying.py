"""How much of a summary is copied: novel n-grams, extractive fragments, correct n-grams, over-copied words.

All functions take sequences of words (`laconic.metrics.words.words`).
"""

from __future__ import annotations

from collections.abc import Sequence

from laconic.metrics.ngrams import ngram_counts

Words = Sequence[str]


def novel_ngram_rate(summary: Words, source: Words, n: int) -> float | None:
    """The share of the summary's distinct n-grams that the source does not contain; None without n-grams."""
    mine = ngram_counts(summary, n)
    known = ngram_counts(source, n).keys()
    return len(mine.keys() - known) / len(mine) if mine else None


def extractive_fragments(summary: Words, source: Words) -> list[tuple[int, int]]:
    """The greedy fragments of the summary that stand in the source, as (start in the summary, length).

    From the left, at each summary word the longest stretch that the source contains is taken.
    """
    places: dict[str, list[int]] = {word: [] for word in summary}
    for position, word in enumerate(source):
        if word in places:
            places[word].append(position)
    fragments = []
    start = 0
    while start < len(summary):
        longest = 0
        for position in places[summary[start]]:
            length = 1
            while (
                start + length < len(summary)
                and position + length < len(source)
                and summary[start + length] == source[position + length]
            ):
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


def correct_ngram_counts(summary: Words, source: Words, reference: Words, n: int) -> tuple[int, int]:
    """CoCoNet's figure 4: the summary's n-gram occurrences that source and reference both have, and all of them."""
    mine = ngram_counts(summary, n)
    known = ngram_counts(source, n).keys() & ngram_counts(reference, n).keys()
    return sum(count for gram, count in mine.items() if gram in known), mine.total()


def over_copied_words(summary: Words, source: Words, reference: Words) -> list[str]:
    """Words of the summary that the source has and the reference has not (CoCoNet section 5, our reading)."""
    in_source, in_reference = set(source), set(reference)
    return [word for word in summary if word in in_source and word not in in_reference]
