"""Any BART-family checkpoint (BART, mBART, Marian, Pegasus) behind ``encode / start / step / forward``.

The layers are those of transformers; the attention function, the cache and the output are ours.

* **The memory is never copied per beam.** Keys and values of the cross attention are projected once a
  document, (B, heads, S, head width). In a step with N = B * K rows the queries (N, heads, 1, width) are
  folded to (B, heads, K, width), so the beams of a document are K queries into one memory.
* The cache of the decoder's self attention is a plain tree of tensors with N in front, which search
  re-orders like any other state; so is what a copy head remembers from step to step.
* The weights that explain a step, and that copy heads copy by, are those of one decoder layer (the last by
  default), averaged over the heads. They are computed from the layer's `Tap`, before dropout.
* **Copy heads** (``head``) get that tap, the last encoder layer's and the document; their equations are in
  `laconic.layers.copying`. Without one the output is the checkpoint's own, W_o h + final_logits_bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.cache_utils import EncoderDecoderCache
from transformers.models.bart.modeling_bart import shift_tokens_right

from laconic.config.base import ConfigBase
from laconic.config.names import OPPONENTS, build
from laconic.errors import ConfigError, DataError
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
from laconic.layers.transformer import CrossTap, head_attention, mean_attention
from laconic.layers.vocabulary import BorrowedProjection
from laconic.models.bart_attention import Layers, Tap, filled_cache, refuse_reentrant, tap_states
from laconic.models.bart_network import build_network, first_id, portable
from laconic.models.base import SummarizationModel
from laconic.models.projection import project
from laconic.types import AttentionOutput, Batch, Memory, ModelOutput, Shared, StepOutput

LEARNED_POSITIONS = ("bart", "mbart")

Spec = dict[str, Any]


@dataclass(slots=True)
class _Decoded:
    """What Q decoder rows a document leave for the output; Q is T in training, K in search."""

    ids: Tensor  # (B, Q) what the decoder read
    hidden: Tensor  # (B, Q, D) its output
    taps: list[CrossTap | None]  # of the layer that explains and copies, and of the opponent's

    def tap(self, number: int) -> CrossTap:
        found = self.taps[number]
        assert found is not None, "the decoder ran without the tapped layer"
        return found


class BartSummarizer(SummarizationModel):
    """A sequence-to-sequence Transformer of transformers as a `SummarizationModel`.

    Decoding starts from the checkpoint's ``decoder_start_token_id`` whatever ``bos_id`` says, and begins
    with ``forced_bos_token_id`` where the checkpoint asks for it.
    """

    class Config(ConfigBase):
        """``pretrained``: a hub id or folder to start from; or ``architecture``: a transformers configuration.

        ``attention_layer`` is the decoder layer whose cross attention explains the summary; ``forced_bos_id``
        the id that every summary begins with (none: what the checkpoint's generation settings say). ``head`` says
        how words come about: ``vocabulary`` as the checkpoint does, or a copy head on top of it, which copies by that
        attention. ``opponent`` puts an opponent attention on one of the layers (`laconic.layers.opponent`).
        ``gradient_checkpointing``: keep less in training and compute each layer again in the backward pass.
        """

        pretrained: str | None = None
        architecture: Spec | None = None
        attention_layer: int = -1
        forced_bos_id: int | None = None
        head: Spec = Field(default_factory=lambda: {"type": "vocabulary"})
        opponent: Spec | None = None
        gradient_checkpointing: bool = False

    config: BartSummarizer.Config
    encoder_switches = frozenset()
    shares_memory = True

    def __init__(
        self,
        config: Config,
        *,
        vocab_size: int | None = None,
        pad_id: int | None = None,
        unk_id: int | None = None,
        bos_id: int | None = None,
        eos_id: int | None = None,
    ) -> None:
        """Build from ``config``; the ids of the tokenizer, where given, fill what the architecture leaves open.

        Raises:
            ConfigError: neither or both of ``pretrained`` and ``architecture``, no such model type, or layers that
                may be left out where a head or an opponent reads them.
            ModelError: the checkpoint cannot be opened or is not of the BART family.
        """
        super().__init__()
        ids = {"vocab_size": vocab_size, "pad_token_id": pad_id, "bos_token_id": bos_id, "eos_token_id": eos_id}
        known = {name: value for name, value in ids.items() if value is not None}
        network = build_network(config.pretrained, config.architecture, known)
        self._adopt(network, config)
        self.unk_id = self.pad_id if unk_id is None else unk_id
        options = network.config
        special = (self.pad_id, options.bos_token_id, self.eos_id, self.decoder_start_id)
        self.head: CopyHead = build_copy_head(
            config.head,
            taps=True,
            special_ids=[id_ for id_ in special if id_ is not None],
            projection=BorrowedProjection(network),
            gate_size=3 * options.d_model,
            unk_id=self.unk_id,
        )
        self.opponent: Opponent | None = None  # built last: it leaves the generator as it finds it
        if config.opponent is not None:
            heads = options.decoder_attention_heads
            shape = DecoderShape(options.decoder_layers, heads, options.d_model // heads, options.dropout)
            context = {"shape": shape, "vocab_size": self.vocab_size, "unk_id": self.unk_id}
            self.opponent = build("opponent", OPPONENTS, config.opponent, **context)
        self._prepare_taps(options)

    @classmethod
    def from_checkpoint(
        cls, name_or_path: str | Path, *, attention_layer: int = -1, head: Spec | None = None
    ) -> BartSummarizer:
        """Open a checkpoint of the hub or of a local folder, in 32-bit floats. A ``head`` it lacks starts untrained.

        Raises:
            ModelError: it cannot be read, or is not of the BART family.
        """
        options = {} if head is None else {"head": head}
        return cls(cls.Config(pretrained=str(name_or_path), attention_layer=attention_layer, **options))

    def _adopt(self, network: PreTrainedModel, config: Config) -> None:
        options = network.config
        self.network = network
        self.vocab_size = int(network.lm_head.out_features)
        self.pad_id = int(options.pad_token_id)
        self.eos_id = first_id(options.eos_token_id)
        generation = getattr(network, "generation_config", None)
        starts = (getattr(generation, "decoder_start_token_id", None), options.decoder_start_token_id)
        self.decoder_start_id = int(next((id_ for id_ in starts if id_ is not None), options.bos_token_id))
        options.decoder_start_token_id = self.bos_id = self.decoder_start_id
        forced = getattr(generation, "forced_bos_token_id", None)
        if config.forced_bos_id is None and forced is not None:
            config = config.model_copy(update={"forced_bos_id": first_id(forced)})
        self.config = config.model_copy(update={"pretrained": None, "architecture": portable(options)})
        self.forced_bos_id = config.forced_bos_id
        limited = options.model_type in LEARNED_POSITIONS
        self.max_source_tokens = int(options.max_position_embeddings) if limited else None
        self.max_target_tokens = self.max_source_tokens
        if not -options.decoder_layers <= config.attention_layer < options.decoder_layers:
            raise ConfigError(
                f"model.attention_layer {config.attention_layer} does not exist:"
                f" the decoder has {options.decoder_layers} layers."
            )
        if config.gradient_checkpointing:
            # transformers 5.23 has a new name for it and warns of the old one
            newer = getattr(network, "activation_checkpointing_enable", None)
            (newer or network.gradient_checkpointing_enable)({"use_reentrant": False})
            network.disable_input_require_grads()  # the embeddings are trained, unlike an adapter's

    def _prepare_taps(self, options: Any) -> None:
        for layer in self._decoder.layers:
            tap_states(layer.encoder_attn)
        tap_states(self._last_encoder_layer.self_attn)
        if self._looked_into and (options.encoder_layerdrop or options.decoder_layerdrop):
            raise ConfigError(
                "The copy head or the opponent reads layers that LayerDrop leaves out now and then: set "
                "encoder_layerdrop and decoder_layerdrop to 0, in model.architecture or the checkpoint's config.json."
            )

    def encode(self, batch: Batch) -> Memory:
        """Run the encoder; ``final`` is empty because the decoder starts from nothing but the memory.

        Raises:
            DataError: the source is longer than the checkpoint's position table.
        """
        self._check_length("source", batch.source_ids.shape[1], "text.max_source_tokens")
        if self.training and self._looked_into:
            refuse_reentrant([self._last_encoder_layer, *self._tapped])
        tap = Tap(self._last_encoder_layer.self_attn)
        states = self.network.get_encoder()(
            input_ids=batch.source_ids,
            attention_mask=batch.source_mask,
            taps=[tap] if self.head.reads_taps else [],
        ).last_hidden_state
        return Memory(
            states=states,
            mask=batch.source_mask,
            extended_ids=batch.source_extended_ids,
            extended_vocab_size=batch.extended_vocab_size if self.head.copies else self.vocab_size,
            extra={"last_layer": tap.taken(batch.source_mask)},
        )

    def start(self, memory: Memory) -> dict[str, Any]:
        """An empty self-attention cache (B rows) and, shared by the beams, each layer's keys and values and what the
        copy head makes of the document; further what it remembers, and the output layer as decoding multiplies by it.
        """
        cross: Layers = []
        cache: Layers = []
        for layer in self._decoder.layers:
            attention = layer.encoder_attn
            keys, values = attention.k_proj(memory.states), attention.v_proj(memory.states)  # (B, S, D)
            heads, width = attention.num_heads, attention.head_dim
            cross.append(tuple(x.unflatten(-1, (heads, width)).transpose(1, 2) for x in (keys, values)))
            empty = keys.new_zeros(memory.batch_size, layer.self_attn.num_heads, 0, layer.self_attn.head_dim)
            cache.append((empty, empty))
        state: dict[str, Any] = {
            "cache": cache,
            "memory": Shared({"states": memory.states, "mask": memory.mask, "cross": cross}),
            "project": self.head.projection.for_decoding(memory.extended_vocab_size),
        }
        if self.head.copies:
            ids, size = memory.extended_ids, memory.extended_vocab_size
            opened = None
            if self.head.reads_taps:
                side = self._source_side(memory, cross[self.config.attention_layer][1].transpose(1, 2))
                opened, state["copying"] = self.head.open(side), self.head.begin(side)
            state["source"] = Shared((ids, memory.mask, size, first_positions(ids, size), opened))
        if self.opponent is not None and self.opponent.decodes:
            state["opponent"] = self.opponent.projection.for_decoding()
        return state

    def step(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[StepOutput, dict[str, Any]]:
        """One token for N rows: scores and log-probabilities (N, X), attention (N, S), context and state (N, D).

        The context is the memory under the explaining weights, the state what the output layer reads. ``scores``
        are the log-probabilities (with an opponent, J); in the first step everything but ``forced_bos_id`` is excluded
        where the checkpoint has one, which costs nothing.
        """
        first = state["cache"][0][0].shape[2] == 0
        decoded, state = self._advance(last_ids, state)
        attention = self._reading(decoded, state["memory"].tree["states"])
        log_probs, found, state = self._words(decoded, attention, state, state["project"])
        details = {name: value.flatten(0, 1) for name, value in found.items()}
        scores = log_probs
        if self.opponent is not None and self.opponent.decodes:
            scores, found = self.opponent.scores(self._opponent_reading(decoded), log_probs, state["opponent"])
            details |= found
        output = StepOutput(
            scores=self._first_word(scores) if first and self.forced_bos_id is not None else scores,
            log_probs=log_probs,
            attention=attention.weights.flatten(0, 1),
            context=attention.context.flatten(0, 1),
            state=decoded.hidden.flatten(0, 1),
            details=details,
        )
        return output, state

    def _advance(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[_Decoded, dict[str, Any]]:
        """Run the decoder on one token a row: (N,) -> what it leaves, with Q = K, and the next state."""
        shared, steps = state["memory"].tree, state["cache"][0][0].shape[2]
        self._check_length("summary", steps + 1, "search.max_length")
        last_ids = self._known(last_ids)
        if steps == 0:
            last_ids = torch.full_like(last_ids, self.decoder_start_id)
        cache = EncoderDecoderCache(filled_cache(state["cache"]), filled_cache(shared["cross"]))
        taps = [Tap(layer.encoder_attn) for layer in self._tapped]
        hidden = self._decoder(
            input_ids=last_ids[:, None],
            encoder_hidden_states=shared["states"],
            encoder_attention_mask=shared["mask"],
            past_key_values=cache,
            use_cache=True,
            taps=taps,
        ).last_hidden_state  # (N, 1, D)
        layers: list[Any] = cache.self_attention_cache.layers
        grown = [(layer.keys, layer.values) for layer in layers]
        documents = len(shared["mask"])
        decoded = _Decoded(
            last_ids.view(documents, -1),
            hidden.view(documents, -1, hidden.shape[-1]),
            [tap.taken(shared["mask"]) for tap in taps],
        )
        return decoded, state | {"cache": grown}

    def _words(
        self, decoded: _Decoded, attention: AttentionOutput, state: dict[str, Any], project: Any = None
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Any]]:
        """A step's log-probabilities (N, X), details (B, K, ...) and the state with what the head remembers."""
        shared = state["memory"].tree
        if not self.head.copies:
            source = CopySource(shared["mask"], shared["mask"], self.vocab_size)
            return self.head(self._head_input(decoded, attention, project), None, source)[0].flatten(0, 1), {}, state
        ids, mask, size, first, opened = state["source"].tree
        source = CopySource(ids, mask, size, first, opened)
        inputs = self._head_input(decoded, attention, project)
        log_probs, details, remembered = self.head(inputs, attention, source, state.get("copying"))
        return log_probs.flatten(0, 1), details, state | {"copying": remembered}

    def forward(self, batch: Batch, memory: Memory | None = None) -> ModelOutput:
        """Teacher-forced pass: gold log-probabilities (B, T).

        Inputs are ``target_ids`` shifted right from ``decoder_start_token_id``, as transformers shifts
        labels; ``target_input_ids`` is not read. Where ``forced_mask`` is false the model reads its own
        prediction, which needs the step loop. ``attention`` (B, T, S) is given where the head needs it, and
        outside of training.
        """
        memory = self.encode(batch) if memory is None else memory
        if batch.forced_mask is None or bool(batch.forced_mask.all()):
            return self._project(self._forced(batch, memory), batch, memory)
        return self._project(self._free_running(batch, memory), batch, memory)

    def _project(self, decoded: _Decoded, batch: Batch, memory: Memory) -> ModelOutput:
        attention = self._reading(decoded, memory.states) if self.head.copies or not self.training else None
        side = None
        if self.head.reads_taps:
            side = self._source_side(memory, decoded.tap(0).values)
        output = project(self.head, self._head_input(decoded, attention), attention, side, batch, memory)
        if self.opponent is not None:
            found, output.figures = self.opponent.teacher_forced(self._opponent_reading(decoded), batch, self.eos_id)
            output.details |= found
        return output

    def cross_attentions(self, batch: Batch) -> Tensor:
        """Every decoder layer's cross attention, head by head: (L, H, B, T, S)."""
        taps = self._forced(batch, self.encode(batch), self._decoder.layers).taps
        weights = [
            head_attention(tap.queries.transpose(1, 2), tap.keys.transpose(1, 2), tap.mask.unsqueeze(1))
            for tap in taps
            if tap is not None
        ]
        return torch.stack(weights).transpose(1, 2)

    def opponent_attention(self, batch: Batch) -> Tensor:
        """alpha_o (B, T, S)."""
        if self.opponent is None:
            return super().opponent_attention(batch)
        return self._opponent_reading(self._forced(batch, self.encode(batch))).opponent

    def switches(self) -> dict[str, Any]:
        return {} if self.opponent is None else self.opponent.switches()

    def _set_switch(self, name: str, value: Any) -> None:
        assert self.opponent is not None
        self.opponent.switch({name: value})

    # ------------------------------------------------------------------------------------- decoding gold words

    def _decoder_input(self, batch: Batch) -> Tensor:
        assert batch.target_ids is not None, "a teacher-forced pass needs targets"
        assert batch.target_mask is not None, "a teacher-forced pass needs a target mask"
        self._check_length("summary", batch.target_ids.shape[1], "text.max_target_tokens")
        return shift_tokens_right(self._known(batch.target_ids), self.pad_id, self.decoder_start_id)

    def _forced(self, batch: Batch, memory: Memory, tapped: Sequence[Any] | None = None) -> _Decoded:
        """The decoder where it reads the gold tokens, all steps at once."""
        ids = self._decoder_input(batch)
        taps = [Tap(layer.encoder_attn) for layer in tapped or self._tapped]
        hidden = self._decoder(
            input_ids=ids,
            encoder_hidden_states=memory.states,
            encoder_attention_mask=memory.mask,
            use_cache=False,
            taps=taps,
        ).last_hidden_state
        return _Decoded(ids, hidden, [tap.taken(memory.mask) for tap in taps])

    def _free_running(self, batch: Batch, memory: Memory) -> _Decoded:
        """The decoder step by step, reading its own words, without gradient, where ``forced_mask`` (B, T) is false."""
        assert batch.forced_mask is not None
        if self.training and self._last_encoder_layer.gradient_checkpointing:
            raise ConfigError(
                "Reading its own words in training needs the cache, which checkpointed layers do not keep: set "
                "model.gradient_checkpointing to false, or force every word."
            )
        gold, parts = self._decoder_input(batch), []
        state, last = self.start(memory), gold[:, 0]
        for step in range(gold.shape[1]):
            decoded, state = self._advance(last, state)
            parts.append(decoded)
            if step + 1 < gold.shape[1]:
                with torch.no_grad():
                    attention = self._reading(decoded, memory.states)
                    log_probs, _, state = self._words(decoded, attention, state)
                last = torch.where(batch.forced_mask[:, step + 1], gold[:, step + 1], log_probs.argmax(-1))
        return _Decoded(
            ids=torch.cat([part.ids for part in parts], dim=1),
            hidden=torch.cat([part.hidden for part in parts], dim=1),
            taps=[CrossTap.over_steps(taps) for taps in zip(*(part.taps for part in parts), strict=True)],
        )

    # ------------------------------------------------------------------------------------- parts

    @property
    def _decoder(self) -> Any:
        return self.network.get_decoder()

    @property
    def _last_encoder_layer(self) -> Any:
        return self.network.get_encoder().layers[-1]

    @property
    def _tapped(self) -> list[Any]:
        """The decoder layers that a pass looks into: the one that explains and copies, and the opponent's."""
        layers = self._decoder.layers
        return [layers[self.config.attention_layer], *([layers[self.opponent.config.layer]] if self.opponent else [])]

    @property
    def _looked_into(self) -> bool:
        """Does training read the taps?"""
        return self.head.copies or self.opponent is not None

    def _reading(self, decoded: _Decoded, states: Tensor) -> AttentionOutput:
        """How the words read the source: the weights of ``attention_layer``, what they make of the memory (B, S, D),
        and their logarithms, of which they are the softmax."""
        weights = mean_attention(decoded.tap(0))
        return AttentionOutput(torch.bmm(weights.to(states.dtype), states), weights, log_weights(weights))

    def _opponent_reading(self, decoded: _Decoded) -> OpponentReading:
        assert self.opponent is not None
        tap = decoded.tap(1)
        return self.opponent.read(tap.queries, tap.keys, tap.values, tap.mask)

    def _head_input(self, decoded: _Decoded, attention: AttentionOutput | None, project: Any = None) -> HeadInput:
        """The output layer reads h; a gate without taps [context; h; embedded word], the others see the taps."""
        hidden = decoded.hidden
        if not self.head.copies or attention is None:
            return HeadInput(hidden, hidden, project)
        if self.head.reads_taps:
            return HeadInput(hidden, hidden, project, decoded.tap(0), attention.weights)
        embedded = F.embedding(decoded.ids, self._decoder.embed_tokens.weight)
        return HeadInput(hidden, torch.cat([attention.context, hidden, embedded], dim=-1), project)

    def _source_side(self, memory: Memory, values: Tensor) -> SourceSide:
        """What a head that reads taps knows of the documents; ``values`` (B, S, H, d) of the explaining attention."""
        last = memory.extra["last_layer"]
        assert last is not None, "the encoder ran without the tapped layer"
        return SourceSide(memory.states, last.queries, last.keys, values, memory.mask, memory.extended_ids)

    def _known(self, ids: Tensor) -> Tensor:
        """Ids outside V (words of this source only, or another tokenizer's) become UNK, or padding where there is
        none."""
        return ids.masked_fill(ids >= self.vocab_size, self.unk_id)

    def _first_word(self, log_probs: Tensor) -> Tensor:
        scores = torch.full_like(log_probs, -torch.inf)
        scores[:, self.forced_bos_id] = 0.0
        return scores

    def _check_length(self, what: str, length: int, setting: str) -> None:
        if self.max_source_tokens is not None and length > self.max_source_tokens:
            raise DataError(
                f"A {what} of {length} tokens does not fit this model, which reads {self.max_source_tokens};"
                f" set {setting} lower."
            )
