"""The whole headline model against the plain reference: losses, every gradient, every step of decoding."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from headline_reference import BATCHES, Reference, examples_of
from torch import Tensor

from laconic.config.names import OBJECTIVES, build
from laconic.models.seq2seq import Seq2Seq
from laconic.types import TrainingBatch, UpdateContext
from samples import BOS, PAD, UNK, VOCAB, assert_same, gradients, random_batch, tiny_seq2seq

TOLERANCE = 1e-10
PLAIN = {"attention": None, "head": {"type": "vocabulary"}}
VOCABULARY = {"head": {"type": "vocabulary"}}
SEE = {
    "bridge_activation": ("relu", "relu"),
    "forget_bias": 1.0,
    "two_biases": False,
    "state_for_attention": "ch",
    "input_feeding": "linear",
    "output_layers": 2,
}


def attention(**options: Any) -> dict[str, Any]:
    return {"attention": {"type": "additive", "size": 6, **options}}


COVERAGE = attention(coverage=True)

MODELS: dict[str, dict[str, Any]] = {
    # the paper's rows, and what they leave open
    "lstm": {**PLAIN, "bidirectional": False},
    "lstm-init": {**PLAIN, "bidirectional": False, "context_feed": "init"},
    "gru": {**PLAIN, "cell": "gru", "bidirectional": False},
    "gru-wider": {**PLAIN, "cell": "gru", "bidirectional": False, "encoder_hidden": 3},
    "bilstm": PLAIN,
    "bilstm-init-relu": {**PLAIN, "context_feed": "init", "bridge_activation": ("relu", "relu")},
    "bigru-none": {**PLAIN, "cell": "gru", "bridge_activation": ("none", "none")},
    "bilstm-one-bias": {**PLAIN, "two_biases": False, "forget_bias": 1.0},
    "bilstm-ignore-unk": {**PLAIN, "unk_loss": "ignore"},
    "plain-tied-unshared": {**PLAIN, "tie_output": True, "share_embeddings": False},
    # attention without copying
    "attention": {**attention(), **VOCABULARY},
    "attention-coverage": {**COVERAGE, **VOCABULARY},
    "attention-gru-before-fed": {
        **attention(),
        **VOCABULARY,
        "cell": "gru",
        "attention_timing": "before",
        "input_feeding": "concat",
        "output_uses_input": True,
    },
    "attention-tied": {**attention(), **VOCABULARY, "tie_output": True},
    "attention-own-width": {**VOCABULARY, "attention": {"type": "additive"}},
    # the pointer and coverage
    "pointer": attention(),
    "pointer-lstm": {**attention(), "bidirectional": False},
    "pointer-gru": {**attention(), "cell": "gru"},
    "pointer-coverage": COVERAGE,
    "pointer-coverage-detached": attention(coverage=True, detach_coverage=True),
    "pointer-ignore-unk": {**COVERAGE, "unk_loss": "ignore"},
    "pointer-ch": {**COVERAGE, "state_for_attention": "ch"},
    "pointer-gru-ch": {**COVERAGE, "state_for_attention": "ch", "cell": "gru"},
    "pointer-before": {**COVERAGE, "attention_timing": "before"},
    "pointer-before-linear-ch": {
        **COVERAGE,
        "attention_timing": "before",
        "input_feeding": "linear",
        "state_for_attention": "ch",
    },
    "pointer-concat": {**COVERAGE, "input_feeding": "concat", "output_uses_input": True},
    "pointer-concat-initial": {**COVERAGE, "input_feeding": "concat", "first_context": "initial"},
    "pointer-linear-initial": {**attention(), "input_feeding": "linear", "first_context": "initial"},
    "pointer-linear-tied": {**COVERAGE, "input_feeding": "linear", "tie_output": True, "output_uses_input": True},
    "pointer-tied-unshared": {**COVERAGE, "tie_output": True, "share_embeddings": False},
    "pointer-two-layers": {**attention(), "output_layers": 2, "share_embeddings": False},
    "see": {**COVERAGE, **SEE},
    "see-without-coverage": {**attention(), **SEE},
    "see-parity": {**COVERAGE, **SEE, "see_decode_parity": True},
    "see-parity-before": {**COVERAGE, "attention_timing": "before", "see_decode_parity": True},
}

REDUCTIONS = ("token", "example", "sentence", "sum")


def reference_of(model: Seq2Seq) -> tuple[Reference, dict[str, Tensor]]:
    """The reference on copies of the model's parameters, which collect its gradients."""
    parameters = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    return Reference(model.config, parameters, vocab_size=VOCAB, pad=PAD, unk=UNK, bos=BOS), parameters


