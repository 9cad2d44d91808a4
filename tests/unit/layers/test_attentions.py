"""What attention starts with; opponents' rules at their edges. Numbers and gradients are in tests/parity."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.config.names import ATTENTIONS, OPPONENTS, build
from catchline.errors import ConfigError
from catchline.layers.attention.additive import AdditiveAttention
from catchline.layers.opponent import DecoderShape, Opponent, OpponentOutput
from catchline.models.transformer import behaviour
from catchline.papers.contrastive import joint_score, log_softmin, opponent_weights, without_largest, without_run
from catchline.types import TrainingBatch

D, H, Q = 3, 6, 5


def test_initial_values_of_the_coverage_vector() -> None:
    def vector(**options) -> Tensor:
        torch.manual_seed(0)
        config = AdditiveAttention.Config(coverage=True, **options)
        return AdditiveAttention(config, memory_size=D, query_size=H).coverage_vector

    assert vector().tolist() == [0.0] * D, "and the default width is the memory's"
    assert vector(coverage_init="default", size=50).abs().min() > 0


@pytest.mark.parametrize("m1_init", ["identity", "released"])
def test_what_starts_where(m1_init: str) -> None:
    torch.manual_seed(0)
    spec = {"type": "distraction", "size": 400, "m1_init": m1_init}
    attention = build("attention", ATTENTIONS, spec, memory_size=500, query_size=Q)
    for vector in (attention.history_vector, attention.content_history_vector):
        assert float(vector.detach().std()) == pytest.approx(0.01, rel=0.15)
    if m1_init == "identity":
        assert attention.content_vector.eq(1).all()
    else:
        assert float(attention.content_vector.detach().std()) == pytest.approx(0.01, rel=0.15)


SHAPE = DecoderShape(num_layers=3, num_heads=2, head_width=4)


def largest_masked(**options: Any) -> Opponent:
    spec = {"type": "max", "layer": 1, "head": 1} | options
    return build("opponent", OPPONENTS, spec, shape=SHAPE, vocab_size=11, unk_id=1).double()


def row(*weights: float) -> Tensor:
    return torch.tensor([[weights]], dtype=torch.float64)


def everything(weights: Tensor) -> Tensor:
    return torch.ones(weights.shape[0], 1, weights.shape[-1], dtype=torch.bool)


@pytest.mark.parametrize(
    ("weights", "left"),
    [
        ((1 / 2, 1 / 3, 1 / 6), (0, 1 / (1 + math.exp(-1 / 6)), 1 / (1 + math.exp(1 / 6)))),  # the worked example
        ((0.7, 0.3, 0.0), (0, 1 / (1 + math.exp(-0.3)), 1 / (1 + math.exp(0.3)))),  # a real position of weight 0 counts
    ],
)
def test_the_softmax_of_what_is_left(weights: tuple[float, ...], left: tuple[float, ...]) -> None:
    branch = largest_masked()
    found = opponent_weights(*branch.scored(row(*weights), everything(row(*weights))), branch.config.normalizer)
    torch.testing.assert_close(found, row(*left), atol=1e-12, rtol=0)


T, F = True, False
LARGEST = [
    # weights, k, ties, which stay
    ((0.5, 0.3, 0.2), 1, "all", (F, T, T)),
    ((0.4, 0.2, 0.4), 1, "all", (F, T, F)),
    ((0.4, 0.2, 0.4), 1, "first", (F, T, T)),
    ((0.1, 0.3, 0.3, 0.3), 2, "all", (T, F, F, F)),
    ((0.1, 0.3, 0.3, 0.3), 2, "first", (T, F, F, T)),
    ((0.1, 0.3, 0.3, 0.3), 2, "distinct", (F, F, F, F)),
    ((0.2, 0.3, 0.1, 0.4), 3, "distinct", (F, F, T, F)),
    ((0.6, 0.4), 5, "all", (F, F)),
    ((0.6, 0.4), 5, "distinct", (F, F)),
    ((1.0, 0.0, 0.0), 2, "first", (F, F, T)),
    ((1.0, 0.0, 0.0), 2, "distinct", (F, F, F)),
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
    ((0.5, 0.3, 0.2), 1.02, "while_over", (F, F, F)),
    ((0.4, 0.2, 0.199, 0.1, 0.101), 1.02, "while_over", (F, F, T, T, T)),
    ((0.5, 0.5, 0.0), 1.02, "until_over", (F, F, T)),
    ((1.0, 0.0, 0.0), 1.02, "while_over", (F, F, T)),
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


REFUSED = [
    ({"layer": 3}, r"layer 3 does not exist"),
    ({"head": 2}, r"head 2 does not exist"),
    ({"head": -1}, r"head -1 does not exist"),
    ({"lambda_decode": -0.1}, r"negative"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        largest_masked(**options)


def test_switches() -> None:
    branch = largest_masked()
    assert branch.switches() == {"decode_score": "joint", "lambda_decode": 0.2}
    branch.switch({"decode_score": "pc", "lambda_decode": 0.5})
    assert (branch.decodes, branch.lambda_decode) == (False, 0.5)
    for options in ({"decode_score": "p"}, {"lambda_decode": -1}, {"lambda_decode": True}):
        with pytest.raises(ConfigError, match="decode"):
            branch.switch(options)
