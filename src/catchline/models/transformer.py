"""Transformers: what ours and those of transformers do with the decoder's states, and ours.

A pass leaves the projected queries, keys and values of some layers' cross attention (`CapturedAttention`): in training
Q = T rows a document, in decoding Q = K beams. They are references, and cost nothing to those who do not look. From the
layer ``attention_layer`` come the weights by which a head copies and a summary is explained, from that of
``opponent.layer`` what the opponent reads.

`Transformer` is that of the contrastive-attention paper (Duan et al. 2019), its baseline and its base.

    x        = sqrt(D) E[word] + position                         layers/transformer.py
    m        = encoder(x)                                         layers/transformer.py
    h        = decoder(x, m)
    P(w)     = softmax(E h), or the pointer's mixture             layers/copying/

One matrix E is source embedding, target embedding and output layer. The decoder first reads the END symbol, whatever
BOS is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from catchline.config.base import ConfigBase
from catchline.config.names import OPPONENTS, build
from catchline.layers.attention.additive import Switchable
from catchline.layers.copying.pointer import EncoderFeatures, HeadInput, VocabularyProjection, build_copy_head
from catchline.layers.opponent import DecoderShape, Opponent, OpponentOutput
from catchline.layers.transformer import (
    BlocksConfig,
    BlockSizes,
    CapturedAttention,
    TransformerDecoder,
    TransformerEncoder,
    head_attention,
    log_weights,
    masked_sinusoids,
    mean_attention,
    sinusoids,
    step_attention,
)
from catchline.models.base import Spec, SummarizationModel
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


@dataclass(slots=True)
class EncodedSource:
    """What all steps and beams of a search read: B documents in front."""

    states: Tensor  # (B, S, D)
    mask: Tensor  # (B, S) bool
    layers: list[tuple[Tensor, Tensor]]  # each decoder layer's keys and values (B, H, S, d), projected once


@dataclass(slots=True)
class Decoded:
    """What Q decoder rows a document leave for the output; Q is T in training, K in search."""

    inputs: Tensor  # (B, Q, ...) what the decoder read
    hidden: Tensor  # (B, Q, D) its output
    captured: dict[int, CapturedAttention]  # the cross attention of layers, by their numbers from 0

    @classmethod
    def over_steps(cls, parts: Sequence[Decoded]) -> Decoded:
        """Successive steps as one."""
        return cls(
            inputs=torch.cat([part.inputs for part in parts], dim=1),
            hidden=torch.cat([part.hidden for part in parts], dim=1),
            captured={
                layer: CapturedAttention.over_steps([part.captured[layer] for part in parts])
                for layer in parts[0].captured
            },
        )


class OutputConfig(ConfigBase):
    """``attention_layer`` is the decoder layer whose cross attention copies and explains. ``head`` says how words come
    about: ``vocabulary``, or a copy head, which copies by that attention. ``opponent`` puts an opponent attention on
    one of the layers (`catchline.layers.opponent`)."""

    head: Spec = Field(default_factory=lambda: {"type": "vocabulary"})
    attention_layer: int = -1
    opponent: Spec | None = None


class CapturedTransformer(SummarizationModel):
    """See the file's docstring. ``attention_layer`` counts from 0."""

    attention_layer: int
    first_input_id: int  # what the decoder reads first, whatever it is given
    opponent: Opponent | None

    def _build_output(self, projection: VocabularyProjection, shape: DecoderShape, special_ids: Sequence[int]) -> None:
        """The head and the opponent of the options. Last of all: an opponent leaves the generator as it finds it, so
        that equal seeds give equal bases."""
        options: Any = self.config
        self.head = build_copy_head(
            options.head,
            captured=True,
            special_ids=special_ids,
            projection=projection,
            gate_size=3 * shape.num_heads * shape.head_width,
            unk_id=self.unk_id,
        )
        self.opponent = None
        if options.opponent is not None:
            context = {"shape": shape, "vocab_size": self.vocab_size, "unk_id": self.unk_id}
            self.opponent = build("opponent", OPPONENTS, options.opponent, **context)

    # ------------------------------------------------------------------------- start and step

    def start(self, memory: Memory) -> dict[str, Any]:
        """An empty past; what a head makes of the document, and what it remembers; the opponent's output layer."""
        state = super().start(memory)
        if self.head.reads_captured:
            values = state["memory"].tree.layers[self.attention_layer][1]
            features = self._encoder_features(memory, values.transpose(1, 2))
            state["source"].tree.precomputed = self.head.precompute(features)
            state["head"] = self.head.first_state(features)
        if self.opponent is not None and self.opponent.decodes:
            state["opponent"] = self.opponent.projection.for_decoding()
        return state

    @abstractmethod
    def _advance(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[Decoded, dict[str, Any]]:
        """Run the decoder on one word a row: (N,) -> what it leaves, with Q = K, and the next state."""

    def step(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[StepOutput, dict[str, Any]]:
        """One word for N = B * K rows; scores are log-probabilities or, with an opponent that decodes, J."""
        decoded, state = self._advance(last_ids, state)
        attention = self._attention_output(decoded, state["memory"].tree.states)
        inputs = self._head_input(decoded, attention)
        output, state = self._step_output(inputs, attention, decoded.hidden.flatten(0, 1), state)
        if self.opponent is not None and self.opponent.decodes:
            opposed = self._opponent_output(self.opponent, decoded)
            output.scores, found = self.opponent.scores(opposed, output.log_probs, state["opponent"])
            output.details |= found
        return output, state

    # ------------------------------------------------------------------------------ training

    def forward(self, batch: TrainingBatch, context: UpdateContext = PLAIN_PASS) -> ModelOutput:
        """Teacher-forced pass: gold log-probabilities (B, T). Where ``forced_mask`` is false the model reads its own
        word, which takes one step after the other. ``attention`` (B, T, S) is given where the head needs it, and
        outside of training."""
        # first what the host asks of the device, which has nothing to do yet
        gold, forced = self._gold(batch, context), context.forced_mask
        in_one = forced is None or bool(forced.all())
        memory = self.encode(batch)
        decoded = self._forced(batch, memory) if forced is None or in_one else self._free_running(batch, memory, forced)
        attention = self._attention_output(decoded, memory.states) if self.head.copies or not self.training else None
        precomputed, scores = None, None
        if self.head.reads_captured:
            precomputed = self.head.precompute(self._encoder_features(memory, self._captured(decoded).values))
        elif attention is not None and attention.scores is not None:
            scores = gold.at(attention.scores)
        inputs = self._head_input(decoded, attention)
        inputs = replace(inputs, hidden=gold.at(inputs.hidden), gate_features=gold.at(inputs.gate_features))
        output = self._likelihood(inputs, scores, gold, memory, precomputed)
        output.attention = None if attention is None else attention.weights
        if self.opponent is not None:
            opposed = self._opponent_output(self.opponent, decoded)
            words = replace(gold, smoothing=context.opponent_smoothing)
            found = self.opponent.gold_log_probs(gold.at(opposed.context), words, own_seed(batch, context.noise_seed))
            output.details |= {name: gold.back(values) for name, values in found.items()}
            if context.observe:
                output.figures = behaviour(opposed, batch, self.eos_id)
        return output

    @abstractmethod
    def _forced(self, batch: TrainingBatch, memory: Memory, *, every_layer: bool = False) -> Decoded:
        """The decoder on the gold words, all steps at once."""

    def _gold_inputs(self, batch: TrainingBatch) -> Tensor:
        """The gold words as the decoder reads them, (B, T)."""
        return batch.target_input_ids

    def _free_running(self, batch: TrainingBatch, memory: Memory, forced: Tensor) -> Decoded:
        """The decoder step by step: where ``forced`` (B, T) is false it reads its own word, without gradient."""
        state, parts = self.start(memory), list[Decoded]()

        def log_probs() -> Tensor:
            nonlocal state
            attention = self._attention_output(parts[-1], memory.states)
            found, _, state = self._words(self._head_input(parts[-1], attention), attention, state)
            return found

        remembers = state.get("head") is not None
        for words in self._input_words(self._gold_inputs(batch), batch, forced, log_probs, every=remembers):
            decoded, state = self._advance(words, state)
            parts.append(decoded)
        return Decoded.over_steps(parts)

    def cross_attentions(self, batch: TrainingBatch) -> Tensor:
        captured = self._forced(batch, self.encode(batch), every_layer=True).captured
        weights = [
            head_attention(found.queries.transpose(1, 2), found.keys.transpose(1, 2), found.mask.unsqueeze(1))
            for _, found in sorted(captured.items())
        ]
        return torch.stack(weights).transpose(1, 2)

    def opponent_attention(self, batch: TrainingBatch) -> Tensor:
        if self.opponent is None:
            return super().opponent_attention(batch)
        return self._opponent_output(self.opponent, self._forced(batch, self.encode(batch))).opponent

    # --------------------------------------------------------------------------------- parts

    def _captured(self, decoded: Decoded, layer: int | None = None) -> CapturedAttention:
        number = self.attention_layer if layer is None else layer
        assert number in decoded.captured, "the decoder ran without the captured layer"
        return decoded.captured[number]

    def _attention_output(self, decoded: Decoded, states: Tensor) -> AttentionOutput:
        """How the words read the source: the weights of ``attention_layer``, what they make of the memory (B, S, D),
        and their logarithms, of which they are the softmax."""
        weights = mean_attention(self._captured(decoded))
        return AttentionOutput(torch.bmm(weights.to(states.dtype), states), weights, log_weights(weights))

    def _opponent_output(self, opponent: Opponent, decoded: Decoded) -> OpponentOutput:
        found = self._captured(decoded, opponent.config.layer)
        return opponent.read(found.queries, found.keys, found.values, found.mask)

    def _head_input(self, decoded: Decoded, attention: AttentionOutput | None) -> HeadInput:
        """The output layer reads h, the gate [context; h; x]; heads that read captured attention get it instead."""
        hidden = decoded.hidden
        if not self.head.copies or attention is None:
            return HeadInput(hidden, hidden)
        if self.head.reads_captured:
            return HeadInput(hidden, hidden, cross=self._captured(decoded), weights=attention.weights)
        return HeadInput(hidden, torch.cat([attention.context, hidden, self._embedded(decoded)], dim=-1))

    @abstractmethod
    def _embedded(self, decoded: Decoded) -> Tensor:
        """The words that the decoder read, (B, Q, D), as a gate reads them."""

    def _encoder_features(self, memory: Memory, values: Tensor) -> EncoderFeatures:
        """What a head that reads captured attention knows of the documents; ``values`` (B, S, H, d) of the layer that
        copies, queries and keys of the last encoder layer."""
        queries, keys = memory.extra["captured"]
        return EncoderFeatures(memory.states, queries, keys, values, memory.mask, memory.extended_ids)

    def _parts(self) -> Sequence[Switchable | None]:
        return (self.opponent,)


def own_seed(batch: Batch, seed: int | None) -> int | None:
    """The seed of this batch's dropout: the trainer's, which all processes share, with the first example's number."""
    if seed is None:
        return None
    return seed ^ (batch.indices[0] + 1 if batch.indices else 0)


@torch.no_grad()
def behaviour(output: OpponentOutput, batch: TrainingBatch, end_id: int) -> dict[str, Tensor]:
    """What the log says of alpha_c, as means over the real decoder steps of a training pass. The largest weight and the
    entropy (nats), how many positions were masked, the share of steps that have nothing left, and of those at which an
    END of the source was masked."""
    weights, allowed, counted = output.weights, output.allowed, batch.target_mask
    masked = batch.source_mask.unsqueeze(1) & ~allowed
    values = {
        "alpha_max": weights.amax(dim=-1),
        "alpha_entropy": -torch.xlogy(weights, weights).sum(dim=-1),
        "masked_positions": masked.sum(dim=-1),
        "nothing_left": ~allowed.any(dim=-1),
        "masked_end": (masked & (batch.source_ids == end_id).unsqueeze(1)).any(dim=-1),
    }
    steps = counted.sum().clamp_min(1)
    return {f"opponent_{name}": (value.to(weights.dtype) * counted).sum() / steps for name, value in values.items()}


# ----------------------------------------------------------------------------------------------- our own


class TransformerConfig(OutputConfig, BlocksConfig):
    """Sizes are the paper's, and where it is silent its code's."""

    encoder_layers: int = Field(6, ge=1, le=1000)
    decoder_layers: int = Field(6, ge=1, le=1000)
    hidden_size: int = Field(512, ge=1, le=65_536)  # D
    share_embeddings: bool = True  # source, target and output; false: three matrices

    @model_validator(mode="after")
    def _fits(self) -> TransformerConfig:
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is not a multiple of num_heads {self.num_heads}")
        if not -self.decoder_layers <= self.attention_layer < self.decoder_layers:
            raise ValueError(f"attention_layer {self.attention_layer}: the decoder has {self.decoder_layers} layers")
        return self


class Transformer(CapturedTransformer):
    """See the file's docstring; ``Class(config, vocab_size=V, pad_id=, unk_id=, bos_id=, eos_id=)``."""

    Config = TransformerConfig
    config: TransformerConfig
    _longer = "raise model.max_positions, or "

    def __init__(self, config: TransformerConfig, **ids: int) -> None:
        super().__init__(config, **ids)
        self.max_source_tokens = self.max_target_tokens = config.max_positions
        self.first_input_id, self.attention_layer = self.eos_id, config.attention_layer % config.decoder_layers
        size = config.hidden_size
        self._scale = float(size**0.5)
        self.embedding = self._embedding_matrix()
        self.target_embedding = self.embedding if config.share_embeddings else self._embedding_matrix()
        output = self.target_embedding if config.share_embeddings else self._embedding_matrix()
        self.dropout = nn.Dropout(config.dropout)
        sizes = BlockSizes(
            size=size, num_heads=config.num_heads, feed_forward_size=config.feed_forward_size, dropout=config.dropout
        )
        self.encoder = TransformerEncoder(config.encoder_layers, sizes)
        self.decoder = TransformerDecoder(config.decoder_layers, sizes)
        projection = VocabularyProjection(size, self.vocab_size, tied=output.weight, bias=False)
        shape = DecoderShape(config.decoder_layers, config.num_heads, size // config.num_heads, config.dropout)
        self._build_output(projection, shape, (self.pad_id, self.bos_id, self.eos_id))

    def _embedding_matrix(self) -> nn.Embedding:
        """N(0, 1 / D), the row of padding zero."""
        matrix = nn.Embedding(self.vocab_size, self.config.hidden_size, padding_idx=self.pad_id)
        with torch.no_grad():
            nn.init.normal_(matrix.weight, std=self.config.hidden_size**-0.5)
            matrix.weight[self.pad_id] = 0.0
        return matrix

    # ------------------------------------------------------------------ encode, start, step

    def encode(self, batch: Batch) -> Memory:
        """The encoder's output (B, S, D), zero at padding."""
        self._check_length("source", batch.source_ids.shape[1], "text.max_source_tokens")
        embedded = F.embedding(batch.source_ids, self.embedding.weight, self.pad_id) * self._scale
        positions = masked_sinusoids(batch.source_mask, self.pad_id + 1, embedded)
        states, captured = self.encoder(self.dropout(embedded + positions), batch.source_mask)
        states = states.masked_fill(~batch.source_mask.unsqueeze(-1), 0.0)
        return self._memory(batch, states, **({"captured": captured} if self.head.reads_captured else {}))

    def _first_state(self, memory: Memory) -> dict[str, Any]:
        """An empty past, and each layer's keys and values, projected once a document, which all beams read."""
        read = self.decoder.read(memory.states)
        cache = [(keys[:, :, :0], values[:, :, :0]) for keys, values in read]
        return {"cache": cache, "memory": Shared(EncodedSource(memory.states, memory.mask, read))}

    def _advance(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[Decoded, dict[str, Any]]:
        encoded: EncodedSource = state["memory"].tree
        cache, steps = list(state["cache"]), state["cache"][0][0].shape[2]
        ids = self._known(last_ids).view(encoded.mask.shape[0], -1)
        embedded = self._target_input(ids if steps else torch.full_like(ids, self.first_input_id), steps, 1)

        def attend(layer: int, *projected: Tensor) -> Tensor:
            attended, cache[layer] = step_attention(cache[layer], *projected)
            return attended

        hidden, captured = self.decoder(embedded, encoded.layers, encoded.mask, attend=attend)
        return Decoded(embedded, hidden, dict(enumerate(captured))), state | {"cache": cache}

    def _forced(self, batch: TrainingBatch, memory: Memory, *, every_layer: bool = False) -> Decoded:
        ids = self._known(batch.target_input_ids)
        ids = torch.cat([torch.full_like(ids[:, :1], self.first_input_id), ids[:, 1:]], dim=1)
        embedded = self._target_input(ids, 0, ids.shape[1])
        hidden, captured = self.decoder(embedded, self.decoder.read(memory.states), memory.mask)
        return Decoded(embedded, hidden, dict(enumerate(captured)))

    # ------------------------------------------------------------------------------- parts

    def _embedded(self, decoded: Decoded) -> Tensor:
        return decoded.inputs

    def _target_input(self, ids: Tensor, first: int, count: int) -> Tensor:
        """Embedded words (B, Q) at positions ``first`` ... of the summary; one position for all beams of a step."""
        self._check_length("summary", first + count, "text.max_target_tokens and search.max_length")
        embedded = F.embedding(ids, self.target_embedding.weight, self.pad_id) * self._scale
        return self.dropout(embedded + sinusoids(self.pad_id + 1 + first, count, embedded))
