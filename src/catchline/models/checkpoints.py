"""Checkpoints of transformers' BART family (BART, mBART, Marian, Pegasus) behind ``encode / start / step / forward``.

This file is all contact with transformers' models. The layers are theirs; the attention function, the cache and the
output are ours.

* **Memory is never copied per beam.** Keys and values of the cross attention are projected once a document; in a step
  the beams of a document are K queries (`folded_attention`).
* The self-attention cache is a list of tensors with N in front, which search re-orders like any other state.
* A pass may be given captures (``captures=[...]``, which transformers hands to every layer). Each takes the projected
  queries, keys and values of one layer, of which `catchline.models.transformer` makes weights before dropout.
* Without a copy head the output is the checkpoint's own, W_o h + final_logits_bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AutoConfig, AutoModelForSeq2SeqLM, PretrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.models.bart.modeling_bart import shift_tokens_right
from transformers.utils.logging import disable_progress_bar

from catchline.config.base import ConfigBase
from catchline.errors import CatchlineError, ConfigError, ModelError
from catchline.kernels.dispatch import PackableLinear
from catchline.layers.copying.pointer import BorrowedProjection
from catchline.layers.opponent import DecoderShape
from catchline.layers.transformer import CapturedAttention
from catchline.models.base import Spec
from catchline.models.stored import FAMILY, PLAIN, as_model_error, first_line
from catchline.models.transformer import CapturedTransformer, Decoded, EncodedSource, OutputConfig
from catchline.types import Batch, Memory, Shared, StepOutput, TrainingBatch

ATTENTION = "catchline_folded"
ORDINARY_ATTENTION = (None, ATTENTION, "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
LEARNED_POSITIONS = ("bart", "mbart")
NOT_ARCHITECTURE = ("transformers_version", "dtype", "architectures", "id2label", "label2id")
SINES, MOST_SINES = ("marian", "pegasus"), 8_000_000
MOST_LAYERS = 1_000  # as of our own models

KeysValues = tuple[Tensor, Tensor]  # (B or N, heads, S, width)


# ------------------------------------------------------------------------------------------ attention and cache


class Capture:
    """Takes what one attention layer projects in a pass. It overwrites: under activation checkpointing a layer runs
    again in the backward pass. Once read it takes nothing more, so that it keeps no activations alive."""

    def __init__(self, module: nn.Module) -> None:
        self.module: nn.Module | None = module
        self.projected: tuple[Tensor, Tensor, Tensor] | None = None

    def offer(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Take the layer's (B, heads, ..., width) tensors, the queries not yet scaled; called for every layer."""
        if module is self.module:
            self.projected = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)

    def taken(self, mask: Tensor) -> CapturedAttention | None:
        """What was taken, with the keys' mask (B, S); folded rows side by side, (B, K, ...). None: the layer did not
        run."""
        if self.projected is None:
            return None
        found = CapturedAttention(*self.projected, mask)
        self.module = self.projected = None
        return found


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
    """Scaled dot-product attention in which several query rows may share one document's keys. ``query`` (N, heads, Q,
    width); ``key`` and ``value`` (B, heads, S, width) with N = B * K. With K > 1 (then Q = 1) the rows become queries
    of their document. ``attention_mask`` is boolean, true where a query may look, (B, 1, Q, S). Returns (N, Q, heads,
    width), as transformers wants it."""
    rows, heads, length, width = query.shape
    documents = key.shape[0]
    if rows != documents:
        query = query.view(documents, rows // documents, heads, width).transpose(1, 2)  # (B, heads, K, width)
    for capture in kwargs.get("captures") or ():
        capture.offer(module, query, key, value)
    causal = attention_mask is None and length > 1 and bool(getattr(module, "is_causal", False))
    output = F.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling, is_causal=causal
    )
    if rows != documents:
        return output.transpose(1, 2).reshape(rows, 1, heads, width), None
    return output.transpose(1, 2).contiguous(), None


