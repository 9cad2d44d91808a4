"""Recurrent encoder-decoders with attention, copying and coverage: the headline writer and See et al.

The rows of "Headline Writer" (Tables 1 to 3) and the pointer-generator of See et al. 2017 are settings of
this one model. A step, in the paper's order:

    x_t      the embedding of the previous word (with input feeding: merged with the last context)
    s_t      = RNN(x_t, s_{t-1})
    e^t, a^t, h*_t                            equations (1)-(3), (7): layers/attention/additive.py
    p_gen, P(w)                               equations (4), (5):     layers/copying/pointer.py
    covloss_t = sum_i min(a^t_i, c^t_i)       equation (8):           models/base.py, _project

In training, where no step depends on the one before it except through the recurrence, the steps are one fused call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from catchline.config.names import ATTENTIONS, build
from catchline.layers.attention.additive import Attention, Switchable
from catchline.layers.copying.pointer import CopyHead, HeadInput, VocabularyProjection, build_copy_head
from catchline.layers.recurrent import ACTIVATIONS, Recurrence, RecurrentState
from catchline.layers.transformer import BlocksConfig, BlockSizes, TransformerEncoder, token_positions
from catchline.models.base import RecurrentConfig, RecurrentModel, Spec, Steps
from catchline.types import AttentionOutput, Batch, Memory, Shared, TrainingBatch


class BertConfig(BlocksConfig):
    """An encoder of BERT's form instead of the recurrent one; its width is ``embedding_size``. ``dropout`` is of its
    attention weights too."""

    layers: int = Field(4, ge=1, le=1000)


class Seq2SeqConfig(RecurrentConfig):
    """Defaults are the library's; the paper's and See et al.'s choices are in the recipe. Numbers are rows of the table
    "Options" of the headline-writer page.
    """

    cell: Literal["lstm", "gru"] = "lstm"
    bidirectional: bool = True
    encoder_hidden: int = Field(256, ge=1, le=65_536)  # a direction (1)
    bert: BertConfig | None = None  # none: the encoder is recurrent
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
    init: Literal["torch", "see"] = "torch"  # (42)
    unk_loss: Literal["count", "ignore"] = "count"  # (19)

    @model_validator(mode="after")
    def _fits(self) -> Seq2SeqConfig:
        feeds = self.input_feeding != "none" or self.attention_timing == "before" or self.first_context == "initial"
        if self.attention is None and (feeds or self.see_decode_parity):
            raise ValueError("input_feeding, attention_timing, first_context and see_decode_parity need an attention")
        if self.attention is None and self.head.get("type") != "vocabulary":
            raise ValueError("head 'pointer' copies by attention: set an attention, or head.type to 'vocabulary'")
        if self.bert is not None and self.embedding_size % self.bert.num_heads:
            raise ValueError(f"embedding_size {self.embedding_size} is not a multiple of {self.bert.num_heads} heads")
        if self.tie_output and self.output_layers == 2:
            raise ValueError("tie_output already puts a layer before the output: set output_layers to 1")
        return self


class BertEncoder(nn.Module):
    """An encoder of BERT's form (Devlin et al. 2019): learnt positions, a layer norm after the sum, GELU in between. It
    stands where a `Recurrence` does; the last state, which starts the decoder, is the mean over real tokens."""

    def __init__(self, size: int, config: BertConfig) -> None:
        super().__init__()
        self.positions = nn.Embedding(config.max_positions, size)
        self.norm = nn.LayerNorm(size)
        self.dropout = nn.Dropout(config.dropout)
        rates = {"dropout": config.dropout, "attention_dropout": config.dropout}
        blocks = BlockSizes(size, config.num_heads, config.feed_forward_size, activation="gelu", **rates)
        self.encoder = TransformerEncoder(config.layers, blocks)
        nn.init.normal_(self.positions.weight, std=0.02)

    def over_real_tokens(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(B, S, D) under a (B, S) mask -> (B, S, D), zero at padding, and its mean (1, B, D)."""
        places = (token_positions(mask) - 1).clamp_min(0)
        summed = embedded + F.embedding(places, self.positions.weight)
        states, _ = self.encoder(self.dropout(self.norm(summed)), mask)
        states = states * mask.unsqueeze(-1)
        mean = (states.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp_min(1)).unsqueeze(0)
        return states, (mean,)


