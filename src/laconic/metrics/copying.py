"""How much of a summary is copied: novel n-grams, extractive fragments, correct n-grams, over-copied words.

All functions take token sequences; lower-case them first if case shall not count (`words` does).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from laconic.errors import DataError
from laconic.metrics.ngrams import ngram_counts

Tokens = Sequence[str]
_WORD = re.compile(r"\w+(?:['’-]\w+)*")


def words(text: str) -> list[str]:
    """Lower-cased words of any script, punctuation left out."""
    return _WORD.findall(text.lower())


@dataclass(frozen=True, slots=True)
class FragmentStatistics:
    """Grusky et al. 2018: ``coverage`` is the share of summary words in fragments shared with the source,
    ``density`` the mean squared fragment length over the summary's words, ``compression`` source over summary length.
    """

    coverage: float
    density: float
    compression: float


def novel_ngram_rate(summary: Tokens, source: Tokens, n: int) -> float:
    """The share of the summary's n-gram occurrences that the source does not contain; 0 without n-grams."""
    mine = ngram_counts(summary, n)
    total = mine.total()
    known = ngram_counts(source, n).keys()
    return sum(count for gram, count in mine.items() if gram not in known) / total if total else 0.0


def extractive_fragments(summary: Tokens, source: Tokens) -> list[tuple[int, int]]:
    """The greedy fragments of the summary that stand in the source, as (start in the summary, length).

    From the left, at each summary word the longest stretch that the source contains is taken.
    """
    places: dict[str, list[int]] = {}
    for position, word in enumerate(source):
        places.setdefault(word, []).append(position)
    fragments = []
    start = 0
    while start < len(summary):
        longest = 0
        for position in places.get(summary[start], ()):
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


def fragment_statistics(summary: Tokens, source: Tokens) -> FragmentStatistics:
    """Coverage, density and compression; all zero for an empty summary."""
    if not summary:
        return FragmentStatistics(0.0, 0.0, 0.0)
    lengths = [length for _, length in extractive_fragments(summary, source)]
    size = len(summary)
    return FragmentStatistics(
        sum(lengths) / size, sum(length * length for length in lengths) / size, len(source) / size
    )


def correct_ngram_counts(summary: Tokens, source: Tokens, reference: Tokens, n: int) -> tuple[int, int]:
    """CoCoNet's figure 4: the summary's n-gram occurrences that source and reference both have, and all of them."""
    mine = ngram_counts(summary, n)
    known = ngram_counts(source, n).keys() & ngram_counts(reference, n).keys()
    return sum(count for gram, count in mine.items() if gram in known), mine.total()


def correct_ngram_rate(
    summaries: Sequence[Tokens],
    sources: Sequence[Tokens],
    references: Sequence[Tokens],
    n: int,
    *,
    average: str = "micro",
) -> float:
    """`correct_ngram_counts` over a corpus: ``micro`` adds up before dividing, ``macro`` averages the summaries' rates.

    Raises:
        DataError: an average of another name.
    """
    pairs = [correct_ngram_counts(*triple, n) for triple in zip(summaries, sources, references, strict=True)]
    if average == "micro":
        total = sum(size for _, size in pairs)
        return sum(hits for hits, _ in pairs) / total if total else 0.0
    if average == "macro":
        rates = [hits / size for hits, size in pairs if size]
        return sum(rates) / len(rates) if rates else 0.0
    raise DataError(f"The average of correct n-grams is 'micro' or 'macro', not '{average}'.")


def over_copied_words(
    summary: Tokens, source: Tokens, reference: Tokens, stop_words: Collection[str] = ()
) -> list[str]:
    """Word occurrences of the summary that the source has and the reference has not (CoCoNet section 5, our reading).

    With ``stop_words`` those are left out of the count.
    """
    in_source, in_reference = set(source), set(reference)
    return [word for word in summary if word in in_source and word not in in_reference and word not in stop_words]


def copy_rate(summary: Tokens, source: Tokens) -> float:
    """The share of summary words that occur anywhere in the source; 0 for an empty summary."""
    known = set(source)
    return sum(word in known for word in summary) / len(summary) if summary else 0.0


def length_ratio(summaries: Sequence[Tokens], references: Sequence[Tokens]) -> float:
    """The mean over summaries of summary length over reference length; empty references are left out."""
    ratios = [len(mine) / len(model) for mine, model in zip(summaries, references, strict=True) if model]
    return sum(ratios) / len(ratios) if ratios else 0.0


def most_over_copied(
    summaries: Sequence[Tokens], sources: Sequence[Tokens], references: Sequence[Tokens], top: int = 20
) -> list[tuple[str, int]]:
    """The words most often over-copied in a corpus, with their counts; ties in alphabetical order."""
    counts: Counter[str] = Counter()
    for triple in zip(summaries, sources, references, strict=True):
        counts.update(over_copied_words(*triple))
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:top]
