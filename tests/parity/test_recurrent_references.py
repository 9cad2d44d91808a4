"""The recurrent models against plain references in float64: losses, every gradient, every step of decoding."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from distraction_reference import DistractionReference, Past
from headline_reference import Reference, State
from plain import BATCHES, Reader, coins, compare, compare_steps
from torch import Tensor

from catchline.config.names import MODELS, build
from samples import COVERAGE, IDS, PLAIN, SEE, VOCAB, random_batch, randomise, tiny_seq2seq

VOCABULARY = {"head": {"type": "vocabulary"}}
BEFORE = {"attention_timing": "before"}
FED = {"input_feeding": "concat", "output_uses_input": True}


def attention(**options: Any) -> dict[str, Any]:
    return {"attention": {"type": "additive", "size": 6, **options}}


def distracted(**options: Any) -> dict[str, Any]:
    return {"attention": {"type": "distraction", "size": 6, **options}}


HEADLINE: dict[str, dict[str, Any]] = {
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
    "attention-gru-before-fed": {**attention(), **VOCABULARY, **BEFORE, **FED, "cell": "gru"},
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
    "pointer-before": {**COVERAGE, **BEFORE},
    "pointer-before-linear-ch": {**COVERAGE, **BEFORE, "input_feeding": "linear", "state_for_attention": "ch"},
    "pointer-concat": {**COVERAGE, **FED},
    "pointer-concat-initial": {**COVERAGE, "input_feeding": "concat", "first_context": "initial"},
    "pointer-linear-initial": {**attention(), "input_feeding": "linear", "first_context": "initial"},
    "pointer-linear-tied": {**COVERAGE, "input_feeding": "linear", "tie_output": True, "output_uses_input": True},
    "pointer-tied-unshared": {**COVERAGE, "tie_output": True, "share_embeddings": False},
    "pointer-two-layers": {**attention(), "output_layers": 2, "share_embeddings": False},
    "see": SEE,
    "see-without-coverage": {**SEE, **attention()},
    "see-parity": {**SEE, "see_decode_parity": True},
    "see-parity-before": {**COVERAGE, **BEFORE, "see_decode_parity": True},
}
NEITHER, M1, M2, BOTH = (
    distracted(content=content, history=history)
    for content, history in ((False, False), (True, False), (False, True), (True, True))
)
ONE_LEVEL = {"decoder": "one-level"}
PAPER = {"gru": "paper"}
POINTER = {"head": {"type": "pointer"}}
DISTRACTION: dict[str, dict[str, Any]] = {
    "uni-gru": {**NEITHER, **ONE_LEVEL, "bidirectional": False},
    "bi-gru": {**NEITHER, **ONE_LEVEL},
    "two-level": NEITHER,
    "m1": M1,
    "m2": M2,
    "m1-m2": BOTH,
    "m1-m2-uni": {**BOTH, "bidirectional": False},
    "m1-m2-one-level": {**BOTH, **ONE_LEVEL},
    "m1-m2-paper": {**BOTH, **PAPER},
    "m1-m2-paper-no-bias": {**BOTH, **PAPER, "bias": False},
    "m1-paper-one-level-uni": {**M1, **PAPER, **ONE_LEVEL, "bidirectional": False},
    "two-level-paper": {**NEITHER, **PAPER},
    "bi-gru-paper": {**NEITHER, **PAPER, **ONE_LEVEL},
    "m1-m2-no-bias": {**BOTH, "bias": False},
    "m2-no-bias-uni-one-level": {**M2, **ONE_LEVEL, "bias": False, "bidirectional": False},
    "m1-m2-readout": {**BOTH, "readout_size": 3},
    "m1-m2-detached": distracted(detach_history=True),
    "m1-m2-pointer": {**BOTH, **POINTER},
    "m2-pointer-one-level-paper": {**M2, **POINTER, **ONE_LEVEL, **PAPER},
    "plain-pointer-no-bias": {**NEITHER, **POINTER, "bias": False},
}
DISTRACTED_WRITERS: dict[str, dict[str, Any]] = {  # the pointer-generator with the distraction paper's attention
    "distracted-pointer": BOTH,
    "distracted-pointer-linear-ch": {**M1, "input_feeding": "linear", "state_for_attention": "ch"},
    "distracted-pointer-gru-before": {**M2, "cell": "gru", "attention_timing": "before"},
    "distracted-concat": {**BOTH, **VOCABULARY, "input_feeding": "concat"},
}
EVERY = [*HEADLINE, *DISTRACTION, *DISTRACTED_WRITERS]
REDUCTIONS = ("token", "example", "sentence", "sum")
every_model = pytest.mark.parametrize("name", EVERY)


@dataclass(frozen=True)
class DistractedState(State):
    past: Past = field(default_factory=Past)


class DistractedReference(Reference):
    """The headline reference with the distraction paper's attention."""

    def attend(self, states: list[Tensor], state: Any) -> tuple[Tensor, None, Any]:
        alpha, content, past = DistractionReference.attend(self, states, self.query(state), state.past)
        return alpha, None, replace(state, context=content, past=past)

    def first_state(self, states: list[Tensor], h: Tensor, c: Tensor | None, *, decoding: bool) -> State:
        first = super().first_state(states, h, c, decoding=decoding)
        return DistractedState(first.h, first.c, first.context, None)


def made(name: str, seed: int, scale: float = 0.6) -> tuple[Any, Reader]:
    """A model and its reference."""
    if name in DISTRACTION:
        spec = {"type": "distraction", "embedding_size": 5, "hidden_size": 4, **DISTRACTION[name]}
        model = randomise(build("model", MODELS, spec, vocab_size=VOCAB, **IDS).double(), seed=seed, scale=scale)
        return model, DistractionReference(model)
    model = tiny_seq2seq(seed=seed, scale=scale, **(HEADLINE | DISTRACTED_WRITERS)[name])
    return model, Reference(model) if name in HEADLINE else DistractedReference(model)


@every_model
def test_loss_and_gradients_of_every_model(name: str) -> None:
    number = EVERY.index(name)
    compare(*made(name, number), random_batch(seed=number), REDUCTIONS[number % 4])


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", ["pointer-coverage", "see", "m1-m2-paper", "m1-m2-pointer"])
def test_every_shape_of_batch(name: str, batch: str) -> None:
    """These have all that the simpler ones have; See's decoder is wired otherwise."""
    compare(*made(name, 3), random_batch(**BATCHES[batch]), "sentence" if name in DISTRACTION else "token")


@pytest.mark.parametrize("hint", [True, False])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["pointer-coverage", "pointer-ignore-unk", "bilstm-ignore-unk"])
def test_every_reduction(name: str, reduction: str, hint: bool) -> None:
    """Also without the hint of what each token weighs, and where the hint is wrong (tokens that are ignored)."""
    compare(*made(name, 4), random_batch(seed=2), reduction, hint=hint)


@every_model
def test_free_running(name: str) -> None:
    """Own words at some inputs, gold at others; no gradient through the choice, loss against the gold words."""
    number, batch = EVERY.index(name), random_batch(seed=7, target_lengths=(5, 4, 2))
    compare(*made(name, number + 50, 1.2), batch, forced=coins(batch, number))


@every_model
def test_stepwise_decoding(name: str) -> None:
    """Every step's whole distribution, attention, p_gen, and c_t and s_t as scorers get them; the coverage of See's
    decoder (c.21) included."""
    model, reference = made(name, 8, 1.0)
    compare_steps(model.eval(), reference, random_batch(seed=4))
