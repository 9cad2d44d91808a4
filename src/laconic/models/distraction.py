"""The distraction-based summarizer: Chen, Zhu, Ling, Wei and Jiang, IJCAI 2016.

The rows of its tables from Uni-GRU to M2 are settings of this one model; UNK replacement and M3 belong to search.
A step of the two-level decoder (equations 8 to 14):

    (10)          s'_t = GRU_2(s_{t-1}, e(y_{t-1}))      the word comes first
    (11) to (14)  e_t, alpha_t, c'_t, c_t                layers/attention/distraction.py, read with s'_t
    (9)           s_t  = GRU_1(s'_t, c_t)                the content second
    (8)           p_t  = softmax(W_o tanh(V_o e(y_{t-1}) + U_o s_t + C_o c_t))

The one-level decoder, which the paper names but does not define, is the usual one: attention reads s_{t-1}, and
s_t = GRU(s_{t-1}, [e(y_{t-1}); c_t]).

| paper | here |
| --- | --- |
| E | ``embedding`` (V, E), of encoder and decoder; the output is not tied to it |
| h_i | ``encoder``: a GRU, or one in each direction with H units each |
| s_0 = tanh(W_i mean_i h_i + b_i) | ``initial`` (the release; the paper is silent) |
| GRU_2, GRU_1 | ``decoder.of_word``, ``decoder.of_content`` |
| V_o, U_o, C_o | ``readout``, the columns of [e; s; c] in this order |
| W_o | ``head.projection`` |
| y_0 | the zero vector: what the decoder reads for BOS |

Before the loop: the encoder, U_a h, and the products of GRU_2 with all words. After it: the readout and the
vocabulary, once, on real target tokens. Between them nothing as large as (B, S, A) is kept for any step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from laconic.config.base import ConfigBase
from laconic.config.names import ATTENTIONS, parse
from laconic.errors import ConfigError
from laconic.kernels.dispatch import deferred_linear
from laconic.layers.attention.base import Attention
from laconic.layers.copying.base import CopyHead, CopySource, GoldTokens, HeadInput, build_copy_head, first_positions
from laconic.layers.masking import scatter_real
from laconic.layers.recurrent import GruCell, PaperGruCell, PaperRecurrence, Recurrence
from laconic.layers.vocabulary import VocabularyProjection
from laconic.models.base import SummarizationModel
from laconic.models.initialisation import initialise
from laconic.papers.distraction import readout
from laconic.papers.pointer_generator import coverage_loss
from laconic.types import AttentionOutput, Batch, Memory, ModelOutput, Shared, StepOutput

Spec = dict[str, Any]

CELLS: dict[str, type[GruCell]] = {"torch": GruCell, "paper": PaperGruCell}


class DistractionConfig(ConfigBase):
    """Sizes are the paper's for CNN. Numbers are rows of section c in ``docs/distraction.md``.

    ``attention`` holds M1 (``content``) and M2 (``history``); its ``bias`` follows ``bias`` unless it is set.
    """

    bidirectional: bool = True  # (15)
    decoder: Literal["two-level", "one-level"] = "two-level"  # (14)
    gru: Literal["torch", "paper"] = "torch"  # (2)
    bias: bool = True  # (3)
    embedding_size: int = Field(120, ge=1, le=65_536)
    hidden_size: int = Field(600, ge=1, le=65_536)  # of the decoder, and of each direction of the encoder (20)
    readout_size: int | None = Field(None, ge=1, le=65_536)  # none: hidden_size (4)
    attention: Spec = Field(default_factory=lambda: {"type": "distraction", "size": 100})  # (5)
    head: Spec = Field(default_factory=lambda: {"type": "vocabulary"})
    init: Literal["gaussian", "torch"] = "gaussian"
    dropout: float = Field(0.0, ge=0, lt=1)  # (27)


Step = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class _Level:
    """A decoder's step around the attention, prepared for one pass. Word products (N, 3H), states (N, H)."""

    before: Step  # (word products, s_{t-1}) -> what attention reads
    after: Callable[[Tensor, Tensor, Tensor], Tensor]  # (word products, what attention read, c_t) -> s_t


class TwoLevelDecoder(nn.Module):
    """Equations (9) to (14): GRU_2 reads the word, attention its state, GRU_1 the content."""

    def __init__(self, cell: type[GruCell], word_size: int, content_size: int, size: int, *, bias: bool) -> None:
        super().__init__()
        self.of_word = cell(word_size, size, bias=bias)
        self.of_content = cell(content_size, size, bias=bias)

    def word_products(self, embedded: Tensor) -> Tensor:
        """GRU_2's input products, (..., E) -> (..., 3H)."""
        return self.of_word.project(embedded)

    def prepared(self) -> _Level:
        """The step: s'_t = GRU_2(s_{t-1}, e), s_t = GRU_1(s'_t, c_t)."""
        content = deferred_linear(self.of_content.weight_ih, self.of_content.bias_ih)
        second, first = self.of_word.stepper(), self.of_content.stepper()
        return _Level(before=second, after=lambda _, query, context: first(content(context), query))


