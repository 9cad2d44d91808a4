"""A document as a grid of M chunks of N words (Ling and Rush 2017, section 4).

Two kinds of padding are kept apart. *Grid padding* fills a document up to its grid: the paper's padding word, with
a zero state, which attention may choose. *Batch padding* are whole rows that exist only because another document of
the batch has more chunks; nothing may ever read them, or results would depend on the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True)
class Grid:
    """``ids`` (B, M, N); ``words`` (B, M, N) true at real words; ``chunks`` (B, M) true at the document's own rows.

    ``positions`` (B, M, N) says which source token a cell holds; none where cell ``m N + n`` holds token
    ``m N + n``, as in a plain grid.
    """

    ids: Tensor
    words: Tensor
    chunks: Tensor
    positions: Tensor | None = None

    @property
    def num_chunks(self) -> int:
        return int(self.ids.shape[1])

    @property
    def chunk_words(self) -> int:
        return int(self.ids.shape[2])

    def part(self, documents: Tensor) -> Grid:
        """The grid of some of the documents (D,)."""
        return Grid(*(None if v is None else v[documents] for v in (self.ids, self.words, self.chunks, self.positions)))  # type: ignore[arg-type]

    def token_ranges(self) -> Tensor:
        """The source tokens ``[first, last)`` of each chunk, (B, M, 2); cell n of a chunk holds token ``first + n``.

        Chunks without a word have an empty range behind the document.
        """
        counts = self.words.sum(dim=2)
        first = torch.arange(self.num_chunks, device=counts.device) * self.chunk_words
        first = first.expand_as(counts) if self.positions is None else self.positions[:, :, 0]
        end = torch.where(counts > 0, first + counts, 0).amax(dim=1, keepdim=True)
        first = torch.where(counts > 0, first, end)
        return torch.stack([first, first + counts], dim=2)

    def flat(self, values: Tensor, num_tokens: int) -> Tensor:
        """Values of cells (B, Q, M, N) -> values of source tokens (B, Q, S); cells without a token are dropped."""
        cells = values.flatten(2)
        if self.positions is None:
            missing = num_tokens - cells.shape[2]
            return cells[:, :, :num_tokens] if missing <= 0 else torch.nn.functional.pad(cells, (0, missing))
        places = torch.where(self.words, self.positions, num_tokens).flatten(1).unsqueeze(1).expand_as(cells)
        return cells.new_zeros(*cells.shape[:2], num_tokens + 1).scatter_add_(2, places, cells)[:, :, :num_tokens]


def make_grid(ids: Tensor, mask: Tensor, *, chunk_words: int, num_chunks: int | None, pad_id: int) -> Grid:
    """Write the tokens (B, S) row by row into a grid; rows cut anywhere, chunks in document order.

    With ``num_chunks`` every document has that many rows and what does not fit is cut off; without, as many as it
    needs (at least one), and the batch as many as its longest document.
    """
    rows = num_chunks
    if rows is None:
        longest = int(mask.sum(1).max()) if mask.numel() else 0
        rows = max(1, -(-longest // chunk_words))
    cells = rows * chunk_words
    ids, mask = ids[:, :cells], mask[:, :cells]
    missing = cells - ids.shape[1]
    if missing:
        ids = torch.nn.functional.pad(ids, (0, missing), value=pad_id)
        mask = torch.nn.functional.pad(mask, (0, missing), value=False)
    words = mask.view(len(ids), rows, chunk_words)
    return Grid(ids.view(len(ids), rows, chunk_words), words, _own_rows(words, num_chunks))


def make_sentence_grid(
    ids: Tensor, mask: Tensor, *, separator_id: int, chunk_words: int, num_chunks: int | None, pad_id: int
) -> Grid:
    """As `make_grid`, but a chunk is a sentence: it ends with ``separator_id``, and is cut at ``chunk_words``."""
    ends = (ids == separator_id) & mask
    row = ends.cumsum(1) - ends.long()  # the sentence of each token
    start = torch.cummax(torch.where(ends.roll(1, 1), torch.arange(ids.shape[1], device=ids.device), 0), dim=1).values
    column = torch.arange(ids.shape[1], device=ids.device) - start
    rows = num_chunks if num_chunks is not None else max(1, int((row[mask].max() + 1) if bool(mask.any()) else 1))
    fits = mask & (row < rows) & (column < chunk_words)
    batch = torch.arange(len(ids), device=ids.device).unsqueeze(1).expand_as(ids)
    grid = ids.new_full((len(ids), rows, chunk_words), pad_id)
    positions, words = torch.zeros_like(grid), torch.zeros_like(grid, dtype=torch.bool)
    place = (batch[fits], row[fits], column[fits])
    grid[place], words[place] = ids[fits], True
    positions[place] = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)[fits]
    return Grid(grid, words, _own_rows(words, num_chunks), positions)


def _own_rows(words: Tensor, num_chunks: int | None) -> Tensor:
    """(B, M): all rows of a fixed grid; else those up to the document's last word, at least the first."""
    if num_chunks is not None:
        return words.new_ones(words.shape[:2])
    used = words.any(2)
    used[:, 0] = True
    return used.flip(1).long().cummax(1).values.flip(1).bool()
