"""Copying and attention at their edges; positions, blocks and precision of layers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from catchline.config.base import ConfigBase
from catchline.kernels import dispatch
from catchline.kernels.dispatch import first_positions as _first_positions
from catchline.layers import recurrent
from catchline.layers.chunks import dropout_mask, gumbel
from catchline.layers.copying.pointer import (
    CopySource,
    GoldTokens,
    HeadInput,
    PointerHead,
    VocabularyProjection,
    step_distribution,
)
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
from catchline.papers.coconet import log_width, positional_correlation, rescaled_rows, transfers
from catchline.papers.pointer_generator import (
    attention_weights,
    final_distribution,
    generation_gate,
    gold_copy_log_prob,
    gold_log_prob,
)
from samples import rand

B, Q, S, V, X = 2, 3, 5, 6, 9
IDS = torch.tensor([[6, 2, 6, 7, 2], [8, 6, 0, 0, 0]])  # repeated words, words outside V, padding
MASK = torch.tensor([[True] * 5, [True, True, False, False, False]])


def decoded(*inputs: Any) -> Tensor:
    """A step as search makes it."""
    with torch.no_grad():
        return step_distribution(*inputs)


def source(extended: int = X, ids: Tensor = IDS, mask: Tensor = MASK) -> CopySource:
    return CopySource(ids, mask, extended, _first_positions(ids, extended))


def parts(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (B, Q, V), gate (B, Q), attention weights (B, Q, S)."""
    weights = attention_weights(rand(B, Q, S, seed=seed + 2), MASK.unsqueeze(1))
    return rand(B, Q, V, seed=seed), rand(B, Q, seed=seed + 1), weights


@pytest.mark.skipif(not dispatch.ENABLED, reason="the written-out form underflows, the kernel does not")
@pytest.mark.parametrize("gate", [-800.0, 800.0])
def test_a_saturated_gate(gate: float) -> None:
    """p_gen is exactly 0 or 1 in floating point; log-probabilities stay right and the loss stays finite."""
    logits, _, weights = parts()
    saturated = torch.full((B, Q), gate, dtype=torch.float64)
    log_probs = decoded(logits.clone(), saturated, weights, source())
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(B, Q, dtype=torch.float64))
    if gate < 0:  # everything is copied, yet a word that can only be generated keeps a finite log-probability
        assert float(log_probs[0, 0, 6].exp()) == pytest.approx(float(weights[0, 0, 0] + weights[0, 0, 2]))
        assert float(log_probs[0, 0, 1]) == pytest.approx(-800 + float(logits[0, 0].log_softmax(-1)[1]))
    else:
        torch.testing.assert_close(log_probs[..., 1], logits.log_softmax(-1)[..., 1])


@pytest.mark.parametrize("masked", [True, False])
def test_gold_copy_of_a_word_that_only_padding_holds(masked: bool) -> None:
    """Id 0 stands in the padding of the second row; it is not in the source."""
    scores = (rand(B, S).masked_fill(~MASK, -torch.inf) if masked else rand(B, S)).requires_grad_()
    actual = gold_copy_log_prob(scores, torch.tensor([2, 0]), IDS, MASK)
    assert actual[1] == -math.inf
    log_vocab = torch.full((B,), -1.0, dtype=torch.float64)
    gold_log_prob(torch.zeros(B, dtype=torch.float64), log_vocab, actual).sum().backward()
    assert bool(scores.grad.isfinite().all())
    assert scores.grad[1].tolist() == [0.0] * S


def test_gold_log_prob_where_one_way_is_closed() -> None:
    gate = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    log_vocab = torch.tensor([-math.inf, -1.0], dtype=torch.float64, requires_grad=True)
    log_copy = torch.tensor([-2.0, -math.inf], dtype=torch.float64, requires_grad=True)
    value = gold_log_prob(gate, log_vocab, log_copy)
    assert value.tolist() == pytest.approx([-2 - math.log(2), -1 - math.log(2)])
    value.sum().backward()
    assert gate.grad.tolist() == pytest.approx([-0.5, 0.5])
    assert log_vocab.grad.tolist() == [0, 1]
    assert log_copy.grad.tolist() == [1, 0]


def head(seed: int = 0) -> PointerHead:
    torch.manual_seed(seed)
    return PointerHead(ConfigBase(), projection=VocabularyProjection(4, V), gate_size=3, unk_id=1).double()


def test_a_copied_word_whose_attention_underflows() -> None:
    """See's form (probability, then logarithm) gives an infinite loss here."""
    layer = head().float()
    scores = torch.tensor([[-500.0, 0.0, -500.0, 0.0, 0.0]], requires_grad=True)
    inputs = HeadInput(torch.zeros(1, 4), torch.zeros(1, 3))
    value, _ = layer.gold_log_probs(inputs, scores, source(), GoldTokens(torch.tensor([6]), torch.tensor([0])))
    log_copy = -500 + math.log(2) - math.log(3)  # two of -500 among three of 0 and two of -500
    expected = log_copy + math.log(1 - float(layer.gate.bias.detach().sigmoid()))
    assert float(value.detach()) == pytest.approx(expected)
    value.backward()
    assert bool(scores.grad.isfinite().all())


