"""The best entries of wide rows, quickly and with ties decided.

``torch.topk`` over 50,000 columns costs several passes on a CPU. One pass of block maxima leaves
``count`` blocks a row that can hold winners: if an entry of another block were among the best ``count``,
each of the chosen blocks would hold an entry that is better still.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 128


def top_candidates(scores: Tensor, count: int, block: int = BLOCK) -> tuple[Tensor, Tensor]:
    """The ``count`` largest entries of each row of ``scores`` (N, X): values and ids (N, min(count, X)).

    Descending; of equal values the lower id comes first, also across the cut. Which ids stand for
    values of minus infinity is not defined. NaN counts as larger than everything.
    """
    rows, width = scores.shape
    count = min(count, width)
    blocks = width // block
    if blocks <= 2 * count:
        return stable_topk(scores, count)
    whole = blocks * block
    body = scores[:, :whole].unflatten(1, (blocks, block))
    _, winners = stable_topk(body.amax(-1), count)
    winners = winners.sort(-1).values  # ascending, so that positions in the pool are ordered like ids
    pool = torch.cat(
        [body.gather(1, winners[:, :, None].expand(rows, count, block)).flatten(1), scores[:, whole:]], dim=1
    )
    values, position = stable_topk(pool, count)
    from_blocks = winners.gather(1, (position // block).clamp_max(count - 1)) * block + position % block
    ids = torch.where(position < count * block, from_blocks, position - count * block + whole)
    return values, ids


def stable_topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """``torch.topk`` along the last of two dimensions where, of equal values, the lower index wins."""
    top, index = values.topk(count, dim=-1)
    threshold = top[:, -1:]
    tied = ((values >= threshold).sum(-1) > count) & (threshold[:, 0] > -torch.inf)
    index = index.sort(-1).values
    top, order = values.gather(-1, index).sort(dim=-1, descending=True, stable=True)
    index = index.gather(-1, order)
    if bool(tied.any()):  # an equal value was left outside: the slow way, for these rows only
        slow_top, slow_index = values[tied].sort(dim=-1, descending=True, stable=True)
        top[tied], index[tied] = slow_top[:, :count], slow_index[:, :count]
    return top, index
