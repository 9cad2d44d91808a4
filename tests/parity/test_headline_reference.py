"""The whole headline model against the plain reference: losses, every gradient, every step of decoding."""

from __future__ import annotations

from typing import Any

import pytest
from headline_reference import Reference
from plain import BATCHES, coins, compare, compare_steps

from samples import COVERAGE, PLAIN, SEE, random_batch, tiny_seq2seq

VOCABULARY = {"head": {"type": "vocabulary"}}


def attention(**options: Any) -> dict[str, Any]:
    return {"attention": {"type": "additive", "size": 6, **options}}


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
    "see": SEE,
    "see-without-coverage": {**SEE, **attention()},
    "see-parity": {**SEE, "see_decode_parity": True},
    "see-parity-before": {**COVERAGE, "attention_timing": "before", "see_decode_parity": True},
}

REDUCTIONS = ("token", "example", "sentence", "sum")


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_of_every_model(name: str) -> None:
    number = list(MODELS).index(name)
    model = tiny_seq2seq(seed=number, **MODELS[name])
    compare(model, Reference(model), random_batch(seed=number), REDUCTIONS[number % 4])


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    "name",  # coverage has all that the simpler ones have, See's decoder is wired otherwise
    ["pointer-coverage", "see", *(pytest.param(n, marks=pytest.mark.slow) for n in ("bilstm", "attention", "pointer"))],
)
def test_every_shape_of_batch(name: str, batch: str) -> None:
    model = tiny_seq2seq(seed=3, **MODELS[name])
    compare(model, Reference(model), random_batch(**BATCHES[batch]))


@pytest.mark.parametrize("hint", [True, False])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["pointer-coverage", "pointer-ignore-unk", "bilstm-ignore-unk"])
def test_every_reduction(name: str, reduction: str, hint: bool) -> None:
    """Also without the hint of what each token weighs, and where the hint is wrong (tokens that are ignored)."""
    model = tiny_seq2seq(seed=4, **MODELS[name])
    compare(model, Reference(model), random_batch(seed=2), reduction, hint=hint)


@pytest.mark.parametrize("name", MODELS)
def test_free_running(name: str) -> None:
    """Own words at some inputs, gold at others; no gradient through the choice, loss against the gold words."""
    number, batch = list(MODELS).index(name), random_batch(seed=7, target_lengths=(5, 4, 2))
    model = tiny_seq2seq(seed=number + 50, scale=1.2, **MODELS[name])
    compare(model, Reference(model), batch, forced=coins(batch, number))


@pytest.mark.parametrize("name", MODELS)
def test_stepwise_decoding(name: str) -> None:
    """Every step's whole distribution, attention and p_gen, the coverage of See's decoder (c.21) included."""
    model = tiny_seq2seq(seed=8, scale=1.0, **MODELS[name]).eval()
    compare_steps(model, Reference(model), random_batch(seed=4))