class OneLevelDecoder(nn.Module):
    """Attention reads s_{t-1}; one GRU reads [e(y_{t-1}); c_t]."""

    def __init__(self, cell: type[GruCell], word_size: int, content_size: int, size: int, *, bias: bool) -> None:
        super().__init__()
        self.word_size = word_size
        self.cell = cell(word_size + content_size, size, bias=bias)

    def word_products(self, embedded: Tensor) -> Tensor:
        """The word's share of the GRU's input products, (..., E) -> (..., 3H)."""
        return self.cell.project(embedded, slice(0, self.word_size))

    def prepared(self) -> _Level:
        """The step: s_t = GRU(s_{t-1}, [e; c_t])."""
        content, step = deferred_linear(self.cell.weight_ih[:, self.word_size :], None), self.cell.stepper()
        return _Level(
            before=lambda _, state: state,
            after=lambda words, state, context: step(words + content(context), state),
        )


DECODERS: dict[str, type[TwoLevelDecoder | OneLevelDecoder]] = {
    "two-level": TwoLevelDecoder,
    "one-level": OneLevelDecoder,
}


@dataclass(slots=True)
class _Trace:
    """What the steps leave for the readout, each (B, ...)."""

    states: list[Tensor] = field(default_factory=list)
    contexts: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    scores: list[Tensor] = field(default_factory=list)  # only where words are copied
    coverage: list[Tensor] = field(default_factory=list)  # of an additive attention that has it
    last_scores: Tensor | None = None  # of the last step


