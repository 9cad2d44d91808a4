"""Attention over a document in chunks: STANDARD, HIER and C2F. The equations are `catchline.papers.coarse_to_fine`.

| paper | here |
| --- | --- |
| h_i, h_ij | word states: ``ChunkFeatures.states`` (B, C, W, H) |
| h^s_i | ``ChunkFeatures.coarse`` (B, C, F) |
| W_1 (STANDARD), and that of the words (HIER, C2F) | ``fine_query`` |
| the chunks' | ``coarse_query`` |
| a_1, ..., a_k | ``chunks`` (B, Q, k): sampled in training, the best ones otherwise |

STANDARD and HIER weigh every word and need every word's state. C2F reads k chunks a step and asks for the states of
those alone (`catchline.layers.chunks`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from catchline.config.base import ConfigBase
from catchline.errors import ConfigError
from catchline.layers.attention.additive import Switchable
from catchline.layers.chunks import ChunkStates, gumbel
from catchline.papers import coarse_to_fine
from catchline.types import AttentionOutput, Shared


class ChunkFeatures:
    """What the attention reads of a batch; B documents in front. ``attendable`` (B, C, W) says which cells may be
    attended (grid padding may, batch padding never). STANDARD reads ``flat`` states (B, C W, H) of one pass over the
    document, or chunk states like the others. Not a dataclass, so that re-ordering a decoder state leaves it alone:
    documents keep their numbers."""

    def __init__(
        self, states: ChunkStates, attendable: Tensor, coarse: Tensor | None = None, flat: Tensor | None = None
    ) -> None:
        self.states, self.attendable, self.coarse, self.flat = states, attendable, coarse, flat


@dataclass(slots=True)
class ChunkSampling:
    """One step's choice in a teacher-forced pass: ``keys`` (B,) of the noise, or the ``sampled`` (B, 1, k) themselves.
    Neither: the best chunks. Where ``alive`` (B,) is false the target has ended and nothing is read."""

    keys: Tensor | None = None
    sampled: Tensor | None = None
    alive: Tensor | None = None


class ChunkAttention(Switchable):
    """Base of the three. ``Class(config, hidden_size=H, coarse_size=F)``."""

    Config: type[ConfigBase] = ConfigBase
    config: ConfigBase
    needs_coarse: bool = True  # does it read S?
    reads_flat: bool = False  # does it read the states of one pass over the whole document?
    chooses: bool = False  # does it read chosen chunks only?

    def __init__(self, config: ConfigBase, *, hidden_size: int, coarse_size: int) -> None:
        super().__init__()
        self.config = config
        self.fine_query = nn.Linear(hidden_size, hidden_size, bias=False)
        self.coarse_query = nn.Linear(hidden_size, coarse_size, bias=False) if self.needs_coarse else None

    def open(self, features: ChunkFeatures, *, soft: bool = False) -> dict[str, Any]:
        """Prepare for many queries; what belongs to documents is `Shared`. ``soft``: choose nothing this time."""
        states = features.states.whole().flatten(1, 2) if features.flat is None else features.flat
        memory = Shared((states, features.attendable.flatten(1)))
        return {"memory": memory, "shape": tuple(features.attendable.shape[1:])}

    @abstractmethod
    def forward(self, query: Tensor, state: dict[str, Any], sampling: ChunkSampling | None = None) -> AttentionOutput:
        """(B, Q, H) -> context (B, Q, H). ``sampling`` says what a mechanism that chooses has to draw; none: the best.
        ``aux`` holds ``coarse`` (B, Q, C), and of C2F ``sampled``, ``shares`` (B, Q, k), ``fine`` (B, Q, k, W).
        ``weights`` (B, Q, C W) are those of the cells, where all of them exist."""


class StandardAttention(ChunkAttention):
    """``alpha = softmax(h_i^T W_1 h_t)`` over the whole document; one LSTM reads it unless ``encoder: chunked``.
    ``coarse`` weights are the sums of each chunk's words."""

    class Config(ConfigBase):
        encoder: Literal["flat", "chunked"] = "flat"

    config: Config
    needs_coarse = False

    @property
    def reads_flat(self) -> bool:  # type: ignore[override]
        return self.config.encoder == "flat"

    def forward(self, query: Tensor, state: dict[str, Any], sampling: ChunkSampling | None = None) -> AttentionOutput:
        states, mask = state["memory"].tree
        weights = coarse_to_fine.attention_weights(
            coarse_to_fine.attention_scores(self.fine_query(query), states), mask.unsqueeze(1)
        )
        coarse = weights.unflatten(2, state["shape"]).sum(dim=-1)
        return AttentionOutput(coarse_to_fine.context(weights, states), weights, aux={"coarse": coarse})


