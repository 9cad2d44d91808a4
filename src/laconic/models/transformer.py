"""The Transformer of the contrastive-attention paper (Duan et al. 2019), its baseline and its base.

    x        = sqrt(D) E[word] + position                         layers/positions.py
    m        = encoder(x)                                         layers/transformer.py
    h, taps  = decoder(x, m)
    P(w)     = softmax(E h), or the pointer's mixture             layers/copying/

One matrix E is source embedding, target embedding and output layer. The decoder first reads the END symbol
(``start_with_end``), whatever BOS is.

**Taps.** The decoder gives the `CrossTap` of every layer: the projected queries, keys and values of its cross
attention, in training (Q = T) and in decoding (Q = K beams) alike. They are references, and cost nothing to those
who do not look. From them come the weights of the pointer and of the explanation (``attention_layer``,
``attention_head``; none: the mean over the heads).

**The opponent's hook.** With ``opponent`` in the configuration, ``self.opponent`` is built last, when all
parameters of the base have been drawn, so that equal seeds give equal bases with and without it. It is called
with the tap of layer ``opponent.layer`` in `_project` (training) and in `step` (decoding), and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from laconic.config.base import ConfigBase
from laconic.config.names import OPPONENTS, build
from laconic.errors import ConfigError, DataError
from laconic.layers.beam_cache import BeamCache
from laconic.layers.copying.base import (
    CopyHead,
    CopySource,
    HeadInput,
    SourceSide,
    build_copy_head,
    first_positions,
)
from laconic.layers.masking import log_weights
from laconic.layers.opponent import DecoderShape, Opponent, OpponentReading
from laconic.layers.transformer import (
    BlockSizes,
    CrossTap,
    TransformerDecoder,
    TransformerEncoder,
    head_attention,
    masked_sinusoids,
    mean_attention,
    sinusoids,
)
from laconic.layers.vocabulary import VocabularyProjection
from laconic.models.base import SummarizationModel
from laconic.models.projection import project
from laconic.types import AttentionOutput, Batch, Memory, ModelOutput, Shared, StepOutput

Spec = dict[str, Any]


class TransformerConfig(ConfigBase):
    """Defaults are the paper's, and where it is silent its code's (specification b.1 and d)."""

    encoder_layers: int = Field(6, ge=1, le=1000)
    decoder_layers: int = Field(6, ge=1, le=1000)
    hidden_size: int = Field(512, ge=1, le=65_536)  # D
    num_heads: int = Field(8, ge=1, le=65_536)
    feed_forward_size: int = Field(2048, ge=1, le=65_536)
    norm: Literal["post", "pre"] = "post"
    dropout: float = Field(0.3, ge=0, lt=1)  # embeddings with positions, and every sublayer's output
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    relu_dropout: float = Field(0.0, ge=0, lt=1)
    max_positions: int = Field(1024, ge=1, le=65_536)
    share_embeddings: bool = True  # source, target and output; false: three matrices
    start_with_end: bool = True  # the decoder's first input is END, not BOS
    head: Spec = Field(default_factory=lambda: {"type": "vocabulary"})
    attention_layer: int = -1  # the decoder layer that copies and explains
    attention_head: int | None = Field(None, ge=0, le=65_536)  # none: the mean over its heads
    opponent: Spec | None = None

    @model_validator(mode="after")
    def _fits(self) -> TransformerConfig:
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is not a multiple of num_heads {self.num_heads}")
        if not -self.decoder_layers <= self.attention_layer < self.decoder_layers:
            raise ValueError(f"attention_layer {self.attention_layer}: the decoder has {self.decoder_layers} layers")
        if self.attention_head is not None and self.attention_head >= self.num_heads:
            raise ValueError(f"attention_head {self.attention_head}: a layer has {self.num_heads} heads, from 0")
        return self


@dataclass(slots=True)
class _Decoded:
    """What Q decoder rows a document leave for the output."""

    embedded: Tensor  # (B, Q, D) the decoder's input
    hidden: Tensor  # (B, Q, D) its output
    taps: list[CrossTap]  # of each layer


class Transformer(SummarizationModel):
    """See the file's docstring; ``Class(config, vocab_size=V, pad_id=, unk_id=, bos_id=, eos_id=)``."""

    Config = TransformerConfig
    config: TransformerConfig
    encoder_switches = frozenset()
    shares_memory = True

    def __init__(
        self,
        config: TransformerConfig,
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
        self.max_source_tokens = self.max_target_tokens = config.max_positions
        self.prediction_feed = "argmax"
        size = config.hidden_size
        self.embedding = self._embedding_matrix()
        self.target_embedding = self.embedding if config.share_embeddings else self._embedding_matrix()
        output = self.target_embedding if config.share_embeddings else self._embedding_matrix()
        self.dropout = nn.Dropout(config.dropout)
        sizes = BlockSizes(
            size=size,
            num_heads=config.num_heads,
            feed_forward_size=config.feed_forward_size,
            norm=config.norm,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            relu_dropout=config.relu_dropout,
        )
        self.encoder = TransformerEncoder(config.encoder_layers, sizes)
        self.decoder = TransformerDecoder(config.decoder_layers, sizes)
        self.head: CopyHead = build_copy_head(
            config.head,
            taps=True,
            special_ids=(pad_id, bos_id, eos_id),
            projection=VocabularyProjection(size, vocab_size, tied=output.weight, bias=False),
            gate_size=3 * size,
            unk_id=unk_id,
        )
        self.opponent: Opponent | None = None  # built last: see the file's docstring
        if config.opponent is not None:
            shape = DecoderShape(config.decoder_layers, config.num_heads, size // config.num_heads, config.dropout)
            sizes_of = {"shape": shape, "vocab_size": vocab_size, "unk_id": unk_id}
            self.opponent = build("opponent", OPPONENTS, config.opponent, **sizes_of)

    def _embedding_matrix(self) -> nn.Embedding:
        """N(0, 1 / D), the row of padding zero."""
        matrix = nn.Embedding(self.vocab_size, self.config.hidden_size, padding_idx=self.pad_id)
        with torch.no_grad():
            nn.init.normal_(matrix.weight, std=self.config.hidden_size**-0.5)
            matrix.weight[self.pad_id] = 0.0
        return matrix

    # ------------------------------------------------------------------ encode, start, step

    def encode(self, batch: Batch) -> Memory:
        """The encoder's output (B, S, D), zero at padding.

        Raises:
            DataError: the source is longer than ``max_positions``.
        """
        self._check_length("source", batch.source_ids.shape[1], "text.max_source_tokens")
        embedded = F.embedding(batch.source_ids, self.embedding.weight, self.pad_id) * self._scale
        positions = masked_sinusoids(batch.source_mask, self.pad_id + 1, embedded)
        states, tap = self.encoder.tapped(self.dropout(embedded + positions), batch.source_mask)
        return Memory(
            states=states.masked_fill(~batch.source_mask.unsqueeze(-1), 0.0),
            mask=batch.source_mask,
            extended_ids=batch.source_extended_ids,
            extended_vocab_size=batch.extended_vocab_size if self.head.copies else self.vocab_size,
            extra={"tap": tap} if self.head.reads_taps else {},
        )

    def start(self, memory: Memory) -> dict[str, Any]:
        """An empty past, and what all steps and beams of a search read: each layer's keys and values, projected
        once a document, and the weights as decoding multiplies by them."""
        read = self.decoder.read(memory.states)
        state: dict[str, Any] = {
            "cache": BeamCache.empty(len(read), read[0][0]),
            "memory": Shared((memory.states, memory.mask, read)),
            "maps": _Kept(self.decoder.packed()),
            "project": self.head.projection.for_decoding(memory.extended_vocab_size),
        }
        if self.opponent is not None and self.opponent.decodes:
            state["opponent"] = self.opponent.projection.for_decoding()
        if self.head.copies:
            ids, size, opened = memory.extended_ids, memory.extended_vocab_size, None
            if self.head.reads_taps:
                side = self._source_side(memory, read[self.config.attention_layer][1])
                opened, state["head"] = self.head.open(side), self.head.begin(side)
            state["source"] = Shared((ids, memory.mask, first_positions(ids, size), size, opened))
        return state

    def step(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[StepOutput, dict[str, Any]]:
        """One step for N = B * K rows; extended ids are embedded as UNK.

        Raises:
            DataError: the summary grows longer than ``max_positions``.
        """
        documents, cache = state["memory"].tree[1].shape[0], state["cache"]
        beams = len(last_ids) // documents
        if cache.steps or beams == 1 or not self.config.start_with_end:
            return self._step(last_ids, state)
        # Every row reads END and has no past: one of each document speaks for all.
        one = torch.arange(documents, device=last_ids.device)
        output, state = self._step(last_ids[::beams], _selected(state, one * beams))
        every = one.repeat_interleave(beams)
        return _taken(output, every), _selected(state, every)

    def _step(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[StepOutput, dict[str, Any]]:
        decoded, state = self._advance(last_ids, state)
        states, mask, _ = state["memory"].tree
        attention = self._reading(decoded, states)
        source = self._copy_source(state["source"].tree if self.head.copies else None, mask)
        inputs = self._head_input(decoded, attention, state["project"])
        log_probs, details, following = self.head(inputs, attention, source, state.get("head"))
        if following is not None:
            state["head"] = following
        log_probs = log_probs.flatten(0, 1)
        output = StepOutput(
            scores=log_probs,
            log_probs=log_probs,
            attention=attention.weights.flatten(0, 1),
            context=attention.context.flatten(0, 1),
            state=decoded.hidden.flatten(0, 1),
            details={name: value.flatten(0, 1) for name, value in details.items()},
        )
        if self.opponent is not None and self.opponent.decodes:
            reading = self._opponent_reading(self.opponent, decoded)
            output.scores, details = self.opponent.scores(reading, log_probs, state["opponent"])
            output.details |= details
        return output, state

    def _advance(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[_Decoded, dict[str, Any]]:
        """Run the decoder on one word a row: (N,) -> what it leaves, with Q = K."""
        _, mask, read = state["memory"].tree
        cache: BeamCache = state["cache"].opened()
        ids = self._known(last_ids).view(mask.shape[0], -1)
        if cache.steps == 1 and self.config.start_with_end:
            ids = torch.full_like(ids, self.eos_id)
        embedded = self._target_input(ids, cache.steps - 1, 1)
        hidden, taps = self.decoder(embedded, read, mask, attend=cache.attend, maps=state["maps"].value)
        return _Decoded(embedded, hidden, taps), state | {"cache": cache}

    # ---------------------------------------------------------------------------- training

    def forward(self, batch: Batch, memory: Memory | None = None) -> ModelOutput:
        """Teacher-forced pass: gold log-probabilities (B, T).

        Where ``forced_mask`` is false the model reads its own word, which takes one step after the other.
        ``attention`` (B, T, S) is given where the head needs it, and outside of training.
        """
        assert batch.target_ids is not None, "a teacher-forced pass needs targets"
        assert batch.target_mask is not None, "a teacher-forced pass needs a target mask"
        memory = self.encode(batch) if memory is None else memory
        if batch.forced_mask is None or bool(batch.forced_mask.all()):
            decoded = self._forced(batch, memory)
        else:
            decoded = self._free_running(batch, memory)
        return self._project(decoded, batch, memory)

    def cross_attentions(self, batch: Batch) -> Tensor:
        """Every head of every decoder layer: (L, H, B, T, S)."""
        taps = self._forced(batch, self.encode(batch)).taps
        heads = [(tap.queries.transpose(1, 2), tap.keys.transpose(1, 2), tap.mask.unsqueeze(1)) for tap in taps]
        return torch.stack([head_attention(*each) for each in heads]).transpose(1, 2)

    def opponent_attention(self, batch: Batch) -> Tensor:
        """alpha_o at every step of a teacher-forced pass: (B, T, S)."""
        if self.opponent is None:
            return super().opponent_attention(batch)
        return self._opponent_reading(self.opponent, self._forced(batch, self.encode(batch))).opponent

    def _forced(self, batch: Batch, memory: Memory) -> _Decoded:
        """The decoder on the gold words, all steps at once."""
        assert batch.target_input_ids is not None
        ids = self._known(batch.target_input_ids)
        if self.config.start_with_end:
            ids = torch.cat([torch.full_like(ids[:, :1], self.eos_id), ids[:, 1:]], dim=1)
        embedded = self._target_input(ids, 0, ids.shape[1])
        return _Decoded(embedded, *self.decoder(embedded, self.decoder.read(memory.states), memory.mask))

    def _free_running(self, batch: Batch, memory: Memory) -> _Decoded:
        """The decoder step by step: where the coin (B, T) is false it reads its own word, without gradient."""
        assert batch.target_input_ids is not None
        assert batch.forced_mask is not None
        state, parts = self.start(memory), []
        ids = batch.target_input_ids[:, 0]
        for step in range(batch.target_input_ids.shape[1]):
            decoded, state = self._advance(ids, state)
            parts.append(decoded)
            if step + 1 < batch.target_input_ids.shape[1]:
                ids = batch.target_input_ids[:, step + 1]
                forced = batch.forced_mask[:, step + 1]
                if state.get("head") is not None or not bool(forced.all()):
                    own, state = self._own_word(decoded, state)
                    ids = torch.where(forced, ids, own)
        return _Decoded(
            embedded=torch.cat([part.embedded for part in parts], dim=1),
            hidden=torch.cat([part.hidden for part in parts], dim=1),
            taps=[CrossTap.over_steps(taps) for taps in zip(*(part.taps for part in parts), strict=True)],
        )

    @torch.no_grad()
    def _own_word(self, decoded: _Decoded, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        """The model's word after a step, (B,), as an extended id, and the state with what the head remembers."""
        states, mask, _ = state["memory"].tree
        attention = self._reading(decoded, states)
        source = self._copy_source(state["source"].tree if self.head.copies else None, mask)
        inputs = self._head_input(decoded, attention)
        log_probs, _, following = self.head(inputs, attention, source, state.get("head"))
        if following is not None:
            state = state | {"head": following}
        if self.prediction_feed == "sample":
            return torch.multinomial(log_probs[:, 0].exp(), 1).squeeze(-1), state
        return log_probs[:, 0].argmax(dim=-1), state

    def _project(self, decoded: _Decoded, batch: Batch, memory: Memory) -> ModelOutput:
        attention = self._reading(decoded, memory.states) if self.head.copies or not self.training else None
        side = None
        if self.head.reads_taps:
            side = self._source_side(memory, decoded.taps[self.config.attention_layer].values)
        output = project(self.head, self._head_input(decoded, attention), attention, side, batch, memory)
        if self.opponent is not None:
            reading = self._opponent_reading(self.opponent, decoded)
            found, output.figures = self.opponent.teacher_forced(reading, batch, self.eos_id)
            output.details |= found
        return output

    # ------------------------------------------------------------------------------- parts

    def _reading(self, decoded: _Decoded, states: Tensor) -> AttentionOutput:
        """How the words read the source: the weights of ``attention_layer``, what they make of the memory (B, S, D),
        and their logarithms, of which they are the softmax."""
        tap, head = decoded.taps[self.config.attention_layer], self.config.attention_head
        if head is None:
            weights = mean_attention(tap)
        else:
            weights = head_attention(tap.queries[:, :, head], tap.keys[:, :, head], tap.mask)
        return AttentionOutput(torch.bmm(weights.to(states.dtype), states), weights, log_weights(weights))

    def _opponent_reading(self, opponent: Opponent, decoded: _Decoded) -> OpponentReading:
        tap = decoded.taps[opponent.config.layer]
        return opponent.read(tap.queries, tap.keys, tap.values, tap.mask)

    def _head_input(self, decoded: _Decoded, attention: AttentionOutput | None, project: Any = None) -> HeadInput:
        """The output layer reads h, the gate [context; h; x]; heads that read taps get the one they copy by."""
        if not self.head.copies or attention is None:
            return HeadInput(decoded.hidden, decoded.hidden, project)
        if self.head.reads_taps:
            tap = decoded.taps[self.config.attention_layer]
            return HeadInput(decoded.hidden, decoded.hidden, project, tap, attention.weights)
        gate = torch.cat([attention.context, decoded.hidden, decoded.embedded], dim=-1)
        return HeadInput(decoded.hidden, gate, project)

    def _copy_source(self, source: Any, mask: Tensor) -> CopySource:
        if source is None:
            return CopySource(mask, mask, self.vocab_size)
        ids, mask, first, size, opened = source
        return CopySource(ids, mask, size, first, opened)

    def _source_side(self, memory: Memory, values: Tensor) -> SourceSide:
        """What a head that reads taps knows of the documents; ``values`` (B, S, H, d) of the tapped attention."""
        queries, keys = memory.extra["tap"]
        return SourceSide(memory.states, queries, keys, values, memory.mask, memory.extended_ids)

    def _target_input(self, ids: Tensor, first: int, count: int) -> Tensor:
        """Embedded words (B, Q) at positions ``first`` ... of the summary; one position for all beams of a step."""
        self._check_length("summary", first + count, "text.max_target_tokens and search.max_length")
        embedded = F.embedding(ids, self.target_embedding.weight, self.pad_id) * self._scale
        return self.dropout(embedded + sinusoids(self.pad_id + 1 + first, count, embedded))

    @property
    def _scale(self) -> float:
        return float(self.config.hidden_size**0.5)

    def _known(self, ids: Tensor) -> Tensor:
        return ids.masked_fill(ids >= self.vocab_size, self.unk_id)

    def _check_length(self, what: str, length: int, setting: str) -> None:
        if length > self.config.max_positions:
            raise DataError(
                f"A {what} of {length} tokens is longer than model.max_positions {self.config.max_positions}: "
                f"raise it, or set {setting} lower."
            )

    def switches(self) -> dict[str, Any]:
        own: dict[str, Any] = {"prediction_feed": self.prediction_feed}
        return own if self.opponent is None else own | self.opponent.switches()

    def _set_switch(self, name: str, value: Any) -> None:
        if name != "prediction_feed":
            assert self.opponent is not None
            self.opponent.switch({name: value})
            return
        if value not in ("argmax", "sample"):
            raise ConfigError(f"The model can feed itself by 'argmax' or 'sample', not by '{value}'.")
        self.prediction_feed = value


class _Kept:
    """Something in a decoder state that belongs to the search as a whole, and is left alone."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _selected(state: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    """The state's rows ``rows`` (M,): of the cache, and of what the head remembers, a tensor or what selects itself."""
    state = state | {"cache": state["cache"].select(rows)}
    head = state.get("head")
    if head is not None:
        state["head"] = head.index_select(0, rows) if isinstance(head, Tensor) else head.select(rows)
    return state


def _taken(output: StepOutput, rows: Tensor) -> StepOutput:
    """The output's rows ``rows`` (M,)."""

    def take(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.index_select(0, rows)

    log_probs = output.log_probs.index_select(0, rows)
    return StepOutput(
        scores=log_probs if output.scores is output.log_probs else output.scores.index_select(0, rows),
        log_probs=log_probs,
        attention=take(output.attention),
        context=take(output.context),
        state=take(output.state),
        details={name: value.index_select(0, rows) for name, value in output.details.items()},
    )
