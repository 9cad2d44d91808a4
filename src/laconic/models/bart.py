"""Any BART-family checkpoint (BART, mBART, Marian, Pegasus) behind ``encode / start / step / forward``.

The layers are those of transformers; only the attention function and the cache are ours.

* **The memory is never copied per beam.** Keys and values of the cross attention are projected once a
  document, (B, heads, S, head width). In a step with N = B * K rows the queries (N, heads, 1, width) are
  folded to (B, heads, K, width), so the beams of a document are K queries into one memory.
* The cache of the decoder's self attention is a plain tree of tensors with N in front, which search
  re-orders like any other state.
* The weights that explain a step are those of one decoder layer (the last by default), averaged over
  the heads: our reading, the same as most published BART alignments.

Copy heads on this backbone come with their own class; here X = V.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AutoConfig, AutoModelForSeq2SeqLM, PreTrainedModel
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.models.bart.modeling_bart import shift_tokens_right

from laconic.config.names import OPPONENTS, build
from laconic.config.section import Section
from laconic.errors import ConfigError, DataError, ModelError
from laconic.layers.opponent.branch import DecoderShape, Opponent, OpponentReading
from laconic.models.base import SummarizationModel
from laconic.models.family import FAMILY
from laconic.types import Batch, Memory, ModelOutput, Shared, StepOutput

ATTENTION = "laconic_folded"
LEARNED_POSITIONS = ("bart", "mbart")
NOT_ARCHITECTURE = ("transformers_version", "dtype", "architectures", "id2label", "label2id")
LOGITS_AT_ONCE = 2**24  # numbers of (rows, V) held at a time when only the gold log-probabilities are wanted

Layers = list[tuple[Tensor, Tensor]]  # per decoder layer: keys and values


class AttentionTrace:
    """Collects one attention layer's weights, averaged over heads, while a pass runs."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.weights: Tensor | None = None  # (B, Q, S)

    def wants(self, module: nn.Module) -> bool:
        """Shall the weights of this layer exist?"""
        return module is self.module

    def take(self, module: nn.Module, weights: Tensor) -> None:
        """Called with the weights (B, heads, Q, S) of a layer that was wanted."""
        self.weights = weights.mean(1)


