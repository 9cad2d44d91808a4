"""Opponent attention on rows written by hand, and its properties."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from catchline.config.names import OPPONENTS, build
from catchline.errors import ConfigError
from catchline.layers.opponent import DecoderShape, Opponent, OpponentOutput, behaviour
from catchline.papers.contrastive import (
    joint_score,
    log_softmin,
    opponent_weights,
    without_largest,
    without_run,
)
from catchline.types import TrainingBatch

SHAPE = DecoderShape(num_layers=3, num_heads=2, head_width=4)
KINDS: dict[str, dict[str, Any]] = {
    "max": {"type": "max"},
    "max-first": {"type": "max", "ties": "first"},
    "top-2": {"type": "topk", "k": 2},
    "top-2-distinct": {"type": "topk", "k": 2, "ties": "distinct"},
    "dynamic": {"type": "dynamic", "ratio": 1.3},
    "while-over": {"type": "dynamic", "ratio": 1.1, "rule": "while_over"},
    "one-minus": {"type": "one_minus"},
    "inverse": {"type": "inverse"},
    "none": {"type": "none"},
}
MASKING = ("max", "max-first", "top-2", "top-2-distinct", "dynamic", "while-over")
every_kind = pytest.mark.parametrize("kind", KINDS)


def opponent_of(kind: str, **options: Any) -> Opponent:
    spec = KINDS[kind] | {"layer": 1, "head": 1} | options
    return build("opponent", OPPONENTS, spec, shape=SHAPE, vocab_size=11, unk_id=1).double()


def row(*weights: float) -> Tensor:
    return torch.tensor([[weights]], dtype=torch.float64)


def everything(weights: Tensor) -> Tensor:
    return torch.ones(weights.shape[0], 1, weights.shape[-1], dtype=torch.bool)


def apply(kind: str, weights: Tensor, mask: Tensor | None = None, **options: Any) -> Tensor:
    branch = opponent_of(kind, **options)
    scores, kept = branch.scored(weights, everything(weights) if mask is None else mask)
    return opponent_weights(scores, kept, branch.config.normalizer)


def test_the_worked_example() -> None:
    alpha = apply("max", row(1 / 2, 1 / 3, 1 / 6))
    wanted = row(0, 1 / (1 + math.exp(-1 / 6)), 1 / (1 + math.exp(1 / 6)))
    torch.testing.assert_close(alpha, wanted, atol=1e-12, rtol=0)
    torch.testing.assert_close(alpha, row(0, 0.541570, 0.458430), atol=1e-6, rtol=0)


T, F = True, False
LARGEST = [
    # weights, k, ties, which stay
    ((0.5, 0.3, 0.2), 1, "all", (F, T, T)),
    ((0.4, 0.2, 0.4), 1, "all", (F, T, F)),
    ((0.4, 0.2, 0.4), 1, "first", (F, T, T)),
    ((0.4, 0.2, 0.4), 1, "distinct", (F, T, F)),
    ((0.1, 0.3, 0.3, 0.3), 2, "all", (T, F, F, F)),
    ((0.1, 0.3, 0.3, 0.3), 2, "first", (T, F, F, T)),
    ((0.1, 0.3, 0.3, 0.3), 2, "distinct", (F, F, F, F)),
    ((0.1, 0.4, 0.2, 0.3), 2, "all", (T, F, T, F)),
    ((0.1, 0.4, 0.2, 0.3), 3, "all", (T, F, F, F)),
    ((0.2, 0.3, 0.2, 0.3), 2, "distinct", (F, F, F, F)),
    ((0.2, 0.3, 0.1, 0.4), 3, "distinct", (F, F, T, F)),
    ((0.6, 0.4), 5, "all", (F, F)),
    ((0.6, 0.4), 5, "first", (F, F)),
    ((0.6, 0.4), 5, "distinct", (F, F)),
    ((1.0,), 1, "all", (F,)),
    ((1.0,), 2, "distinct", (F,)),
    ((1.0, 0.0, 0.0), 1, "all", (F, T, T)),
    ((1.0, 0.0, 0.0), 2, "first", (F, F, T)),
    ((1.0, 0.0, 0.0), 2, "distinct", (F, F, F)),
    ((0.25, 0.25, 0.25, 0.25), 1, "all", (F, F, F, F)),
    ((0.25, 0.25, 0.25, 0.25), 1, "first", (F, T, T, T)),
]


def padded(weights: Any) -> tuple[Tensor, Tensor]:
    """Padding has weight zero, and is neither masked nor kept."""
    return row(0.0, *weights, 0.0), torch.tensor([[[False] + [True] * len(weights) + [False]]])


RUNS = [
    # weights, ratio, rule, which stay
    ((0.5, 0.3, 0.2), 1.02, "until_over", (F, T, T)),
    ((0.32, 0.36, 0.32), 1.02, "until_over", (T, F, T)),
    ((0.33, 0.335, 0.335), 1.02, "until_over", (F, F, F)),
    ((0.40, 0.395, 0.205), 1.02, "until_over", (F, F, T)),
    ((0.205, 0.395, 0.40), 1.02, "until_over", (T, F, F)),
    ((0.30, 0.295, 0.2, 0.205), 1.02, "until_over", (F, F, T, T)),
    ((0.5, 0.3, 0.2), 1.02, "while_over", (F, F, F)),
    ((0.40, 0.395, 0.205), 1.02, "while_over", (F, T, T)),
    ((0.4, 0.2, 0.199, 0.1, 0.101), 1.02, "while_over", (F, F, T, T, T)),
    ((0.5, 0.5, 0.0), 1.02, "until_over", (F, F, T)),
    ((1.0, 0.0, 0.0), 1.02, "until_over", (F, T, T)),
    ((1.0, 0.0, 0.0), 1.02, "while_over", (F, F, T)),
    ((1.0,), 1.02, "until_over", (F,)),
]


@pytest.mark.parametrize(
    ("without", "weights", "number", "how", "stay"),
    [*((without_largest, *row) for row in LARGEST), *((without_run, *row) for row in RUNS)],
)
def test_which_go(without: Any, weights: Any, number: float, how: str, stay: tuple[bool, ...]) -> None:
    """Also where there is padding."""
    kept = without(row(*weights), everything(row(*weights)), number, how)
    assert tuple(kept[0, 0].tolist()) == stay
    assert tuple(without(*padded(weights), number, how)[0, 0].tolist()) == (F, *stay, F)


def random_rows(seed: int, rows: int, length: int, peak: float) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.softmax(peak * torch.randn(1, rows, length, generator=g, dtype=torch.float64), -1)


@settings(max_examples=50)
@given(
    st.integers(0, 10_000), st.integers(1, 12), st.sampled_from([0.1, 1.0, 6.0, 200.0]), st.sampled_from(list(KINDS))
)
def test_properties(seed: int, length: int, peak: float, kind: str) -> None:
    """Rows sum to one or are zero; the maximum is exactly zero; the bounds of a softmax over probabilities; no row
    depends on the order of positions or on padding."""
    weights = random_rows(seed, 3, length, peak)
    alpha = apply(kind, weights)
    total = alpha.sum(-1)
    assert bool(((total - 1).abs() < 1e-12).logical_or(total == 0).all())
    if kind in MASKING:
        assert not alpha.gather(-1, weights.argmax(-1, keepdim=True)).any()
        positive = torch.where(alpha > 0, alpha, torch.nan)
        for one in positive.flatten(0, 1):
            some = one[~one.isnan()]
            if len(some):
                assert float(some.max() / some.min()) <= math.exp(0.5) + 1e-12
    if kind == "one-minus":
        assert float((alpha.amax(-1) / alpha.amin(-1)).max()) <= math.e + 1e-12
    turned = torch.randperm(length, generator=torch.Generator().manual_seed(seed))
    distinct = len(set(weights.flatten().tolist())) == weights.numel()
    if distinct:
        torch.testing.assert_close(apply(kind, weights[..., turned]), alpha[..., turned], atol=1e-14, rtol=0)
    more = torch.cat([torch.zeros(1, 3, 2).double(), weights, torch.zeros(1, 3, 1).double()], -1)
    mask = torch.tensor([[[False] * 2 + [True] * length + [False]]])
    wide = apply(kind, more, mask)
    torch.testing.assert_close(wide[..., 2:-1], alpha, atol=1e-14, rtol=0)
    assert not wide[..., :2].any()
    assert not wide[..., -1].any()


@every_kind
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("empty", ["zero", "alpha"])
@pytest.mark.parametrize("lengths", [(1, 4, 2, 0), (0, 0)])
def test_nothing_is_not_a_number(kind: str, empty: str, lengths: tuple[int, ...]) -> None:
    """Sources of one position, and of none: finite values, finite gradients, zeros where nothing is left."""
    branch = opponent_of(kind, empty=empty)
    g = torch.Generator().manual_seed(0)
    shapes = ((len(lengths), n, 2, 4) for n in (3, 4, 4))
    q, k, v = (torch.randn(shape, generator=g, dtype=torch.float64, requires_grad=True) for shape in shapes)
    mask = torch.arange(4) < torch.tensor(lengths)[:, None]
    with torch.autograd.detect_anomaly(check_nan=True):  # nor anywhere on the way back
        reading = branch.read(q, k, v, mask)
        branch.features(reading.context).square().sum().backward()
    for tensor in (q, k, v, *branch.parameters()):
        assert tensor.grad is None or tensor.grad.isfinite().all()
    nothing = ~reading.allowed.any(-1)
    assert torch.equal(nothing, ~(reading.opponent > 0).any(-1)) or empty == "alpha"
    for b, length in enumerate(lengths):
        if length == 0:
            assert not reading.weights[b].any()
            assert not reading.context[b].any()
        if length == 1 and kind in MASKING:
            assert bool((reading.opponent[b].sum(-1) == (0 if empty == "zero" else 1)).all())


def test_weights_that_underflowed_are_not_padding() -> None:
    """A real position of weight 0 takes part with e^0."""
    weights = row(0.7, 0.3, 0.0)
    torch.testing.assert_close(apply("max", weights), torch.softmax(row(-torch.inf, 0.3, 0.0), -1))


def test_log_softmin() -> None:
    scores = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64)
    powers = torch.exp(-scores)
    torch.testing.assert_close(log_softmin(scores), torch.log(powers / powers.sum()))
    extreme = torch.tensor([0.0, 500.0], requires_grad=True)
    value = log_softmin(extreme)
    value.sum().backward()
    assert value.tolist() == [0.0, -500.0]
    assert extreme.grad is not None
    assert extreme.grad.isfinite().all()


def test_joint_score_of_copied_words() -> None:
    log_c = torch.log_softmax(torch.arange(5.0), 0)[None]
    logits = torch.tensor([[0.3, -0.2, 0.9]])
    log_o = torch.log_softmax(logits, -1)
    score = joint_score(log_c, logits, 0.2, unknown=1)
    torch.testing.assert_close(score[:, :3], log_c[:, :3] + 0.2 * log_o)
    torch.testing.assert_close(score[:, 3:], log_c[:, 3:] + 0.2 * log_o[:, 1:2])
    torch.testing.assert_close(joint_score(log_c, logits, 0.0, unknown=1), log_c)


def test_behaviour() -> None:
    weights = torch.tensor([[[0.5, 0.3, 0.2], [1.0, 0.0, 0.0]], [[0.6, 0.4, 0.0], [0.5, 0.5, 0.0]]])
    mask = torch.tensor([[[True, True, True]], [[True, True, False]]])
    kept = without_largest(weights, mask)
    ids, counted = torch.tensor([[5, 6, 3], [3, 5, 3]]), torch.tensor([[True, False], [True, True]])
    output = OpponentOutput(weights, kept, weights, weights)
    batch = TrainingBatch(ids, ids, mask[:, 0], 9, target_input_ids=ids, target_ids=ids, target_mask=counted)
    found = {name.removeprefix("opponent_"): value for name, value in behaviour(output, batch, 3).items()}
    entropy = [-sum(w * math.log(w) for w in row if w) for row in ((0.5, 0.3, 0.2), (0.6, 0.4), (0.5, 0.5))]
    assert float(found["alpha_max"]) == pytest.approx((0.5 + 0.6 + 0.5) / 3)
    assert float(found["alpha_entropy"]) == pytest.approx(sum(entropy) / 3)
    assert float(found["masked_positions"]) == pytest.approx((1 + 1 + 2) / 3)
    assert float(found["nothing_left"]) == pytest.approx(1 / 3)
    assert float(found["masked_end"]) == pytest.approx(2 / 3)


def test_number_of_parameters() -> None:
    shape = DecoderShape(num_layers=6, num_heads=8, head_width=64)
    branch = build("opponent", OPPONENTS, {"type": "max"}, shape=shape, vocab_size=32_000, unk_id=1)
    assert sum(p.numel() for p in branch.parameters()) == 2_056_576
    assert float(branch.projection.weight.detach().std()) == pytest.approx(1 / 8, rel=0.01)
    assert float(branch.expand.weight.detach().abs().max()) <= (6 / 128) ** 0.5
    assert not branch.expand.bias.any()


REFUSED = [
    ({"layer": 3}, r"layer 3 does not exist: there are 3"),
    ({"head": 2}, r"head 2 does not exist: there are 2"),
    ({"head": -1}, r"head -1 does not exist"),
    ({"head": "third"}, r"head"),
    ({"lambda_decode": -0.1}, r"negative; only the variant of footnote 3"),
    ({"decode_score": "both"}, r"decode_score"),
    ({"k": 2}, r"Unknown key 'opponent.k'"),  # another kind's
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        opponent_of("max", **options)


def test_switches() -> None:
    branch = opponent_of("max")
    assert branch.switches() == {"decode_score": "joint", "lambda_decode": 0.2}
    branch.switch({"decode_score": "pc", "lambda_decode": 0.5})
    assert (branch.decodes, branch.lambda_decode) == (False, 0.5)
    for options in ({"decode_score": "p"}, {"lambda_decode": -1}, {"lambda_decode": "much"}, {"lambda_decode": True}):
        with pytest.raises(ConfigError, match="decode"):
            branch.switch(options)
    variant = opponent_of("max", output="softmax", lambda_decode=-0.2)
    variant.switch({"lambda_decode": -0.3})
    assert variant.lambda_decode == -0.3
