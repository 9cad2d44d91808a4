"""The interface of attention mechanisms; additive attention, with coverage, and distracted from what it has read.

Bahdanau et al. 2014; See et al. 2017; equations (1), (2), (3), (6), (7) of `catchline.papers.pointer_generator`.
Chen et al. 2016 put the history of attention inside the energies (M2) and that of contents inside the content vector
(M1): equations (11) to (14) of `catchline.papers.distraction`. Sums over the steps start at zero for every document,
follow the hypothesis in search, and are float32 at least.

| paper | here |
| --- | --- |
| h_i | ``memory.states[:, i]`` (B, D) |
| s_t, s'_t | ``query[:, t]`` (B, query_size) |
| W_h h_i | ``keys[:, i]`` (B, A) |
| W_s s_t + b_attn | ``query_projection(query) `` (B, Q, A) |
| v, w_c | ``score_vector``, ``coverage_vector`` (A,) |
| b_a | ``history_vector`` (A,) |
| w_c, u_c (W_c, U_c are diagonal) | ``content_vector``, ``content_history_vector`` (D,) |
| A_t, C_t | ``state["history"]`` (N, S), ``state["contents"]`` (N, D) |
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from catchline.config.base import ConfigBase
from catchline.kernels.dispatch import attention_scores, distracted_scores
from catchline.papers import distraction
from catchline.papers.pointer_generator import attention_weights, context, next_coverage
from catchline.types import AttentionOutput, Memory, Shared

SMALL = 0.01  # the standard deviation of what starts small


class Switchable(nn.Module):
    """A part of a model with its own switches: an attention, an opponent."""

    def switches(self) -> dict[str, Any]:
        """What a training phase or a search may switch, and the present values."""
        return {}

    def switch(self, options: Mapping[str, Any]) -> None:
        """Set switches (names are checked by the model)."""


class Attention(Switchable):
    """Reads the encoder's memory. ``Class(config, memory_size=D, query_size=Q)``. A state goes in and comes out;
    nothing about a batch is kept on the module. Tensors of the state have N = B * Q rows in front, what belongs to the
    document is `Shared`."""

    Config: type[ConfigBase] = ConfigBase
    config: ConfigBase
    recurrent: bool = False  # does a reading depend on the readings before it (now, with present switches)?

    @abstractmethod
    def init_state(self, memory: Memory) -> Any:
        """Project the keys once; return the state before the first reading, one row a document."""

    @abstractmethod
    def forward(self, query: Tensor, state: Any) -> tuple[AttentionOutput, Any]:
        """Read with queries (B, Q, query_size). A recurrent mechanism carries Q rows a document through
        the state: Q are then beams of one step, never the steps of a sequence."""


class AdditiveEnergies(Attention):
    """What every ``v . tanh(W_h h + W_s s + b ...)`` has."""

    class Config(ConfigBase):
        """``size`` is A (none: the memory's width)."""

        size: int | None = Field(None, ge=1, le=65_536)

    def __init__(self, config: Any, *, memory_size: int, query_size: int) -> None:
        super().__init__()
        self.config = config
        size = config.size or memory_size
        self.memory_projection = nn.Linear(memory_size, size, bias=False)
        self.query_projection = nn.Linear(query_size, size)
        self.score_vector = nn.Parameter(torch.empty(size).uniform_(-1, 1) * size**-0.5)

    def init_state(self, memory: Memory) -> dict[str, Any]:
        """Keys are projected once a batch."""
        return {"memory": Shared((self.memory_projection(memory.states), memory.states, memory.mask))}


def sums(memory: Memory, *shape: int) -> Tensor:
    """Zeros for what is summed over the steps, in float32 at least."""
    dtype = torch.promote_types(memory.states.dtype, torch.float32)
    return torch.zeros(shape, dtype=dtype, device=memory.mask.device)


class AdditiveAttention(AdditiveEnergies):
    """``e = v . tanh(W_h h + W_s s + b [+ w_c c])``; see the file's table of symbols."""

    class Config(AdditiveEnergies.Config):
        """``coverage`` builds w_c; it takes part when switched on."""

        coverage: bool = False
        coverage_from_start: bool = True  # false: w_c exists but waits for a phase to switch it on
        coverage_init: Literal["zero", "default"] = "zero"
        detach_coverage: bool = False

        @property
        def feeds(self) -> tuple[str, ...]:
            """What objectives find in the pass of a model with this part."""
            return ("coverage",) if self.coverage and self.coverage_from_start else ()

    config: Config

    def __init__(self, config: Config, *, memory_size: int, query_size: int) -> None:
        super().__init__(config, memory_size=memory_size, query_size=query_size)
        self.coverage_vector: nn.Parameter | None = None
        if config.coverage:
            self.coverage_vector = nn.Parameter(torch.zeros(len(self.score_vector)))
            if config.coverage_init == "default":
                nn.init.uniform_(self.coverage_vector, -1, 1)
        self.coverage_on = config.coverage and config.coverage_from_start

    @property
    def recurrent(self) -> bool:  # type: ignore[override]
        """With coverage a reading depends on those before it."""
        return self.coverage_on

    def switches(self) -> dict[str, Any]:
        return {"coverage": self.coverage_on} if self.config.coverage else {}

    def switch(self, options: Mapping[str, Any]) -> None:
        self.coverage_on = options.get("coverage", self.coverage_on)

    def init_state(self, memory: Memory) -> dict[str, Any]:
        """With coverage c^0 = 0 (equation 6), kept in float32 at least."""
        state = super().init_state(memory)
        if self.coverage_on:
            state["coverage"] = sums(memory, *memory.mask.shape)
        return state

    def forward(self, query: Tensor, state: dict[str, Any]) -> tuple[AttentionOutput, dict[str, Any]]:
        """Attend with ``query`` (B, Q, query_size). Returns context (B, Q, D), weights and scores (B, Q, S). With
        coverage the new state's coverage is c^{t+1} = c^t + a^t (equation 6: c^t excludes a^t) and ``aux["coverage"]``
        is c^t (B, Q, S)."""
        keys, states, mask = state["memory"].tree
        rows = (query.shape[0], query.shape[1])
        queries = self.query_projection(query)
        coverage = None
        if self.coverage_on:
            coverage = state["coverage"].view(*rows, -1)
            coverage = coverage.detach() if self.config.detach_coverage else coverage
        vector = self.coverage_vector if self.coverage_on else None
        scores = attention_scores(keys, queries, self.score_vector, coverage, vector)
        mask = mask.unsqueeze(1)
        weights = attention_weights(scores, mask)
        output = AttentionOutput(context(weights, states), weights, scores.masked_fill(~mask, -torch.inf))
        if coverage is None:
            return output, state
        output.aux["coverage"] = coverage
        return output, state | {"coverage": next_coverage(state["coverage"], weights.flatten(0, 1))}


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
        if self.history_vector is not None:
            state["history"] = sums(memory, *memory.mask.shape)
        if self.content_vector is not None:
            state["contents"] = sums(memory, memory.mask.shape[0], memory.states.shape[-1])
        return state

    def forward(self, query: Tensor, state: dict[str, Any]) -> tuple[AttentionOutput, dict[str, Any]]:
        """Read with ``query`` (B, Q, query_size): the distracted content c_t (B, Q, D), weights and scores (B, Q, S).
        With M1 or M2, Q are the beams of one step, and the new state's histories include this reading."""
        keys, states, mask = state["memory"].tree
        rows, mask = (query.shape[0], query.shape[1]), mask.unsqueeze(1)
        queries, state = self.query_projection(query), dict(state)
        past = None if self.history_vector is None else self._past(state["history"]).view(*rows, -1)
        scores = distracted_scores(keys, queries, self.score_vector, past, self.history_vector)
        weights = distraction.attention_weights(scores, mask)
        content = distraction.context(weights, states)
        if self.history_vector is not None:
            state["history"] = self._past(state["history"]) + weights.flatten(0, 1)
        if self.content_vector is not None and self.content_history_vector is not None:
            past = self._past(state["contents"])
            vectors = self.content_vector.to(past.dtype), self.content_history_vector.to(past.dtype)
            distracted = distraction.content_distraction(content.flatten(0, 1).to(past.dtype), past, *vectors)
            state["contents"] = past + distracted
            content = distracted.to(content.dtype).unflatten(0, rows)
        return AttentionOutput(content, weights, scores.masked_fill(~mask, -torch.inf)), state

    def _past(self, history: Tensor) -> Tensor:
        return history.detach() if self.config.detach_history else history
