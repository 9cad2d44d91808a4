"""The terms of J, their label smoothing, what the projection foresees of them, and the variant that has no bound."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.errors import ConfigError, TrainingError
from catchline.kernels import vocabulary
from catchline.layers.vocabulary import VocabularyProjection
from catchline.types import PLAIN_PASS, ModelOutput, TrainingBatch, UpdateContext
from samples import BART, IDS, VOCAB, random_batch, randomise, tiny_seq2seq

MASK = torch.tensor([[True, True, True], [True, False, False]])
VALUES = torch.tensor([[-1.0, -2.0, -3.0], [-4.0, 0.0, 0.0]])


def objective(name: str, **options: Any):
    return build("objective", OBJECTIVES, {"type": name, **options})


def batch_of() -> TrainingBatch:
    ids = torch.zeros(MASK.shape, dtype=torch.int64)
    return TrainingBatch(ids, ids, MASK, 5, target_input_ids=ids, target_ids=ids, target_mask=MASK)


def output_of(**details: torch.Tensor) -> ModelOutput:
    return ModelOutput(gold_log_probs=VALUES - 7, details=details)


def test_the_opponents_term() -> None:
    junk = VALUES.masked_fill(~MASK, 99.0)
    term = objective("opponent", weight=0.3)(output_of(opponent_log_probs=junk), batch_of())
    assert (term.name, float(term.sum), float(term.count), term.weight) == ("opponent", 10.0, 4.0, 0.3)
    assert objective("opponent").config.weight == 0.2
    with pytest.raises(ConfigError, match=r"needs an opponent attention: set model.opponent"):
        objective("opponent")(output_of(), batch_of())
    with pytest.raises(ConfigError, match="greater than or equal to 0"):
        objective("opponent", weight=-0.2)


def test_the_variant_without_a_bound_stops() -> None:
    variant = objective("minus_softmax", weight=0.2)
    term = variant(output_of(opponent_log_probs=VALUES), batch_of())
    assert float(term.sum / term.count) == -2.5  # what is made small is + log P_o
    variant.check(-49.0, 3)
    variant.check(float("nan"), 3)  # another check's business
    for value in (-50.1, -float("inf")):
        with pytest.raises(TrainingError, match=r"mean log P_o .* is -.* at update 3"):
            variant.check(value, 3)
    objective("minus_softmax").check(-49.0, 3)


def test_smoothed_values_count_where_the_batch_asks_for_them() -> None:
    details = {"smoothed_log_probs": VALUES - 1, "opponent_log_probs": VALUES, "opponent_smoothed": VALUES - 2}
    output, asked = output_of(**details), UpdateContext(label_smoothing=0.1, opponent_smoothing=0.1)
    assert float(objective("nll").forward(output, batch_of(), asked).sum) == 14.0
    assert float(objective("opponent").forward(output, batch_of(), asked).sum) == 18.0
    assert float(objective("nll").forward(output, batch_of()).sum) == 38.0
    assert float(objective("opponent").forward(output, batch_of()).sum) == 10.0
    with pytest.raises(ConfigError, match="label_smoothing of the objective nll to 0"):
        objective("nll")(output_of(opponent_log_probs=VALUES), batch_of(), asked)


def test_figures_of_the_log() -> None:
    output = output_of(opponent_log_probs=VALUES)
    nll = objective("nll", label_smoothing=0.1).figures(output, batch_of())
    assert float(nll["nll_plain"]) == 9.5
    assert float(nll["perplexity"]) == pytest.approx(torch.tensor(9.5).exp().item())
    for reduction in ("sentence", "sum"):
        assert objective("nll", reduction=reduction).figures(output, batch_of()) == nll
    assert float(objective("opponent", label_smoothing=0.1).figures(output, batch_of())["opponent_plain"]) == 2.5
    assert objective("nll").figures(output, batch_of()) == objective("opponent").figures(output, batch_of()) == {}


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"hidden_size": 5}])
@pytest.mark.parametrize("eps", [0.1, 0.6])
def test_smoothing_is_that_of_torch(options: dict[str, Any], eps: float) -> None:
    """Value and gradients of ``torch.nn.functional.cross_entropy(label_smoothing=eps)``."""
    layer = VocabularyProjection(6, 11, **options).double()
    randomise(layer, scale=1.0)
    g = torch.Generator().manual_seed(0)
    inputs = torch.randn(9, 6, generator=g, dtype=torch.float64, requires_grad=True)
    gold = torch.randint(11, (9,), generator=g)
    leaves = [inputs, *layer.parameters()]
    value = layer.smoothed(layer.gold_log_probs(inputs, gold), inputs, gold, eps)
    wanted = -torch.nn.functional.cross_entropy(layer(inputs), gold, reduction="none", label_smoothing=eps)
    torch.testing.assert_close(value, wanted, atol=1e-12, rtol=0)
    gradients, expected = (torch.autograd.grad(each.sum(), leaves) for each in (value, wanted))
    torch.testing.assert_close(gradients, expected, atol=1e-12, rtol=0)


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
