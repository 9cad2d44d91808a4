"""Tokens that must not appear, and tokens that must come first."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from laconic.config.section import Section
from laconic.search.scorers.base import HypothesesView, Scorer, SpecialIds


class ForbidTokens(Scorer):
    """Some ids are never predicted. EOS cannot be forbidden: where BOS or PAD is the same id it stays."""

    class Config(Section):
        """``ids`` are further ids of the vocabulary."""

        unk: bool = True
        pad: bool = True
        bos: bool = True
        ids: tuple[int, ...] = ()

    name = "forbid_tokens"
    config: ForbidTokens.Config

    def __init__(self, config: Section, *, specials: SpecialIds):
        super().__init__(config, specials=specials)
        named = {"unk": specials.unk_id, "pad": specials.pad_id, "bos": specials.bos_id}
        forbidden = set(self.config.ids) | {id_ for name, id_ in named.items() if getattr(self.config, name)}
        self._ids = sorted(forbidden - {specials.eos_id})

    def on_tokens(self, scores: Tensor, view: HypothesesView) -> Tensor:
        for id_ in self._ids:
            if 0 <= id_ < scores.shape[1]:
                scores[:, id_] = -torch.inf
        return scores


class ForcedPrefix(Scorer):
    """Every summary begins with the given ids."""

    class Config(Section):
        ids: tuple[int, ...] = Field(min_length=1)

    name = "forced_prefix"
    config: ForcedPrefix.Config

    def on_tokens(self, scores: Tensor, view: HypothesesView) -> Tensor:
        if view.length < len(self.config.ids):
            id_ = self.config.ids[view.length]
            kept = scores[:, id_].clone()
            scores.fill_(-torch.inf)
            scores[:, id_] = kept
        return scores
