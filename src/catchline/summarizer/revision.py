"""Writing a line again without what its document does not support: names, numbers and dates, and what is said twice.

The rules that check summaries (`catchline.metrics.faithfulness`, `catchline.metrics.copying.repeats`) say what is wrong
with the
best line. The next best of the same search that is without fault is taken in its place; where there is none, the search
is run again for that document with those words forbidden. A document whose line is faultless costs the check alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from catchline.metrics.copying import repeats
from catchline.metrics.faithfulness import SourceFacts, check_support
from catchline.metrics.words import is_stop_word, stem, words
from catchline.text.base import Tokenizer
from catchline.types import Hypothesis

Search = Callable[[tuple[int, ...]], list[Hypothesis]]  # the hypotheses of one document without these ids, best first
_ABBREVIATION = re.compile(r"\(([^\W\d_]*[A-Z])s?\)")  # behind its long form
_LETTERS = re.compile(r"[^\W_]+")


def revised(
    hypotheses: list[Hypothesis],
    search: Search,
    text_of: Callable[[Hypothesis], str],
    document: str,
    tokenizer: Tokenizer,
    oov_words: Sequence[str],
    rounds: int,
) -> list[Hypothesis]:
    """The hypotheses of a round with the line of fewest faults in front: of equals the earliest round, the best line.

    Args:
        hypotheses: those of the search without any word forbidden, best first.
        search: decodes the same document again without the given ids.
        text_of: what becomes of a hypothesis for the reader.
        oov_words: the words of the ids from the vocabulary's size on.
        rounds: how many times it is written again, at most.
    """
    source = SourceFacts(document)
    chosen, fewest = hypotheses, None
    forbidden: set[int] = set()
    for _ in range(rounds + 1):
        place, wrong, count = _least_wrong(hypotheses, text_of, source)
        first = hypotheses[place]
        if fewest is None or count < fewest:
            chosen, fewest = [first, *hypotheses[:place], *hypotheses[place + 1 :]], count
        more = _ids_of(wrong, first.ids, tokenizer, oov_words) - forbidden
        if not more:
            break
        forbidden |= more
        hypotheses = search(tuple(sorted(forbidden)))
    return chosen


def _least_wrong(
    hypotheses: Sequence[Hypothesis], text_of: Callable[[Hypothesis], str], source: SourceFacts
) -> tuple[int, frozenset[str], int]:
    """The place of the first hypothesis with the fewest faults, and these; those after a faultless one are not read."""
    judged: list[tuple[int, frozenset[str], int]] = []
    for place, hypothesis in enumerate(hypotheses):
        judged.append((place, *faults(text_of(hypothesis), source)))
        if not judged[-1][2]:
            break
    return min(judged, key=lambda one: one[2])


def faults(summary: str, source: SourceFacts) -> tuple[frozenset[str], int]:
    """The lower-cased words that unsupported names, numbers and dates are made of or that come again, and the number
    of faults: such claims, abbreviations beside their long form, and one if the summary repeats itself."""
    claims = check_support(summary, source).unsupported
    wrong = {word for claim in claims for word in words(claim.text) if not is_stop_word(word)}
    said = words(summary)
    again = repeats(said)
    if again:
        wrong |= {word for word, times in Counter(said).items() if times > 1 and not is_stop_word(word)}
    short = spelt_out(summary, source.text)
    wrong |= {word for word in said if not short.isdisjoint({word, *_LETTERS.findall(word)})}
    return frozenset(wrong), len(claims) + again + bool(short)


def spelt_out(summary: str, document: str) -> frozenset[str]:
    """The abbreviations, lower-cased, that a line has beside their long form ("RRG diffusion for radiology report
    generation") as the document explains them ("radiology report generation (RRG)"). A name in front of a colon may,
    and what stands in brackets or is explained there."""
    said = f" {_stems(_LETTERS.findall(summary.lower()))} "
    found: set[str] = set()
    for bracket in _ABBREVIATION.finditer(document):
        if bracket[1] not in summary:
            continue
        alone = re.search(rf"(?<![(\w]){bracket[1]}s?\b(?![^\s:]*:|\s*[()])", summary)
        before = document[max(0, bracket.start() - 200) : bracket.start()]
        if alone and f" {_long_form(before, bracket[1].lower())} " in said:
            found.add(alone[0].lower())
    return frozenset(found)


def _long_form(before: str, short: str) -> str:
    """The stems of the last words whose initials these are, small words counted or not; empty: there are no such."""
    told = _LETTERS.findall(before.lower())
    for size in range(2, min(len(told), 2 * len(short)) + 1):
        for counted in (told[-size:], [word for word in told[-size:] if not is_stop_word(word)]):
            if "".join(word[0] for word in counted) == short:
                return _stems(told[-size:])
    return ""


def _stems(told: Sequence[str]) -> str:
    return " ".join(map(stem, told))


def _ids_of(wrong: frozenset[str], ids: Sequence[int], tokenizer: Tokenizer, oov_words: Sequence[str]) -> set[int]:
    """The ids of the tokens with such a word; of a word that several have, such as ``aware`` and ``self-aware``, the
    first may stay."""
    found: set[int] = set()
    seen: set[str] = set()
    for id_ in ids:
        parts = wrong.intersection(words(tokenizer.token(id_, oov_words)))
        shared = {part for part in parts if sum(part in words(tokenizer.token(i, oov_words)) for i in set(ids)) > 1}
        if parts - shared or shared & seen:
            found.add(id_)
        seen |= shared
    return found
