"""The records that travel between the parts of the toolkit. This file imports no tensor library.

`Batch`, `Memory` and `StepOutput` hold tensors where a model is a torch module, and NumPy arrays where search, its
scorers and models without torch see them.

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
    """One pair of a corpus, as the readers deliver it.

    ``summary`` is empty when the file has none. ``references`` holds every reference summary, ``summary`` first;
    ``sentences`` the document already split, when the file says so; ``origin`` is ``file:line`` for messages.
    """

    document: str
    summary: str = ""
    id: str = ""
    references: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    origin: str = ""


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """Token ids with the strings they stand for and the characters they came from.

    ``offsets[i] = (start, end)`` are character positions before any normalisation: ``text[start:end]`` is what the user
    wrote. ``tokens`` are the normalised strings (lower-cased, for example), also where the id is UNK. Special tokens,
    where asked for, have the empty span ``(p, p)``. ``truncated`` says that tokens were cut; ``total`` is the number of
    tokens before the cut, specials not counted.
    """

    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    truncated: bool = False
    total: int = 0


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
    """What an update wants of a teacher-forced pass and of the objectives, beside the batch; by default nothing.

    ``token_weights`` are a hint, up to one common factor, and never part of a result.
    """

    forced_mask: Tensor | None = None  # (B, T) bool: is the input at step t the gold token? None: always
    token_weights: Tensor | None = None  # (B, T) what each target token will weigh in the loss
    label_smoothing: float = 0.0  # of the words: ``details["smoothed_log_probs"]`` is wanted
    opponent_smoothing: float = 0.0  # of the opponent's: ``details["opponent_smoothed"]`` is wanted
    noise_seed: int | None = None  # seeds noise that must leave the global generators alone
    observe: bool = False  # the log wants this pass's `ModelOutput.figures`


PLAIN_PASS = UpdateContext()


@dataclass(slots=True)
class Shared:
    """A part of a decoder state that belongs to the document: re-ordering beams leaves it alone. ``tree`` is any nested
    structure of tensors with B in front."""

    tree: Any


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

    @property
    def batch_size(self) -> int:
        return self.mask.shape[0]  # type: ignore[attr-defined]


@dataclass(slots=True)
class AttentionOutput:
    """What Q queries a document make of the memory (Q is T in training, K in search)."""

    context: Tensor  # (B, Q, D)
    weights: Tensor  # (B, Q, S), zero at padding, rows sum to one
    scores: Tensor | None = None  # (B, Q, S) before the softmax, -inf at padding
    aux: dict[str, Tensor] = field(default_factory=dict)


@dataclass(slots=True)
class StepOutput(Generic[Rows]):
    """What one decoding step is worth.

    ``scores``, which need not be normalised, is what search adds up; ``log_probs`` what the model believes: one tensor
    for most models. ``details`` holds what explains the step (``p_gen`` (N,), ``copy_probs`` (N, S), ...). ``context``
    and ``state`` are the vectors the output layer read, for scorers that compare steps; they are not kept.
    """

    scores: Rows  # (N, X)
    log_probs: Rows  # (N, X)
    attention: Rows | None = None  # (N, S)
    context: Rows | None = None  # (N, D) what attention made of the memory
    state: Rows | None = None  # (N, H) the decoder's state
    details: dict[str, Rows] = field(default_factory=dict)
    attention_scores: Rows | None = None  # (N, S) ``attention`` is their softmax, -inf at padding; not kept


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
    """One decoded sequence with everything that explains it, already on its own path.

    ``ids`` are extended ids without BOS and without the final EOS; the arrays have one row more than
    ``ids`` when ``finished`` (the row of EOS). ``score`` is the final, normalised score; ``log_prob``
    the plain sum of the model's token log-probabilities; ``terms`` each scorer's share of the score.

    Of models that read in chunks: ``reading`` is what was read (see `Summary`), ``chunk_tokens`` the source tokens
    ``[first, last)`` of each chunk, which ``details["coarse"]`` (T, C) and ``details["sampled"]`` (T, k) count.
    """

    ids: list[int]
    score: float
    log_prob: float
    token_log_probs: list[float]
    finished: bool
    attention: np.ndarray | None = None  # (T, S)
    details: dict[str, np.ndarray] = field(default_factory=dict)  # p_gen (T,), copy_probs (T, S), ...
    terms: dict[str, float] = field(default_factory=dict)
    reading: dict[str, float] = field(default_factory=dict)
    chunk_tokens: np.ndarray | None = None  # (C, 2)


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
    """One token of a word, of models that copy in several steps: ``figures`` are the gates of that chain, ``sources``
    by name the heaviest places of the attention and of each distribution over the source (`catchline.explain`)."""

    text: str
    probability: float = 0.0
    p_gen: float | None = None
    copy_share: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    sources: dict[str, tuple[SourceSpan, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SummaryWord:
    """One word of a summary and where it came from.

    ``probability`` is the model's probability of the word; ``copy_share`` how much of that probability
    was copied from the source rather than generated (0 for models that cannot copy); ``copied`` is
    ``copy_share > 0.5``; ``sources`` the spans it was copied from, heaviest first; ``attention`` the
    weights over the source tokens. Models that say more of a step fill the rest: ``maps`` by name further weights
    over the source tokens, ``figures`` gates and the like, ``tokens`` the word token by token.
    """

    text: str
    start: int  # character span in the summary's text
    end: int
    probability: float = 0.0
    copied: bool = False
    copy_share: float = 0.0
    p_gen: float | None = None
    sources: tuple[SourceSpan, ...] = ()
    attention: tuple[float, ...] = field(default=(), repr=False)
    maps: dict[str, tuple[float, ...]] = field(default_factory=dict, repr=False)
    figures: dict[str, float] = field(default_factory=dict)
    tokens: tuple[SummaryToken, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the document that a model reads as one: its characters, and what each word made of it.

    ``weights`` has the coarse attention of each word of the summary; ``read`` the words (their places in
    ``Summary.words``) for which the chunk itself was read, ``None`` where every chunk is read for every word.
    """

    start: int
    end: int
    weights: tuple[float, ...]
    read: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary, its score, and the provenance of each word.

    ``source_offsets`` are the character spans of the source tokens that ``SummaryWord.attention``
    indexes: all that were given to the model or, of a long document in chunks, those of the chunks read.
    ``words`` and ``chunks`` are empty for summaries asked for without explanation; those that consist of the document's
    own sentences have their words always.

    ``reading`` says how much was read by a model that reads in chunks: ``chunks`` and ``words`` of the document,
    ``chunks_read`` and ``words_read`` of them by the encoder (for all hypotheses of the search), ``chunks_chosen``
    for this summary, and ``coarse_entropy`` in nats, a mean over ``steps`` tokens.

    Of models that are calibrated: ``confidence``, the probability that a reader accepts what the model wrote, and
    ``out_of_domain``, why the document is not of a kind that the model knows; ``facts`` is what both are computed from.
    Where these speak against it, ``extracted`` says why, ``text`` is taken from the document, and what the model
    wrote is the first of the ``alternatives``. Printed, a summary is its text; ``repr`` leaves its long parts out.
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