class Bridge(nn.Module):
    """From the encoder's final states to the decoder's first: ``act(W [forward; backward] + b)`` each. One linear layer
    for each part of the state (h, and c of an LSTM). Identity for a unidirectional encoder as wide as the decoder."""

    def __init__(self, parts: int, directions: int, encoder_size: int, size: int, activations: Sequence[str]) -> None:
        super().__init__()
        self.activations = list(activations)[:parts]
        identity = directions == 1 and encoder_size == size
        self.layers = nn.ModuleList(
            [] if identity else [nn.Linear(directions * encoder_size, size) for _ in range(parts)]
        )

    def forward(self, final: tuple[Tensor, ...]) -> RecurrentState:
        """Each of ``final`` (directions, B, He) -> (B, H)."""
        flat = [torch.cat(tuple(part), dim=-1) for part in final]
        if not self.layers:
            return tuple(flat)
        return tuple(
            ACTIVATIONS[name](layer(part))
            for name, layer, part in zip(self.activations, self.layers, flat, strict=True)
        )


class Seq2Seq(RecurrentModel):
    """See the file's docstring; ``Class(config, vocab_size=V, pad_id=, unk_id=, bos_id=, eos_id=)``."""

    Config = Seq2SeqConfig
    config: Seq2SeqConfig

    def __init__(self, config: Seq2SeqConfig, **ids: int) -> None:
        super().__init__(config, **ids)
        embedding, hidden = config.embedding_size, config.hidden_size
        directions = 1 + config.bidirectional
        parts = self._parts_of_state = 2 if config.cell == "lstm" else 1
        encoder_size = config.encoder_hidden
        if config.bert is not None:
            directions, encoder_size = 1, embedding
        memory_size = directions * encoder_size

        self.embedding = nn.Embedding(self.vocab_size, embedding, padding_idx=self.pad_id)
        self.target_embedding = self.embedding
        if not config.share_embeddings:
            self.target_embedding = nn.Embedding(self.vocab_size, embedding, padding_idx=self.pad_id)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder: Recurrence | BertEncoder
        if config.bert is None:
            options: dict[str, bool] = {"bidirectional": config.bidirectional, "two_biases": config.two_biases}
            self.encoder = Recurrence(config.cell, embedding, config.encoder_hidden, **options)
        else:
            self.encoder = BertEncoder(embedding, config.bert)
            self.max_source_tokens = config.bert.max_positions
        self.bridge = Bridge(parts, directions, encoder_size, hidden, config.bridge_activation)
        query_size = hidden * (parts if config.state_for_attention == "ch" else 1)
        self.attention: Attention | None = None
        if config.attention is not None:
            sizes = {"memory_size": memory_size, "query_size": query_size}
            self.attention = build("attention", ATTENTIONS, config.attention, **sizes)
        fixed_size = hidden if self._feeds_fixed_context else 0
        context_size = fixed_size if self.attention is None else memory_size
        fed = context_size if config.input_feeding != "none" or self._feeds_fixed_context else 0
        self.merge = nn.Linear(embedding + context_size, embedding) if config.input_feeding == "linear" else None
        step_size = embedding + (0 if self.merge is not None else fed)
        self.decoder = Recurrence(config.cell, step_size, hidden, two_biases=config.two_biases)
        uses_input = config.output_uses_input or self._feeds_fixed_context
        output_size = hidden + context_size + (embedding if uses_input else 0)
        output: dict[str, Any] = {"hidden_size": hidden if config.output_layers == 2 else None}
        if config.tie_output:
            output = {"hidden_size": embedding, "tied": self.target_embedding.weight}
        projection = VocabularyProjection(output_size, self.vocab_size, **output)
        gate_size = context_size + query_size + embedding
        self.head: CopyHead = build_copy_head(
            config.head, projection=projection, gate_size=gate_size, unk_id=self.unk_id
        )
        if config.init == "see" and not self.embedding.weight.is_meta:
            start_as_see(self)
        for layer in (self.encoder, self.decoder):
            if isinstance(layer, Recurrence):
                layer.add_forget_bias(config.forget_bias)
        if config.freeze_embeddings:
            self.embedding.weight.requires_grad_(False)
            self.target_embedding.weight.requires_grad_(False)

    # ------------------------------------------------------------------ encode, start, step

    def encode(self, batch: Batch) -> Memory:
        """``h_i`` (B, S, D) over real tokens only; ``final`` is the bridged state, (B, H) each."""
        self._check_length("source", batch.source_ids.shape[1], "text.max_source_tokens")
        embedded = self.embedding(batch.source_ids)
        embedded = self.dropout(embedded) if self.config.bert is None else embedded
        states, final = self.encoder.over_real_tokens(embedded, batch.source_mask)
        # under autocast the recurrence runs in bf16; what attends to its states is in their inputs' precision
        final = final * (self._parts_of_state // len(final))  # the mean over BERT's states starts h and c
        final = tuple(part.to(embedded.dtype) for part in self.bridge(final))
        return self._memory(batch, self.dropout(states.to(embedded.dtype)), final)

    def start(self, memory: Memory) -> dict[str, Any]:
        """The state before the first step. With ``see_decode_parity`` the initial state attends once, which
        makes the first context and stays in the coverage, as See et al.'s released decoder does (21)."""
        state = super().start(memory)
        return self._attend(state)[1] if self.config.see_decode_parity else state

    # ---------------------------------------------------------------------------- training

    def _force(self, embedded: Tensor, state: dict[str, Any], trace: Steps) -> None:
        """All steps of the recurrence in one call, then attention over all of them, where the recurrence is the only
        way in which a step depends on the one before."""
        c = self.config
        ways = c.attention_timing, c.input_feeding, c.state_for_attention
        if self.attention is not None and ways != ("after", "none", "h"):
            super()._force(embedded, state, trace)
            return
        inputs, trace.embedded = embedded, [embedded]
        if self._feeds_fixed_context:
            fixed = state["context"].unsqueeze(1).expand(-1, embedded.shape[1], -1)
            inputs, trace.contexts = torch.cat([embedded, fixed], dim=-1), [fixed]
        outputs, _ = self.decoder(inputs, state["recurrent"])
        trace.outputs, trace.states, trace.merged = [outputs], [outputs], [embedded]
        if self.attention is None:
            return
        attention_state = state["attention"]
        for queries in outputs.split(1, dim=1) if self.attention.recurrent else [outputs]:
            output, attention_state = self.attention(queries, attention_state)
            trace.remember(output)

    def _counted(self, batch: TrainingBatch) -> Tensor:
        """All real ones, or all that the model can write."""
        if self.config.unk_loss == "count":
            return batch.target_mask
        unknown = batch.target_ids == self.unk_id
        if not self.head.copies:  # to this model a word it cannot copy is UNK, in the source or not
            unknown = unknown | (batch.target_ids >= self.vocab_size)
        return batch.target_mask & ~unknown

    # --------------------------------------------------------------------------- one step

    def _embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.target_embedding(self._known(ids)))

    def _traced(self, embedded: Tensor, state: dict[str, Any], trace: Steps) -> dict[str, Any]:
        c, output = self.config, None
        if self.attention is not None and c.attention_timing == "before":
            output, state = self._attend(state)
        inputs = embedded
        if self._feeds_fixed_context or c.input_feeding != "none":
            inputs = torch.cat([embedded, state["context"]], dim=-1)
        merged = embedded
        if self.merge is not None:
            inputs = merged = self.merge(inputs)
        state = state | {"recurrent": self.decoder.step(inputs, state["recurrent"])}
        if self.attention is not None and c.attention_timing == "after":
            output, state = self._attend(state)
        trace.embedded.append(embedded.unsqueeze(1))
        trace.outputs.append(state["recurrent"][0].unsqueeze(1))
        trace.states.append(self._query(state).unsqueeze(1))
        trace.merged.append(merged.unsqueeze(1))
        if output is not None:
            trace.remember(output)
        elif self._feeds_fixed_context:
            trace.contexts.append(state["context"].unsqueeze(1))
        return state

    def _attend(self, state: dict[str, Any]) -> tuple[AttentionOutput, dict[str, Any]]:
        """What attention reads now, and the state with what it remembers and the context."""
        assert self.attention is not None
        query = self._query(state).unflatten(0, (state["mask"].tree.shape[0], -1))
        output, attention = self.attention(query, state["attention"])
        return output, state | {"attention": attention, "context": output.context.flatten(0, 1)}

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
            return state | {"context": self._attend(state)[1]["context"]}
        return state | {"context": memory.states.new_zeros(memory.mask.shape[0], memory.states.shape[-1])}

    # ------------------------------------------------------------------------------ parts

    @property
    def _feeds_fixed_context(self) -> bool:
        """Without attention the encoder's summary z goes to every step (paper section 3.3.3)."""
        return self.config.attention is None and self.config.context_feed == "every_step"

    def _head_inputs(self, trace: Steps, pick: Callable[[list[Tensor]], Tensor]) -> HeadInput:
        """``[s; h*]`` (with the embedded word where configured) and the gate's ``[h*; s; x]``."""
        context = [pick(trace.contexts)] if trace.contexts else []
        hidden = [pick(trace.outputs), *context]
        if self.config.output_uses_input or self._feeds_fixed_context:
            hidden.append(pick(trace.embedded))
        gate = [*context, pick(trace.states), pick(trace.merged)]
        return HeadInput(torch.cat(hidden, dim=-1), torch.cat(gate, dim=-1))

    def _word_tables(self) -> Sequence[nn.Embedding]:
        return self.embedding, self.target_embedding

    def _parts(self) -> Sequence[Switchable | None]:
        return (self.attention,)