def loss_of(
    model: Seq2Seq,
    batch: TrainingBatch,
    reduction: str,
    coverage_weight: float,
    *,
    hint: bool = True,
    forced: Tensor | None = None,
) -> Tensor:
    """The toolkit's own loss, as the training loop makes it."""
    nll = build("objective", OBJECTIVES, {"type": "nll", "reduction": reduction})
    coverage = build("objective", OBJECTIVES, {"type": "coverage", "reduction": reduction, "weight": coverage_weight})
    context = UpdateContext(forced_mask=forced)
    output = model(batch, context=nll.wants(batch, context) if hint else context)
    terms = [nll(output, batch), coverage(output, batch)]
    return sum(term.weight * term.sum / term.count for term in terms)


def compare(
    model: Seq2Seq,
    batch: TrainingBatch,
    reduction: str = "token",
    *,
    hint: bool = True,
    forced: Tensor | None = None,
) -> None:
    loss = loss_of(model, batch, reduction, 0.7, hint=hint, forced=forced)
    loss.backward()
    reference, parameters = reference_of(model)
    expected = reference.loss(examples_of(batch, forced), reduction=reduction, coverage_weight=0.7)
    expected.backward()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), abs=TOLERANCE, rel=TOLERANCE)
    wanted = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in parameters.items()}
    assert_same(gradients(model), wanted, TOLERANCE)


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_of_every_model(name: str) -> None:
    number = list(MODELS).index(name)
    compare(tiny_seq2seq(seed=number, **MODELS[name]), random_batch(seed=number), REDUCTIONS[number % 4])


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    "name",  # coverage has all that the simpler ones have, See's decoder is wired otherwise
    ["pointer-coverage", "see", *(pytest.param(n, marks=pytest.mark.slow) for n in ("bilstm", "attention", "pointer"))],
)
def test_every_shape_of_batch(name: str, batch: str) -> None:
    compare(tiny_seq2seq(seed=3, **MODELS[name]), random_batch(**BATCHES[batch]))


@pytest.mark.parametrize("hint", [True, False])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["pointer-coverage", "pointer-ignore-unk", "bilstm-ignore-unk"])
def test_every_reduction(name: str, reduction: str, hint: bool) -> None:
    """Also without the hint of what each token weighs, and where the hint is wrong (tokens that are ignored)."""
    compare(tiny_seq2seq(seed=4, **MODELS[name]), random_batch(seed=2), reduction, hint=hint)


@pytest.mark.parametrize("name", MODELS)
def test_free_running(name: str) -> None:
    """Own words at some inputs, gold at others; no gradient through the choice, loss against the gold words."""
    batch = random_batch(seed=7, target_lengths=(5, 4, 2))
    coins = torch.rand(batch.target_ids.shape, generator=torch.Generator().manual_seed(list(MODELS).index(name)))
    compare(tiny_seq2seq(seed=list(MODELS).index(name) + 50, scale=1.2, **MODELS[name]), batch, forced=coins < 0.4)


@pytest.mark.parametrize("name", MODELS)
def test_stepwise_decoding(name: str) -> None:
    """Every step's whole distribution, attention and p_gen, the coverage of See's decoder (c.21) included."""
    model, batch = tiny_seq2seq(seed=8, scale=1.0, **MODELS[name]).eval(), random_batch(seed=4)
    reference, _ = reference_of(model)
    examples = examples_of(batch)
    with torch.no_grad():
        expected = [reference.run(example, decoding=True) for example in examples]
        memory = model.encode(batch)
        state = model.start(memory)
        for t in range(batch.target_ids.shape[1]):
            output, state = model.step(batch.target_input_ids[:, t], state)
            for b, example in enumerate(examples):
                if t >= len(example.target):
                    continue
                step, source = expected[b][t], len(example.source)
                wanted = step.distribution(output.log_probs.shape[1])
                torch.testing.assert_close(output.log_probs[b].exp(), wanted, atol=TOLERANCE, rtol=0)
                if step.attention is not None:
                    torch.testing.assert_close(output.attention[b, :source], step.attention, atol=TOLERANCE, rtol=0)
                if step.p_gen is not None:
                    torch.testing.assert_close(output.details["p_gen"][b], step.p_gen, atol=TOLERANCE, rtol=0)
                    wanted = (1 - step.p_gen) * step.attention
                    torch.testing.assert_close(output.details["copy_probs"][b, :source], wanted, atol=TOLERANCE, rtol=0)