disable_progress_bar()  # of files, which would stand in the middle of ours
AttentionInterface.register(ATTENTION, folded_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def filled_cache(layers: list[KeysValues]) -> DynamicCache:
    """A transformers cache of these tensors, without a copy; empty ones are left to be begun."""
    cache = DynamicCache()
    for keys, values in layers:
        layer = DynamicLayer()
        if keys.shape[2]:
            layer.lazy_initialization(keys, values)
            layer.keys, layer.values = keys, values
        cache.layers.append(layer)
    return cache


# ------------------------------------------------------------------------------------------------- the model


class NetworkConfig(ConfigBase):
    """``pretrained``: a hub id or folder to start from; or ``architecture``: a transformers configuration.
    ``gradient_checkpointing``: keep less in training and compute each layer again in the backward pass."""

    pretrained: str | None = None
    architecture: Spec | None = None
    gradient_checkpointing: bool = False


class BartSummarizer(CapturedTransformer):
    """A sequence-to-sequence Transformer of transformers as a `SummarizationModel`. Decoding starts from the
    checkpoint's ``decoder_start_token_id``, whatever ``bos_id`` says, and begins with ``forced_bos_token_id`` where the
    checkpoint asks for it."""

    class Config(NetworkConfig, OutputConfig):
        """``forced_bos_id`` is the id that every summary begins with (none: what the checkpoint's generation settings
        say)."""

        forced_bos_id: int | None = None

    config: BartSummarizer.Config

    def __init__(self, config: Config, **ids: int) -> None:
        """Build from ``config``; the ids of the tokenizer, where given, fill what the architecture leaves open."""
        unk_id = ids.pop("unk_id", None)
        network = build_network(config, {name.replace("_id", "_token_id"): value for name, value in ids.items()})
        options, begin = network.config, getattr(network.config, "bos_token_id", None)  # Pegasus has none
        start, forced_bos_id = first_ids(network)
        if config.forced_bos_id is None:
            config = config.model_copy(update={"forced_bos_id": forced_bos_id})
        super().__init__(
            config.model_copy(update={"pretrained": None, "architecture": portable(options)}),
            vocab_size=int(network.lm_head.out_features),
            pad_id=int(options.pad_token_id),
            unk_id=int(options.pad_token_id) if unk_id is None else unk_id,
            bos_id=start,
            eos_id=first_id(options.eos_token_id),
        )
        self.forced_bos_id = forced = config.forced_bos_id
        if forced is not None and not 0 <= forced < self.vocab_size:
            raise ConfigError(f"model.forced_bos_id {forced} is not an id of a vocabulary of {self.vocab_size}.")
        if not options.encoder_layers:
            raise ConfigError("model.architecture.encoder_layers is 0: the model needs at least one.")
        if not -options.decoder_layers <= config.attention_layer < options.decoder_layers:
            raise ConfigError(
                f"model.attention_layer {config.attention_layer} does not exist:"
                f" the decoder has {options.decoder_layers} layers."
            )
        self.network = network
        for module in network.modules():
            if type(module) is nn.Linear:
                module.__class__ = PackableLinear
        if options.model_type in LEARNED_POSITIONS:
            self.max_source_tokens = self.max_target_tokens = int(options.max_position_embeddings)
        self.first_input_id, self.attention_layer = start, config.attention_layer % options.decoder_layers
        heads = options.decoder_attention_heads
        shape = DecoderShape(options.decoder_layers, heads, options.d_model // heads, options.dropout)
        special = [id_ for id_ in (self.pad_id, begin, self.eos_id, start) if id_ is not None]
        self._build_output(BorrowedProjection(network), shape, special)
        if config.gradient_checkpointing:
            network.activation_checkpointing_enable({"use_reentrant": False})  # captures need their gradient
            network.disable_input_require_grads()  # the embeddings are trained, unlike an adapter's
        if (self.head.copies or self.opponent) and (options.encoder_layerdrop or options.decoder_layerdrop):
            raise ConfigError(
                "The copy head or the opponent reads layers that LayerDrop sometimes skips: set "
                "encoder_layerdrop and decoder_layerdrop to 0, in model.architecture or the checkpoint's config.json."
            )

    # ---------------------------------------------------------------------------- encode, start and step

    def encode(self, batch: Batch) -> Memory:
        """Run the encoder; ``final`` is empty because the decoder starts from nothing but the memory."""
        self._check_length("source", batch.source_ids.shape[1], "text.max_source_tokens")
        capture = Capture(self._last_encoder_layer.self_attn)
        states = self.network.get_encoder()(
            input_ids=batch.source_ids,
            attention_mask=batch.source_mask,
            captures=[capture] if self.head.reads_captured else [],
        ).last_hidden_state
        captured = capture.taken(batch.source_mask)
        return self._memory(batch, states, captured=None if captured is None else (captured.queries, captured.keys))

    def _first_state(self, memory: Memory) -> dict[str, Any]:
        """An empty self-attention cache (B rows) and, shared by the beams, each layer's keys and values."""
        cross: list[KeysValues] = []
        for layer in self._decoder.layers:
            attention = layer.encoder_attn
            shape = (-1, (attention.num_heads, attention.head_dim))
            keys, values = attention.k_proj(memory.states), attention.v_proj(memory.states)  # (B, S, D)
            cross.append((keys.unflatten(*shape).transpose(1, 2), values.unflatten(*shape).transpose(1, 2)))
        cache = [(keys[:, :, :0], values[:, :, :0]) for keys, values in cross]
        return {"cache": cache, "memory": Shared(EncodedSource(memory.states, memory.mask, cross))}

    def step(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[StepOutput, dict[str, Any]]:
        """One token for N rows; in the first step everything but ``forced_bos_id`` is excluded where the checkpoint
        has one, which costs nothing."""
        first = state["cache"][0][0].shape[2] == 0
        output, state = super().step(last_ids, state)
        if first and self.forced_bos_id is not None:
            output.scores = torch.full_like(output.scores, -torch.inf)
            output.scores[:, self.forced_bos_id] = 0.0
        return output, state

    def _advance(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[Decoded, dict[str, Any]]:
        encoded: EncodedSource = state["memory"].tree
        steps = state["cache"][0][0].shape[2]
        self._check_length("summary", steps + 1, "search.max_length")
        last_ids = self._known(last_ids)
        if steps == 0:
            last_ids = torch.full_like(last_ids, self.first_input_id)
        cache = EncoderDecoderCache(filled_cache(state["cache"]), filled_cache(encoded.layers))
        decoded = self._decode(last_ids[:, None], encoded, past_key_values=cache, use_cache=True)
        layers: list[Any] = cache.self_attention_cache.layers
        return decoded, state | {"cache": [(layer.keys, layer.values) for layer in layers]}

    def _decode(
        self, ids: Tensor, memory: EncodedSource | Memory, *, every_layer: bool = False, **options: Any
    ) -> Decoded:
        """Run the decoder on (N, Q') ids: T of a document, or one of each of its beams."""
        read = {self.attention_layer, *([self.opponent.config.layer] if self.opponent else [])}
        layers = self._decoder.layers
        numbers = range(len(layers)) if every_layer else sorted(read)
        captures = {number: Capture(layers[number].encoder_attn) for number in numbers}
        hidden = self._decoder(
            input_ids=ids,
            encoder_hidden_states=memory.states,
            encoder_attention_mask=memory.mask,
            captures=list(captures.values()),
            **options,
        ).last_hidden_state
        documents = memory.mask.shape[0]
        taken = {number: capture.taken(memory.mask) for number, capture in captures.items()}
        return Decoded(
            ids.reshape(documents, -1),
            hidden.reshape(documents, -1, hidden.shape[-1]),
            {number: captured for number, captured in taken.items() if captured is not None},
        )

    # -------------------------------------------------------------------------------- training

    def _gold_inputs(self, batch: TrainingBatch) -> Tensor:
        """``target_ids`` shifted right from ``decoder_start_token_id``, as transformers shifts labels;
        ``target_input_ids`` is not read."""
        self._check_length("summary", batch.target_ids.shape[1], "text.max_target_tokens")
        return shift_tokens_right(self._known(batch.target_ids), self.pad_id, self.decoder_start_id)

    def _forced(self, batch: TrainingBatch, memory: Memory, *, every_layer: bool = False) -> Decoded:
        return self._decode(self._gold_inputs(batch), memory, every_layer=every_layer, use_cache=False)

    def _free_running(self, batch: TrainingBatch, memory: Memory, forced: Tensor) -> Decoded:
        if self.training and self._last_encoder_layer.gradient_checkpointing:
            raise ConfigError(
                "Reading its own words in training needs the cache, which checkpointed layers do not keep: set "
                "model.gradient_checkpointing to false, or use full teacher forcing."
            )
        return super()._free_running(batch, memory, forced)

    # ------------------------------------------------------------------------------------- parts

    @property
    def _decoder(self) -> Any:
        return self.network.get_decoder()

    @property
    def _last_encoder_layer(self) -> Any:
        return self.network.get_encoder().layers[-1]

    def _embedded(self, decoded: Decoded) -> Tensor:
        return F.embedding(decoded.inputs, self._decoder.embed_tokens.weight)


# ----------------------------------------------------------------------------------------- opening networks


def build_network(config: Any, ids: Mapping[str, int], *, plain: bool = False) -> PreTrainedModel:
    """The network of ``config.pretrained`` or, with random weights, of ``config.architecture``. ``ids`` of the
    tokenizer fill what the architecture leaves open. A ``plain`` one may be of any type, and has the attention of
    transformers."""
    if (config.pretrained is None) == (config.architecture is None):
        raise ConfigError("A checkpoint needs either model.pretrained or model.architecture (and not both).")
    if config.pretrained is not None:
        network = _open(config.pretrained, plain)
    else:
        values = {**ids, **(config.architecture or {})}
        kind, known = values.pop("model_type", "bart"), PLAIN if plain else FAMILY
        if kind not in known:
            raise ConfigError(f"model.architecture.model_type '{str(kind)[:60]}' is not one of {', '.join(known)}.")
        try:
            options = AutoConfig.for_model(kind, **values)
            _check_options(options, plain)
            network = AutoModelForSeq2SeqLM.from_config(options)
        except (CatchlineError, RuntimeError, MemoryError):  # the latter two: too large for this machine
            raise
        except Exception as error:  # what transformers refuses has no common base
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(f"model.architecture is not one that transformers can build: {reason}") from error
    _check_ids(network)
    return network


def portable(options: Any) -> dict[str, Any]:
    """Everything that describes the network, and nothing of where it came from."""
    values = options.to_dict()
    return {key: value for key, value in values.items() if not key.startswith("_") and key not in NOT_ARCHITECTURE}


def first_ids(network: Any) -> tuple[int, int | None]:
    """What the decoder reads first, and the id that every summary begins with, if one does."""
    options, generation = network.config, network.generation_config
    starts = (generation.decoder_start_token_id, options.decoder_start_token_id, getattr(options, "bos_token_id", None))
    options.decoder_start_token_id = int(next(id_ for id_ in starts if id_ is not None))
    forced = generation.forced_bos_token_id
    return options.decoder_start_token_id, None if forced is None else first_id(forced)


def _open(name_or_path: str, plain: bool) -> PreTrainedModel:
    with as_model_error(lambda error: f"The checkpoint {name_or_path} could not be opened: {first_line(error)}."):
        options = AutoConfig.from_pretrained(name_or_path, trust_remote_code=False)
        _check_options(options, plain)
        network, report = AutoModelForSeq2SeqLM.from_pretrained(
            name_or_path, config=options, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
        if absent := sorted([*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])]):
            raise ModelError(
                f"The weights of {name_or_path} do not fit its config.json: {', '.join(absent[:3])}"
                f"{' and more' if len(absent) > 3 else ''} would be left untrained."
            )
        return network


def _check_options(options: PretrainedConfig, plain: bool) -> None:
    """Refuse what transformers would notice in the middle of a summary only, or fill a table of sines for, number by
    number; and choose the attention, which config.json may not."""
    if options._attn_implementation not in ORDINARY_ATTENTION:
        named = str(options._attn_implementation)[:60]
        raise ConfigError(f"_attn_implementation is {named!r}, which names code outside of transformers: remove it.")
    options._attn_implementation = None if plain else ATTENTION
    for name, value in options.to_dict().items():
        share = isinstance(value, int | float) and 0 <= value <= 1
        if not share and "drop" in name and not name.startswith("classif"):
            raise ConfigError(f"{name} is {str(value)[:60]!r}, and a share between 0 and 1 was expected.")
        if isinstance(value, int) and value < 0 and not name.endswith("_id"):
            raise ConfigError(f"{name} is {value}, and no number below zero was expected.")
        if isinstance(value, int) and name.endswith(("layers", "experts")) and value > MOST_LAYERS:
            raise ConfigError(f"{name} is {value}, and at most {MOST_LAYERS:,} were expected.")
    if options.model_type in SINES and options.max_position_embeddings * options.d_model > MOST_SINES:
        raise ConfigError(
            f"A '{options.model_type}' model of {options.max_position_embeddings} positions of width {options.d_model} "
            "is implausibly large; correct max_position_embeddings or d_model."
        )


def _check_ids(network: PreTrainedModel) -> None:
    options, size = network.config, network.config.vocab_size
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "forced_bos_token_id"):
        for settings in (options, getattr(network, "generation_config", None)):
            given = getattr(settings, name, None)
            for value in given if isinstance(given, list | tuple) else [given]:
                if value is not None and (type(value) is not int or not 0 <= value < size):
                    raise ConfigError(f"{name} is {value!r:.60}, which is not an id of a vocabulary of {size}.")


def first_id(value: Any) -> int:
    return int(value[0] if isinstance(value, (list, tuple)) else value)
