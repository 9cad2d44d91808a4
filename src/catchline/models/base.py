"""What every summarization model offers, and what all models here have in common.

`SummarizationModel` encodes once, then starts and steps, or takes a teacher-forced pass. Search sees `step` only. A
decoder state is a nested structure (dict, tuple, list, dataclass) of tensors with N = B * K decoder rows in front; what
belongs to the document is wrapped in `Shared` and keeps B in front, so that beams never copy the encoder's memory. Row
``b * K + k`` belongs to document ``b``.

A model says how it reads the source (`encode`), what it starts from (`_first_state`) and how a step advances. The base
has the ids, what words look like when they are fed, the state that every search needs, free running, and the projection
to the vocabulary: in a step over all X words, in training of the gold words alone. `RecurrentModel` has what recurrent
decoders share: the loop over the steps and what they leave.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from catchline.config.base import ConfigBase
from catchline.config.names import Table
from catchline.errors import ConfigError, DataError, did_you_mean
from catchline.kernels.dispatch import first_positions
from catchline.layers.attention.additive import Switchable
from catchline.layers.copying.pointer import CopyHead, CopySource, GoldTokens, HeadInput
from catchline.papers.pointer_generator import coverage_loss
from catchline.types import (
    PLAIN_PASS,
    AttentionOutput,
    Batch,
    Memory,
    ModelOutput,
    Shared,
    StepOutput,
    TrainingBatch,
    UpdateContext,
)

Spec = dict[str, Any]


class RecurrentConfig(ConfigBase):
    """The width of word vectors and of the decoder's state, and dropout, of a model with a recurrent decoder."""

    embedding_size: int = Field(128, ge=1, le=65_536)
    hidden_size: int = Field(256, ge=1, le=65_536)
    dropout: float = Field(0.0, ge=0, lt=1)


