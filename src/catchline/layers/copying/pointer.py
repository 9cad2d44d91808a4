"""How words come about: the vocabulary projection ``softmax(W_o x + b_o)``, and copy heads: their interface, the plain
output layer, the pointer-generator's mixture.

Equations (4) and (5) of `catchline.papers.pointer_generator`: ``inputs.gate_features`` (..., G) are [h*_t; s_t; x_t],
``gate`` holds [w_h*; w_s; w_x] and b_ptr, ``source.extended_ids`` are the words w_i. Every head that copies uses the
mixture, equation (5), in one step of decoding and for the gold words of a training pass.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from torch.utils.checkpoint import checkpoint

from catchline.config.base import ConfigBase
from catchline.config.names import COPY_HEADS, parse
from catchline.errors import ConfigError
from catchline.kernels.dispatch import final_distribution, first_positions, gold_log_probs, packed_output
from catchline.kernels.vocabulary import Derivative, at_least_float32
from catchline.layers.transformer import CapturedAttention
from catchline.papers.pointer_generator import attention_weights, generation_gate, gold_copy_log_prob, gold_log_prob
from catchline.types import AttentionOutput

_NUMBERS_AT_ONCE = 2**24  # of rows of the distribution that label smoothing writes out


class VocabularyProjection(nn.Module):
    """One linear layer (the paper), two without nonlinearity (See et al.), or tied to the embedding. ``hidden_size``
    puts a linear layer of that width before the output layer. ``tied`` is an embedding matrix (V, E) used as W_o; the
    layer before it then leads to E. Without ``bias`` b_o is zero and not trained."""

    def __init__(
        self, input_size: int, vocab_size: int, *, hidden_size: int | None = None, tied: Any = None, bias: bool = True
    ) -> None:
        super().__init__()
        self.hidden = None if hidden_size is None else nn.Linear(input_size, hidden_size)
        width = input_size if hidden_size is None else hidden_size
        self.weight = nn.Parameter(torch.empty(vocab_size, width)) if tied is None else tied
        self.bias: Tensor
        if bias:
            self.bias = nn.Parameter(torch.empty(vocab_size))
        else:
            self.register_buffer("bias", torch.zeros(vocab_size), persistent=False)
        if tied is None:
            nn.init.uniform_(self.weight, -(width**-0.5), width**-0.5)
        if bias:
            nn.init.uniform_(self.bias, -(width**-0.5), width**-0.5)

    @property
    def vocab_size(self) -> int:
        return int(self.weight.shape[0])

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of one decoding step: (..., F) -> (..., V)."""
        features = inputs if self.hidden is None else self.hidden(inputs)
        return nn.functional.linear(features, self.weight, self.bias)

    def for_decoding(self, columns: int | None = None) -> Callable[[Tensor], Tensor]:
        """`forward` for the many steps of one search: (..., F) -> (..., V), without gradients. On a CPU from packed
        weights (`catchline.kernels.packed`). Then the result has ``columns`` columns (V if not given), those beyond V
        minus infinity: room for the words outside V, without a copy. Elsewhere this is the module itself."""
        width = max(columns or 0, self.vocab_size)
        return packed_output(self.hidden, self.weight, self.bias, width) or self

    def gold_log_probs(self, inputs: Tensor, gold: Tensor, derivative: Derivative | None = None) -> Tensor:
        """``log softmax(W_o x + b_o)[gold]`` for M rows: (M, F), (M,) -> (M,) in float32 at least. ``gold`` must be
        below V (callers clamp extended ids and mask the value); ``derivative`` as in
        `catchline.kernels.vocabulary.gold_log_probs`."""
        features = inputs if self.hidden is None else self.hidden(inputs)
        return gold_log_probs(features, self.weight, self.bias, gold, derivative)

    def smoothed(self, log_probs: Tensor, inputs: Tensor, gold: Tensor, smoothing: float) -> Tensor:
        """``(1 - eps) log P(gold) + eps / V sum_v log P(v)`` over all V words, from `gold_log_probs`: (M,) -> (M,).
        With logits l_v = W_v x + b_v this is ``log P(gold) + eps (mean_v l_v - l_gold)``: the normaliser cancels from
        the correction and the mean is one product with W's mean row, so that smoothing needs no second look at the (M,
        V) logits and its gradient is one more row added to each of W's."""
        features = inputs if self.hidden is None else self.hidden(inputs)
        features = features.to(log_probs.dtype)
        difference = self.weight.mean(dim=0) - nn.functional.embedding(gold, self.weight)  # (M, F)
        gap = (features * difference).sum(dim=-1) + self.bias.mean() - self.bias[gold]
        return log_probs + smoothing * gap


