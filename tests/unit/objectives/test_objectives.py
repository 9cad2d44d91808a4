"""The four reductions, and what they are divided by; coverage and guidance losses by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.errors import ConfigError, TrainingError
from catchline.kernels import vocabulary
from catchline.objectives.base import token_weights
from catchline.objectives.losses import guidance_divergence
from catchline.objectives.reinforce import Reinforce
from catchline.types import PLAIN_PASS, ModelOutput, TrainingBatch, UpdateContext
from samples import BART, IDS, VOCAB, random_batch, randomise, tiny_seq2seq

MASK = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])
VALUES = torch.tensor([[-1.0, -2.0, -3.0], [-4.0, 0.0, 0.0], [-5.0, -6.0, 0.0]], dtype=torch.float64)
# by hand: the real tokens are 1, 2, 3 | 4 | 5, 6
EXPECTED = {"token": 21 / 6, "example": (2 + 4 + 5.5) / 3, "sentence": 21 / 3, "sum": 21.0}


def objective(name: str, **options: Any):
    return build("objective", OBJECTIVES, {"type": name, **options})


def batch(mask: Tensor = MASK) -> TrainingBatch:
    ids = torch.zeros(mask.shape, dtype=torch.int64)
    return TrainingBatch(ids, ids, mask, 5, target_input_ids=ids, target_ids=ids, target_mask=mask)


@pytest.mark.parametrize("reduction", EXPECTED)
@pytest.mark.parametrize("name", ["nll", "coverage"])
def test_reductions(name: str, reduction: str) -> None:
    junk = VALUES.masked_fill(~MASK, 99.0)  # what stands at padding must not count
    output = ModelOutput(gold_log_probs=junk, coverage_losses=-junk)
    term = objective(name, reduction=reduction, weight=0.5)(output, batch())
    assert float(term.sum / term.count) == pytest.approx(EXPECTED[reduction])
    assert (term.name, term.weight) == (name, 0.5)


@pytest.mark.parametrize("reduction", ["token", "example", "sentence"])
def test_sums_and_counts_add_up_over_micro_batches(reduction: str) -> None:
    layer = objective("nll", reduction=reduction)
    terms = [layer(ModelOutput(gold_log_probs=VALUES[rows]), batch(MASK[rows])) for rows in (slice(0, 1), slice(1, 3))]
    whole = sum(term.sum for term in terms) / sum(term.count for term in terms)
    assert float(whole) == pytest.approx(EXPECTED[reduction])


@pytest.mark.parametrize("reduction", EXPECTED)
def test_the_hint_of_token_weights_is_the_derivative(reduction: str) -> None:
    """Up to one factor: what `NegativeLogLikelihood.wants` promises the vocabulary projection."""
    layer = objective("nll", reduction=reduction)
    values = VALUES.clone().requires_grad_()
    term = layer(ModelOutput(gold_log_probs=values), batch())
    (gradient,) = torch.autograd.grad(-term.sum, values)
    torch.testing.assert_close(gradient, layer.wants(batch(), PLAIN_PASS).token_weights.double(), atol=1e-7, rtol=0)
    torch.testing.assert_close(token_weights(MASK, reduction).bool(), MASK)


# ------------------------------------------------------------------------------------ guidance


def test_what_nobody_attends_to_and_what_is_not_central_is_finite() -> None:
    attention = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]], requires_grad=True)
    steps, source = torch.tensor([[True], [False]]), torch.ones(2, 2, dtype=torch.bool)
    found = guidance_divergence(attention, torch.tensor([[0.0, 1.0]] * 2), steps, source)
    assert found.tolist() == [pytest.approx(9 * math.log(10)), 0.0]
    found.sum().backward()
    assert attention.grad is not None
    assert bool(attention.grad.isfinite().all())


MASK_L = torch.tensor([[True, True, True], [True, False, False]])
VALUES_L = torch.tensor([[-1.0, -2.0, -3.0], [-4.0, 0.0, 0.0]])


def batch_of() -> TrainingBatch:
    ids = torch.zeros(MASK_L.shape, dtype=torch.int64)
    return TrainingBatch(ids, ids, MASK_L, 5, target_input_ids=ids, target_ids=ids, target_mask=MASK_L)


def output_of(**details: torch.Tensor) -> ModelOutput:
    return ModelOutput(gold_log_probs=VALUES_L - 7, details=details)


def test_the_opponents_term() -> None:
    junk = VALUES_L.masked_fill(~MASK_L, 99.0)
    term = objective("opponent", weight=0.3)(output_of(opponent_log_probs=junk), batch_of())
    assert (term.name, float(term.sum), float(term.count), term.weight) == ("opponent", 10.0, 4.0, 0.3)
    with pytest.raises(ConfigError, match=r"needs an opponent attention: set model.opponent"):
        objective("opponent")(output_of(), batch_of())
    with pytest.raises(ConfigError, match="greater than or equal to 0"):
        objective("opponent", weight=-0.2)


def test_the_variant_without_a_bound_stops() -> None:
    variant = objective("minus_softmax", weight=0.2)
    term = variant(output_of(opponent_log_probs=VALUES_L), batch_of())
    assert float(term.sum / term.count) == -2.5  # what is made small is + log P_o
    variant.check(-49.0, 3)
    variant.check(float("nan"), 3)  # another check's business
    for value in (-50.1, -float("inf")):
        with pytest.raises(TrainingError, match=r"mean log P_o .* is -.* at update 3"):
            variant.check(value, 3)
    objective("minus_softmax").check(-49.0, 3)


def test_smoothed_values_count_where_the_batch_asks_for_them() -> None:
    details = {"smoothed_log_probs": VALUES_L - 1, "opponent_log_probs": VALUES_L, "opponent_smoothed": VALUES_L - 2}
    output, asked = output_of(**details), UpdateContext(label_smoothing=0.1, opponent_smoothing=0.1)
    assert float(objective("nll").forward(output, batch_of(), asked).sum) == 14.0
    assert float(objective("opponent").forward(output, batch_of(), asked).sum) == 18.0
    assert float(objective("nll").forward(output, batch_of()).sum) == 38.0
    assert float(objective("opponent").forward(output, batch_of()).sum) == 10.0
    with pytest.raises(ConfigError, match="label_smoothing of the objective nll to 0"):
        objective("nll")(output_of(opponent_log_probs=VALUES_L), batch_of(), asked)


def test_figures_of_the_log() -> None:
    output = output_of(opponent_log_probs=VALUES_L)
    nll = objective("nll", label_smoothing=0.1).figures(output, batch_of())
    assert float(nll["nll_plain"]) == 9.5
    assert float(nll["perplexity"]) == pytest.approx(torch.tensor(9.5).exp().item())
    for reduction in ("sentence", "sum"):
        assert objective("nll", reduction=reduction).figures(output, batch_of()) == nll
    assert float(objective("opponent", label_smoothing=0.1).figures(output, batch_of())["opponent_plain"]) == 2.5
    assert objective("nll").figures(output, batch_of()) == objective("opponent").figures(output, batch_of()) == {}


SMOOTHING: dict[str, dict[str, Any]] = {
    "transformer": {"type": "transformer", "hidden_size": 8, "num_heads": 2, "feed_forward_size": 8, "dropout": 0.0,
                    "encoder_layers": 1, "decoder_layers": 1},
    "bart": {"type": "bart", "architecture": BART},
    "distraction": {"type": "distraction", "embedding_size": 5, "hidden_size": 4},
    "coarse_to_fine": {"type": "coarse_to_fine", "attention": {"type": "hierarchical"}, "embedding_size": 5,
                       "hidden_size": 4, "chunk_words": 3, "coarse": {"type": "bag_of_words"}, "dropout": 0.0},
}  # fmt: skip


@pytest.mark.parametrize("name", ["seq2seq", *SMOOTHING])
def test_models_smooth_their_labels(name: str) -> None:
    """``(1 - eps) log P(gold) + eps / V sum_v log P(v)`` from the steps' own distributions."""
    if name == "seq2seq":
        model = tiny_seq2seq(head={"type": "vocabulary"})
    else:
        model = build("model", MODELS, SMOOTHING[name], vocab_size=VOCAB, **IDS).double().eval()
        randomise(model)
    batch = random_batch()
    output = model(batch, context=UpdateContext(label_smoothing=0.1))
    plain = model(batch)
    assert "smoothed_log_probs" not in plain.details
    torch.testing.assert_close(output.gold_log_probs, plain.gold_log_probs)
    with torch.no_grad():
        state = model.start(model.encode(batch))
        for t in range(batch.target_ids.shape[1]):
            step, state = model.step(batch.target_input_ids[:, t], state)
            real = batch.target_mask[:, t]
            wanted = 0.9 * plain.gold_log_probs[:, t] + 0.1 * step.log_probs[:, :VOCAB].mean(-1)
            smoothed = output.details["smoothed_log_probs"][:, t]
            torch.testing.assert_close(smoothed[real], wanted[real], atol=1e-10, rtol=0)
            assert not smoothed[~real].any()


