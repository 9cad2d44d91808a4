"""What a model that reads in chunks looked at: the coarse map, and the words inside the chunks it read.

Nothing here has the size (summary words x document words): weights over words exist for the chunks that were read only.
T steps, C chunks, k chunks read a step, W words a chunk, R words of the chunks that some step read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from catchline.types import Chunk, Hypothesis, Summary, TokenizedText

LONGEST_NAME = 24  # characters of a chunk's first words in the name of its column


def sampled_chunks(hypothesis: Hypothesis) -> np.ndarray | None:
    """(T, k): the chunks each step read, -1 where a document had fewer than k; none where attention chose nothing."""
    sampled = hypothesis.details.get("sampled")
    return None if sampled is None else np.where(hypothesis.details["shares"] > 0, sampled, -1)


def read_positions(hypothesis: Hypothesis) -> np.ndarray:
    """(R,): the source tokens of the chunks that the path read, in order; none where attention chose nothing."""
    sampled = sampled_chunks(hypothesis)
    if sampled is None or hypothesis.chunk_tokens is None:
        return np.zeros(0, dtype=np.int64)
    ranges = hypothesis.chunk_tokens[np.unique(sampled[sampled >= 0])]
    return np.concatenate([np.arange(first, last) for first, last in ranges] or [np.zeros(0, dtype=np.int64)])


def read_attention(hypothesis: Hypothesis, positions: np.ndarray) -> np.ndarray:
    """(T, R): of each step ``share_i alpha^w_ij`` at the tokens ``positions``, all of chunks that some step read."""
    sampled = sampled_chunks(hypothesis)
    steps = len(hypothesis.token_log_probs)
    weights = np.zeros((steps, len(positions)))
    if sampled is None or not len(positions):
        return weights
    assert hypothesis.chunk_tokens is not None
    shares, fine = hypothesis.details["shares"], hypothesis.details["fine"]
    for t, place in zip(*np.nonzero(sampled[:steps] >= 0), strict=True):
        first, last = hypothesis.chunk_tokens[sampled[t, place]]
        start = np.searchsorted(positions, first)
        weights[t, start : start + last - first] += shares[t, place] * fine[t, place, : last - first]
    return weights


def chunk_spans(chunk_tokens: np.ndarray, offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The characters of each chunk (C, 2); one without words is an empty span behind the last."""
    end = max((offsets[last - 1][1] for _, last in chunk_tokens if last), default=0)
    return [(offsets[first][0], offsets[last - 1][1]) if last > first else (end, end) for first, last in chunk_tokens]


def build_chunks(
    hypothesis: Hypothesis, words: Sequence[Sequence[int]], offsets: Sequence[tuple[int, int]]
) -> tuple[Chunk, ...]:
    """The chunks of the document with the coarse weights of each word, the mean over its steps in ``words``."""
    coarse = hypothesis.details.get("coarse")
    if coarse is None or hypothesis.chunk_tokens is None or not words:
        return ()
    spans = chunk_spans(hypothesis.chunk_tokens, offsets)
    of_words = [coarse[list(steps), : len(spans)].mean(axis=0) for steps in words]
    weights = np.stack(of_words, axis=1).tolist()  # by chunk and word
    sampled = sampled_chunks(hypothesis)
    read: dict[int, list[int]] = {}
    for word, steps in enumerate(words):
        for chunk in [] if sampled is None else np.unique(sampled[list(steps)]).tolist():
            read.setdefault(chunk, []).append(word)
    return tuple(
        Chunk(start, end, tuple(row), None if sampled is None else tuple(read.get(number, ())))
        for number, ((start, end), row) in enumerate(zip(spans, weights, strict=True))
    )


def part_of(encoding: TokenizedText, positions: np.ndarray) -> TokenizedText:
    """Some of the tokens of a text."""
    places: list[int] = positions.tolist()
    chosen: Any = {name: tuple(getattr(encoding, name)[i] for i in places) for name in ("ids", "tokens", "offsets")}
    return replace(encoding, **chosen)


def read_to(summary: Summary) -> int:
    """Where in the document the part ends that was given to the model; 0 where the summary does not say."""
    ends = [end for _, end in summary.source_offsets] + [chunk.end for chunk in summary.chunks]
    return max(ends, default=0)


def coarse_map(summary: Summary, most: int) -> tuple[np.ndarray, list[str], list[str]]:
    """(words, chunks) the coarse weights, the words, and a name for each chunk; at most the ``most`` heaviest."""
    weights = np.array([chunk.weights for chunk in summary.chunks]).T
    shown = np.sort(np.argsort(-weights.max(axis=0), kind="stable")[:most])
    names = []
    for number in shown.tolist():
        chunk = summary.chunks[number]
        start = " ".join(summary.document[chunk.start : min(chunk.end, chunk.start + LONGEST_NAME)].split())
        names.append(f"{number + 1} {start}".strip())
    return weights[:, shown], [word.text for word in summary.words], names