class SummarizationModel(nn.Module):
    """Base class of the models. ``Class(config, vocab_size=V, pad_id=..., unk_id=..., bos_id=..., eos_id=...)``."""

    Config: type[ConfigBase] = ConfigBase  # options of the model, as they stand below ``model`` in a recipe
    parts: ClassVar[Mapping[str, tuple[str, Table]]] = {}  # options that hold components
    decoder_start_id: int  # what the decoder reads first: BOS, unless the model says otherwise
    max_source_tokens: int | None = None  # the longest document that it can read; none: any
    max_target_tokens: int | None = None  # the longest summary that it can write; none: any
    attended_tokens: int | None = None  # a batch with a longer document has no attention over the whole of any
    encoder_switches: frozenset[str] | None = frozenset()  # switches that change what `encode` leaves; none: any may
    head: CopyHead
    _longer: ClassVar[str] = ""  # how a model of this kind reads more

    def __init__(
        self, config: ConfigBase, *, vocab_size: int, pad_id: int = 0, unk_id: int = 1, bos_id: int = 2, eos_id: int = 3
    ) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.pad_id, self.unk_id, self.bos_id, self.eos_id = pad_id, unk_id, bos_id, eos_id
        self.decoder_start_id = bos_id
        self.prediction_feed = "argmax"

    # -------------------------------------------------------------------------- the interface

    @abstractmethod
    def encode(self, batch: Batch) -> Memory:
        """Read the source: ``source_ids``, ``source_mask``, ``source_extended_ids`` of ``batch``."""

    @abstractmethod
    def step(self, last_ids: Tensor, state: Any) -> tuple[StepOutput, Any]:
        """One step for N rows. ``last_ids`` (N,) may hold extended ids; they are embedded as UNK."""

    @abstractmethod
    def forward(self, batch: TrainingBatch, context: UpdateContext = PLAIN_PASS) -> ModelOutput:
        """Teacher-forced pass; where ``context.forced_mask`` is false the model reads its own prediction."""

    def cross_attentions(self, batch: TrainingBatch) -> Tensor:
        """How each layer and head reads the source in a teacher-forced pass: (L, H, B, T, S). Row t is the step that
        predicts ``target_ids[:, t]``. Models with one attention have L = H = 1. Raises ConfigError: the model reads its
        source without attention."""
        attention = self(batch).attention
        if attention is None:
            raise ConfigError(f"This {type(self).__name__} has no attention over the source to look at.")
        return attention[None, None]

    def opponent_attention(self, batch: TrainingBatch) -> Tensor:
        """Contrastive attention's alpha_o in a teacher-forced pass: (B, T, S), rows as in `cross_attentions`. Raises
        ConfigError: the model has no opponent."""
        raise ConfigError(f"This {type(self).__name__} has no opponent attention; rows of the contrastive recipe do.")

    def read_figures(self, memory: Memory) -> list[tuple[dict[str, int], np.ndarray]]:
        """What was read of each document so far, ``chunks``, ``chunks_read``, ``words``, ``words_read``, and the source
        tokens ``[first, last)`` of its chunks, (C, 2); empty of models that do not read in chunks."""
        return []

    def switch(self, options: Mapping[str, Any]) -> None:
        """Apply a training phase's model switches, for example ``{"coverage": True}``. Switching changes neither
        parameters nor optimizer state. Unknown names are refused."""
        known = self.switches()
        for name, value in options.items():
            if name not in known:
                raise ConfigError(
                    f"The model has no option '{name}'.{did_you_mean(name, known)} Known: {sorted(known) or 'none'}."
                )
            if isinstance(known[name], bool) and not isinstance(value, bool):
                raise ConfigError(f"The option '{name}' is true or false, not '{value}'.")
            self._set_switch(name, value)

    # ------------------------------------------------------------------------- encode, start, step

    def _memory(self, batch: Batch, states: Tensor, final: Any = None, **extra: Any) -> Memory:
        """What `encode` leaves: ``states`` (B, S, D); X is V where nothing is copied."""
        return Memory(
            states=states,
            mask=batch.source_mask,
            extended_ids=batch.source_extended_ids,
            extended_vocab_size=batch.extended_vocab_size if self.head.copies else self.vocab_size,
            final=final,
            extra=extra,
        )

    def start(self, memory: Memory) -> dict[str, Any]:
        """The state before the first step: the model's own, the document's words, which are copied, and the output
        layer as decoding multiplies by it."""
        project = self.head.projection.for_decoding(memory.extended_vocab_size)
        return self._first_state(memory) | {"project": project, "source": Shared(self._source(memory))}

    @abstractmethod
    def _first_state(self, memory: Memory) -> dict[str, Any]:
        """What the decoder starts from, B rows."""

    def _source(self, memory: Memory, precomputed: Any = None, *, decodes: bool = True) -> CopySource:
        """The words that a head may copy; in decoding with their first places."""
        ids, size = memory.extended_ids, memory.extended_vocab_size
        first = first_positions(ids, size) if decodes and self.head.copies else None
        return CopySource(ids, memory.mask, size, first, precomputed)

    def _words(
        self, inputs: HeadInput, attention: AttentionOutput | None, state: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Any]]:
        """A step's log-probabilities (N, X) and details (N, ...) from inputs (B, Q, ...), and the state with what the
        head remembers."""
        log_probs, details, following = self.head(inputs, attention, state["source"].tree, state.get("head"))
        if following is not None:
            state = state | {"head": following}
        return log_probs.flatten(0, 1), {name: value.flatten(0, 1) for name, value in details.items()}, state

    def _step_output(
        self, inputs: HeadInput, attention: AttentionOutput | None, hidden: Tensor, state: dict[str, Any]
    ) -> tuple[StepOutput, dict[str, Any]]:
        """What a step is worth: its scores are its log-probabilities. ``hidden`` (N, H) is the decoder's state."""
        inputs.project = state["project"]
        log_probs, details, state = self._words(inputs, attention, state)
        output = StepOutput(log_probs, log_probs, details=details, state=hidden)
        if attention is not None:
            output.attention, output.context = attention.weights.flatten(0, 1), attention.context.flatten(0, 1)
        return output, state

    # ------------------------------------------------------------------------------------ training

    def _input_words(
        self, gold: Tensor, batch: TrainingBatch, forced: Tensor, log_probs: Callable[[], Tensor], every: bool = False
    ) -> Iterator[Tensor]:
        """The word (B,) that each step reads: ``gold`` (B, T) where ``forced`` (B, T) is true, else the model's own,
        without gradient through the choice. ``log_probs`` gives (B, X) of the step before. It is asked where an own
        word is needed, with ``every`` after each step (heads that remember their steps)."""
        needed = (~forced & batch.target_mask).any(dim=0).tolist()
        for t, words in enumerate(gold.unbind(dim=1)):
            if t and (every or needed[t]):
                with torch.no_grad():
                    own = self._own_word(log_probs())
                words = torch.where(forced[:, t], words, own)
            yield words

    def _own_word(self, log_probs: Tensor) -> Tensor:
        """The model's word, (B, X) -> (B,), as an extended id: the most likely; in scheduled sampling a drawn one."""
        if self.prediction_feed == "sample" and self.training:
            return torch.multinomial(log_probs.exp(), 1).squeeze(-1)
        return log_probs.argmax(dim=-1)

    def _counted(self, batch: TrainingBatch) -> Tensor:
        """(B, T) the target tokens that count in the loss."""
        return batch.target_mask

    def _gold(self, batch: TrainingBatch, context: UpdateContext) -> GoldTokens:
        """The gold words, where they count."""
        counted = self._counted(batch)
        rows, steps = counted.nonzero(as_tuple=True)
        weights = None if context.token_weights is None else context.token_weights[rows, steps]
        return GoldTokens(batch.target_ids[rows, steps], rows, weights, context.label_smoothing, steps, counted)

    def _likelihood(
        self, inputs: HeadInput, scores: Tensor | None, gold: GoldTokens, memory: Memory, precomputed: Any = None
    ) -> ModelOutput:
        """The vocabulary, once, on the tokens that count: M rows instead of B * T. ``inputs`` and ``scores`` (M, S), of
        the attention by which they copy, are those of the M words; ``precomputed`` is what the head makes of the
        documents."""
        source = self._source(memory, precomputed, decodes=False)
        log_probs, details = self.head.gold_log_probs(inputs, scores, source, gold)
        details = {name: gold.back(values) for name, values in details.items()} | self.head.of_document(precomputed)
        return ModelOutput(gold.back(log_probs), token_mask=gold.mask, details=details)

    # ---------------------------------------------------------------------------- words and switches

    def _known(self, ids: Tensor) -> Tensor:
        """Ids outside V become UNK, as which they are embedded."""
        return ids.masked_fill(ids >= self.vocab_size, self.unk_id)

    def _check_length(self, what: str, length: int, setting: str) -> None:
        limit = self.max_source_tokens if what == "source" else self.max_target_tokens
        if limit is not None and length > limit:
            raise DataError(
                f"A {what} of {length} tokens is longer than the {limit} that this model reads: {self._longer}set "
                f"{setting} lower."
            )

    def _word_tables(self) -> Sequence[nn.Embedding]:
        """The tables that pre-trained word embeddings fill; the first says how wide they are."""
        return ()

    def load_embeddings(self, matrix: Tensor) -> None:
        """Copy a (V, E) matrix into the word embeddings before training, into all tables of its size."""
        tables = self._word_tables()
        if not tables:
            raise ConfigError(f"{type(self).__name__} does not take pre-trained word embeddings.")
        if matrix.shape != tables[0].weight.shape:
            raise ConfigError(
                f"The embeddings are {matrix.shape[1]} wide, model.embedding_size is {tables[0].embedding_dim}; "
                f"set model.embedding_size to {matrix.shape[1]}."
            )
        with torch.no_grad():
            for table in tables:
                if table.weight.shape == matrix.shape:
                    table.weight.copy_(matrix)

    def _parts(self) -> Sequence[Switchable | None]:
        """Parts that have switches of their own."""
        return ()

    def switches(self) -> dict[str, Any]:
        """The switches and their present values (stored in checkpoints and in config.json)."""
        found: dict[str, Any] = {"prediction_feed": self.prediction_feed}
        for part in filter(None, self._parts()):
            found |= part.switches()
        return found

    def _set_switch(self, name: str, value: Any) -> None:
        if name == "prediction_feed":
            if value not in ("argmax", "sample"):
                raise ConfigError(f"The model can feed itself by 'argmax' or 'sample', not by '{value}'.")
            self.prediction_feed = value
        for part in filter(None, self._parts()):
            if name in part.switches():
                part.switch({name: value})