def draw_options(seed: int) -> dict[str, Any]:
    """A random corner of the space of settings."""
    r = random.Random(seed)
    options: dict[str, Any] = {
        "cell": r.choice(["lstm", "gru"]),
        "bidirectional": r.random() < 0.7,
        "encoder_hidden": r.choice([3, 4]),
        "bridge_activation": (r.choice(["none", "relu", "tanh"]), r.choice(["none", "relu", "tanh"])),
        "two_biases": r.random() < 0.5,
        "output_layers": r.choice([1, 2]),
        "output_uses_input": r.random() < 0.5,
        "share_embeddings": r.random() < 0.5,
        "unk_loss": r.choice(["count", "ignore"]),
    }
    if options["output_layers"] == 1:
        options["tie_output"] = r.random() < 0.4
    if r.random() < 0.15:
        return {**options, **PLAIN, "context_feed": r.choice(["init", "every_step"])}
    options |= {
        "attention_timing": r.choice(["after", "before"]),
        "state_for_attention": r.choice(["h", "ch"]),
        "input_feeding": r.choice(["none", "concat", "linear"]),
        "first_context": r.choice(["zero", "initial"]),
        "head": {"type": r.choice(["pointer", "pointer", "vocabulary"])},
    }
    covers = r.random() < 0.7
    return {**options, **attention(coverage=covers, detach_coverage=covers and r.random() < 0.3)}


@pytest.mark.parametrize("seed", range(20))
def test_random_combinations(seed: int) -> None:
    model = tiny_seq2seq(seed=seed, **draw_options(seed))
    batch = random_batch(seed=seed, padding="gold" if seed % 2 else "pad")
    compare(model, batch, REDUCTIONS[seed % 4])


@pytest.mark.parametrize("name", ["bilstm", "pointer", "pointer-coverage", "see"])
def test_a_wrong_model_is_noticed(name: str) -> None:
    """The comparison itself can fail: one changed parameter entry, however small its part, is seen."""
    model, batch = tiny_seq2seq(seed=3, **MODELS[name]), random_batch()
    reference, _ = reference_of(model)
    expected = float(reference.loss(examples_of(batch), coverage_weight=0.7).detach())
    for parameter_name, parameter in model.named_parameters():
        entry = parameter.data[BOS] if "embedding" in parameter_name else parameter.data
        entry.view(-1)[0] += 0.01
        changed = float(loss_of(model, batch, "token", 0.7).detach())
        entry.view(-1)[0] -= 0.01
        assert abs(changed - expected) > 1e-9, parameter_name


def test_numeric_gradients_agree_with_the_reference() -> None:
    """The reference's own gradients against differences of its loss, so that autograd is not trusted blindly."""
    model, batch = tiny_seq2seq(seed=11, **COVERAGE), random_batch(source_lengths=(4, 2), target_lengths=(3, 2))
    reference, parameters = reference_of(model)
    examples = examples_of(batch)
    reference.loss(examples, coverage_weight=0.7).backward()
    for name in ("attention.coverage_vector", "head.gate.weight", "attention.score_vector"):
        parameter = parameters[name]
        grads = parameter.grad.flatten()
        for i in range(min(3, parameter.numel())):
            ends = []
            for shift in (1e-5, -1e-5):
                with torch.no_grad():
                    parameter.view(-1)[i] += shift
                    ends.append(float(reference.loss(examples, coverage_weight=0.7)))
                    parameter.view(-1)[i] -= shift
            assert float(grads[i]) == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-8), name
