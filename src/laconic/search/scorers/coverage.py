"""Reward for having read the whole source, or penalty for having read parts of it twice."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from laconic.config.section import Section
from laconic.errors import ConfigError
from laconic.search.scorers.base import HypothesesView, Scorer, SpecialIds
from laconic.types import Memory


def wu_coverage(coverage: Tensor, mask: Tensor) -> Tensor:
    """``sum_i log(min(sum_t a_ti, 1))`` over real source tokens (Wu et al. 2016, equation 14), at most 0.

    ``coverage`` and ``mask`` are (N, S); returns (N,). Our reading: a token never attended to counts the
    smallest positive number instead of log 0.
    """
    tiny = torch.finfo(coverage.dtype).tiny
    return coverage.clamp(tiny, 1.0).log().masked_fill(~mask, 0.0).sum(-1)


def summary_coverage(coverage: Tensor, mask: Tensor) -> Tensor:
    """``n - sum_i max(sum_t a_ti, 1)`` over the n real source tokens (Gehrmann et al. 2018, section 5), at most 0."""
    return (1.0 - coverage.clamp_min(1.0)).masked_fill(~mask, 0.0).sum(-1)


class CoveragePenalty(Scorer):
    """Add ``beta`` times the penalty of the accumulated attention to the final score.

    Added after length normalisation, as in Wu et al.; the attention of the step that predicts EOS counts.
    """

    class Config(Section):
        kind: Literal["wu", "summary"] = "summary"
        beta: float = Field(1.0, ge=0, le=1000)

    name = "coverage_penalty"
    config: CoveragePenalty.Config

    def __init__(self, config: Section, *, specials: SpecialIds):
        super().__init__(config, specials=specials)
        self._penalty = {"wu": wu_coverage, "summary": summary_coverage}[self.config.kind]
        self._mask: Tensor | None = None
        self._coverage: Tensor | None = None

    def start(self, memory: Memory | None, num_rows: int) -> None:
        if memory is None:
            raise ConfigError("coverage_penalty needs the source mask, but the search was given no memory.")
        self._mask = memory.mask.repeat_interleave(num_rows // memory.batch_size, dim=0)
        self._coverage = None

    def on_tokens(self, scores: Tensor, view: HypothesesView) -> Tensor:
        attention = view.output.attention if view.output else None
        if attention is None:
            raise ConfigError("coverage_penalty needs a model with attention; set search.coverage_penalty to none.")
        self._coverage = attention if self._coverage is None else self._coverage + attention
        return scores

    def on_hypotheses(self, scores: Tensor, view: HypothesesView) -> Tensor:
        if self._coverage is None or self._mask is None:
            return scores
        return scores + self.config.beta * self._penalty(self._coverage, self._mask).to(scores.dtype)

    def select(self, index: Tensor) -> None:
        if self._mask is not None:
            self._mask = self._mask.index_select(0, index)
        if self._coverage is not None:
            self._coverage = self._coverage.index_select(0, index)
