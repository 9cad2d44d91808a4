"""Lengths: bounds on them, and normalisation of the score by them."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from laconic.config.section import Section
from laconic.search.scorers.base import HypothesesView, Scorer, SpecialIds
from laconic.types import Memory


class LengthBounds(Scorer):
    """No EOS before ``min_length`` tokens, and nothing but EOS after ``max_length``.

    Both count tokens before EOS. For the minimum EOS is forbidden; See et al.'s code and fairseq drop what ends before
    it, which leaves the same hypotheses. A short document has a smaller minimum: at most ``share`` of its tokens, but
    at least one.
    """

    class Config(Section):
        """``max_length`` none leaves the maximum to the search, which takes no step after it; ``share`` none leaves
        the minimum as it is."""

        min_length: int = Field(0, ge=0)
        share: float | None = Field(None, gt=0)
        max_length: int | None = Field(None, ge=1)

        @model_validator(mode="after")
        def _fits(self) -> LengthBounds.Config:
            if self.max_length is not None and self.min_length > self.max_length:
                raise ValueError(f"min_length {self.min_length} is more than max_length {self.max_length}")
            return self

    name = "length_bounds"
    config: LengthBounds.Config
    _least: Tensor | None = None  # (N,) the minimum of each row

    def start(self, memory: Memory | None, num_rows: int) -> None:
        if memory is not None and self.config.share is not None:
            allowed = (
                (memory.mask.flatten(1).sum(-1) * self.config.share)
                .long()
                .clamp_min(1)
                .clamp_max(self.config.min_length)
            )
            self._least = allowed.repeat_interleave(num_rows // memory.batch_size)

    def select(self, index: Tensor) -> None:
        if self._least is not None:
            self._least = self._least.index_select(0, index)

    def on_tokens(self, scores: Tensor, view: HypothesesView) -> Tensor:
        eos_id = self.specials.eos_id
        if view.length < self.config.min_length:
            short = slice(None) if self._least is None else view.length < self._least
            scores[short, eos_id] = -torch.inf
        elif self.config.max_length is not None and view.length >= self.config.max_length:
            kept = scores[:, eos_id].clone()
            scores.fill_(-torch.inf)
            scores[:, eos_id] = kept
        return scores


class LengthNormalisation(Scorer):
    """Rank hypotheses by their total divided by a function of their length.

    * ``average``: the number of tokens including start and stop (See et al. 2017, released code:
      ``log_prob / len(tokens)``). A hypothesis cut at the maximum length has no stop token.
    * ``predicted``: the number of predicted tokens, stop counted, to the power ``alpha`` (Chen et al. 2016, released
      code: 1; the length penalty of fairseq and transformers).
    * ``gnmt``: ``lp(Y) = (5 + |Y|)^alpha / (5 + 1)^alpha`` (Wu et al. 2016, equation 14). Our reading:
      ``|Y|`` counts the predicted tokens, EOS included.
    * ``none``: the total itself.
    """

    class Config(Section):
        """``alpha`` belongs to ``gnmt`` and ``predicted``."""

        kind: Literal["none", "average", "predicted", "gnmt"] = "average"
        alpha: float = Field(1.0, ge=-10, le=10)

    name = "length_normalisation"
    config: LengthNormalisation.Config

    def __init__(self, config: Section, *, specials: SpecialIds):
        super().__init__(config, specials=specials)
        kinds = {"none": self._one, "average": self._average, "predicted": self._predicted, "gnmt": self._gnmt}
        self._divisor = kinds[self.config.kind]

    def on_hypotheses(self, scores: Tensor, view: HypothesesView) -> Tensor:
        return scores / self._divisor(view.length + view.ended)

    def bound(self, scores: Tensor, length: int, max_length: int) -> Tensor:
        # The divisor is monotone in the length, so the best end is the shortest or the longest.
        return torch.maximum(scores / self._divisor(length + 1), scores / self._divisor(max_length + 1))

    def _one(self, predicted: int) -> float:
        return 1.0

    def _average(self, predicted: int) -> float:
        return predicted + 1.0

    def _predicted(self, predicted: int) -> float:
        return float(max(predicted, 1)) ** self.config.alpha  # a hypothesis of no token at all has the score 0 anyway

    def _gnmt(self, predicted: int) -> float:
        return float(((5.0 + predicted) / 6.0) ** self.config.alpha)
