"""Positions, attention that can be looked into, blocks, packed maps, and the cache that beams share."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from catchline.kernels import packed
from catchline.kernels.attention import mean_attention as mean_over_heads
from catchline.kernels.packed import PackedLinear, linear_map
from catchline.layers import beam_cache
from catchline.layers.beam_cache import BeamCache
from catchline.layers.transformer import (
    BlockSizes,
    CapturedAttention,
    DecoderLayer,
    EncoderLayer,
    TransformerDecoder,
    head_attention,
    log_weights,
    masked_sinusoids,
    mean_attention,
    scaled_attention,
    sinusoids,
    token_positions,
)
from catchline.search.arrays import select, select_documents
from samples import rand

SIZES = BlockSizes(size=12, num_heads=3, feed_forward_size=10)
MASK = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [1, 0, 0, 0, 0]]).bool()


def some_tap(mask: Tensor = MASK) -> CapturedAttention:
    queries, keys, values = 2 * rand(3, 4, 3, 4, seed=1), rand(3, 5, 3, 4, seed=2), rand(3, 5, 3, 4, seed=3)
    return CapturedAttention(rand(3, 4, 12), queries, keys, values, mask)


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


@pytest.mark.parametrize("group", [None, 1, 2, 3])
def test_the_mean_over_heads_however_they_are_grouped(group: int | None) -> None:
    tap = some_tap()
    expected = torch.stack([head_attention(tap.queries[:, :, h], tap.keys[:, :, h], MASK) for h in range(3)]).mean(0)
    found = mean_over_heads(tap.queries, tap.keys, tap.mask, group=group)
    torch.testing.assert_close(mean_attention(tap), found)
    torch.testing.assert_close(found, expected, atol=1e-14, rtol=0)
    torch.testing.assert_close(found.sum(-1), torch.ones(3, 4).double())
    assert found.masked_select(~MASK.unsqueeze(1)).eq(0).all()


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


def test_weights_are_float32_under_autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        weights = head_attention(torch.randn(2, 3, 4).bfloat16(), torch.randn(2, 5, 4).bfloat16(), torch.ones(2, 5) > 0)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3))


def test_the_tap_holds_what_the_layer_read() -> None:
    torch.manual_seed(0)
    layer = DecoderLayer(SIZES).double()
    x, memory = rand(3, 4, 12), rand(3, 5, 12, seed=1)
    output, tap = layer(x, None, layer.cross_attention.read(memory), MASK)
    weights = [head_attention(tap.queries[:, :, h], tap.keys[:, :, h], MASK) for h in range(3)]
    read = torch.cat([each @ tap.values[:, :, h] for h, each in enumerate(weights)], dim=-1)  # (B, Q, H d)
    own = layer.after_cross_attention.norm(tap.state + layer.cross_attention.out_proj(read))
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


def test_a_document_of_padding_is_read_as_zeros() -> None:
    torch.manual_seed(0)
    layer, mask = DecoderLayer(SIZES).double(), MASK.clone()
    mask[1] = False
    x, memory = rand(3, 4, 12).requires_grad_(), rand(3, 5, 12, seed=1).requires_grad_()
    output, tap = layer(x, None, layer.cross_attention.read(memory), mask)
    own = layer.after_cross_attention.norm(tap.state[1] + layer.cross_attention.out_proj.bias)
    own = layer.after_feed_forward.norm(own + layer.outer(torch.relu(layer.inner(own))))
    torch.testing.assert_close(output[1], own, atol=1e-12, rtol=0)
    output.square().sum().backward()
    assert x.grad.isfinite().all()
    assert memory.grad[1].eq(0).all()
    assert EncoderLayer(SIZES).double()(memory, mask)[0].isfinite().all()


def test_dropout_in_training_only_and_before_every_residual() -> None:
    torch.manual_seed(0)
    sizes = BlockSizes(32, 2, 64, dropout=0.0, attention_dropout=0.5, relu_dropout=0.5)
    layer, x = EncoderLayer(sizes).double(), rand(2, 6, 32)
    mask = torch.ones(2, 6, dtype=torch.bool)
    assert not torch.equal(layer(x, mask)[0], layer(x, mask)[0])
    assert torch.equal(layer.eval()(x, mask)[0], layer(x, mask)[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Dropout, "forward", lambda self, x: torch.zeros_like(x) if self.p else x)
        layer = EncoderLayer(BlockSizes(32, 2, 64, norm="pre", dropout=0.9)).double()
        assert torch.equal(layer(x, mask)[0], x)  # both sublayers' outputs are dropped before the residual


# ------------------------------------------------------------------------------------ packed maps


@pytest.mark.parametrize("relu", [False, True])
def test_packed_maps_give_the_same(relu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_WORTH_PACKING", 1)
    torch.manual_seed(0)
    weight, bias, x = torch.randn(24, 16), torch.randn(24), torch.randn(3, 5, 16)
    plain = linear_map(weight, bias, relu=relu)
    assert not isinstance(linear_map(weight, bias, relu=relu, pack=True), PackedLinear)  # gradients are on
    with torch.inference_mode():
        if not packed.can_pack(weight):
            pytest.skip("this build of torch lacks oneDNN's packed linear layer")
        own = linear_map(weight, bias, relu=relu, pack=True)
        assert isinstance(own, PackedLinear)
        torch.testing.assert_close(own(x), plain(x), rtol=1e-5, atol=1e-5)
        assert not isinstance(linear_map(weight.double(), bias.double(), pack=True), PackedLinear)
        with torch.autocast("cpu", torch.bfloat16):
            assert not isinstance(linear_map(weight, bias, pack=True), PackedLinear)


def test_a_packed_decoder_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_WORTH_PACKING", 1)
    torch.manual_seed(0)
    decoder = TransformerDecoder(2, BlockSizes(16, 2, 24)).eval()
    with torch.inference_mode():
        x, memory, mask = torch.randn(3, 4, 16), torch.randn(3, 5, 16), MASK
        plain, _ = decoder(x, decoder.read(memory), mask)
        own, _ = decoder(x, decoder.read(memory), mask, maps=decoder.packed())
        torch.testing.assert_close(own, plain, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------- beam cache


class PlainCache:
    """Each row has its own past, and all of it is moved: what `BeamCache` must equal."""

    def __init__(self, layers: int) -> None:
        self.keys: list[Tensor | None] = [None] * layers  # (N, t, H, d)
        self.values: list[Tensor | None] = [None] * layers

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        query, key, value = (x.flatten(0, 1).unsqueeze(1) for x in (queries, keys, values))
        before, past = self.keys[layer], self.values[layer]
        self.keys[layer] = key if before is None else torch.cat([before, key], 1)
        self.values[layer] = value if past is None else torch.cat([past, value], 1)
        return scaled_attention(query, self.keys[layer], self.values[layer]).view_as(queries)

    def select(self, index: Tensor) -> None:
        self.keys = [None if x is None else x[index] for x in self.keys]
        self.values = [None if x is None else x[index] for x in self.values]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("first_steps", [1, 16])
def test_beams_that_share_their_past_attend_as_if_each_had_its_own(
    grad: bool, first_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Widened, re-ordered, cut to fewer documents, through growing and compacting."""
    monkeypatch.setattr(beam_cache, "_FIRST_STEPS", first_steps)
    g = torch.Generator().manual_seed(0)
    documents, beams, layers = 3, 1, 2
    with torch.set_grad_enabled(grad):
        own, plain = BeamCache.empty(layers, rand(documents, 4, 2, 3)), PlainCache(layers)
        for step in range(40):
            own = own.with_step()
            for layer in range(layers):
                projected = [rand(documents, beams, 2, 3, seed=100 * step + 10 * layer + i) for i in range(3)]
                expected = plain.attend(layer, *projected)
                torch.testing.assert_close(own.attend(layer, *projected), expected, atol=1e-12, rtol=0)
            wider = 4 if step == 2 else beams
            index = torch.randint(beams, (documents, wider), generator=g) + beams * torch.arange(documents)[:, None]
            index, beams = index.flatten(), wider
            own = select({"cache": own}, index)["cache"]
            plain.select(index)
            if step == 20:
                kept = torch.tensor([2, 0])
                own = select_documents({"cache": own}, kept, beams)["cache"]
                plain.select((kept[:, None] * beams + torch.arange(beams)).flatten())
                documents = 2
        assert own.steps == 40
        if not grad:
            assert own.visible.shape[1] < 3 + 37 * beams - 20  # what no beam can see any more went


def test_two_steps_from_one_state_do_not_disturb_each_other() -> None:
    with torch.no_grad():
        start = BeamCache.empty(1, rand(2, 4, 1, 3)).with_step()
        start.attend(0, *(rand(2, 1, 1, 3, seed=i) for i in range(3)))
        first, second, third = ([rand(2, 1, 1, 3, seed=i) for i in (n, n + 1, n + 2)] for n in (3, 6, 9))
        a, b = start.with_step(), start.with_step()
        of_a, of_b = a.attend(0, *first), b.attend(0, *second)
        torch.testing.assert_close(start.with_step().attend(0, *first), of_a)
        torch.testing.assert_close(start.with_step().attend(0, *second), of_b)
        plain = PlainCache(1)
        for projected in ([rand(2, 1, 1, 3, seed=i) for i in range(3)], first, third):
            expected = plain.attend(0, *projected)
        torch.testing.assert_close(a.with_step().attend(0, *third), expected)
