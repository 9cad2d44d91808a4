"""The distraction model, and the pointer-generator with its attention, against plain references in float64."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from distraction_reference import DistractionReference, Past
from headline_reference import Reference, State
from plain import BATCHES, coins, compare, compare_steps
from torch import Tensor

from catchline.config.names import MODELS, build
from catchline.models.distraction import Distraction
from samples import IDS, VOCAB, random_batch, randomise, tiny_seq2seq

SIZES = {"embedding_size": 5, "hidden_size": 4}


def distraction(**options: Any) -> dict[str, Any]:
    return {"attention": {"type": "distraction", "size": 6, **options}}


PLAIN, M1, M2, BOTH = (
    distraction(content=content, history=history)
    for content, history in ((False, False), (True, False), (False, True), (True, True))
)
ONE_LEVEL = {"decoder": "one-level"}
PAPER = {"gru": "paper"}
POINTER = {"head": {"type": "pointer"}}
VARIANTS: dict[str, dict[str, Any]] = {
    "uni-gru": {**PLAIN, **ONE_LEVEL, "bidirectional": False},
    "bi-gru": {**PLAIN, **ONE_LEVEL},
    "two-level": PLAIN,
    "m1": M1,
    "m2": M2,
    "m1-m2": BOTH,
    "m1-m2-uni": {**BOTH, "bidirectional": False},
    "m1-m2-one-level": {**BOTH, **ONE_LEVEL},
    "m1-m2-paper": {**BOTH, **PAPER},
    "m1-m2-paper-no-bias": {**BOTH, **PAPER, "bias": False},
    "m1-paper-one-level-uni": {**M1, **PAPER, **ONE_LEVEL, "bidirectional": False},
    "two-level-paper": {**PLAIN, **PAPER},
    "bi-gru-paper": {**PLAIN, **PAPER, **ONE_LEVEL},
    "m1-m2-no-bias": {**BOTH, "bias": False},
    "m2-no-bias-uni-one-level": {**M2, **ONE_LEVEL, "bias": False, "bidirectional": False},
    "m1-m2-readout": {**BOTH, "readout_size": 3},
    "m1-m2-detached": distraction(detach_history=True),
    "m1-m2-pointer": {**BOTH, **POINTER},
    "m2-pointer-one-level-paper": {**M2, **POINTER, **ONE_LEVEL, **PAPER},
    "plain-pointer-no-bias": {**PLAIN, **POINTER, "bias": False},
}


def model_of(*, seed: int = 0, scale: float = 0.6, **options: Any) -> Distraction:
    model: Distraction = build("model", MODELS, {"type": "distraction", **SIZES, **options}, vocab_size=VOCAB, **IDS)
    model.double()
    randomise(model, seed=seed, scale=scale)
    return model


@pytest.mark.parametrize("name", VARIANTS)
def test_loss_and_gradients_of_every_variant(name: str) -> None:
    number = list(VARIANTS).index(name)
    model = model_of(seed=number, **VARIANTS[name])
    compare(model, DistractionReference(model), random_batch(seed=number), ("sentence", "token")[number % 2])


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    "name",  # these have all that the simpler ones have
    ["m1-m2-paper", "m1-m2-pointer", *(pytest.param(name, marks=pytest.mark.slow) for name in ("uni-gru", "m1-m2"))],
)
def test_every_shape_of_batch(name: str, batch: str) -> None:
    model = model_of(seed=3, **VARIANTS[name])
    compare(model, DistractionReference(model), random_batch(**BATCHES[batch]), "sentence")


@pytest.mark.parametrize("name", VARIANTS)
def test_free_running(name: str) -> None:
    number, batch = list(VARIANTS).index(name), random_batch(seed=7, target_lengths=(5, 4, 2))
    model = model_of(seed=number + 50, scale=1.2, **VARIANTS[name])
    compare(model, DistractionReference(model), batch, "sentence", forced=coins(batch, number))


@pytest.mark.parametrize("name", VARIANTS)
def test_stepwise_decoding(name: str) -> None:
    """Every step's whole distribution, and alpha_t, c_t, s_t as scorers get them."""
    model = model_of(seed=8, scale=1.0, **VARIANTS[name]).eval()
    compare_steps(model, DistractionReference(model), random_batch(seed=4))


# ------------------------------------------------------------------------- in the pointer-generator


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


@pytest.mark.parametrize(
    "options",
    [
        BOTH,
        {**M1, "input_feeding": "linear", "state_for_attention": "ch"},
        {**M2, "cell": "gru", "attention_timing": "before"},
        {**BOTH, "head": {"type": "vocabulary"}, "input_feeding": "concat"},
    ],
)
@pytest.mark.parametrize("free", [False, True])
def test_the_pointer_generator_is_distracted(options: dict[str, Any], free: bool) -> None:
    model, batch = tiny_seq2seq(seed=6, scale=0.9, **options), random_batch(seed=9, target_lengths=(6, 3, 1))
    compare(model, DistractedReference(model), batch, "sentence", forced=coins(batch, 1, 0.5) if free else None)
