"""Documents that are longer than a model reads: the tokens of their central sentences, or of part after part. Places
stay those of the whole document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from catchline.config.names import EXTRACTIVE, build
from catchline.config.schema import TextConfig
from catchline.data.dataset import record_gaps
from catchline.text.base import Tokenizer
from catchline.text.sentences import split_sentences
from catchline.types import Record, TokenizedText

_COMPARED = 1000  # sentences at once: LexRank takes the square of their number
_HEADING = 60  # characters at most


def selected(record: Record, tokenizer: Tokenizer, config: TextConfig) -> TokenizedText:
    """The sentences that LexRank rates highest, in order, as many as the model reads."""
    whole, spans, room = _whole(record, tokenizer, config)
    sentences = [record.document[start:end] for start, end in spans]
    lexrank = build("extractive method", EXTRACTIVE, {"type": "lexrank"})
    blocks = [sentences[at : at + _COMPARED] for at in range(0, len(sentences), _COMPARED)]
    ratings = np.concatenate([lexrank.rate(block) * len(block) ** 0.5 for block in blocks])
    first = np.searchsorted([start for start, _ in whole.offsets], [start for start, _ in spans])
    counts = np.diff([*first, len(whole.ids)])
    chosen = set[int]()
    for sentence in np.argsort(-ratings, kind="stable").tolist():
        if counts[sentence] <= room:
            chosen.add(sentence)
            room -= counts[sentence]
    kept = [at for sentence in sorted(chosen) for at in range(first[sentence], first[sentence] + counts[sentence])]
    return _of(whole, kept or range(room), tokenizer, config)


def parts(record: Record, tokenizer: Tokenizer, config: TextConfig) -> Iterator[TokenizedText]:
    """The document in parts that the model reads, each up to a heading, a blank line or at least the end of a sentence
    in its second half."""
    whole, spans, room = _whole(record, tokenizer, config)
    starts = np.searchsorted([start for start, _ in whole.offsets], [start for start, _ in spans]).tolist()
    begins = {}
    for at, (start, end) in zip(starts, spans, strict=True):
        alone = record.document[:start].rstrip(" \t").endswith("\n\n")
        heads = alone and end - start <= _HEADING and record.document[end : end + 2] == "\n\n"
        begins[at] = (heads, alone)
    first = 0
    while first < len(whole.ids):
        last = first + room
        if last < len(whole.ids):
            later = [(begins[at], at) for at in starts if first + room // 2 <= at <= last]
            last = max(later)[1] if later else last
        yield _of(whole, range(first, min(last, len(whole.ids))), tokenizer, config)
        first = last


def _whole(
    record: Record, tokenizer: Tokenizer, config: TextConfig
) -> tuple[TokenizedText, list[tuple[int, int]], int]:
    """All tokens of a document, its sentences, and how many tokens the model reads."""
    gaps = None if tokenizer.separator is None else [record_gaps(record, tokenizer.separator)[0]]
    room = config.max_source_tokens - sum(map(len, _around(tokenizer, config)))
    return tokenizer.encode(record.document, gaps=gaps), split_sentences(record.document), room


def _around(tokenizer: Tokenizer, config: TextConfig) -> tuple[tuple[int, ...], tuple[int, ...]]:
    wrapped = config.source_specials
    return tokenizer.prefix_ids if wrapped is True else (), tokenizer.suffix_ids if wrapped else ()


def _of(whole: TokenizedText, kept: Sequence[int], tokenizer: Tokenizer, config: TextConfig) -> TokenizedText:
    """Some tokens of a document with the special ones around them."""
    prefix, suffix = _around(tokenizer, config)
    offsets = [whole.offsets[at] for at in kept]
    return TokenizedText(
        (*prefix, *(whole.ids[at] for at in kept), *suffix),
        (*map(tokenizer.token, prefix), *(whole.tokens[at] for at in kept), *map(tokenizer.token, suffix)),
        (*[offsets[0][:1] * 2] * len(prefix), *offsets, *[offsets[-1][1:] * 2] * len(suffix)),
        True,
        whole.total,
    )
