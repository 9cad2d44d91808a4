"""Attention that is distracted from what it has read before (Chen et al. 2016).

Additive attention, with the history of attention inside the energies (M2) and the history of contents inside the
content vector (M1): equations (11) to (14) of `catchline.papers.distraction`.

| paper | here |
| --- | --- |
| h_i | ``memory.states[:, i]`` (B, D) |
| s'_t | ``query[:, t]`` (B, query_size) |
| W_a, b_att | ``query_projection`` |
| v_a, b_a | ``score_vector``, ``history_vector`` (A,) |
| w_c, u_c (W_c, U_c are diagonal) | ``content_vector``, ``content_history_vector`` (D,) |
| A_t | ``state["history"]`` (N, S) |
| C_t | ``state["contents"]`` (N, D) |

The sums start at zero for every document, follow the hypothesis in search, and are float32 at least.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from catchline.kernels.dispatch import distracted_scores
from catchline.layers.attention.additive import AdditiveEnergies
from catchline.papers.distraction import attention_weights, content_distraction, context
from catchline.types import AttentionOutput, Memory

SMALL = 0.01  # the standard deviation of what starts small


class DistractionAttention(AdditiveEnergies):
    """Additive attention with M1 and M2; see the file's table of symbols."""

    class Config(AdditiveEnergies.Config):
        """``content`` is M1, ``history`` M2. ``m1_init``: ``identity`` starts M1 as tanh(c'), w_c = 1 and u_c small;
        ``released`` is the authors' code, both small. b_a starts small either way. ``detach_history`` stops gradients
        at A_t and C_t."""

        content: bool = True
        history: bool = True
        m1_init: Literal["identity", "released"] = "identity"
        detach_history: bool = False

    config: Config

    def __init__(self, config: Config, *, memory_size: int, query_size: int) -> None:
        super().__init__(config, memory_size=memory_size, query_size=query_size)
        self.history_vector: nn.Parameter | None = None
        self.content_vector: nn.Parameter | None = None
        self.content_history_vector: nn.Parameter | None = None
        if config.history:
            self.history_vector = nn.Parameter(SMALL * torch.randn(len(self.score_vector)))
        if config.content:
            starts_open = config.m1_init == "identity"
            self.content_vector = nn.Parameter(
                torch.ones(memory_size) if starts_open else SMALL * torch.randn(memory_size)
            )
            self.content_history_vector = nn.Parameter(SMALL * torch.randn(memory_size))
        self.recurrent = config.content or config.history

    def init_state(self, memory: Memory) -> dict[str, Any]:
        """The histories are empty: A_1 = 0, C_1 = 0."""
        state = super().init_state(memory)
        options: dict[str, Any] = {
            "dtype": torch.promote_types(memory.states.dtype, torch.float32),
            "device": memory.mask.device,
        }
        if self.history_vector is not None:
            state["history"] = torch.zeros(memory.mask.shape, **options)
        if self.content_vector is not None:
            state["contents"] = torch.zeros(memory.mask.shape[0], memory.states.shape[-1], **options)
        return state

    def forward(self, query: Tensor, state: dict[str, Any]) -> tuple[AttentionOutput, dict[str, Any]]:
        """Read with ``query`` (B, Q, query_size): the distracted content c_t (B, Q, D), weights and scores (B, Q, S).
        With M1 or M2, Q are the beams of one step, and the new state's histories include this reading."""
        keys, states, mask = state["memory"].tree
        rows, mask = (query.shape[0], query.shape[1]), mask.unsqueeze(1)
        queries, state = self.query_projection(query), dict(state)
        past = None if self.history_vector is None else self._past(state["history"]).view(*rows, -1)
        scores = distracted_scores(keys, queries, self.score_vector, past, self.history_vector)
        weights = attention_weights(scores, mask)
        content = context(weights, states)
        if self.history_vector is not None:
            state["history"] = self._past(state["history"]) + weights.flatten(0, 1)
        if self.content_vector is not None and self.content_history_vector is not None:
            past = self._past(state["contents"])
            vectors = self.content_vector.to(past.dtype), self.content_history_vector.to(past.dtype)
            distracted = content_distraction(content.flatten(0, 1).to(past.dtype), past, *vectors)
            state["contents"] = past + distracted
            content = distracted.to(content.dtype).unflatten(0, rows)
        return AttentionOutput(content, weights, scores.masked_fill(~mask, -torch.inf)), state

    def _past(self, history: Tensor) -> Tensor:
        return history.detach() if self.config.detach_history else history
