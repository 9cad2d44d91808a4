"""The Transformer of the contrastive-attention paper (Duan et al. 2019), its baseline and its base.

    x        = sqrt(D) E[word] + position                         layers/transformer.py
    m        = encoder(x)                                         layers/transformer.py
    h        = decoder(x, m)
    P(w)     = softmax(E h), or the pointer's mixture             layers/copying/

One matrix E is source embedding, target embedding and output layer. The decoder first reads the END symbol, whatever
BOS is. What is made of the cross attention is `catchline.models.captured`.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from catchline.config.base import ConfigBase
from catchline.layers.opponent import DecoderShape
from catchline.layers.transformer import (
    BlockSizes,
    TransformerDecoder,
    TransformerEncoder,
    masked_sinusoids,
    sinusoids,
    step_attention,
)
from catchline.layers.vocabulary import VocabularyProjection
from catchline.models.base import Spec
from catchline.models.captured import CapturedTransformer, Decoded, EncodedSource
from catchline.types import Batch, Memory, Shared, TrainingBatch


class TransformerConfig(ConfigBase):
    """Defaults are the paper's, and where it is silent its code's."""

    encoder_layers: int = Field(6, ge=1, le=1000)
    decoder_layers: int = Field(6, ge=1, le=1000)
    hidden_size: int = Field(512, ge=1, le=65_536)  # D
    num_heads: int = Field(8, ge=1, le=65_536)
    feed_forward_size: int = Field(2048, ge=1, le=65_536)
    dropout: float = Field(0.3, ge=0, lt=1)  # embeddings with positions, and every sublayer's output
    max_positions: int = Field(1024, ge=1, le=65_536)
    share_embeddings: bool = True  # source, target and output; false: three matrices
    head: Spec = Field(default_factory=lambda: {"type": "vocabulary"})
    attention_layer: int = -1  # the decoder layer that copies and explains
    opponent: Spec | None = None

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

    @property
    def _scale(self) -> float:
        return float(self.config.hidden_size**0.5)