class BorrowedProjection(VocabularyProjection):
    """The output layer of another module, which keeps the parameters: this one has none, and adds none to a checkpoint.
    ``owner`` has ``lm_head.weight`` (V, F), trained, and ``final_logits_bias`` (1, V), which is not. Both are looked up
    anew each time: a buffer is another tensor after the module has moved or changed its type."""

    def __init__(self, owner: Any) -> None:
        nn.Module.__init__(self)
        self.hidden = None
        self._owner = (owner,)  # in a tuple: not a submodule

    @property
    def weight(self) -> Any:  # type: ignore[override]
        return self._owner[0].lm_head.weight

    @property
    def bias(self) -> Any:  # type: ignore[override]
        return self._owner[0].final_logits_bias[0]


@dataclass(slots=True)
class HeadInput:
    """What a head reads of the decoder: ``hidden`` (..., F) for the vocabulary, ``gate_features`` (..., G) for p_gen.
    ``project`` is `VocabularyProjection.for_decoding`, made once a search. Heads with ``reads_captured`` also get the
    captured cross attention, always as Q rows a document (T in training), and its weights averaged over the heads."""

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
    """The source features of copying. ``extended_ids`` (B, S), ``mask`` (B, S), ``extended_vocab_size`` X. ``first``
    (B, S) is the position where each token's id occurs first in its document: the address under which the copy
    probabilities of repeated words are summed (None until decoding needs it)."""

    extended_ids: Tensor
    mask: Tensor
    extended_vocab_size: int
    first: Tensor | None = None
    precomputed: Any = None


