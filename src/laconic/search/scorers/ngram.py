"""No n-gram twice (Paulus et al. 2017, section 2.5, with n = 3)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from laconic.config.section import Section
from laconic.search.scorers.base import HypothesesView, Scorer


def repeating_tokens(ids: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The next tokens that would complete an n-gram its row already holds.

    Args:
        ids: (N, T) the prefixes.
        size: n.

    Returns:
        Rows (M,) and token ids (M,), possibly with repetitions.
    """
    length = ids.shape[1]
    if length < size:
        empty = ids.new_empty(0)
        return empty, empty
    windows = ids.unfold(1, size, 1)  # (N, T - n + 1, n)
    begun = ids[:, length - size + 1 :]  # (N, n - 1) what the next token would complete
    rows, starts = (windows[:, :, :-1] == begun[:, None, :]).all(-1).nonzero(as_tuple=True)
    return rows, windows[rows, starts, -1]


class NgramBlocking(Scorer):
    """Forbid every token that would make an n-gram occur a second time in the summary."""

    class Config(Section):
        """``start``: the token that decoding starts from is the first of the summary, as in transformers."""

        size: int = Field(3, ge=1)
        start: bool = False

    name = "ngram_blocking"
    config: NgramBlocking.Config

    def on_tokens(self, scores: Tensor, view: HypothesesView) -> Tensor:
        prefix = view.ids
        if self.config.start:
            prefix = torch.cat(
                [torch.full_like(scores[:, :1], self.specials.bos_id, dtype=prefix.dtype), prefix], dim=1
            )
        rows, ids = repeating_tokens(prefix, self.config.size)
        if len(rows):
            scores[rows, ids] = -torch.inf
        return scores
