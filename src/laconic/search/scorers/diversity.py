"""Diverse beam search: groups of beams that avoid each other's words (Vijayakumar et al. 2016)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from laconic.config.section import Section
from laconic.search.scorers.base import Scorer, SpecialIds


class DiverseGroups(Scorer):
    """The beams of a document form groups; each group searches by itself, one after the other in a step.

    A token loses ``strength`` for every beam of an earlier group that chose it at the same step (Hamming
    diversity, equation 5 of the paper with its section 5.1). The penalty stays in the running total.
    """

    class Config(Section):
        groups: int = Field(1, ge=1)
        strength: float = Field(0.5, ge=0, le=1000)

    name = "diverse_groups"
    config: DiverseGroups.Config

    def __init__(self, config: Section, *, specials: SpecialIds):
        super().__init__(config, specials=specials)
        self.num_groups = self.config.groups

    def on_group(self, scores: Tensor, chosen: Tensor, alive: Tensor) -> Tensor:
        penalty = -self.config.strength * alive.to(scores.dtype)
        shape = (scores.shape[0], scores.shape[1], chosen.shape[1])
        return scores.scatter_add_(2, chosen[:, None, :].expand(shape), penalty[:, None, :].expand(shape))
