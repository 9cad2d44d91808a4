"""Positions, attention that can be looked into, blocks."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from catchline.layers.transformer import (
    BlockSizes,
    CapturedAttention,
    DecoderLayer,
    EncoderLayer,
    head_attention,
    log_weights,
    masked_sinusoids,
    mean_attention,
    scaled_attention,
    sinusoids,
    token_positions,
)
from samples import rand

SIZES = BlockSizes(size=12, num_heads=3, feed_forward_size=10)
MASK = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [1, 0, 0, 0, 0]]).bool()


def some_tap(mask: Tensor = MASK) -> CapturedAttention:
    queries, keys, values = 2 * rand(3, 4, 3, 4, seed=1), rand(3, 5, 3, 4, seed=2), rand(3, 5, 3, 4, seed=3)
    return CapturedAttention(queries, keys, values, mask)


# -------------------------------------------------------------------------------------- positions


@pytest.mark.parametrize("size", [8, 9, 64])
def test_sines_then_cosines_with_geometric_speeds(size: int) -> None:
    found = sinusoids(3, 5, torch.zeros(1, size, dtype=torch.float64))
    half = size // 2
    for row, position in enumerate(range(3, 8)):
        for i in range(half):
            angle = position * math.exp(-i * math.log(10000) / (half - 1))
            assert found[row, i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert found[row, half + i].item() == pytest.approx(math.cos(angle), abs=1e-12)
    assert not found[:, 2 * half :].any()


def test_real_tokens_are_numbered_whatever_side_the_padding_is_on() -> None:
    assert token_positions(MASK).tolist() == [[1, 2, 3, 4, 5], [0, 0, 1, 2, 3], [1, 0, 0, 0, 0]]
    like = torch.zeros(1, 6, dtype=torch.float64)
    found, table = masked_sinusoids(MASK, 2, like), sinusoids(2, 5, like)
    assert torch.equal(found[0], table)
    assert torch.equal(found[1, 2:], table[:3])
    assert not found[1, :2].any()


# -------------------------------------------------------------------------------------- attention


def test_a_source_of_padding_has_no_weights_and_sends_nothing_back() -> None:
    mask = MASK.clone()
    mask[1] = False
    tap = some_tap(mask)
    for tensor in (tap.queries, tap.keys, tap.values):
        tensor.requires_grad_()
    weights = mean_attention(tap)
    context = scaled_attention(tap.queries, tap.keys, tap.values, mask=mask[:, None, None])
    assert weights[1].eq(0).all()
    assert context[1].eq(0).all()
    (weights.square().sum() + context.square().sum()).backward()
    for tensor in (tap.queries, tap.keys, tap.values):
        assert tensor.grad.isfinite().all()
        assert tensor.grad[1].eq(0).all()
        assert tensor.grad[0].any()


def test_logarithms_of_weights_are_finite() -> None:
    weights = torch.tensor([1.0, 0.25, 1e-40, 0.0], requires_grad=True)
    logs = log_weights(weights)
    logs.sum().backward()
    assert logs[:2].tolist() == pytest.approx([0.0, math.log(0.25)])
    assert bool(logs.isfinite().all())
    assert bool(weights.grad.isfinite().all())


def test_the_tap_holds_what_the_layer_read() -> None:
    torch.manual_seed(0)
    layer = DecoderLayer(SIZES).double()
    x, memory = rand(3, 4, 12), rand(3, 5, 12, seed=1)
    output, tap = layer(x, None, layer.cross_attention.read(memory), MASK)
    weights = [head_attention(tap.queries[:, :, h], tap.keys[:, :, h], MASK) for h in range(3)]
    read = torch.cat([each @ tap.values[:, :, h] for h, each in enumerate(weights)], dim=-1)  # (B, Q, H d)
    state, _ = layer._attend_self(x, partial(scaled_attention, causal=True))
    own = layer.after_cross_attention.norm(state + layer.cross_attention.out_proj(read))
    own = layer.after_feed_forward.norm(own + layer.outer(torch.relu(layer.inner(own))))
    torch.testing.assert_close(output, own, atol=1e-12, rtol=0)
    later = CapturedAttention.over_steps([layer(x[:, :2], None, layer.cross_attention.read(memory), MASK)[1], tap])
    assert later.queries.shape == (3, 6, 3, 4)
    assert later.keys.shape == (3, 5, 3, 4)


# ----------------------------------------------------------------------------------------- blocks


def test_initialisation() -> None:
    torch.manual_seed(0)
    layer = DecoderLayer(BlockSizes(size=128, num_heads=2, feed_forward_size=256))
    bounds = {
        "self_attention.in_proj": (6 / (3 * 128 + 128)) ** 0.5,  # as one matrix, not as three
        "cross_attention.in_proj": (6 / (3 * 128 + 128)) ** 0.5,
        "self_attention.out_proj": (6 / 256) ** 0.5,
        "cross_attention.out_proj": (6 / 256) ** 0.5,
        "inner": (6 / (128 + 256)) ** 0.5,
        "outer": (6 / (128 + 256)) ** 0.5,
    }
    linear = {name: part for name, part in layer.named_modules() if isinstance(part, nn.Linear)}
    assert linear.keys() == bounds.keys()
    for name, bound in bounds.items():
        assert linear[name].bias.eq(0).all()
        assert 0.99 * bound < linear[name].weight.abs().max() <= bound


def test_dropout_in_training_only_and_before_every_residual() -> None:
    torch.manual_seed(0)
    sizes = BlockSizes(32, 2, 64, dropout=0.0, attention_dropout=0.5)
    layer, x = EncoderLayer(sizes).double(), rand(2, 6, 32)
    mask = torch.ones(2, 6, dtype=torch.bool)
    assert not torch.equal(layer(x, mask)[0], layer(x, mask)[0])
    assert torch.equal(layer.eval()(x, mask)[0], layer(x, mask)[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Dropout, "forward", lambda self, x: torch.zeros_like(x) if self.p else x)
        layer = EncoderLayer(BlockSizes(32, 2, 64, dropout=0.9)).double()
        assert torch.equal(layer(x, mask)[0], layer.after_feed_forward.norm(layer.after_self_attention.norm(x)))
