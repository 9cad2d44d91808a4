"""Transformer blocks whose attention is fused, and may still be looked into.

| paper | here |
| --- | --- |
| W_q, W_k, W_v | rows 0 to D, D to 2D, 2D to 3D of ``in_proj``; head j owns dj ... dj + d - 1 of each |
| q, k, v of head j | ``queries[:, :, j]``, ``keys[:, :, j]``, ``values[:, :, j]`` of a `CapturedAttention`, unscaled |
| alpha of head j | `head_attention`, in float32 at least |

A layer works on Q rows a document: all T target positions in training, the K beams of one step in decoding.
The two differ only in what the self-attention of the decoder may see, which is a function that is passed in.
Whoever wants weights (a copy head, an opponent, an explanation) takes a layer's `CapturedAttention`, references to what
was projected anyway, and pays for that layer alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from catchline.config.base import ConfigBase
from catchline.kernels import dispatch
from catchline.kernels.dispatch import PackableLinear, linear
from catchline.papers.contrastive import conventional_weights

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]  # layer, then (B, Q, H, d) three times -> (B, Q, H, d)
KeysValues = tuple[Tensor, Tensor]  # (B, H, S, d) each


@dataclass(slots=True)
class CapturedAttention:
    """One decoder layer's cross attention, as it was projected. Q is T in training, K in search."""

    queries: Tensor  # (B, Q, H, d), not yet divided by sqrt(d)
    keys: Tensor  # (B, S, H, d)
    values: Tensor  # (B, S, H, d), before the output projection
    mask: Tensor  # (B, S) bool

    @classmethod
    def over_steps(cls, steps: Sequence[CapturedAttention]) -> CapturedAttention:
        """Successive steps as one, their queries side by side."""
        queries = torch.cat([step.queries for step in steps], dim=1)
        return cls(queries, steps[0].keys, steps[0].values, steps[0].mask)


def sinusoids(first: int, count: int, like: Tensor) -> Tensor:
    """The vectors of ``count`` positions from ``first`` on: (count, D), D, type and device those of ``like`` (..., D).
    The first half of a vector holds sines, the second cosines; the angular speeds fall geometrically from 1 to 1/10000
    (as in fairseq; not the interleaved order of the Transformer's paper)."""
    size = like.shape[-1]
    half = size // 2
    exact = torch.float64 if like.dtype == torch.float64 else torch.float32
    steps = torch.arange(half, dtype=exact, device=like.device)
    speeds = torch.exp(steps * (-math.log(10000.0) / max(half - 1, 1)))
    angles = torch.arange(first, first + count, dtype=exact, device=like.device)[:, None] * speeds
    vectors = torch.cat([angles.sin(), angles.cos()], dim=1)
    if size % 2:
        vectors = F.pad(vectors, (0, 1))
    return vectors.to(like.dtype)


def token_positions(mask: Tensor) -> Tensor:
    """(B, S) bool -> (B, S): real tokens are numbered 1, 2, ..., padding on either side has 0."""
    return mask.cumsum(dim=1) * mask


def masked_sinusoids(mask: Tensor, first: int, like: Tensor) -> Tensor:
    """The vectors (B, S, D) of a padded batch: a row's first real token is at ``first``; padding has zeros."""
    table = sinusoids(first, mask.shape[1], like)
    table = torch.cat([table.new_zeros(1, table.shape[1]), table])
    return F.embedding(token_positions(mask), table)


