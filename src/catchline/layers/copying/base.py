"""The interface of copy heads, and the mixture every one of them computes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from catchline.config.base import ConfigBase
from catchline.config.names import COPY_HEADS, parse
from catchline.errors import ConfigError
from catchline.kernels.vocabulary import at_least_float32
from catchline.layers.transformer import CapturedAttention
from catchline.layers.vocabulary import VocabularyProjection
from catchline.types import AttentionOutput


@dataclass(slots=True)
class HeadInput:
    """What a head reads of the decoder: ``hidden`` (..., F) for the vocabulary, ``gate_features`` (..., G) for p_gen.

    ``project`` is `VocabularyProjection.for_decoding`, made once a search. Heads with ``reads_captured`` also get the
    captured cross attention, always as Q rows a document (T in training), and its weights averaged over the heads.
    """

    hidden: Tensor
    gate_features: Tensor
    project: Callable[[Tensor], Tensor] | None = None  # what to use instead of the head's own projection
    cross: CapturedAttention | None = None  # (B, Q, ...)
    weights: Tensor | None = None  # (B, Q, S)


@dataclass(slots=True)
class EncoderFeatures:
    """What a Transformer knows of a document before the first word: for heads with ``reads_captured``."""

    states: Tensor  # (B, S, D) the encoder's output
    queries: Tensor  # (B, S, H, d) of the last encoder layer's self-attention, not yet divided by sqrt(d)
    keys: Tensor  # (B, S, H, d) of the same
    values: Tensor  # (B, S, H, d) of the captured cross attention, before its output projection
    mask: Tensor  # (B, S) bool
    ids: Tensor  # (B, S) extended ids


@dataclass(slots=True)
class CopySource:
    """The source features of copying. ``extended_ids`` (B, S), ``mask`` (B, S), ``extended_vocab_size`` X.

    ``first`` (B, S) is the position where each token's id occurs first in its document: the address under
    which the copy probabilities of repeated words are summed (None until decoding needs it).
    """

    extended_ids: Tensor
    mask: Tensor
    extended_vocab_size: int
    first: Tensor | None = None
    precomputed: Any = None


class CopyHead(nn.Module):
    """Turns decoder features into word probabilities. ``Class(config, projection=..., gate_size=G, unk_id=...)``.

    In decoding `forward` gives the distribution of one step over the extended vocabulary; in training
    `gold_log_probs` gives the gold tokens' log-probabilities of all steps and nothing else, so that no
    (B, T, X) tensor exists.
    """

    Config: type[ConfigBase] = ConfigBase
    config: ConfigBase
    copies: bool = True  # does it need attention and the source's ids?
    reads_captured: bool = False  # does it need `precompute`, ``HeadInput.cross`` and ``weights``? (Transformers only)

    def __init__(self, config: ConfigBase, *, projection: VocabularyProjection, gate_size: int, unk_id: int) -> None:
        super().__init__()
        self.config, self.projection, self.unk_id = config, projection, unk_id

    def precompute(self, features: EncoderFeatures) -> Any:
        """What all steps of a document share, a tree of tensors with B in front, for ``CopySource.precomputed``."""
        return None

    def first_state(self, features: EncoderFeatures) -> Any:
        """The head's state before the first step, a tree of tensors with B rows in front (none: it has no state)."""
        return None

    def of_document(self, precomputed: Any) -> dict[str, Tensor]:
        """Parts of ``precomputed`` that objectives read, for ``ModelOutput.details``: (B, S)."""
        return {}

    @abstractmethod
    def forward(
        self, inputs: HeadInput, attention: AttentionOutput | None, source: CopySource, state: Any = None
    ) -> tuple[Tensor, dict[str, Tensor], Any]:
        """One step: inputs (B, Q, ...) -> log-probabilities (B, Q, X), details, the head's next state."""

    @abstractmethod
    def gold_log_probs(
        self, inputs: HeadInput, scores: Tensor | None, source: CopySource, gold: GoldTokens
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Training: M real target tokens, inputs (M, ...), attention ``scores`` (M, S) -> (M,), details (M,)."""


@dataclass(slots=True)
class GoldTokens:
    """The M target tokens that count in the loss: extended ``ids`` (M,), the document ``rows`` (M,) each belongs to,
    loss ``weights`` (M,), and its step ``steps`` (M,), for heads that read (B, T, ...) captured attention. ``mask``
    (B, T) is true where they stand.

    ``weights`` are a hint for the vocabulary projection's backward pass (`catchline.types.UpdateContext`). With
    ``smoothing`` the details hold ``smoothed_log_probs`` (M,) as well.
    """

    ids: Tensor
    rows: Tensor
    weights: Tensor | None = None
    smoothing: float = 0.0
    steps: Tensor | None = None
    mask: Tensor | None = None

    def at(self, values: Tensor) -> Tensor:
        """(B, T, ...) -> (M, ...)."""
        assert self.steps is not None
        return values[self.rows, self.steps]

    def back(self, values: Tensor) -> Tensor:
        """(M,) -> (B, T), zero elsewhere."""
        assert self.mask is not None
        return values.new_zeros(self.mask.shape).masked_scatter(self.mask, values)


class VocabularyHead(CopyHead):
    """The plain output layer. Target words outside the vocabulary count as UNK."""

    copies = False

    def forward(
        self, inputs: HeadInput, attention: AttentionOutput | None, source: CopySource, state: Any = None
    ) -> tuple[Tensor, dict[str, Tensor], Any]:
        """(B, Q, F) -> log-probabilities (B, Q, V), in float32 at least."""
        logits = (inputs.project or self.projection)(inputs.hidden)
        logits = logits.to(at_least_float32(logits.dtype))
        # On a CPU a row is read before it is written: in decoding it can make room for its own log-probabilities.
        in_place = logits.device.type == "cpu" and not torch.is_grad_enabled()
        return torch.log_softmax(logits, dim=-1, out=logits if in_place else None), {}, state

    def gold_log_probs(
        self, inputs: HeadInput, scores: Tensor | None, source: CopySource, gold: GoldTokens
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """(M, F) -> (M,); details ``smoothed_log_probs`` (M,) where labels are smoothed."""
        log_probs, smoothed = generated(self.projection, inputs.hidden, gold, self.unk_id)
        return log_probs, {} if smoothed is None else {"smoothed_log_probs": smoothed}


def known_ids(gold: GoldTokens, projection: VocabularyProjection, unk_id: int) -> Tensor:
    """The gold words' ids (M,), UNK in the place of words outside V."""
    return gold.ids.masked_fill(gold.ids >= projection.vocab_size, unk_id)


def generated(
    projection: VocabularyProjection, features: Tensor, gold: GoldTokens, unk_id: int
) -> tuple[Tensor, Tensor | None]:
    """log P(gold) of a vocabulary alone, (M, F) -> (M,), and smoothed where labels are."""
    ids, weights = known_ids(gold, projection, unk_id), gold.weights
    derivative = None if weights is None else (lambda _, rows: weights[rows])
    log_probs = projection.gold_log_probs(features, ids, derivative)
    return log_probs, projection.smoothed(log_probs, features, ids, gold.smoothing) if gold.smoothing else None


def build_copy_head(
    spec: Mapping[str, Any], *, captured: bool = False, special_ids: Sequence[int] = (), **context: Any
) -> CopyHead:
    """The copy head that ``spec`` names; every model builds its head here.

    ``captured``: can the model fill `EncoderFeatures` and ``HeadInput.cross``? Heads that read them also get the
    tokenizer's ``special_ids``.

    Raises:
        ConfigError: the head needs captured attention and the model has none.
    """
    cls, config = parse("copy head", COPY_HEADS, spec)
    if cls.reads_captured and not captured:
        raise ConfigError(
            f"The copy head '{spec['type']}' reads a Transformer's attention, which this model does not have: set "
            "model.type to transformer or bart, or model.head to {type: pointer} or {type: vocabulary}."
        )
    return cls(config, **context, **({"special_ids": special_ids} if cls.reads_captured else {}))
