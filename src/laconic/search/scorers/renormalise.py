"""Two ways in which checkpoints of transformers change the log-probabilities of a step."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from laconic.config.section import Section
from laconic.search.scorers.base import HypothesesView, Scorer


class RepetitionPenalty(Scorer):
    """The log-probability of every token that the hypothesis holds, the start token too, times ``penalty``.

    The CTRL paper (Keskar et al. 2019, section 4.1) divides logits; transformers' beam search does this to
    log-probabilities, and so do we.
    """

    class Config(Section):
        penalty: float = Field(1.0, gt=0)

    name = "repetition_penalty"
    adds_to_tokens = True
    config: RepetitionPenalty.Config

    def on_tokens(self, scores: Tensor, view: HypothesesView) -> Tensor:
        start = torch.full((len(scores), 1), self.specials.bos_id, device=scores.device)
        held = torch.cat([start, view.ids], dim=1)
        values, penalty = scores.gather(1, held), self.config.penalty
        return scores.scatter_(1, held, torch.where(values < 0, values * penalty, values / penalty))


class Renormalise(Scorer):
    """What is left after tokens were forbidden sums to one again (``renormalize_logits`` of transformers)."""

    name = "renormalise"
    adds_to_tokens = True

    def on_tokens(self, scores: Tensor, view: HypothesesView) -> Tensor:
        return torch.where(scores > -torch.inf, scores.log_softmax(-1), -torch.inf)
