"""The records that travel between the parts of the toolkit. This file imports no tensor library: `Batch`, `Memory` and
`StepOutput` hold tensors of torch modules, and NumPy arrays in search and in exported models.

Dimension letters, here and everywhere: B batch, K beams, N = B * K decoder rows, S source tokens, T target tokens,
D memory width, V vocabulary, X extended vocabulary (V plus the batch's source words that V lacks). Masks are boolean
and **true at real tokens**.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

Rows = TypeVar("Rows")  # a tensor or an array


# ------------------------------------------------------------------------------------------ text


@dataclass(frozen=True, slots=True)
class Record:
    """One pair of a corpus, as the readers deliver it."""

    document: str
    summary: str = ""  # empty where the file has none
    id: str = ""
    references: tuple[str, ...] = ()  # every reference summary, ``summary`` first
    sentences: tuple[str, ...] = ()  # the document already split, where the file says so
    origin: str = ""  # ``file:line`` for messages


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """Token ids with their strings and the characters they came from."""

    ids: tuple[int, ...]
    tokens: tuple[str, ...]  # normalised (lower-cased, for example), also where the id is UNK
    offsets: tuple[tuple[int, int], ...]  # ``text[start:end]`` is what the user wrote; ``(p, p)``: a special token
    truncated: bool = False  # tokens were cut
    total: int = 0  # tokens before the cut, specials not counted


# --------------------------------------------------------------------------------------- tensors


@dataclass(slots=True)
class Batch(Generic[Rows]):
    """Padded ids of a list of documents, ``pad_id`` at padding; only the collator pads."""

    source_ids: Rows  # (B, S) int64, words outside V are UNK
    source_extended_ids: Rows  # (B, S) int64, words outside V are V + k, numbered per example
    source_mask: Rows  # (B, S) bool
    extended_vocab_size: int  # X = V + the largest number of source words outside V in one example
    oov_words: list[list[str]] = field(default_factory=list)  # per example: the strings of V, V + 1, ...
    record_ids: list[str] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)  # positions of the examples in their data set

    def to(self, device: Any, non_blocking: bool = False) -> Self:
        """Return a copy whose tensors are on ``device``."""
        return self.changed(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """Return a copy in pinned host memory (called by torch's ``DataLoader``)."""
        return self.changed(lambda tensor: tensor.pin_memory())

    def changed(self, change: Callable[[Any], Any]) -> Self:
        """Return a copy of which every tensor or array is ``change`` of what it was."""
        tensors = (each.name for each in fields(self) if each.type == "Rows")
        return replace(self, **{name: change(getattr(self, name)) for name in tensors})


@dataclass(slots=True, kw_only=True)
class TrainingBatch(Batch[Rows]):
    """Documents with their summaries."""

    target_input_ids: Rows  # (B, T) BOS, y_1, ..., words outside V are UNK
    target_ids: Rows  # (B, T) y_1, ..., EOS in extended ids; words that neither V nor the source has are UNK
    target_mask: Rows  # (B, T) bool


@dataclass(frozen=True, slots=True)
class UpdateContext:
    """What an update wants of a teacher-forced pass and of the objectives, beside the batch; by default nothing."""

    forced_mask: Tensor | None = None  # (B, T) bool: is the input at step t the gold token? None: always
    token_weights: Tensor | None = None  # (B, T) weights in the loss: a hint, up to a factor, never part of a result
    label_smoothing: float = 0.0  # of the words: ``details["smoothed_log_probs"]`` is wanted
    opponent_smoothing: float = 0.0  # of the opponent's: ``details["opponent_smoothed"]`` is wanted
    noise_seed: int | None = None  # seeds noise that must leave the global generators alone
    observe: bool = False  # the log wants this pass's `ModelOutput.figures`


PLAIN_PASS = UpdateContext()


@dataclass(slots=True)
class Shared:
    """A part of a decoder state that belongs to the document: re-ordering beams leaves it alone."""

    tree: Any  # any nested structure of tensors with B in front


@dataclass(slots=True)
class Memory(Generic[Rows]):
    """What the encoder leaves for the decoder."""

    states: Rows  # (B, S, D)
    mask: Rows  # (B, S) bool
    extended_ids: Rows  # (B, S) int64
    extended_vocab_size: int  # X
    final: Any = None  # what `start` needs to make the first decoder state, B in front
    oov_words: list[list[str]] = field(default_factory=list)  # `Batch.oov_words`, where search may write them
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class AttentionOutput:
    """What Q queries a document make of the memory (Q is T in training, K in search)."""

    context: Tensor  # (B, Q, D)
    weights: Tensor  # (B, Q, S), zero at padding, rows sum to one
    scores: Tensor | None = None  # (B, Q, S) before the softmax, -inf at padding
    aux: dict[str, Tensor] = field(default_factory=dict)


@dataclass(slots=True)
class StepOutput(Generic[Rows]):
    """What one decoding step is worth; scorers read ``context``, ``state`` and ``attention_scores``."""

    scores: Rows  # (N, X) what search adds up; they need not be normalised
    log_probs: Rows  # (N, X) what the model believes; for most models the same tensor
    attention: Rows | None = None  # (N, S)
    context: Rows | None = None  # (N, D) what attention made of the memory, as the output layer read it
    state: Rows | None = None  # (N, H) the decoder's state, likewise
    details: dict[str, Rows] = field(default_factory=dict)  # explain the step: p_gen (N,), copy_probs (N, S), ...
    attention_scores: Rows | None = None  # (N, S) ``attention`` is their softmax, -inf at padding


@dataclass(slots=True)
class ModelOutput:
    """A teacher-forced pass. Only the gold tokens' log-probabilities exist, never (B, T, X)."""

    gold_log_probs: Tensor  # (B, T), zero at padding
    attention: Tensor | None = None  # (B, T, S)
    coverage_losses: Tensor | None = None  # (B, T), zero at padding
    token_mask: Tensor | None = None  # (B, T) bool: the tokens that count in the loss; None: target_mask
    details: dict[str, Tensor] = field(default_factory=dict)
    figures: dict[str, Tensor] = field(default_factory=dict)  # scalars for the log, where `UpdateContext.observe`

    def counted(self, batch: TrainingBatch) -> Tensor:
        """The target tokens that count in the loss, (B, T) bool."""
        return batch.target_mask if self.token_mask is None else self.token_mask


@dataclass(slots=True)
class Term:
    """One objective's sum over a micro-batch and what to divide it by, once, over all micro-batches; ``weight`` scales
    the quotient in the total loss, not in the log."""

    name: str
    sum: Tensor  # scalar, differentiable
    count: Tensor  # scalar
    weight: float = 1.0


# ---------------------------------------------------------------------------------------- search


@dataclass(slots=True)
class Hypothesis:
    """One decoded sequence with everything that explains it. T is one more than ``ids`` when ``finished`` (EOS). Models
    that read in chunks give ``details["coarse"]`` (T, C) and ``details["sampled"]`` (T, k)."""

    ids: list[int]  # extended ids without BOS and EOS
    score: float  # final, normalised
    log_prob: float  # sum of the model's token log-probabilities
    token_log_probs: list[float]
    finished: bool
    attention: np.ndarray | None = None  # (T, S)
    details: dict[str, np.ndarray] = field(default_factory=dict)  # p_gen (T,), copy_probs (T, S), ...
    terms: dict[str, float] = field(default_factory=dict)  # each scorer's share of the score
    reading: dict[str, float] = field(default_factory=dict)  # what was read in chunks (see `Summary`)
    chunk_tokens: np.ndarray | None = None  # (C, 2) source tokens ``[first, last)`` of each chunk


# ------------------------------------------------------------------------------------- summaries


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """A piece of the user's own text: ``document[start:end] == text``, with its share of attention."""

    start: int
    end: int
    text: str
    weight: float


@dataclass(frozen=True, slots=True)
class SummaryToken:
    """One token of a word, of models that copy in several steps."""

    text: str
    probability: float = 0.0
    p_gen: float | None = None
    copy_share: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)  # gates of the chain of copying
    sources: dict[str, tuple[SourceSpan, ...]] = field(default_factory=dict)  # heaviest places of each distribution


