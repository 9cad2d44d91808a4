"""BLEU in three readings: sacreBLEU's, the number to quote; the mean over sentences; and the headline paper's, which
counts start and end markers as words on both sides, so that two texts without a common word do not score 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import zip_longest
from operator import or_
from typing import Any

from sacrebleu.metrics import BLEU

from catchline.errors import DataError
from catchline.metrics.overlap import ngram_counts, overlap

_EPSILON = 0.1
START, END = "<SOS>", "<EOS>"


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str | Sequence[str]]) -> tuple[float, str]:
    """sacreBLEU's corpus BLEU (0 to 100) on detokenized text, and its signature; numbers of references may differ."""
    models = [[entry] if isinstance(entry, str) else list(entry) for entry in references]
    _check(hypotheses, models)
    if empty := next((number for number, entry in enumerate(models, 1) if not entry), None):
        raise DataError(f"Document {empty} has no reference; BLEU needs one of each.")
    streams: list[Any] = [list(stream) for stream in zip_longest(*models)]
    metric = BLEU(tokenize="13a")
    score = metric.corpus_score(list(hypotheses), streams).score
    return float(score), str(metric.get_signature())


def sentence_bleu(hypothesis: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """BLEU of one token sequence, 0 to 1: uniform weights to order 4, an order without match counts 0.1 matches. Zero
    if not even a word matches. Clipping takes each n-gram's largest count over the references; the brevity penalty uses
    the closest reference length, the shorter of two. An order longer than the hypothesis has 0.1 of 1."""
    length = len(hypothesis)
    if not length:
        return 0.0
    logs = 0.0
    for order in range(1, 5):
        mine = ngram_counts(hypothesis, order)
        hits = overlap(mine, reduce(or_, (ngram_counts(reference, order) for reference in references)))
        if order == 1 and not hits:
            return 0.0
        logs += 0.25 * math.log((hits or _EPSILON) / max(1, length - order + 1))
    closest = min((abs(len(reference) - length), len(reference)) for reference in references)[1]
    penalty = 1.0 if length > closest else math.exp(1.0 - closest / length)
    return penalty * math.exp(logs)


def bleu_sentence(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> float:
    """The mean of `sentence_bleu` over lower-cased token sequences, 0 to 1."""
    _check(hypotheses, references)
    scores = [
        sentence_bleu([*map(str.lower, hypothesis)], [[*map(str.lower, reference)] for reference in group])
        for hypothesis, group in zip(hypotheses, references, strict=True)
    ]
    return sum(scores) / len(scores)


def bleu_paper(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[Sequence[str]]],
    finished: Sequence[bool] | None = None,
) -> float:
    """`bleu_sentence` with a start marker before every sequence and an end marker behind ``finished`` ones (all)."""
    ended = [True] * len(hypotheses) if finished is None else finished
    marked = [[START, *hypothesis, *([END] if end else [])] for hypothesis, end in zip(hypotheses, ended, strict=True)]
    return bleu_sentence(marked, [[[START, *reference, END] for reference in group] for group in references])


def _check(hypotheses: Sequence, references: Sequence) -> None:
    if not len(hypotheses) or len(hypotheses) != len(references):
        raise DataError(f"BLEU needs as many hypotheses as references, not {len(hypotheses)} and {len(references)}.")