# --------------------------------------------------------------------------------------- recurrent decoders


@dataclass(slots=True)
class Steps:
    """What the steps of a recurrent decoder leave for the output layer; T steps in the second axis."""

    embedded: list[Tensor] = field(default_factory=list)  # (B, 1 or T, E)
    outputs: list[Tensor] = field(default_factory=list)  # s_t (B, 1 or T, H)
    states: list[Tensor] = field(default_factory=list)  # what attention and p_gen read, where that is not s_t
    merged: list[Tensor] = field(default_factory=list)  # x_t as p_gen reads it, where that is not the word
    contexts: list[Tensor] = field(default_factory=list)
    scores: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    coverage: list[Tensor] = field(default_factory=list)

    def remember(self, reading: AttentionOutput) -> None:
        """Append what an attention reading leaves."""
        assert reading.scores is not None, "a recurrent model's attention gives `AttentionOutput.scores`"
        self.contexts.append(reading.context)
        self.weights.append(reading.weights)
        self.scores.append(reading.scores)
        if "coverage" in reading.aux:
            self.coverage.append(reading.aux["coverage"])


class RecurrentModel(SummarizationModel):
    """A recurrent decoder with one attention. Training runs all steps first and projects to the vocabulary once,
    afterwards, on the tokens that count. A decoder state has the documents' mask under ``mask``."""

    dropout: nn.Dropout

    def step(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[StepOutput, dict[str, Any]]:
        """One step for N = B * Q rows; extended ids are embedded as UNK."""
        trace = Steps()
        state = self._traced(self._embed(last_ids), state, trace)
        return self._step_output(*self._last(trace, state), trace.outputs[-1].flatten(0, 1), state)

    def forward(self, batch: TrainingBatch, context: UpdateContext = PLAIN_PASS) -> ModelOutput:
        """Teacher-forced (or, where ``forced_mask`` says so, self-fed) pass: gold log-probabilities (B, T)."""
        gold = self._gold(batch, context)  # first: how many count is asked of the device, which has nothing to do yet
        memory = self.encode(batch)
        with torch.autocast(batch.source_ids.device.type, enabled=False):  # small products, which casts would cost
            state, trace = self._first_state(memory), Steps()
            if context.forced_mask is None:
                self._force(self._embed(batch.target_input_ids), state, trace)
            else:
                state["source"] = Shared(self._source(memory))

                def log_probs() -> Tensor:
                    return self._words(*self._last(trace, state), state)[0]

                words = self._input_words(batch.target_input_ids, batch, context.forced_mask, log_probs)
                self._loop(map(self._embed, words), state, trace)
        return self._project(trace, batch, memory, gold)

    @abstractmethod
    def _embed(self, ids: Tensor) -> Tensor:
        """What the decoder reads of words (...,), which may be extended ids: (..., E)."""

    @abstractmethod
    def _traced(self, embedded: Tensor, state: dict[str, Any], trace: Steps) -> dict[str, Any]:
        """Run one step on (N, E) embeddings and append what the output layer will need to ``trace``."""

    def _force(self, embedded: Tensor, state: dict[str, Any], trace: Steps) -> None:
        """All steps on the gold words (B, T, E)."""
        self._loop(embedded.unbind(dim=1), state, trace)

    def _loop(self, embedded: Iterable[Tensor], state: dict[str, Any], trace: Steps) -> None:
        """Step by step on (B, E) words, where the next input or attention needs the step before."""
        for words in embedded:
            state = self._traced(words, state, trace)

    def _last(self, trace: Steps, state: dict[str, Any]) -> tuple[HeadInput, AttentionOutput | None]:
        """What the head reads of the last step, as Q rows a document."""
        documents = state["mask"].tree.shape[0]
        inputs = self._head_inputs(trace, lambda part: part[-1].flatten(0, 1).unflatten(0, (documents, -1)))
        if not trace.weights:
            return inputs, None
        return inputs, AttentionOutput(trace.contexts[-1], trace.weights[-1], trace.scores[-1])

    @abstractmethod
    def _head_inputs(self, trace: Steps, pick: Callable[[list[Tensor]], Tensor]) -> HeadInput:
        """What the output layer and the gate read of the steps that ``pick`` takes."""

    def _project(self, trace: Steps, batch: TrainingBatch, memory: Memory, gold: GoldTokens) -> ModelOutput:
        """The vocabulary, once, on the tokens that count; the attention of all steps, and the coverage losses."""
        inputs = self._head_inputs(trace, lambda part: gold.at(torch.cat(part, dim=1)))
        inputs.hidden = self.dropout(inputs.hidden)
        scores = gold.at(torch.cat(trace.scores, dim=1)) if trace.scores and self.head.copies else None
        output = self._likelihood(inputs, scores, gold, memory)
        if trace.weights:
            output.attention = torch.cat(trace.weights, dim=1)
        if trace.coverage and output.attention is not None:
            losses = coverage_loss(output.attention, torch.cat(trace.coverage, dim=1))
            output.coverage_losses = losses.masked_fill(~output.counted(batch), 0.0)
        return output