class Distraction(SummarizationModel):
    """See the file's docstring; ``Class(config, vocab_size=V, pad_id=, unk_id=, bos_id=, eos_id=)``."""

    Config = DistractionConfig
    config: DistractionConfig
    encoder_switches = frozenset()
    shares_memory = True

    def __init__(
        self,
        config: DistractionConfig,
        *,
        vocab_size: int,
        pad_id: int = 0,
        unk_id: int = 1,
        bos_id: int = 2,
        eos_id: int = 3,
    ) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.pad_id, self.unk_id, self.bos_id, self.eos_id = pad_id, unk_id, bos_id, eos_id
        self.decoder_start_id = bos_id
        self.prediction_feed = "argmax"
        words, size, bias = config.embedding_size, config.hidden_size, config.bias
        memory_size = size * (1 + config.bidirectional)
        self.embedding = nn.Embedding(vocab_size, words, padding_idx=pad_id)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = self._encoder()
        self.initial = nn.Linear(memory_size, size, bias=bias)
        self.attention: Attention = self._attention(memory_size)
        level = DECODERS[config.decoder]
        self.decoder: TwoLevelDecoder | OneLevelDecoder = level(CELLS[config.gru], words, memory_size, size, bias=bias)
        readout = config.readout_size or size
        self.readout = nn.Linear(words + size + memory_size, readout, bias=bias)
        self.head: CopyHead = build_copy_head(
            config.head,
            projection=VocabularyProjection(readout, vocab_size, bias=bias),
            gate_size=words + size + memory_size,
            unk_id=unk_id,
        )
        initialise(self, config.init)

    def _encoder(self) -> Recurrence | PaperRecurrence:
        c = self.config
        options = {"bidirectional": c.bidirectional, "bias": c.bias}
        if c.gru == "paper":
            return PaperRecurrence(c.embedding_size, c.hidden_size, **options)
        return Recurrence("gru", c.embedding_size, c.hidden_size, **options)

    def _attention(self, memory_size: int) -> Attention:
        spec = self.config.attention
        cls, options = parse("attention", ATTENTIONS, spec)
        if "bias" in cls.Config.model_fields and "bias" not in spec:
            options = options.model_copy(update={"bias": self.config.bias})
        attention: Attention = cls(options, memory_size=memory_size, query_size=self.config.hidden_size)
        return attention

    # ------------------------------------------------------------------ encode, start, step

    def encode(self, batch: Batch) -> Memory:
        """``h_i`` (B, S, D) over real tokens only; ``final`` is s_0 (B, H)."""
        embedded = self.dropout(self.embedding(batch.source_ids))
        states, _ = self.encoder.over_real_tokens(embedded, batch.source_mask)
        return Memory(
            states=states,
            mask=batch.source_mask,
            extended_ids=batch.source_extended_ids,
            extended_vocab_size=batch.extended_vocab_size if self.head.copies else self.vocab_size,
            final=first_state(states, batch.source_mask, self.initial.weight, self.initial.bias),
        )

    def start(self, memory: Memory) -> dict[str, Any]:
        """The state before the first step: s_0, empty histories."""
        project = self.head.projection.for_decoding(memory.extended_vocab_size)
        state = self._first_state(memory) | {"project": project}
        if self.head.copies:
            ids, size = memory.extended_ids, memory.extended_vocab_size
            state["source"] = Shared((ids, memory.mask, first_positions(ids, size), size))
        return state

    def step(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[StepOutput, dict[str, Any]]:
        """One step for N = B * Q rows; extended ids are embedded as UNK, BOS as the zero vector."""
        embedded = self._embed(last_ids)
        trace = _Trace()
        products = self.decoder.word_products(embedded)
        state = self._advance(products, state, trace, self.decoder.prepared())
        queries = trace.weights[-1].shape[1]
        inputs = self._head_inputs(embedded, trace.states[-1], trace.contexts[-1])
        hidden, gate = inputs.hidden.unflatten(0, (-1, queries)), inputs.gate.unflatten(0, (-1, queries))
        attention = AttentionOutput(trace.contexts[-1].unflatten(0, (-1, queries)), trace.weights[-1])
        inputs = HeadInput(hidden, gate, state["project"])
        log_probs, details, _ = self.head(inputs, attention, self._copy_source(state))
        log_probs = log_probs.flatten(0, 1)
        output = StepOutput(
            log_probs,
            log_probs,
            attention=trace.weights[-1].flatten(0, 1),
            attention_scores=None if trace.last_scores is None else trace.last_scores.flatten(0, 1),
            context=trace.contexts[-1],
            state=state["state"],
            details={name: value.flatten(0, 1) for name, value in details.items()},
        )
        return output, state

    # ---------------------------------------------------------------------------- training

    def forward(self, batch: Batch, memory: Memory | None = None) -> ModelOutput:
        """Teacher-forced (or, where ``forced_mask`` says so, self-fed) pass: gold log-probabilities (B, T)."""
        if batch.target_input_ids is None or batch.target_ids is None or batch.target_mask is None:
            raise AssertionError("forward needs a batch with targets")
        with torch.autocast(batch.source_ids.device.type, enabled=False):  # only the vocabulary is worth it
            memory = self.encode(batch) if memory is None else memory
            state, trace, level = self._first_state(memory), _Trace(), self.decoder.prepared()
            if batch.forced_mask is None:
                embedded = self._embed(batch.target_input_ids)
                for products in self.decoder.word_products(embedded).unbind(dim=1):
                    state = self._advance(products, state, trace, level)
            else:
                embedded = self._free_running(batch, memory, state, trace, level)
        return self._project(embedded, trace, batch, memory)

    def _free_running(
        self, batch: Batch, memory: Memory, state: dict[str, Any], trace: _Trace, level: _Level
    ) -> Tensor:
        """Where the coin of ``forced_mask`` (B, T) is false the next input is the model's own word, without
        gradient through the choice. Returns the embedded inputs (B, T, E)."""
        assert batch.target_input_ids is not None
        assert batch.forced_mask is not None
        gold, forced = batch.target_input_ids, batch.forced_mask
        first = first_positions(memory.extended_ids, memory.extended_vocab_size) if self.head.copies else None
        source = CopySource(memory.extended_ids, memory.mask, memory.extended_vocab_size, first)
        needs_own = (~forced & (batch.target_mask if batch.target_mask is not None else True)).any(dim=0).tolist()
        inputs, last_ids = [], gold[:, 0]
        for t in range(gold.shape[1]):
            embedded = self._embed(last_ids)
            inputs.append(embedded)
            state = self._advance(self.decoder.word_products(embedded), state, trace, level)
            if t + 1 < gold.shape[1]:
                last_ids = gold[:, t + 1]
                if needs_own[t + 1]:
                    last_ids = torch.where(forced[:, t + 1], last_ids, self._own_word(embedded, trace, source))
        return torch.stack(inputs, dim=1)

    @torch.no_grad()
    def _own_word(self, embedded: Tensor, trace: _Trace, source: CopySource) -> Tensor:
        """The model's word after the last traced step, (B,), as an extended id."""
        parts = (part.unsqueeze(1) for part in (embedded, trace.states[-1], trace.contexts[-1]))
        attention = AttentionOutput(trace.contexts[-1].unsqueeze(1), trace.weights[-1])
        log_probs, _, _ = self.head(self._head_inputs(*parts), attention, source)
        if self.prediction_feed == "sample":
            return torch.multinomial(log_probs[:, 0].exp(), 1).squeeze(-1)
        return log_probs[:, 0].argmax(dim=-1)

    def _project(self, embedded: Tensor, trace: _Trace, batch: Batch, memory: Memory) -> ModelOutput:
        """The readout and the vocabulary, once, on the real target tokens: M rows instead of B * T."""
        assert batch.target_ids is not None
        assert batch.target_mask is not None
        mask = batch.target_mask
        rows, steps = mask.nonzero(as_tuple=True)
        states, contexts = torch.stack(trace.states, dim=1), torch.stack(trace.contexts, dim=1)
        inputs = self._head_inputs(embedded[rows, steps], states[rows, steps], contexts[rows, steps])
        weights = None if batch.token_weights is None else batch.token_weights[rows, steps]
        gold = GoldTokens(batch.target_ids[rows, steps], rows, weights)
        scores = torch.cat(trace.scores, dim=1)[rows, steps] if self.head.copies else None
        source = CopySource(memory.extended_ids, memory.mask, memory.extended_vocab_size)
        log_probs, details = self.head.gold_log_probs(inputs, scores, source, gold)
        placed = {name: scatter_real(values, mask) for name, values in details.items()}
        output = ModelOutput(scatter_real(log_probs, mask), details=placed, memory=memory)
        output.attention = torch.cat(trace.weights, dim=1)
        if trace.coverage:
            losses = coverage_loss(output.attention, torch.cat(trace.coverage, dim=1))
            output.coverage_losses = losses.masked_fill(~mask, 0.0)
        return output

    # --------------------------------------------------------------------------- one step

    def _advance(self, products: Tensor, state: dict[str, Any], trace: _Trace, level: _Level) -> dict[str, Any]:
        """One step on the words' products (N, 3H); appends to ``trace`` and returns the next state."""
        query = level.before(products, state["state"])
        documents = state["mask"].tree.shape[0]
        reading, attention = self.attention(query.unflatten(0, (documents, -1)), state["attention"])
        context = reading.context.flatten(0, 1)
        after = level.after(products, query, context)
        trace.states.append(after)
        trace.contexts.append(context)
        trace.weights.append(reading.weights)
        trace.last_scores = reading.scores
        if self.head.copies:
            trace.scores.append(reading.scores)
        if "coverage" in reading.aux:
            trace.coverage.append(reading.aux["coverage"])
        return state | {"state": after, "attention": attention}

    def _first_state(self, memory: Memory) -> dict[str, Any]:
        return {
            "state": memory.final,
            "attention": self.attention.init_state(memory),
            "mask": Shared(memory.mask),
        }

    def _embed(self, ids: Tensor) -> Tensor:
        """Decoder inputs (...,) -> (..., E); extended ids as UNK, BOS as the zero vector y_0."""
        known = ids.masked_fill(ids >= self.vocab_size, self.unk_id)
        return self.dropout(self.embedding(known).masked_fill((ids == self.bos_id).unsqueeze(-1), 0.0))

    def _head_inputs(self, embedded: Tensor, state: Tensor, context: Tensor) -> HeadInput:
        """Equation (8) up to W_o; the gate of a head that copies reads [c; s; e], as the pointer-generator's does."""
        features = torch.cat([embedded, state, context], dim=-1)
        hidden = self.dropout(readout(features, self.readout.weight, self.readout.bias))
        gate = torch.cat([context, state, embedded], dim=-1) if self.head.copies else features
        return HeadInput(hidden, gate)

    def _copy_source(self, state: dict[str, Any]) -> CopySource:
        if not self.head.copies:
            return CopySource(state["state"], state["state"], self.vocab_size)
        ids, mask, first, size = state["source"].tree
        return CopySource(ids, mask, size, first)

    # ----------------------------------------------------------------------------- settings

    def load_embeddings(self, matrix: Tensor) -> None:
        """Copy a (V, E) matrix into the word embeddings."""
        if matrix.shape != self.embedding.weight.shape:
            raise ConfigError(
                f"The embeddings are {matrix.shape[1]} wide, model.embedding_size is {self.config.embedding_size}; "
                f"set model.embedding_size to {matrix.shape[1]}."
            )
        with torch.no_grad():
            self.embedding.weight.copy_(matrix)

    def switches(self) -> dict[str, Any]:
        return {"prediction_feed": self.prediction_feed} | self.attention.switches()

    def _set_switch(self, name: str, value: Any) -> None:
        if name != "prediction_feed":
            self.attention.switch({name: value})
        elif value in ("argmax", "sample"):
            self.prediction_feed = value
        else:
            raise ConfigError(f"The model can feed itself by 'argmax' or 'sample', not by '{value}'.")


def first_state(states: Tensor, mask: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``s_0 = tanh(W_i mean_i(h_i) + b_i)`` over real positions: (B, S, D), (B, S) -> (B, H).

    Not in the paper: the release's. ``states`` are zero at padding.
    """
    mean = states.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp_min(1)
    return torch.tanh(nn.functional.linear(mean, weight, bias))