class HierarchicalAttention(ChunkAttention):
    """HIER: ``alpha_ij = alpha^s_i alpha^w_ij``, a softmax over chunks times one inside each chunk."""

    class Config(ConfigBase):
        normalizer: Literal["softmax", "sparsemax"] = "softmax"

    def open(self, features: ChunkFeatures, *, soft: bool = False) -> dict[str, Any]:
        return super().open(features) | {"coarse": self._coarse_state(features)}

    def forward(self, query: Tensor, state: dict[str, Any], sampling: ChunkSampling | None = None) -> AttentionOutput:
        coarse, log_coarse = self.coarse_weights(query, state)
        states, mask = state["memory"].tree
        scores = coarse_to_fine.attention_scores(self.fine_query(query), states).unflatten(2, state["shape"])
        fine = coarse_to_fine.attention_weights(scores, mask.view(query.shape[0], 1, *state["shape"]))
        weights = coarse_to_fine.hierarchical_weights(coarse, fine).flatten(2)
        aux = {"coarse": coarse, "log_coarse": log_coarse}
        return AttentionOutput(coarse_to_fine.context(weights, states), weights, aux=aux)

    def _coarse_state(self, features: ChunkFeatures) -> Shared:
        assert features.coarse is not None
        return Shared((features.coarse, features.attendable.any(dim=2)))

    def coarse_weights(self, query: Tensor, state: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """``alpha^s = softmax(S_i^T W_s h_t)`` over the document's chunks, and its logarithm; (B, Q, C) each."""
        assert self.coarse_query is not None
        vectors, mask = state["coarse"].tree
        scores, mask = coarse_to_fine.attention_scores(self.coarse_query(query), vectors), mask.unsqueeze(1)
        if getattr(self.config, "normalizer", "softmax") == "sparsemax":
            weights = coarse_to_fine.sparsemax(scores.to(torch.promote_types(scores.dtype, torch.float32)), mask)
            return weights, log_of(weights)
        log_weights = coarse_to_fine.log_coarse_weights(scores, mask)
        return log_weights.exp(), log_weights


def log_of(weights: Tensor) -> Tensor:
    """``ln alpha``, minus infinity where alpha is 0 and without a gradient there."""
    nothing = weights == 0
    return weights.masked_fill(nothing, 1.0).log().masked_fill(nothing, -torch.inf)


class CoarseToFineAttention(HierarchicalAttention):
    """C2F: read k chunks, drawn in training and the best in evaluation; ``c~ = sum_i share_i sum_j alpha^w_ij h_ij``.
    The draws get no gradient from c~; REINFORCE gives alpha^s its own (`catchline.objectives.reinforce`). With ``hard``
    switched off it is HIER (pre-training, alternating)."""

    class Config(ConfigBase):
        """``draws`` is k in training (+MULTI); ``read`` the chunks read in evaluation (none: as many)."""

        draws: int = Field(1, ge=1, le=65_536)
        read: int | None = Field(None, ge=1, le=65_536)
        shares: Literal["renormalised", "uniform"] = "renormalised"
        feeds: ClassVar[tuple[str, ...]] = ("policy",)  # what objectives find in the pass of a model with this part

    config: Config

    def __init__(self, config: Config, *, hidden_size: int, coarse_size: int) -> None:
        super().__init__(config, hidden_size=hidden_size, coarse_size=coarse_size)
        self.hard = True
        self.read = config.read or config.draws

    @property
    def chooses(self) -> bool:  # type: ignore[override]
        return self.hard

    def switches(self) -> dict[str, Any]:
        return {"hard": self.hard, "read": self.read}

    def switch(self, options: Mapping[str, Any]) -> None:
        self.hard = options.get("hard", self.hard)
        read = options.get("read", self.read)
        if not isinstance(read, int) or read < 1:
            raise ConfigError(f"The number of chunks to read must be a whole number of at least 1, not '{read}'.")
        self.read = read

    def open(self, features: ChunkFeatures, *, soft: bool = False) -> dict[str, Any]:
        if soft or not self.hard:
            return super().open(features)
        documents = torch.arange(features.attendable.shape[0], device=features.attendable.device)
        return {"coarse": self._coarse_state(features), "words": Shared((documents, features))}

    def forward(self, query: Tensor, state: dict[str, Any], sampling: ChunkSampling | None = None) -> AttentionOutput:
        if "words" not in state:
            return super().forward(query, state)
        sampling = sampling or ChunkSampling()
        coarse, log_coarse = self.coarse_weights(query, state)
        sampled = sampling.sampled
        if sampled is None and sampling.keys is not None:
            shape = self.config.draws, log_coarse.shape[-1]
            sampled = coarse_to_fine.sample_chunks(log_coarse, gumbel(sampling.keys.unsqueeze(1), *shape))
        if sampled is None:
            sampled, shares = coarse_to_fine.best_chunks(coarse, self.read, uniform=self.config.shares == "uniform")
        else:
            shares = torch.full_like(sampled, 1.0 / sampled.shape[-1], dtype=coarse.dtype)
        context, fine = self._read(query, sampled, shares, state["words"].tree, sampling.alive)
        aux = {"coarse": coarse, "log_coarse": log_coarse, "sampled": sampled, "shares": shares, "fine": fine}
        return AttentionOutput(context, fine.flatten(2), aux=aux)

    def _read(
        self, query: Tensor, sampled: Tensor, shares: Tensor, words: tuple[Tensor, ChunkFeatures], alive: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """``c~`` (B, Q, H) of the chosen chunks, and their fine weights (B, Q, k, W); zero where not alive."""
        documents, features = words
        owner = documents.view(-1, 1, 1).expand_as(sampled).flatten()
        chosen, wanted = sampled.flatten(), self.fine_query(query).unsqueeze(2).expand(-1, -1, sampled.shape[2], -1)
        wanted, rows = wanted.flatten(0, 2), None
        if alive is not None and not bool(alive.all()):
            rows = alive.view(-1, 1, 1).expand_as(sampled).flatten().nonzero().squeeze(1)
            owner, chosen, wanted = owner[rows], chosen[rows], wanted[rows]
        states = features.states.read(owner, chosen)  # (P, W, H)
        scores = torch.bmm(states, wanted.unsqueeze(2)).squeeze(2)
        fine = coarse_to_fine.attention_weights(scores, features.attendable[owner, chosen])
        contexts = torch.bmm(fine.unsqueeze(1).to(states.dtype), states).squeeze(1)
        if rows is not None:
            contexts = contexts.new_zeros(sampled.numel(), contexts.shape[1]).index_copy(0, rows, contexts)
            fine = fine.new_zeros(sampled.numel(), fine.shape[1]).index_copy(0, rows, fine)
        return coarse_to_fine.shared_context(shares, contexts.view(*sampled.shape, -1)), fine.view(*sampled.shape, -1)
