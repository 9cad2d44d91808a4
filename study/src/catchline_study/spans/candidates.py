"""The first pass: the candidates of one shard, with their counts and what decides between equals. Between the passes:
which candidates of all shards are the best K, exactly: by whole numbers, equals by a stable hash of their place.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catchline.errors import DataError
from catchline.files import part_of
from catchline.jobs import batches
from catchline_study.spans.corpus import Shard, documents
from catchline_study.spans.scoring import WindowBlock
from catchline_study.spans.settings import SpanSettings
from catchline_study.spans.tokens import SpanTokenizer, TokenizedDocument

# ``tie`` orders candidates of equal score, ``order`` all that are chosen; ``output`` tells equal output spans;
# ``characters`` are where the two spans begin and end in the text.
CANDIDATE = np.dtype(
    [
        ("document", "<u8"),
        ("start", "<u4"),
        ("m1", "<u2"),
        ("m2", "<u2"),
        ("ml", "<u2"),
        ("tie", "<u8"),
        ("order", "<u8"),
        ("output", "<u8", (2,)),
        ("characters", "<u8", (4,)),
    ]
)
# What a pass over a shard counts, beside the tokens of the longest document.
COUNTED = ("documents", "characters", "tokens", "chunks", "short_tails", "candidates")
_BATCH_DOCUMENTS = 64
_HELD = 1024  # chunks that are scored at a time ...
_CELLS = 1 << 17  # ... in blocks of this many tokens


@dataclass(frozen=True, slots=True)
class _Chunk:
    number: int  # of the document
    offset: int
    tokens: NDArray[np.int32]
    document: TokenizedDocument


def stable_hash(seed: int, shard: str, document: int, start: int) -> tuple[int, int]:
    """Two 64-bit numbers of a place in the corpus; the same on every machine and in every process."""
    content = f"{seed}\0{shard}\0{document}\0{start}".encode("utf-8", "surrogateescape")
    digest = hashlib.blake2b(content, digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


class CandidateFinder:
    def __init__(self, settings: SpanSettings, tokenizer: SpanTokenizer, shard: Shard) -> None:
        self.settings, self.tokenizer, self.shard = settings, tokenizer, shard
        self.counts = dict.fromkeys((*COUNTED, "longest"), 0)
        self.skipped: Counter[str] = Counter()

    def candidates(self) -> Iterator[NDArray[np.void]]:
        """Arrays of `CANDIDATE`, some chunks at a time, in the order of the shard. Raises DataError: the shard cannot
        be read, or holds a bad record that is not to be skipped."""
        return map(self._scored, batches(self._chunks(), _HELD))

    def _chunks(self) -> Iterator[_Chunk]:
        counts, size, window = self.counts, self.settings.chunk, self.settings.shape.window
        options, skipped = self.settings, self.skipped if self.settings.skip_bad else None
        texts = documents(Path(self.shard.path), text=options.text, column=options.column, skipped=skipped)
        for batch in batches(texts, _BATCH_DOCUMENTS):
            for (number, text), document in zip(batch, self.tokenizer.encode([text for _, text in batch]), strict=True):
                length = len(document.tokens)
                counts["documents"] += 1
                counts["characters"] += len(text)
                counts["tokens"] += length
                counts["longest"] = max(counts["longest"], length)
                for offset in range(0, length, size):
                    piece = document.tokens[offset : offset + size]
                    if len(piece) < window:
                        counts["short_tails"] += 1
                    else:
                        counts["chunks"] += 1
                        yield _Chunk(number, offset, piece, document)

    def _scored(self, chunks: list[_Chunk]) -> NDArray[np.void]:
        """Chunks of about the same length together, so that little is computed of padding."""
        chunks = sorted(chunks, key=lambda chunk: -len(chunk.tokens))
        parts = []
        while chunks:
            width = max(8, _CELLS // len(chunks[0].tokens))
            parts.append(self._block(chunks[:width]))
            chunks = chunks[width:]
        found = np.concatenate(parts)
        return found[np.lexsort((found["start"], found["document"]))]

    def _block(self, chunks: list[_Chunk]) -> NDArray[np.void]:
        lengths = np.array([len(chunk.tokens) for chunk in chunks])
        tokens = np.full((lengths.max(), len(chunks)), -1, dtype=np.int32)
        for column, chunk in enumerate(chunks):
            tokens[: len(chunk.tokens), column] = chunk.tokens
        readable = self.tokenizer.readable(tokens)
        windows = WindowBlock(self.settings.shape, self.settings.key, tokens, lengths, readable)
        if self.settings.random:
            seed, shard = self.settings.seed, self.shard.name
            draws = [stable_hash(seed, f"{shard}\0draw", chunk.number, chunk.offset)[0] for chunk in chunks]
            found = windows.given(np.array(draws, dtype=np.uint64))
        elif self.settings.floor is not None:
            found = windows.above(self.settings.floor)
        else:
            found = windows.best()
        rows = np.zeros(len(found.column), dtype=CANDIDATE)
        rows["m1"], rows["m2"], rows["ml"] = found.m1, found.m2, found.ml
        seed, shape = self.settings.seed, self.settings.shape
        for row, column, start in zip(rows, found.column, found.start.tolist(), strict=True):
            chunk = chunks[column]
            place = chunk.offset + start
            output = np.ascontiguousarray(tokens[start + shape.input : start + shape.window, column])
            digest = hashlib.blake2b(chunk.document.content(output), digest_size=16).digest()
            row["document"], row["start"] = chunk.number, place
            row["tie"], row["order"] = stable_hash(seed, self.shard.name, chunk.number, place)
            row["output"] = np.frombuffer(digest, dtype="<u8")
            middle, end = place + shape.input, place + shape.window
            span = chunk.document.span
            row["characters"] = (span(place)[0], span(middle - 1)[1], span(middle)[0], span(end - 1)[1])
        self.counts["candidates"] += len(rows)
        return rows


def find_candidates(settings: SpanSettings, tokenizer: SpanTokenizer, shard: Shard, path: Path) -> dict[str, Any]:
    """Write the candidates of a shard to ``path``; the counts, for JSON. Raises DataError: the shard cannot be read."""
    finder = CandidateFinder(settings, tokenizer, shard)
    with part_of(path) as file:
        for rows in finder.candidates():
            file.write(rows.tobytes())
    return finder.counts | {"skipped": dict(finder.skipped)}


# ------------------------------------------------------------------------------------ between the passes


def best_candidates(
    settings: SpanSettings, shards: Sequence[NDArray[np.void]]
) -> tuple[list[NDArray[np.int64]], dict[str, Any]]:
    """The best K of the candidates of all shards, or all where there are fewer: the chosen rows of each shard,
    ascending, and for JSON the lowest chosen score with how many lie above and at it. Where output spans are to differ,
    a candidate whose output a better one has too is passed over. Raises DataError: none is left without those that
    ``--drop-ceiling`` drops."""
    shard = np.repeat(np.arange(len(shards), dtype=np.uint32), [len(rows) for rows in shards])
    row = np.concatenate([np.arange(len(rows)) for rows in shards])
    m1, m2, ml, tie = (np.concatenate([rows[name] for rows in shards]) for name in ("m1", "m2", "ml", "tie"))
    values = np.zeros(len(m1), dtype=np.int64) if settings.random else settings.key.value(m1, m2, ml)
    order = np.lexsort((row, shard, tie, -values))  # best first
    if settings.drop_ceiling:
        order = order[ml[order] != settings.shape.ceiling]
    if not len(order):
        raise DataError("All candidates were dropped because of --drop-ceiling.")
    good = order
    if settings.drop_duplicate_outputs:
        outputs = np.concatenate([rows["output"] for rows in shards])[order]
        good = order[np.sort(np.unique(outputs, axis=0, return_index=True)[1])]
    chosen = good[: settings.k]
    last = int(values[chosen[-1]])
    taken = int((values[chosen] == last).sum())
    score = Fraction(last, settings.key.denominator)
    return [np.sort(row[chosen[shard[chosen] == place]]) for place in range(len(shards))], {
        "score": float(score),
        "above": len(chosen) - taken,
        "at": int((values[good] == last).sum()),
        "taken_at": taken,
        "duplicates_dropped": int(np.flatnonzero(order == chosen[-1])[0]) + 1 - len(chosen),
        "ceiling_dropped": len(values) - len(order),
        "exact": str(score),
    }
