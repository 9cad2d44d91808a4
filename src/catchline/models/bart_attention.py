"""How the BART family attends here: one attention function, and captures on the layers somebody wants to look into.

The layers are those of transformers; they call `folded_attention` by its name. A pass may be given captures
(``captures=[...]``, which transformers hands down to every layer): each takes one layer's projected queries, keys and
values, which exist anyway, and the states the queries were made of. Nobody asks the attention kernel for weights, so
they are never those after dropout, and no layer pays but the one that is looked into.

A capture overwrites: under activation checkpointing a layer runs again in the backward pass, and must not be taken
twice. Once read (`Capture.taken`) it is empty and takes nothing more, so that it keeps no activations alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from catchline.errors import ConfigError
from catchline.layers.transformer import CapturedAttention

ATTENTION = "catchline_folded"

Layers = list[tuple[Tensor, Tensor]]  # per decoder layer: keys and values


class Capture:
    """Takes what one attention layer projects while a pass runs."""

    def __init__(self, module: nn.Module) -> None:
        self.module: nn.Module | None = module
        self.state: Tensor | None = None  # (N, Q, D)
        self.projected: tuple[Tensor, Tensor, Tensor] | None = None

    @torch.compiler.disable  # what is compiled for one layer runs for others too, without asking again which it is
    def enter(self, module: nn.Module, state: Tensor) -> None:
        """Called with what the queries of a layer are made of."""
        if module is self.module:
            self.state = state

    @torch.compiler.disable
    def offer(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Called for every layer with (B, heads, ..., width) tensors, the queries not yet scaled."""
        if module is self.module:
            self.projected = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)

    def taken(self, mask: Tensor) -> CapturedAttention | None:
        """What was taken, with the keys' mask (B, S); folded rows side by side, (B, K, ...). None: the layer did not
        run."""
        if self.projected is None or self.state is None:
            return None
        (queries, keys, values), state = self.projected, self.state
        self.module = self.state = self.projected = None
        return CapturedAttention(state.reshape(*queries.shape[:2], -1), queries, keys, values, mask)


def offer_states(module: nn.Module) -> None:
    """Let the captures of a pass see what enters this layer: the attention function sees the projections only."""
    module.register_forward_pre_hook(_offer_state, with_kwargs=True)


def _offer_state(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for capture in kwargs.get("captures") or ():
        capture.enter(module, args[0] if args else kwargs["hidden_states"])


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


AttentionInterface.register(ATTENTION, folded_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def filled_cache(layers: Layers) -> DynamicCache:
    """A transformers cache that holds these tensors (no copy); empty ones are left to be begun."""
    cache = DynamicCache()
    for keys, values in layers:
        layer = DynamicLayer()
        if keys.shape[2]:
            layer.lazy_initialization(keys, values)
            layer.keys, layer.values = keys, values
        cache.layers.append(layer)
    return cache


def refuse_reentrant(layers: Sequence[Any]) -> None:
    """Captured layers under re-entrant checkpointing would send no gradient back through the capture, and say nothing.

    Raises:
        ConfigError: one of the layers is checkpointed that way.
    """
    for layer in layers:
        options = getattr(getattr(layer, "_gradient_checkpointing_func", None), "keywords", {})
        if layer.training and layer.gradient_checkpointing and options.get("use_reentrant", True):
            raise ConfigError(
                "Re-entrant activation checkpointing loses the gradient of the attention that the copy head or the "
                "opponent reads: set use_reentrant to false (model.gradient_checkpointing does)."
            )
