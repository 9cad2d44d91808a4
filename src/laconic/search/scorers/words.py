"""No word twice: in a line of a dozen words a content word that comes again is nearly always a fault."""

from __future__ import annotations

import torch
from torch import Tensor

from laconic.config.schema import SearchConfig
from laconic.config.section import Section
from laconic.search.scorers.base import HypothesesView, Scorer, SpecialIds
from laconic.text.base import Tokenizer


class WordBlocking(Scorer):
    """Forbid every token that the summary already holds, but for those that may come again."""

    class Config(Section):
        """``free`` are the ids that may come again: function words, signs, numbers."""

        free: tuple[int, ...] = ()

    name = "word_blocking"
    config: WordBlocking.Config

    def __init__(self, config: Section, *, specials: SpecialIds):
        super().__init__(config, specials=specials)
        self._free = torch.tensor(sorted({*self.config.free, specials.eos_id}))

    def on_tokens(self, scores: Tensor, view: HypothesesView) -> Tensor:
        blocked = ~torch.isin(view.ids, self._free.to(view.ids.device))
        rows, steps = blocked.nonzero(as_tuple=True)
        scores[rows, view.ids[rows, steps]] = -torch.inf
        return scores


def with_word_blocking(config: SearchConfig, tokenizer: Tokenizer) -> SearchConfig:
    """``config`` with the scorer that ``no_repeat_word`` asks for.

    A vocabulary of pieces has none: a piece that comes again need not be the same word.
    """
    free = tokenizer.repeatable_ids
    if not config.no_repeat_word or free is None:
        return config
    return config.model_copy(update={"scorers": (*config.scorers, {"type": "word_blocking", "free": free})})