@pytest.mark.parametrize("hidden_size", [None, 3])
def test_label_smoothing_is_over_all_words_of_the_mixture(hidden_size: int | None) -> None:
    """(1 - eps) log P(gold) + eps / V sum_w log P(w), value and gradient, against equation (5) written out."""
    projection = VocabularyProjection(4, V, hidden_size=hidden_size)
    head = PointerHead(ConfigBase(), projection=projection, gate_size=2, unk_id=1).double()
    hidden, features, scores = (rand(B, Q, width, seed=width).requires_grad_() for width in (4, 2, S))
    rows, steps = torch.ones(B, Q).bool().nonzero(as_tuple=True)
    ids = torch.tensor([6, 2, 4, 8, 5, 6])  # copied, both, generated; outside V, generated, outside V
    gold = GoldTokens(ids, rows, None, 0.3, steps, torch.ones(B, Q).bool())
    inputs = HeadInput(hidden[rows, steps], features[rows, steps])
    values, details = head.gold_log_probs(inputs, scores[rows, steps], CopySource(IDS, MASK, X), gold)
    copies = attention_weights(scores, MASK.unsqueeze(1).expand(B, Q, S))
    gates = generation_gate(features, head.gate.weight, head.gate.bias)
    all_ids = IDS.masked_fill(~MASK, 0).unsqueeze(1).expand(B, Q, S)
    log_probs = final_distribution(projection(hidden), gates, copies, all_ids, X)[rows, steps]
    plain = log_probs.gather(1, ids[:, None])[:, 0]
    expected = 0.7 * plain + 0.3 * log_probs[:, :V].mean(dim=-1)
    torch.testing.assert_close(values, plain)
    torch.testing.assert_close(details["smoothed_log_probs"], expected)
    leaves = [hidden, features, scores, *head.parameters()]
    found = torch.autograd.grad(details["smoothed_log_probs"].sum(), leaves)
    torch.testing.assert_close(found, torch.autograd.grad(expected.sum(), leaves))


def test_a_token_that_looks_at_itself_only() -> None:
    """In float32 nothing is left of its row without the diagonal; it is spread evenly, and the gradient is finite."""
    attention = torch.eye(4)[None].clone()
    attention[0, 1] = torch.tensor([1e-12, 1.0, 3e-12, 0.0])
    attention.requires_grad_()
    allowed = transfers(torch.ones(1, 4).bool(), torch.arange(4)[None], "zero_renorm")
    rows = rescaled_rows(attention, allowed)
    torch.testing.assert_close(rows.sum(-1), torch.ones(1, 4))
    torch.testing.assert_close(rows[0, 0], torch.tensor([0, 1 / 3, 1 / 3, 1 / 3]))
    assert rows[0, 1, 2] > rows[0, 1, 0] > rows[0, 1, 3] > 0
    rows.square().sum().backward()
    assert attention.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("argument", [-1e4, -200.0, -40.0, 40.0])
def test_extreme_widths(dtype: torch.dtype, argument: float) -> None:
    """sigma far below what its square can hold: the two neighbours share all, gradients are finite."""
    size = 30
    gate = torch.full((1, size), argument, dtype=dtype, requires_grad=True)
    mask, ids = torch.ones(1, size).bool(), torch.arange(size)[None]
    widths = log_width(gate, mask.sum(-1))
    matrix = positional_correlation(widths, mask, ids)
    torch.testing.assert_close(matrix.sum(-1), torch.ones(1, size, dtype=dtype))
    if argument < 0:
        torch.testing.assert_close(matrix[0, 4, [3, 5]], torch.tensor([0.5, 0.5], dtype=dtype))
    else:  # from the distance of 16 on all are alike
        assert matrix[0, 0, 15] > matrix[0, 0, 16] == matrix[0, 0, 29]
    matrix[0, 4].square().sum().backward()
    assert gate.grad.isfinite().all()


MASK_ = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [1, 0, 0, 0, 0]]).bool()


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
    assert token_positions(MASK_).tolist() == [[1, 2, 3, 4, 5], [0, 0, 1, 2, 3], [1, 0, 0, 0, 0]]
    like = torch.zeros(1, 6, dtype=torch.float64)
    found, table = masked_sinusoids(MASK_, 2, like), sinusoids(2, 5, like)
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


def test_keyed_noise_follows_its_law() -> None:
    keys = torch.arange(4000)
    noise = gumbel(keys, 5)
    assert noise.mean() == pytest.approx(0.5772, abs=0.03)
    assert noise.std() == pytest.approx(math.pi / 6**0.5, abs=0.03)
    drawn = (noise + torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05]).log()).argmax(dim=1).bincount(minlength=5) / len(keys)
    assert drawn.tolist() == pytest.approx([0.4, 0.3, 0.15, 0.1, 0.05], abs=0.03)
    assert dropout_mask(keys, 5, dropout=0.25).mean() == pytest.approx(1, abs=0.02)