class Tap:
    """Takes one cross attention's queries, keys and values while a pass runs, for an opponent to read."""

    def __init__(self, module: nn.Module | None) -> None:
        self.module = module
        self.queries: list[Tensor] = []  # (B, Q, heads, width) of each pass, unscaled
        self.memory: tuple[Tensor, Tensor] | None = None  # (B, S, heads, width) twice

    def offer(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Called for every layer with (B, heads, ..., width) tensors."""
        if module is self.module:
            self.queries.append(query.transpose(1, 2))
            self.memory = key.transpose(1, 2), value.transpose(1, 2)

    def read(self, opponent: Opponent, mask: Tensor) -> OpponentReading:
        """What the opponent makes of all passes' queries, side by side."""
        assert self.memory is not None, "the decoder ran without the tapped layer"
        return opponent.read(torch.cat(self.queries, dim=1), *self.memory, mask)


class EveryHead:
    """Collects every head of several attention layers, in the order of the layers."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self.modules = modules
        self.layers: list[Tensor] = []  # (B, heads, Q, S) each

    def wants(self, module: nn.Module) -> bool:
        return any(module is one for one in self.modules)

    def take(self, module: nn.Module, weights: Tensor) -> None:
        self.layers.append(weights)


def folded_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Scaled dot-product attention in which several query rows may share one document's keys.

    ``query`` (N, heads, Q, width); ``key`` and ``value`` (B, heads, S, width) with N = B * K. With K > 1
    (then Q = 1) the rows become queries of their document. ``attention_mask`` is boolean, true where a
    query may look, (B, 1, Q, S). Returns (N, Q, heads, width), as transformers wants it.
    """
    rows, heads, length, width = query.shape
    documents = key.shape[0]
    trace, tap = kwargs.get("trace"), kwargs.get("tap")
    if rows != documents:
        query = query.view(documents, rows // documents, heads, width).transpose(1, 2)  # (B, heads, K, width)
    if tap is not None:
        tap.offer(module, query, key, value)
    causal = attention_mask is None and length > 1 and bool(getattr(module, "is_causal", False))
    if trace is not None and trace.wants(module):
        scale = width**-0.5 if scaling is None else scaling
        scores = torch.matmul(query, key.transpose(2, 3)) * scale  # (B, heads, Q or K, S)
        if attention_mask is not None:
            scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        trace.take(module, weights)
        output = torch.matmul(F.dropout(weights, dropout), value)
    else:
        output = F.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling, is_causal=causal
        )
    if rows != documents:
        return output.transpose(1, 2).reshape(rows, 1, heads, width), None
    return output.transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, folded_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


class BartSummarizer(SummarizationModel):
    """A sequence-to-sequence Transformer of transformers as a `SummarizationModel`.

    Decoding starts from the checkpoint's ``decoder_start_token_id`` whatever ``bos_id`` says, and begins
    with ``forced_bos_token_id`` where the checkpoint asks for it. Padding is never generated.
    """

    class Config(Section):
        """``pretrained``: a hub id or folder to start from; or ``architecture``: a transformers configuration.

        ``attention_layer`` is the decoder layer whose cross attention explains the summary; ``forced_bos_id``
        the id that every summary begins with (none: what the checkpoint's generation settings say). ``opponent``
        puts an opponent attention on one of its layers (`laconic.layers.opponent`).
        """

        pretrained: str | None = None
        architecture: dict[str, Any] | None = None
        attention_layer: int = -1
        forced_bos_id: int | None = None
        opponent: dict[str, Any] | None = None

    config: BartSummarizer.Config
    encoder_switches = frozenset()

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
            ConfigError: neither or both of ``pretrained`` and ``architecture``, or no such model type.
            ModelError: the checkpoint cannot be opened or is not of the BART family.
        """
        super().__init__()
        ids = {"vocab_size": vocab_size, "pad_token_id": pad_id, "bos_token_id": bos_id, "eos_token_id": eos_id}
        network = _build(config, {name: value for name, value in ids.items() if value is not None})
        self._adopt(network, config)
        self.unk_id = unk_id
        self.opponent: Opponent | None = None
        if config.opponent is not None:
            self.opponent = build("opponent", OPPONENTS, config.opponent, **self._opponent_context(network.config))

    def _opponent_context(self, options: Any) -> dict[str, Any]:
        heads = options.decoder_attention_heads
        shape = DecoderShape(options.decoder_layers, heads, options.d_model // heads, options.dropout)
        unknown = self.pad_id if self.unk_id is None else self.unk_id
        return {"shape": shape, "vocab_size": self.vocab_size, "unk_id": unknown}

    @classmethod
    def from_checkpoint(cls, name_or_path: str | Path, *, attention_layer: int = -1) -> BartSummarizer:
        """Open a checkpoint of the hub or of a local folder, in 32-bit floats.

        Raises:
            ModelError: it cannot be read, or is not of the BART family.
        """
        return cls(cls.Config(pretrained=str(name_or_path), attention_layer=attention_layer))

    def _adopt(self, network: PreTrainedModel, config: Config) -> None:
        options = network.config
        self.network = network
        self.vocab_size = int(network.lm_head.out_features)
        self.pad_id = int(options.pad_token_id)
        self.eos_id = _first_id(options.eos_token_id)
        self.decoder_start_id = int(
            options.decoder_start_token_id if options.decoder_start_token_id is not None else options.bos_token_id
        )
        forced = getattr(getattr(network, "generation_config", None), "forced_bos_token_id", None)
        if config.forced_bos_id is None and forced is not None:
            config = config.model_copy(update={"forced_bos_id": _first_id(forced)})
        self.config = config.model_copy(update={"pretrained": None, "architecture": _portable(options)})
        self.forced_bos_id = config.forced_bos_id
        limited = options.model_type in LEARNED_POSITIONS
        self.max_source_tokens = int(options.max_position_embeddings) if limited else None
        self.max_target_tokens = self.max_source_tokens
        if not -options.decoder_layers <= config.attention_layer < options.decoder_layers:
            raise ConfigError(
                f"model.attention_layer {config.attention_layer} does not exist:"
                f" the decoder has {options.decoder_layers} layers."
            )

    @property
    def bos_id(self) -> int:
        """The id decoding starts from."""
        return self.decoder_start_id

    def encode(self, batch: Batch) -> Memory:
        """Run the encoder; ``final`` is empty because the decoder starts from nothing but the memory.

        Raises:
            DataError: the source is longer than the checkpoint's position table.
        """
        length = batch.source_ids.shape[1]
        if self.max_source_tokens is not None and length > self.max_source_tokens:
            raise DataError(
                f"A source of {length} tokens does not fit this model, which reads {self.max_source_tokens};"
                " set text.max_source_tokens lower."
            )
        encoder = self.network.get_encoder()
        states = encoder(input_ids=batch.source_ids, attention_mask=batch.source_mask).last_hidden_state
        return Memory(
            states=states,
            mask=batch.source_mask,
            extended_ids=batch.source_extended_ids,
            extended_vocab_size=self.vocab_size,
        )

    def start(self, memory: Memory) -> dict[str, Any]:
        """An empty self-attention cache (B rows) and, shared by the beams, each layer's keys and values."""
        cross: Layers = []
        cache: Layers = []
        for layer in self._decoder.layers:
            attention = layer.encoder_attn
            keys, values = attention.k_proj(memory.states), attention.v_proj(memory.states)  # (B, S, D)
            heads, width = attention.num_heads, attention.head_dim
            cross.append(tuple(x.unflatten(-1, (heads, width)).transpose(1, 2) for x in (keys, values)))
            empty = keys.new_zeros(memory.batch_size, layer.self_attn.num_heads, 0, layer.self_attn.head_dim)
            cache.append((empty, empty))
        state = {"cache": cache, "memory": Shared({"states": memory.states, "mask": memory.mask, "cross": cross})}
        if self.opponent is not None and self.opponent.decodes:
            state["opponent"] = self.opponent.projection.for_decoding()
        return state

    def step(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[StepOutput, dict[str, Any]]:
        """One token for N rows: scores and log-probabilities (N, V), attention (N, S), context and state (N, D).

        The context is the memory under the explaining weights, the state what the output layer reads. ``scores``
        are the log-probabilities (with an opponent, J) with padding excluded and, in the first step, everything but
        ``forced_bos_id`` excluded where the checkpoint has one.
        """
        first = state["cache"][0][0].shape[2] == 0
        tap = self._tap()
        hidden, weights, state = self._advance(last_ids, state, tap)
        log_probs = self._logits(hidden).log_softmax(-1)
        scores, details = log_probs, dict[str, Tensor]()
        if self.opponent is not None and self.opponent.decodes:
            reading = tap.read(self.opponent, state["memory"].tree["mask"])
            scores, details = self.opponent.scores(reading, log_probs, state["opponent"])
        memory = state["memory"].tree["states"]  # (B, S, D)
        context = torch.bmm(weights.view(len(memory), -1, memory.shape[1]).to(memory.dtype), memory).flatten(0, 1)
        output = StepOutput(self._constrained(scores, first), log_probs, weights, context, hidden, details)
        return output, state

    def _advance(self, last_ids: Tensor, state: dict[str, Any], tap: Tap) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Run the decoder on one token a row: its output (N, D), the explaining weights (N, S), the next state."""
        shared = state["memory"].tree
        first = state["cache"][0][0].shape[2] == 0
        last_ids = self._known(last_ids)
        if first:
            last_ids = torch.full_like(last_ids, self.decoder_start_id)
        cache = EncoderDecoderCache(_filled(state["cache"]), _filled(shared["cross"]))
        trace = AttentionTrace(self._explaining)
        hidden = self._decoder(
            input_ids=last_ids[:, None],
            encoder_hidden_states=shared["states"],
            encoder_attention_mask=shared["mask"],
            past_key_values=cache,
            use_cache=True,
            trace=trace,
            tap=tap,
        ).last_hidden_state  # (N, 1, D)
        assert trace.weights is not None, "the decoder ran without the traced layer"
        layers: list[Any] = cache.self_attention_cache.layers
        grown = [(layer.keys, layer.values) for layer in layers]
        return hidden[:, 0], trace.weights.reshape(last_ids.shape[0], -1), state | {"cache": grown}

    def forward(self, batch: Batch) -> ModelOutput:
        """Teacher-forced pass: gold log-probabilities (B, T), attention (B, T, S).

        Inputs are ``target_ids`` shifted right from ``decoder_start_token_id``, as transformers shifts
        labels; ``target_input_ids`` is not read. Where ``forced_mask`` is false the model reads its own
        prediction, which needs the step loop.
        """
        assert batch.target_ids is not None, "a teacher-forced pass needs targets"
        assert batch.target_mask is not None, "a teacher-forced pass needs a target mask"
        memory = self.encode(batch)
        gold, padding, tap = self._known(batch.target_ids), ~batch.target_mask, self._tap()
        if batch.forced_mask is not None and not bool(batch.forced_mask.all()):
            hidden, weights = self._free_running(memory, gold, batch.forced_mask, tap)
        else:
            trace = AttentionTrace(self._explaining)
            hidden = self._forced(memory, gold, trace, tap)
            assert trace.weights is not None, "the decoder ran without the traced layer"
            weights = trace.weights
        log_probs, smoothed = self._gold_log_probs(hidden, gold, batch.label_smoothing.get("nll", 0.0))
        output = ModelOutput(gold_log_probs=log_probs.masked_fill(padding, 0.0), attention=weights)
        if smoothed is not None:
            output.details["smoothed_log_probs"] = smoothed.masked_fill(padding, 0.0)
        if self.opponent is not None:
            reading = tap.read(self.opponent, memory.mask)
            details, output.figures = self.opponent.teacher_forced(reading, batch, self.eos_id)
            output.details |= details
        return output

    def cross_attentions(self, batch: Batch) -> Tensor:
        """Every decoder layer's cross attention, head by head: (L, H, B, T, S)."""
        assert batch.target_ids is not None, "a teacher-forced pass needs targets"
        trace = EveryHead([layer.encoder_attn for layer in self._decoder.layers])
        self._forced(self.encode(batch), self._known(batch.target_ids), trace)
        return torch.stack(trace.layers).transpose(1, 2)

    def opponent_attention(self, batch: Batch) -> Tensor:
        """alpha_o (B, T, S)."""
        if self.opponent is None:
            return super().opponent_attention(batch)
        assert batch.target_ids is not None, "a teacher-forced pass needs targets"
        tap = self._tap()
        self._forced(self.encode(batch), self._known(batch.target_ids), AttentionTrace(self._explaining), tap)
        return tap.read(self.opponent, batch.source_mask).opponent

    def switches(self) -> dict[str, Any]:
        return {} if self.opponent is None else self.opponent.switches()

    def _set_switch(self, name: str, value: Any) -> None:
        assert self.opponent is not None
        self.opponent.switch({name: value})

    # ------------------------------------------------------------------------------------- inside

    def _forced(
        self, memory: Memory, gold: Tensor, trace: AttentionTrace | EveryHead, tap: Tap | None = None
    ) -> Tensor:
        """The decoder's output (B, T, D) where it reads the gold tokens."""
        return self._decoder(
            input_ids=shift_tokens_right(gold, self.pad_id, self.decoder_start_id),
            encoder_hidden_states=memory.states,
            encoder_attention_mask=memory.mask,
            use_cache=False,
            trace=trace,
            tap=tap,
        ).last_hidden_state

    @property
    def _decoder(self) -> Any:
        return self.network.get_decoder()

    @property
    def _explaining(self) -> nn.Module:
        return self._decoder.layers[self.config.attention_layer].encoder_attn

    def _tap(self) -> Tap:
        """What takes the projections that the opponent reads, if there is one."""
        layer = None if self.opponent is None else self._decoder.layers[self.opponent.config.layer].encoder_attn
        return Tap(layer)

    def _known(self, ids: Tensor) -> Tensor:
        """Ids outside V (another tokenizer's extended ids) become UNK, or padding where there is none."""
        return torch.where(ids < self.vocab_size, ids, self.pad_id if self.unk_id is None else self.unk_id)

    def _logits(self, hidden: Tensor) -> Tensor:
        return self.network.lm_head(hidden) + self.network.final_logits_bias

    def _constrained(self, log_probs: Tensor, first: bool) -> Tensor:
        scores = log_probs.clone()
        if first and self.forced_bos_id is not None:
            scores.fill_(-torch.inf)
            scores[:, self.forced_bos_id] = 0.0
        elif self.pad_id != self.eos_id:
            scores[:, self.pad_id] = -torch.inf
        return scores

    def _gold_log_probs(self, hidden: Tensor, gold: Tensor, smoothing: float) -> tuple[Tensor, Tensor | None]:
        """log P(gold), holding at most `LOGITS_AT_ONCE` logits at a time when no gradient is wanted; and the same
        with smoothed labels, ``log P(gold) + eps (mean_v l_v - l_gold)`` of the logits l, where it is asked for."""
        rows = hidden.shape[0] * hidden.shape[1]
        flat, ids = hidden.reshape(rows, -1), gold.reshape(rows)
        pieces = rows if torch.is_grad_enabled() else max(1, LOGITS_AT_ONCE // self.vocab_size)
        losses, gaps = [], []
        for part, wanted in zip(flat.split(pieces), ids.split(pieces), strict=True):
            logits = self._logits(part)
            losses.append(F.cross_entropy(logits, wanted, reduction="none"))
            if smoothing:
                gaps.append(logits.mean(-1) - logits.gather(1, wanted[:, None])[:, 0])
        log_probs = -torch.cat(losses).view_as(gold)
        return log_probs, log_probs + smoothing * torch.cat(gaps).view_as(gold) if smoothing else None

    def _free_running(self, memory: Memory, gold: Tensor, forced: Tensor, tap: Tap) -> tuple[Tensor, Tensor]:
        """The decoder step by step, reading its own words where ``forced`` is false: (B, T, D) and (B, T, S)."""
        state = self.start(memory)
        last = torch.full_like(gold[:, 0], self.decoder_start_id)
        hidden, weights = [], []
        for step in range(gold.shape[1]):
            output, read, state = self._advance(last, state, tap)
            hidden.append(output)
            weights.append(read)
            if step + 1 < gold.shape[1]:
                own = self._logits(output.detach()).argmax(-1)
                last = torch.where(forced[:, step + 1], gold[:, step], own)
        return torch.stack(hidden, 1), torch.stack(weights, 1)


def _filled(layers: Layers) -> DynamicCache:
    """A transformers cache that holds these tensors (no copy); empty ones are left to be begun."""
    cache = DynamicCache()
    for keys, values in layers:
        layer = DynamicLayer()
        if keys.shape[2]:
            layer.lazy_initialization(keys, values)
            layer.keys, layer.values = keys, values
        cache.layers.append(layer)
    return cache


def _build(config: BartSummarizer.Config, ids: dict[str, int]) -> PreTrainedModel:
    if (config.pretrained is None) == (config.architecture is None):
        raise ConfigError("A model of type 'bart' needs either 'pretrained' or 'architecture' (and not both).")
    if config.pretrained is not None:
        network = _open(config.pretrained)
    else:
        values = {**ids, **(config.architecture or {})}
        kind = values.pop("model_type", "bart")
        if kind not in FAMILY:
            raise ConfigError(f"model.architecture.model_type '{kind}' is not one of {', '.join(FAMILY)}.")
        network = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(kind, **values))
    network.set_attn_implementation(ATTENTION)
    return network


def _portable(options: Any) -> dict[str, Any]:
    """Everything that describes the network, and nothing of where it came from."""
    values = options.to_dict()
    return {key: value for key, value in values.items() if not key.startswith("_") and key not in NOT_ARCHITECTURE}


def _open(name_or_path: str) -> PreTrainedModel:
    try:
        options = AutoConfig.from_pretrained(name_or_path)
        if options.model_type not in FAMILY:
            raise ModelError(
                f"{name_or_path} holds a '{options.model_type}' model; laconic opens {', '.join(FAMILY)} checkpoints."
            )
        return AutoModelForSeq2SeqLM.from_pretrained(name_or_path, dtype=torch.float32)
    except ModelError:
        raise
    except Exception as error:  # transformers, safetensors and the hub client raise their own kinds each
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"The checkpoint {name_or_path} could not be opened: {first}") from error


def _first_id(value: Any) -> int:
    return int(value[0] if isinstance(value, (list, tuple)) else value)