def start_as_see(model: nn.Module) -> None:
    """How See et al.'s parameters start: LSTM kernels U(-0.02, 0.02) with zero bias; embedding, output layer and bridge
    truncated normal with standard deviation 1e-4, weights and biases; attention, merge, p_gen and first output layer
    Glorot uniform with zero bias (TensorFlow's: v counts as A by A, w_c as 1 by A; a w_c that starts at zero stays
    there)."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for name, parameter in model.named_parameters():
            if name.endswith("score_vector"):
                _glorot(parameter, len(parameter))
            elif name.endswith("coverage_vector") and bool(parameter.any()):
                _glorot(parameter, 1)
        for module in model.modules():
            if isinstance(module, Recurrence):
                for name, parameter in module.named_parameters():
                    nn.init.zeros_(parameter) if "bias" in name else nn.init.uniform_(parameter, -0.02, 0.02)
            elif isinstance(module, nn.Embedding):
                _tiny(module.weight)
                if module.padding_idx is not None:
                    module.weight[module.padding_idx] = 0
            elif isinstance(module, VocabularyProjection):
                _tiny(module.weight)
                _tiny(module.bias)
            elif isinstance(module, Bridge):
                for parameter in module.parameters():
                    _tiny(parameter)


def _glorot(vector: Tensor, fan_in: int) -> None:
    limit = (6 / (fan_in + len(vector))) ** 0.5
    nn.init.uniform_(vector, -limit, limit)


def _tiny(parameter: Tensor) -> None:
    nn.init.trunc_normal_(parameter, std=1e-4, a=-2e-4, b=2e-4)
