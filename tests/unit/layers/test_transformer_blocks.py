"""Positions, attention that can be looked into, blocks; precision of recurrent layers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from catchline.layers import recurrent
from catchline.layers.recurrent import Recurrence
from catchline.layers.transformer import (
    BlockSizes,
    DecoderLayer,
    EncoderLayer,
    log_weights,
    masked_sinusoids,
    sinusoids,
    token_positions,
)
from samples import rand

MASK = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [1, 0, 0, 0, 0]]).bool()


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


def test_logarithms_of_weights_are_finite() -> None:
    weights = torch.tensor([1.0, 0.25, 1e-40, 0.0], requires_grad=True)
    logs = log_weights(weights)
    logs.sum().backward()
    assert logs[:2].tolist() == pytest.approx([0.0, math.log(0.25)])
    assert bool(logs.isfinite().all())
    assert bool(weights.grad.isfinite().all())


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


def test_a_cpu_without_bf16_reads_in_float32_under_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "runs_in_bf16", lambda device: False)
    layer, inputs = Recurrence("lstm", 8, 8), torch.randn(3, 5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        states, _ = layer.over_real_tokens(inputs, torch.ones(3, 5, dtype=torch.bool))
    assert states.dtype == torch.float32