def head_attention(queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """``alpha = softmax(q k^T / sqrt(d))`` over real tokens: (..., Q, d), (..., S, d), (..., S) -> (..., Q, S). In
    float32 at least, also under autocast; zero at padding; a row without real tokens is zero."""
    with torch.autocast(queries.device.type, enabled=False):
        return conventional_weights(queries, keys, mask)


def mean_attention(tap: CapturedAttention) -> Tensor:
    """The mean of `head_attention` over the heads: (B, Q, S)."""
    with torch.autocast(tap.queries.device.type, enabled=False):
        return dispatch.mean_attention(tap.queries, tap.keys, tap.mask)


def log_weights(weights: Tensor) -> Tensor:
    """``log a`` of weights in [0, 1], finite everywhere: below 1e-30 in float32 they count as that. Smaller ones have
    no useful digits left, and a gradient divided by one may not be a number any more."""
    return weights.clamp_min(1e8 * torch.finfo(weights.dtype).tiny).log()


def scaled_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """The fused kernel on (B, Q, H, d) and (B, S, H, d): (B, Q, H, d). ``mask`` (B, 1, 1 or Q, S) true where to look. A
    row that may look nowhere gives zeros."""
    return F.scaled_dot_product_attention(
        queries.transpose(1, 2),
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=causal,
    ).transpose(1, 2)


def step_attention(past: KeysValues, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, KeysValues]:
    """Self-attention of one step, (B, K, H, d) three times -> (B, K, H, d), and the past with the step. ``past`` has
    the keys and values (N, H, t, d) of the t steps before."""
    row = (past[0].shape[0], queries.shape[2], 1, queries.shape[3])
    past = torch.cat([past[0], keys.reshape(row)], dim=2), torch.cat([past[1], values.reshape(row)], dim=2)
    return F.scaled_dot_product_attention(queries.reshape(row), *past).reshape(queries.shape), past


class AttentionProjections(nn.Module):
    """The parameters of one attention: the stacked projections of queries, keys and values, and of the output.
    ``in_proj`` is drawn as one (3D, D) matrix, Xavier uniform: a smaller bound than for three (D, D) matrices."""

    def __init__(self, size: int, num_heads: int) -> None:
        super().__init__()
        self.size, self.num_heads = size, num_heads
        self.in_proj, self.out_proj = PackableLinear(size, 3 * size), PackableLinear(size, size)
        initialise(self.in_proj, self.out_proj)

    def heads(self, features: Tensor) -> tuple[Tensor, ...]:
        """(B, Q, p D) -> p tensors (B, Q, H, d)."""
        parts = features.unflatten(-1, (-1, self.num_heads, self.size // self.num_heads))
        return parts.unbind(dim=-3)

    def read(self, memory: Tensor) -> KeysValues:
        """Keys and values of a memory (B, S, D)."""
        keys, values = self.heads(linear(memory, self.in_proj.weight[self.size :], self.in_proj.bias[self.size :]))
        return keys.transpose(1, 2), values.transpose(1, 2)

    def queries(self, features: Tensor) -> Tensor:
        """(B, Q, D) -> (B, Q, H, d)."""
        return self.heads(linear(features, self.in_proj.weight[: self.size], self.in_proj.bias[: self.size]))[0]


class Residual(nn.Module):
    """``norm(x + dropout(sublayer(x)))``, the norm after the sum as in the Transformer's paper."""

    def __init__(self, sizes: BlockSizes) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(sizes.size), nn.Dropout(sizes.dropout)

    def forward(self, inputs: Tensor, output: Tensor) -> Tensor:
        return self.norm(inputs + self.dropout(output))


class BlocksConfig(ConfigBase):
    """The sizes of a stack that a recipe can set; ``dropout`` is that of words with positions and of every sublayer."""

    num_heads: int = Field(8, ge=1, le=65_536)
    feed_forward_size: int = Field(2048, ge=1, le=65_536)
    max_positions: int = Field(1024, ge=1, le=65_536)
    dropout: float = Field(0.1, ge=0, lt=1)


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """What all layers of a stack have in common."""

    size: int  # D
    num_heads: int  # H
    feed_forward_size: int  # F
    dropout: float = 0.0  # of every sublayer's output
    attention_dropout: float = 0.0  # of the encoder's attention weights
    activation: Literal["relu", "gelu"] = "relu"


class _Layer(nn.Module):
    """What encoder and decoder layers share: self-attention's parameters and the feed-forward sublayer."""

    def __init__(self, sizes: BlockSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.self_attention = AttentionProjections(sizes.size, sizes.num_heads)
        self.after_self_attention = Residual(sizes)
        self.inner = PackableLinear(sizes.size, sizes.feed_forward_size)
        self.outer = PackableLinear(sizes.feed_forward_size, sizes.size)
        self.after_feed_forward = Residual(sizes)
        initialise(self.inner, self.outer)

    def _attend_self(self, x: Tensor, attend: Callable[..., Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """What self-attention leaves, and the queries, keys and values it was made of."""
        own = self.self_attention
        projected = own.heads(own.in_proj(x))
        return self.after_self_attention(x, own.out_proj(attend(*projected).flatten(2))), projected

    def _feed_forward(self, x: Tensor) -> Tensor:
        activation = F.gelu if self.sizes.activation == "gelu" else F.relu
        return self.after_feed_forward(x, self.outer(activation(self.inner(x))))


class EncoderLayer(_Layer):
    """Self-attention over real tokens, then the feed-forward sublayer."""

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """(B, S, D), (B, S) -> (B, S, D), and the queries and keys (B, S, H, d) of its self-attention, the queries
        unscaled. What stands at padding means nothing."""
        dropout = self.sizes.attention_dropout if self.training else 0.0
        attend = partial(scaled_attention, mask=mask[:, None, None], dropout=dropout)
        attended, (queries, keys, _) = self._attend_self(x, attend)
        return self._feed_forward(attended), (queries, keys)


class DecoderLayer(_Layer):
    """Self-attention, attention over the memory, feed-forward."""

    def __init__(self, sizes: BlockSizes) -> None:
        super().__init__(sizes)
        self.cross_attention = AttentionProjections(sizes.size, sizes.num_heads)
        self.after_cross_attention = Residual(sizes)

    def forward(
        self, x: Tensor, attend: Callable[..., Tensor] | None, memory: KeysValues, mask: Tensor
    ) -> tuple[Tensor, CapturedAttention]:
        """One layer on Q rows a document.

        Args:
            x: (B, Q, D).
            attend: the self-attention, on projected (B, Q, H, d) queries, keys and values; none: causal over the rows.
            memory: `AttentionProjections.read` of the encoder's output by this layer's ``cross_attention``.
            mask: (B, S) which source tokens are real.
        """
        x, _ = self._attend_self(x, attend or partial(scaled_attention, causal=True))
        queries, (keys, values) = self.cross_attention.queries(x), (part.transpose(1, 2) for part in memory)
        read = scaled_attention(queries, keys, values, mask=mask[:, None, None])
        attended = self.after_cross_attention(x, self.cross_attention.out_proj(read.flatten(2)))
        return self._feed_forward(attended), CapturedAttention(queries, keys, values, mask)


class TransformerEncoder(nn.Module):
    """The stack of encoder layers."""

    def __init__(self, num_layers: int, sizes: BlockSizes) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleList(EncoderLayer(sizes) for _ in range(num_layers))

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """(B, S, D), (B, S) -> (B, S, D), and the queries and keys (B, S, H, d) of the last layer's self-attention."""
        captured: Any = None
        for layer in self.layers:
            x, captured = layer(x, mask)
        return x, captured


class TransformerDecoder(nn.Module):
    """The stack of decoder layers."""

    def __init__(self, num_layers: int, sizes: BlockSizes) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleList(DecoderLayer(sizes) for _ in range(num_layers))

    def read(self, memory: Tensor) -> list[KeysValues]:
        """Each layer's keys and values of the memory (B, S, D), projected once a document."""
        return [layer.cross_attention.read(memory) for layer in self.layers]

    def forward(
        self, x: Tensor, memories: Sequence[KeysValues], mask: Tensor, *, attend: Attend | None = None
    ) -> tuple[Tensor, list[CapturedAttention]]:
        """(B, Q, D) -> (B, Q, D) and each layer's `CapturedAttention`. ``attend`` (none: causal) gets its number."""
        captured = []
        for number, layer in enumerate(self.layers):
            own = None if attend is None else partial(attend, number)
            x, cross = layer(x, own, memories[number], mask)
            captured.append(cross)
        return x, captured


def initialise(*maps: nn.Linear) -> None:
    """Xavier uniform weights, zero biases."""
    for layer in maps:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