class CopyHead(nn.Module):
    """Turns decoder features into word probabilities. ``Class(config, projection=..., gate_size=G, unk_id=...)``. In
    decoding `forward` gives the distribution of one step over the extended vocabulary; in training `gold_log_probs`
    gives the gold tokens' log-probabilities of all steps and nothing else, so that no (B, T, X) tensor exists."""

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
    loss ``weights`` (M,), and its step ``steps`` (M,), for heads that read (B, T, ...) captured attention. ``mask`` (B,
    T) is true where they stand. ``weights`` are a hint for the vocabulary projection's backward pass
    (`catchline.types.UpdateContext`). With ``smoothing`` the details hold ``smoothed_log_probs`` (M,) as well."""

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


def step_distribution(logits: Tensor, gate: Tensor, copy_probs: Tensor, source: CopySource) -> Tensor:
    """Equation (5) for one step, of the document's ids: (B, Q, V), (B, Q), (B, Q, S) -> (B, Q, X); may overwrite the
    logits."""
    ids = source.extended_ids.unsqueeze(1).expand_as(copy_probs)
    first = None if source.first is None else source.first.unsqueeze(1).expand_as(copy_probs)
    return final_distribution(logits, gate, copy_probs, ids, source.extended_vocab_size, first)


class MixtureHead(CopyHead):
    """A head that copies: equation (5) of the gold words."""

    def gold_mixture(
        self,
        inputs: HeadInput,
        source: CopySource,
        gold: GoldTokens,
        gates: Tensor,
        copied: Tensor,
        weights: Tensor,
        floor: float | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """log P(gold) (M,); details p_gen (M,) and, where labels are smoothed, ``smoothed_log_probs`` (M,). ``gates``
        (M,) are the argument of the sigmoid of p_gen (lambda), ``copied`` (M,) the gold words' log copy probability,
        -inf where the source lacks them, ``weights`` (M, S) P_copy over positions, which smoothing reads. With
        ``floor`` probabilities are kept within [floor, 1 - floor]."""
        ids, outside = known_ids(gold, self.projection, self.unk_id), gold.ids >= self.projection.vocab_size
        mean = None
        if gold.smoothing:
            log_vocab, mean = self._in_rows(inputs.hidden, gates, weights, source.extended_ids, gold.rows, ids, floor)
        else:
            frozen_gates, frozen_copied = gates.detach(), copied.detach()

            def derivative(log_vocab: Tensor, rows: slice) -> Tensor:
                """d loss / d log P_vocab(gold): the share of P(gold) that was generated, none for words outside V."""
                generated = logsigmoid(frozen_gates[rows]) + log_vocab.masked_fill(outside[rows], -torch.inf)
                copies = logsigmoid(-frozen_gates[rows]) + frozen_copied[rows]
                share = torch.exp(generated - torch.logaddexp(generated, copies))
                return share if gold.weights is None else share * gold.weights[rows]

            log_vocab = self.projection.gold_log_probs(inputs.hidden, ids, derivative)
        log_probs = gold_log_prob(gates, log_vocab.masked_fill(outside, -torch.inf), copied)
        log_probs = log_probs if floor is None else floored(log_probs, floor)
        details = {"p_gen": torch.sigmoid(gates)}
        if mean is not None:
            details["smoothed_log_probs"] = torch.lerp(log_probs, mean, gold.smoothing)
        return log_probs, details

    def _in_rows(
        self,
        hidden: Tensor,
        gates: Tensor,
        weights: Tensor,
        source_ids: Tensor,
        rows: Tensor,
        ids: Tensor,
        floor: float | None,
    ) -> tuple[Tensor, Tensor]:
        """log P_vocab(gold) and ``1 / V sum_w log P(w)`` over the words of V, (M,) each. The distribution is written
        out a few rows at a time and again in the backward pass. Copy probabilities of a repeated word meet at its first
        position."""
        size = self.projection.vocab_size
        lacking = source_ids >= size
        first = first_positions(source_ids.masked_fill(lacking, size), size + 1)[rows]
        copied = torch.zeros_like(weights).scatter_add(-1, first, weights.masked_fill(lacking[rows], 0.0))
        read = torch.cat([ids.unsqueeze(-1), source_ids.masked_fill(lacking, 0)[rows]], dim=-1)

        def of_rows(hidden: Tensor, gates: Tensor, copied: Tensor, read: Tensor) -> Tensor:
            log_vocab = torch.log_softmax(self.projection(hidden).to(gates.dtype), dim=-1)
            words, gates = log_vocab.gather(-1, read), gates.unsqueeze(-1)
            generated = words[:, 1:] + logsigmoid(gates)
            both = torch.logaddexp(generated, logsigmoid(-gates) + torch.where(copied > 0, copied, 1.0).log())
            if floor is None:
                mean = log_vocab.mean(dim=-1) + logsigmoid(gates).squeeze(-1)
            else:
                mean = floored(log_vocab + logsigmoid(gates), floor).mean(dim=-1)
                generated, both = floored(generated, floor), floored(both, floor)
            more = torch.where(copied > 0, both - generated, 0.0).sum(dim=-1)
            return torch.stack([words[:, 0], mean + more / size])

        parts = [values.split(max(1, _NUMBERS_AT_ONCE // size)) for values in (hidden, gates, copied, read)]
        pieces = [checkpoint(of_rows, *part, use_reentrant=False) for part in zip(*parts, strict=True)]
        log_vocab, mean = torch.cat(pieces, dim=1)
        return log_vocab, mean


def floored(log_probs: Tensor, floor: float) -> Tensor:
    """Probabilities kept within [floor, 1 - floor]."""
    return log_probs.clamp(math.log(floor), math.log1p(-floor))


class PointerHead(MixtureHead):
    """p_gen and the mixture; see the file's table of symbols."""

    def __init__(self, config: ConfigBase, *, gate_size: int, **shared: Any) -> None:
        super().__init__(config, gate_size=gate_size, **shared)
        self.gate = nn.Linear(gate_size, 1)

    def forward(
        self, inputs: HeadInput, attention: AttentionOutput | None, source: CopySource, state: Any = None
    ) -> tuple[Tensor, dict[str, Tensor], Any]:
        """One step: log P(w) (B, Q, X); details p_gen (B, Q) and copy_probs (B, Q, S) = (1 - p_gen) a^t."""
        assert attention is not None
        gate = generation_gate(inputs.gate_features, self.gate.weight, self.gate.bias)
        logits = (inputs.project or self.projection)(inputs.hidden)
        logits, weights = logits.to(gate.dtype), attention.weights.to(gate.dtype)
        log_probs = step_distribution(logits, gate, weights, source)
        copy_probs = torch.sigmoid(-gate).unsqueeze(-1) * attention.weights
        return log_probs, {"p_gen": torch.sigmoid(gate), "copy_probs": copy_probs}, state

    def gold_log_probs(
        self, inputs: HeadInput, scores: Tensor | None, source: CopySource, gold: GoldTokens
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """M target tokens: log P(gold) (M,) and details as of `gold_mixture`."""
        assert scores is not None
        gate = generation_gate(inputs.gate_features, self.gate.weight, self.gate.bias)
        scores, mask = scores.to(gate.dtype), source.mask[gold.rows]
        log_copy = gold_copy_log_prob(scores, gold.ids, source.extended_ids[gold.rows], mask)
        return self.gold_mixture(inputs, source, gold, gate, log_copy, attention_weights(scores, mask))


def build_copy_head(
    spec: Mapping[str, Any], *, captured: bool = False, special_ids: Sequence[int] = (), **context: Any
) -> CopyHead:
    """The copy head that ``spec`` names; every model builds its head here. ``captured``: can the model fill
    `EncoderFeatures` and ``HeadInput.cross``? Heads that read them also get the tokenizer's ``special_ids``. Raises
    ConfigError: the head needs captured attention and the model has none."""
    cls, config = parse("copy head", COPY_HEADS, spec)
    if cls.reads_captured and not captured:
        raise ConfigError(
            f"The copy head '{spec['type']}' reads a Transformer's attention: set model.type to transformer or bart, "
            "or model.head to {type: pointer}."
        )
    return cls(config, **context, **({"special_ids": special_ids} if cls.reads_captured else {}))
