"""Recurrent encoder-decoders with attention, copying and coverage: the headline writer and See et al.

The rows of "Headline Writer" (Tables 1 to 3) and the pointer-generator of See et al. 2017 are settings of
this one model. A step, in the paper's order:

    x_t      the embedding of the previous word (with input feeding: merged with the last context)
    s_t      = RNN(x_t, s_{t-1})
    e^t, a^t, h*_t                            equations (1)-(3), (7): layers/attention/additive.py
    p_gen, P(w)                               equations (4), (5):     layers/copying/pointer.py
    covloss_t = sum_i min(a^t_i, c^t_i)       equation (8):           objectives/coverage.py

Training runs all steps first and projects to the vocabulary once, afterwards, on real tokens only. Where
no step depends on the one before it except through the recurrence, the steps are one fused call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from laconic.config.base import ConfigBase
from laconic.config.names import ATTENTIONS, build
from laconic.errors import ConfigError
from laconic.kernels.dispatch import deferred_linear
from laconic.layers.attention.base import Attention
from laconic.layers.copying.base import CopyHead, CopySource, GoldTokens, HeadInput, build_copy_head, first_positions
from laconic.layers.masking import scatter_real
from laconic.layers.recurrent import Bridge, Recurrence, RecurrentState
from laconic.layers.vocabulary import VocabularyProjection
from laconic.models.base import SummarizationModel
from laconic.models.initialisation import initialise
from laconic.papers.pointer_generator import coverage_loss
from laconic.types import AttentionOutput, Batch, Memory, ModelOutput, Shared, StepOutput

Spec = dict[str, Any]


class Seq2SeqConfig(ConfigBase):
    """Defaults are the library's; the paper's and See et al.'s choices are in the recipe.

    Numbers are rows of section c of the headline-writer page in the documentation.
    """

    cell: Literal["lstm", "gru"] = "lstm"
    bidirectional: bool = True
    embedding_size: int = Field(128, ge=1, le=65_536)
    encoder_hidden: int = Field(256, ge=1, le=65_536)  # a direction (1)
    hidden_size: int = Field(256, ge=1, le=65_536)
    bridge_activation: tuple[Literal["none", "relu", "tanh"], Literal["none", "relu", "tanh"]] = ("tanh", "none")  # (4)
    forget_bias: float = 0.0  # (3)
    two_biases: bool = True
    context_feed: Literal["every_step", "init"] = "every_step"  # without attention: where z goes
    attention: Spec | None = Field(default_factory=lambda: {"type": "additive"})
    attention_timing: Literal["after", "before"] = "after"  # reads s_t or s_{t-1} (5)
    state_for_attention: Literal["h", "ch"] = "h"  # (6)
    input_feeding: Literal["none", "concat", "linear"] = "none"  # (9)
    first_context: Literal["zero", "initial"] = "zero"  # (10)
    see_decode_parity: bool = False  # (10), (21)
    head: Spec = Field(default_factory=lambda: {"type": "pointer"})
    output_layers: Literal[1, 2] = 1  # (13)
    output_uses_input: bool = False  # (13)
    tie_output: bool = False  # (14)
    share_embeddings: bool = True  # (15)
    freeze_embeddings: bool = False  # (16)
    dropout: float = Field(0.0, ge=0, lt=1)  # (47)
    init: Literal["torch", "see"] = "torch"  # (42)
    unk_loss: Literal["count", "ignore"] = "count"  # (19)

    @model_validator(mode="after")
    def _fits(self) -> Seq2SeqConfig:
        feeds = self.input_feeding != "none" or self.attention_timing == "before" or self.first_context == "initial"
        if self.attention is None and (feeds or self.see_decode_parity):
            raise ValueError("input_feeding, attention_timing, first_context and see_decode_parity need an attention")
        if self.attention is None and self.head.get("type") != "vocabulary":
            raise ValueError("head 'pointer' copies by attention: set an attention, or head.type to 'vocabulary'")
        return self


@dataclass(slots=True)
class _Trace:
    """What the steps leave for the output layer; T steps in the second axis."""

    embedded: list[Tensor] = field(default_factory=list)  # (B, 1 or T, E)
    outputs: list[Tensor] = field(default_factory=list)  # s_t (B, 1 or T, H)
    states: list[Tensor] = field(default_factory=list)  # what attention and p_gen read: s_t or [c_t; s_t]
    merged: list[Tensor] = field(default_factory=list)  # x_t as p_gen reads it
    contexts: list[Tensor] = field(default_factory=list)
    scores: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    coverage: list[Tensor] = field(default_factory=list)

    def remember(self, reading: AttentionOutput) -> None:
        """Append what an attention reading leaves."""
        assert reading.scores is not None
        self.contexts.append(reading.context)
        self.weights.append(reading.weights)
        self.scores.append(reading.scores)
        if "coverage" in reading.aux:
            self.coverage.append(reading.aux["coverage"])


@dataclass(slots=True)
class _Applied:
    """The functions of a step: as they are in decoding, with gathered weight gradients in training."""

    cell: Callable[[Tensor, RecurrentState], RecurrentState]
    merge: Callable[[Tensor], Tensor] | None


class Seq2Seq(SummarizationModel):
    """See the file's docstring; ``Class(config, vocab_size=V, pad_id=, unk_id=, bos_id=, eos_id=)``."""

    Config = Seq2SeqConfig
    config: Seq2SeqConfig
    encoder_switches = frozenset()
    shares_memory = True

    def __init__(
        self,
        config: Seq2SeqConfig,
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
        embedding, hidden = config.embedding_size, config.hidden_size
        directions, parts = 1 + config.bidirectional, 2 if config.cell == "lstm" else 1
        memory_size = directions * config.encoder_hidden

        self.embedding = nn.Embedding(vocab_size, embedding, padding_idx=pad_id)
        self.target_embedding = (
            self.embedding if config.share_embeddings else nn.Embedding(vocab_size, embedding, padding_idx=pad_id)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = Recurrence(
            config.cell,
            embedding,
            config.encoder_hidden,
            bidirectional=config.bidirectional,
            two_biases=config.two_biases,
        )
        self.bridge = Bridge(parts, directions, config.encoder_hidden, hidden, config.bridge_activation)
        query_size = hidden * (parts if config.state_for_attention == "ch" else 1)
        self.attention: Attention | None = None
        if config.attention is not None:
            sizes = {"memory_size": memory_size, "query_size": query_size}
            self.attention = build("attention", ATTENTIONS, config.attention, **sizes)
        context_size = self._context_size(memory_size)
        fed = context_size if config.input_feeding != "none" or self._feeds_fixed_context else 0
        self.merge = nn.Linear(embedding + context_size, embedding) if config.input_feeding == "linear" else None
        step_size = embedding + (0 if self.merge is not None else fed)
        self.decoder = Recurrence(config.cell, step_size, hidden, two_biases=config.two_biases)
        uses_input = config.output_uses_input or self._feeds_fixed_context
        output_size = hidden + context_size + (embedding if uses_input else 0)
        self.head: CopyHead = build_copy_head(
            config.head,
            projection=self._projection(output_size),
            gate_size=context_size + query_size + embedding,
            unk_id=unk_id,
        )
        initialise(self, config.init)
        for layer in (self.encoder, self.decoder):
            layer.add_forget_bias(config.forget_bias)
        if config.freeze_embeddings:
            self.embedding.weight.requires_grad_(False)
            self.target_embedding.weight.requires_grad_(False)

    # ------------------------------------------------------------------ encode, start, step

    def encode(self, batch: Batch) -> Memory:
        """``h_i`` (B, S, D) over real tokens only; ``final`` is the bridged state, (B, H) each."""
        embedded = self.dropout(self.embedding(batch.source_ids))
        states, final = self.encoder.over_real_tokens(embedded, batch.source_mask)
        # under autocast the recurrence runs in bf16; what attends to its states is in their inputs' precision
        return Memory(
            states=self.dropout(states.to(embedded.dtype)),
            mask=batch.source_mask,
            extended_ids=batch.source_extended_ids,
            extended_vocab_size=batch.extended_vocab_size if self.head.copies else self.vocab_size,
            final=tuple(part.to(embedded.dtype) for part in self.bridge(final)),
        )

    def start(self, memory: Memory) -> dict[str, Any]:
        """The state before the first step. With ``see_decode_parity`` the initial state attends once, which
        makes the first context and stays in the coverage, as See et al.'s released decoder does (21)."""
        project = self.head.projection.for_decoding(memory.extended_vocab_size)
        state = self._first_state(memory) | {"project": project}
        if self.head.copies:
            ids, mask = memory.extended_ids, memory.mask
            first = first_positions(ids, memory.extended_vocab_size)
            state["source"] = Shared((ids, mask, first, memory.extended_vocab_size))
        if self.config.see_decode_parity:
            output, attention = self._attend(state)
            state |= {"attention": attention, "context": output.context.flatten(0, 1)}
        return state

    def step(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[StepOutput, dict[str, Any]]:
        """One step for N = B * Q rows; extended ids are embedded as UNK."""
        embedded = self.target_embedding(last_ids.masked_fill(last_ids >= self.vocab_size, self.unk_id))
        inputs, attention, state = self._advance(embedded, state)
        queries = 1 if attention is None else attention.weights.shape[1]
        hidden, gate = (part.unflatten(0, (-1, queries)) for part in (inputs.hidden, inputs.gate))
        inputs = HeadInput(hidden, gate, state["project"])
        log_probs, details, _ = self.head(inputs, attention, self._copy_source(state))
        log_probs = log_probs.flatten(0, 1)
        details = {name: value.flatten(0, 1) for name, value in details.items()}
        output = StepOutput(log_probs, log_probs, details=details, state=state["recurrent"][0])
        if attention is not None:
            output.attention, output.context = attention.weights.flatten(0, 1), attention.context.flatten(0, 1)
            output.attention_scores = None if attention.scores is None else attention.scores.flatten(0, 1)
        return output, state

    # ---------------------------------------------------------------------------- training

    def forward(self, batch: Batch, memory: Memory | None = None) -> ModelOutput:
        """Teacher-forced (or, where ``forced_mask`` says so, self-fed) pass: gold log-probabilities (B, T)."""
        if batch.target_input_ids is None or batch.target_ids is None or batch.target_mask is None:
            raise AssertionError("forward needs a batch with targets")
        memory = self.encode(batch) if memory is None else memory
        with torch.autocast(batch.source_ids.device.type, enabled=False):  # small products, which casts would cost
            state = self._first_state(memory)
            if batch.forced_mask is None:
                embedded = self.dropout(self.target_embedding(batch.target_input_ids))
                trace = self._fused(embedded, state) if self._can_fuse else self._loop(embedded, state)
            else:
                trace = self._free_running(batch, memory, state)
        return self._project(trace, batch, memory)

    @property
    def _can_fuse(self) -> bool:
        """Is the recurrence the only way in which a step depends on the one before (specification g.1)?"""
        c = self.config
        return self.attention is None or (
            c.attention_timing == "after" and c.input_feeding == "none" and c.state_for_attention == "h"
        )

    def _fused(self, embedded: Tensor, state: dict[str, Any]) -> _Trace:
        """All steps of the recurrence in one call, then attention over all of them."""
        trace = _Trace(embedded=[embedded])
        inputs = embedded
        if self._feeds_fixed_context:
            fixed = state["context"].unsqueeze(1).expand(-1, embedded.shape[1], -1)
            inputs, trace.contexts = torch.cat([embedded, fixed], dim=-1), [fixed]
        outputs, _ = self.decoder(inputs, state["recurrent"])
        trace.outputs, trace.states, trace.merged = [outputs], [outputs], [embedded]
        if self.attention is None:
            return trace
        steps = outputs.split(1, dim=1) if self.attention.recurrent else [outputs]
        attention_state = state["attention"]
        for queries in steps:
            output, attention_state = self.attention(queries, attention_state)
            trace.remember(output)
        return trace

    def _loop(self, embedded: Tensor, state: dict[str, Any]) -> _Trace:
        """Step by step, for models whose next input or attention needs the step before."""
        trace = _Trace(embedded=[embedded])
        run = self._prepared()
        for one in embedded.unbind(dim=1):
            state = self._traced(one, state, trace, run)
        return trace

    def _free_running(self, batch: Batch, memory: Memory, state: dict[str, Any]) -> _Trace:
        """As `_loop`, but where the coin of ``forced_mask`` (B, T) is false the next input is the model's own
        word: the argmax (or a sample) of the final distribution, without gradient (specification b.5)."""
        assert batch.target_input_ids is not None
        assert batch.forced_mask is not None
        trace = _Trace()
        first = first_positions(memory.extended_ids, memory.extended_vocab_size) if self.head.copies else None
        source = CopySource(memory.extended_ids, memory.mask, memory.extended_vocab_size, first)
        gold, forced = batch.target_input_ids, batch.forced_mask
        needs_own = (~forced & (batch.target_mask if batch.target_mask is not None else True)).any(dim=0).tolist()
        last_ids, run = gold[:, 0], self._prepared()
        for t in range(gold.shape[1]):
            embedded = self.dropout(self.target_embedding(last_ids))
            trace.embedded.append(embedded.unsqueeze(1))
            state = self._traced(embedded, state, trace, run)
            if t + 1 == gold.shape[1]:
                break
            last_ids = gold[:, t + 1]
            if needs_own[t + 1]:
                own = self._own_word(trace, source)
                last_ids = torch.where(forced[:, t + 1], last_ids, own.masked_fill(own >= self.vocab_size, self.unk_id))
        return trace

    @torch.no_grad()
    def _own_word(self, trace: _Trace, source: CopySource) -> Tensor:
        """The model's word after the last traced step, (B,), as an extended id."""
        inputs = self._head_inputs(trace, lambda part: part[-1])
        attention = AttentionOutput(trace.contexts[-1], trace.weights[-1]) if trace.weights else None
        log_probs, _, _ = self.head(inputs, attention, source)
        if self.prediction_feed == "sample":
            return torch.multinomial(log_probs[:, 0].exp(), 1).squeeze(-1)
        return log_probs[:, 0].argmax(dim=-1)

    def _project(self, trace: _Trace, batch: Batch, memory: Memory) -> ModelOutput:
        """The vocabulary, once, on the tokens that count: M rows instead of B * T."""
        assert batch.target_ids is not None
        mask = self._counted(batch)
        rows, steps = mask.nonzero(as_tuple=True)
        inputs = self._head_inputs(trace, lambda part: torch.cat(part, dim=1)[rows, steps])
        inputs.hidden = self.dropout(inputs.hidden)
        weights = None if batch.token_weights is None else batch.token_weights[rows, steps]
        gold = GoldTokens(batch.target_ids[rows, steps], rows, weights, batch.label_smoothing.get("nll", 0.0), steps)
        scores = torch.cat(trace.scores, dim=1)[rows, steps] if trace.scores and self.head.copies else None
        source = CopySource(memory.extended_ids, memory.mask, memory.extended_vocab_size)
        log_probs, details = self.head.gold_log_probs(inputs, scores, source, gold)
        placed = {name: scatter_real(values, mask) for name, values in details.items()}
        output = ModelOutput(scatter_real(log_probs, mask), details=placed, memory=memory)
        if trace.weights:
            output.attention = torch.cat(trace.weights, dim=1)
        if trace.coverage and output.attention is not None:
            losses = coverage_loss(output.attention, torch.cat(trace.coverage, dim=1))
            output.coverage_losses = losses.masked_fill(~mask, 0.0)
        if self.config.unk_loss == "ignore":
            output.token_mask = mask
        return output

    def _counted(self, batch: Batch) -> Tensor:
        """(B, T) the target tokens that count in the loss: all real ones, or all that the model can write."""
        assert batch.target_ids is not None
        assert batch.target_mask is not None
        if self.config.unk_loss == "count":
            return batch.target_mask
        unknown = batch.target_ids == self.unk_id
        if not self.head.copies:  # to this model a word it cannot copy is UNK, in the source or not
            unknown = unknown | (batch.target_ids >= self.vocab_size)
        return batch.target_mask & ~unknown

    # --------------------------------------------------------------------------- one step

    def _advance(
        self, embedded: Tensor, state: dict[str, Any]
    ) -> tuple[HeadInput, AttentionOutput | None, dict[str, Any]]:
        """One step on (N, E) embeddings: what the head reads, the attention, the next state."""
        trace = _Trace(embedded=[embedded.unsqueeze(1)])
        state = self._traced(embedded, state, trace, _Applied(self.decoder.step, self.merge))
        inputs = self._head_inputs(trace, lambda part: part[-1].flatten(0, 1))
        if self.attention is None:
            return inputs, None, state
        return inputs, AttentionOutput(trace.contexts[-1], trace.weights[-1]), state

    def _prepared(self) -> _Applied:
        """The cell and the merge layer for the steps of one training pass."""
        merge = None if self.merge is None else deferred_linear(self.merge.weight, self.merge.bias)
        return _Applied(self.decoder.stepper(), merge)

    def _traced(self, embedded: Tensor, state: dict[str, Any], trace: _Trace, run: _Applied) -> dict[str, Any]:
        """Run one step on (N, E) embeddings and append what the output layer will need to ``trace``."""
        c = self.config
        output = None
        if self.attention is not None and c.attention_timing == "before":
            output, attention = self._attend(state)
            state = state | {"attention": attention, "context": output.context.flatten(0, 1)}
        inputs = embedded
        if self._feeds_fixed_context or c.input_feeding != "none":
            inputs = torch.cat([embedded, state["context"]], dim=-1)
        merged = embedded
        if run.merge is not None:
            inputs = merged = run.merge(inputs)
        state = state | {"recurrent": run.cell(inputs, state["recurrent"])}
        if self.attention is not None and c.attention_timing == "after":
            output, attention = self._attend(state)
            state = state | {"attention": attention, "context": output.context.flatten(0, 1)}
        trace.outputs.append(state["recurrent"][0].unsqueeze(1))
        trace.states.append(self._query(state).unsqueeze(1))
        trace.merged.append(merged.unsqueeze(1))
        if output is not None:
            trace.remember(output)
        elif self._feeds_fixed_context:
            trace.contexts.append(state["context"].unsqueeze(1))
        return state

    def _attend(self, state: dict[str, Any]) -> tuple[AttentionOutput, Any]:
        assert self.attention is not None
        query = self._query(state)
        return self.attention(query.unflatten(0, (state["mask"].tree.shape[0], -1)), state["attention"])

    def _query(self, state: dict[str, Any]) -> Tensor:
        """s_t, or See et al.'s [c_t; h_t] in this order."""
        recurrent = state["recurrent"]
        return torch.cat(recurrent[::-1], dim=-1) if self.config.state_for_attention == "ch" else recurrent[0]

    def _first_state(self, memory: Memory) -> dict[str, Any]:
        state: dict[str, Any] = {"recurrent": memory.final, "mask": Shared(memory.mask)}
        if self.attention is None:
            return state | ({"context": memory.final[0]} if self._feeds_fixed_context else {})
        state["attention"] = self.attention.init_state(memory)
        if self.config.first_context == "initial":
            output, _ = self._attend(state)
            return state | {"context": output.context.flatten(0, 1)}
        return state | {"context": memory.states.new_zeros(memory.batch_size, memory.states.shape[-1])}

    # ------------------------------------------------------------------------------ parts

    @property
    def _feeds_fixed_context(self) -> bool:
        """Without attention the encoder's summary z goes to every step (paper section 3.3.3)."""
        return self.config.attention is None and self.config.context_feed == "every_step"

    def _context_size(self, memory_size: int) -> int:
        if self.config.attention is not None:
            return memory_size
        return self.config.hidden_size if self._feeds_fixed_context else 0

    def _projection(self, output_size: int) -> VocabularyProjection:
        c = self.config
        tied = self.target_embedding.weight if c.tie_output else None
        hidden = c.embedding_size if c.tie_output else c.hidden_size if c.output_layers == 2 else None
        if c.tie_output and c.output_layers == 2:
            raise ConfigError("model.tie_output already puts a layer before the output: set output_layers to 1.")
        return VocabularyProjection(output_size, self.vocab_size, hidden_size=hidden, tied=tied)

    def _head_inputs(self, trace: _Trace, pick: Callable[[list[Tensor]], Tensor]) -> HeadInput:
        """``[s; h*]`` (with the embedded word where configured) and the gate's ``[h*; s; x]``."""
        context = [pick(trace.contexts)] if trace.contexts else []
        hidden = [pick(trace.outputs), *context]
        if self.config.output_uses_input or self._feeds_fixed_context:
            hidden.append(pick(trace.embedded))
        gate = [*context, pick(trace.states), pick(trace.merged)]
        return HeadInput(torch.cat(hidden, dim=-1), torch.cat(gate, dim=-1))

    def _copy_source(self, state: dict[str, Any]) -> CopySource:
        if not self.head.copies:
            nothing = state["recurrent"][0]
            return CopySource(nothing, nothing, self.vocab_size)
        ids, mask, first, size = state["source"].tree
        return CopySource(ids, mask, size, first)

    def load_embeddings(self, matrix: Tensor) -> None:
        """Copy a (V, E) matrix into the word embeddings (both, when they are not shared)."""
        if matrix.shape != self.embedding.weight.shape:
            raise ConfigError(
                f"The embeddings are {matrix.shape[1]} wide, model.embedding_size is {self.config.embedding_size}; "
                f"set model.embedding_size to {matrix.shape[1]}."
            )
        with torch.no_grad():
            self.embedding.weight.copy_(matrix)
            self.target_embedding.weight.copy_(matrix)

    def switches(self) -> dict[str, Any]:
        own = {"prediction_feed": self.prediction_feed}
        return own if self.attention is None else own | self.attention.switches()

    def _set_switch(self, name: str, value: Any) -> None:
        if name == "prediction_feed":
            if value not in ("argmax", "sample"):
                raise ConfigError(f"The model can feed itself by 'argmax' or 'sample', not by '{value}'.")
            self.prediction_feed = value
        elif self.attention is not None:
            self.attention.switch({name: value})