@dataclass(frozen=True, slots=True)
class SummaryWord:
    """One word of a summary and where it came from. ``maps``, ``figures`` and ``tokens`` are of models that copy in
    several steps."""

    text: str
    start: int  # character span in the summary's text
    end: int
    probability: float = 0.0
    copied: bool = False  # ``copy_share > 0.5``
    copy_share: float = 0.0  # of the probability, what was copied from the source rather than generated
    p_gen: float | None = None
    sources: tuple[SourceSpan, ...] = ()  # the spans it was copied from, heaviest first
    attention: tuple[float, ...] = field(default=(), repr=False)  # weights over the source tokens
    maps: dict[str, tuple[float, ...]] = field(default_factory=dict, repr=False)  # further weights, by name
    figures: dict[str, float] = field(default_factory=dict)  # gates and the like
    tokens: tuple[SummaryToken, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the document that a model reads as one."""

    start: int
    end: int
    weights: tuple[float, ...]  # coarse attention of each word of the summary
    read: tuple[int, ...] | None = None  # positions of the words for which the chunk was read; None: every word


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary, its score, and the provenance of each word. Printed, it is its text.

    ``source_offsets`` are the character spans that ``SummaryWord.attention`` indexes: of a long document in chunks,
    those of the chunks read. ``words`` and ``chunks`` are empty without explanation; extracts always have words.

    ``reading``, of models that read in chunks: ``chunks`` and ``words`` of the document, ``chunks_read`` and
    ``words_read`` of them by the encoder, ``chunks_chosen`` for this summary, and ``coarse_entropy`` in nats, a mean
    over ``steps`` tokens.

    ``confidence``, of calibrated models, is the probability that a reader accepts what the model wrote;
    ``out_of_domain`` says why the model does not know this kind of document; ``facts`` is what both are computed from.
    Where these speak against it, ``extracted`` says why, ``text`` is taken from the document, and what the model
    wrote is the first of the ``alternatives``.
    """

    text: str
    score: float = 0.0
    log_prob: float = 0.0
    id: str = ""
    model: str = ""
    document: str = field(default="", repr=False)
    words: tuple[SummaryWord, ...] = field(default=(), repr=False)
    source_offsets: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    tokens_read: int = 0
    tokens_given: int = 0
    truncated: bool = False
    finished: bool = True
    terms: dict[str, float] = field(default_factory=dict, repr=False)
    alternatives: tuple[Summary, ...] = ()
    parts: tuple[Summary, ...] = ()  # of a long document that was read in parts, a summary of each
    reading: dict[str, float] = field(default_factory=dict, repr=False)
    chunks: tuple[Chunk, ...] = field(default=(), repr=False)
    confidence: float | None = None
    out_of_domain: str = ""
    extracted: str = ""
    facts: dict[str, float] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.text


def references_of(record: Record) -> Sequence[str]:
    """Every reference summary of a record, at least its own ``summary``."""
    return record.references or (record.summary,)