@pytest.mark.parametrize(
    ("head", "smoothing", "reduction", "unk_loss"),
    [
        ("pointer", 0.0, "token", "count"),
        ("pointer", 0.1, "example", "count"),
        ("pointer", 0.0, "sentence", "ignore"),
        ("pointer", 0.1, "sum", "ignore"),
        ("vocabulary", 0.1, "token", "ignore"),
        ("vocabulary", 0.0, "example", "count"),
        ("vocabulary", 0.1, "sentence", "count"),
        ("vocabulary", 0.0, "sum", "count"),
    ],
)
def test_the_loss_is_foreseen_and_nothing_projected_twice(
    head: str, smoothing: float, reduction: Any, unk_loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every pair of settings, but for examples of which unknown words do not count: which tokens one divides by is
    known only after the pass, so that it projects again, exactly."""

    def refuse(*_: Any) -> None:
        raise AssertionError("projected again")

    monkeypatch.setattr(vocabulary, "_again", refuse)
    model = tiny_seq2seq(head={"type": head}, unk_loss=unk_loss).float()
    nll = objective("nll", reduction=reduction, label_smoothing=smoothing)
    batch = random_batch()
    batch.target_ids[0, 0] = model.unk_id
    context = nll.wants(batch, PLAIN_PASS)
    term = nll(model(batch, context=context), batch, context)
    (term.sum / term.count).backward()


MASK_R = torch.tensor([[True, True], [True, True], [True, False], [True, True]])
REWARDS = torch.tensor([[-1.0, -2.0], [-2.0, -4.0], [-3.0, 0.0], [-6.0, -6.0]])  # means -3 and -4
POLICY = torch.tensor([[-0.5, -1.0], [-1.5, -0.1], [-0.2, 0.0], [-0.3, -0.4]])


def reinforce(**options: Any) -> Reinforce:
    objective: Reinforce = build("objective", OBJECTIVES, {"type": "reinforce", **options})
    return objective


def passed(
    rows: slice = slice(None), *, draws: int | None = None, hard: bool = True
) -> tuple[ModelOutput, TrainingBatch]:
    details: dict[str, Tensor] = {"policy_log_prob": POLICY[rows].clone().requires_grad_()} if hard else {}
    if draws is not None:
        details["draws"] = torch.tensor(float(draws))
    mask, ids = MASK_R[rows], torch.zeros_like(MASK_R[rows], dtype=torch.int64)
    batch = TrainingBatch(ids, ids, mask, 5, target_input_ids=ids, target_ids=ids, target_mask=mask)
    return ModelOutput(REWARDS[rows], details=details), batch


def learnt(objective: Reinforce, *parts: slice, hard: bool = True) -> list[float]:
    """The baseline of the first two steps after an update of these micro-batches."""
    for rows in parts or (slice(None),):
        objective.see(*passed(rows, hard=hard))
    objective.seen()
    return [pytest.approx(value, abs=1e-6) for value in objective.baseline[:2].tolist()]


def advantages(objective: Reinforce, **options: Any) -> Tensor:
    """A_t / norm, from the gradient by the draws' log-probabilities."""
    output, batch = passed(**options)
    term = objective(output, batch)
    assert float(term.count) == 4
    (gradient,) = torch.autograd.grad(term.sum, output.details["policy_log_prob"])
    return -gradient


@pytest.mark.parametrize("parts", [[slice(0, 4)], [slice(0, 2), slice(2, 4)], [slice(n, n + 1) for n in range(4)]])
def test_the_baseline_moves_once_an_update(parts: list[slice]) -> None:
    objective = reinforce()
    assert learnt(objective, *parts) == [-0.3, -0.4]
    assert learnt(objective, *parts) == [-0.57, -0.76]
    assert int(objective.updates) == 2


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A baseline that is the last minibatch's mean."""
    monkeypatch.setattr("catchline.objectives.reinforce.BASELINE_RATE", 1.0)


def test_where_the_baseline_starts() -> None:
    """``zero``: a tenth of the way from 0; ``first_batch``: at the first minibatch's mean, then a tenth of the way."""
    tenth, whole = reinforce(), reinforce(baseline_init="first_batch")
    assert learnt(tenth) == [-0.3, -0.4]
    assert learnt(whole) == [-3.0, -4.0]
    assert learnt(tenth, slice(0, 2)) == [-0.42, -0.66]  # towards -1.5 and -3
    assert learnt(whole, slice(0, 2)) == [-2.85, -3.9]


@pytest.mark.usefixtures("at_once")
def test_ended_targets_count_as_zero_or_not_at_all() -> None:
    assert learnt(reinforce()) == [-3.0, -4.0]
    for parts in ([slice(0, 4)], [slice(0, 2), slice(2, 3), slice(3, 4)]):
        assert learnt(reinforce(baseline_mean="all"), *parts) == [-3.0, -3.0]
    cut = reinforce(baseline_mean="all")  # a micro-batch whose targets all end after one step
    for rows, width in ((slice(0, 2), 2), (slice(2, 3), 1), (slice(3, 4), 2)):
        output, batch = passed(rows)
        output.gold_log_probs, batch.target_mask = output.gold_log_probs[:, :width], batch.target_mask[:, :width]
        cut.see(output, batch)
    cut.seen()
    assert cut.baseline[:2].tolist() == [-3.0, -3.0]


@pytest.mark.usefixtures("at_once")
def test_a_baseline_of_returns() -> None:
    """G_1 = r_1 + r_2 / 2: -2, -4, -3, -9."""
    objective = reinforce(baseline_of="return", discount=0.5, scale=2.0)
    assert learnt(objective) == [-4.5, -4.0]
    expected = 2.0 * torch.tensor([[2.5, 2.0], [0.5, 0.0], [1.5, 0.0], [-4.5, -2.0]])
    torch.testing.assert_close(advantages(objective), expected)


def test_soft_minibatches_move_the_baseline_unless_told_otherwise() -> None:
    assert learnt(reinforce(), hard=False) == [-0.3, -0.4]
    objective = reinforce(baseline_update="hard_only", baseline_init="first_batch")
    assert learnt(objective, hard=False) == [0.0, 0.0]
    assert learnt(objective) == [-3.0, -4.0], "a minibatch that was left out is not the first"


@pytest.mark.usefixtures("at_once")
def test_what_is_subtracted() -> None:
    """``update_first``: the baseline with this minibatch in it; ``subtract_first``: the one before."""
    options = {"discount": 0.0, "scale": 1.0}
    for order, baseline in (("update_first", [-3.0, -4.0]), ("subtract_first", [0.0, 0.0])):
        objective = reinforce(baseline_order=order, **options)
        learnt(objective)
        torch.testing.assert_close(advantages(objective), (REWARDS - torch.tensor(baseline)) * MASK_R)
        with torch.no_grad():  # validation: there is no update, so there is one baseline
            term = objective(*passed())
        expected = -((REWARDS - torch.tensor([-3.0, -4.0])) * MASK_R * POLICY).sum()
        assert float(term.sum) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize(("norm", "divisor"), [("joint", 1), ("mean", 3), ("code", 9)])
def test_what_several_draws_are_divided_by(norm: str, divisor: int) -> None:
    options = {"discount": 0.0, "scale": 1.0}
    torch.testing.assert_close(advantages(reinforce(policy_norm=norm, **options), draws=3), REWARDS * MASK_R / divisor)
    torch.testing.assert_close(advantages(reinforce(policy_norm=norm, **options)), REWARDS * MASK_R)


@pytest.mark.usefixtures("at_once")
def test_reinforce_figures_of_the_log() -> None:
    """The advantages of the seven draws are 2, 2; 1, 0; 0; -3, -2."""
    objective = reinforce(discount=0.0, scale=1.0)
    learnt(objective)
    figures = {name: float(value) for name, value in objective.figures(*passed()).items()}
    expected = {"baseline_1": -3.0, "advantage_mean": 0.0, "advantage_std": (22 / 7) ** 0.5}
    assert figures == pytest.approx(expected, abs=1e-6)
