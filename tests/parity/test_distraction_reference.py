"""The distraction model, and the pointer-generator with its attention, against plain references in float64."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from distraction_reference import DistractionReference, Past
from headline_reference import BATCHES, Reference, State, examples_of
from torch import Tensor

from laconic.config.names import MODELS, OBJECTIVES, build
from laconic.models.distraction import Distraction
from laconic.models.seq2seq import Seq2Seq
from laconic.types import TrainingBatch, UpdateContext
from samples import BOS, IDS, PAD, UNK, VOCAB, assert_same, gradients, random_batch, randomise, tiny_seq2seq

TOLERANCE = 1e-10
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


def reference_of(model: Distraction) -> tuple[DistractionReference, dict[str, Tensor]]:
    parameters = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    ids = {"vocab_size": VOCAB, "pad": PAD, "unk": UNK, "bos": BOS}
    return DistractionReference(model.config, model.attention.config, parameters, **ids), parameters


def words_of(
    batch: TrainingBatch, forced: Tensor | None = None
) -> tuple[list[list[int]], list[list[int]], list[list[bool]] | None]:
    """The real tokens of sources and targets, and the coins."""
    sources = [ids[mask].tolist() for ids, mask in zip(batch.source_extended_ids, batch.source_mask, strict=True)]
    targets = [ids[mask].tolist() for ids, mask in zip(batch.target_ids, batch.target_mask, strict=True)]
    return sources, targets, None if forced is None else forced.tolist()


def compare(
    model: Distraction, batch: TrainingBatch, reduction: str = "sentence", forced: Tensor | None = None
) -> None:
    """The loss of b8 (or the mean over tokens) and all gradients."""
    nll = build("objective", OBJECTIVES, {"type": "nll", "reduction": reduction})
    context = nll.wants(batch, UpdateContext(forced_mask=forced))
    term = nll(model(batch, context=context), batch, context)
    loss = term.sum / term.count
    loss.backward()
    reference, parameters = reference_of(model)
    losses = torch.stack(reference.document_losses(*words_of(batch, forced)))
    expected = losses.sum() / (len(losses) if reduction == "sentence" else batch.target_mask.sum())
    expected.backward()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), abs=TOLERANCE, rel=TOLERANCE)
    wanted = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in parameters.items()}
    assert_same(gradients(model), wanted, TOLERANCE)


@pytest.mark.parametrize("name", VARIANTS)
def test_loss_and_gradients_of_every_variant(name: str) -> None:
    number = list(VARIANTS).index(name)
    compare(model_of(seed=number, **VARIANTS[name]), random_batch(seed=number), ("sentence", "token")[number % 2])


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", ["uni-gru", "m1-m2", "m1-m2-paper", "m1-m2-pointer"])
def test_every_shape_of_batch(name: str, batch: str) -> None:
    compare(model_of(seed=3, **VARIANTS[name]), random_batch(**BATCHES[batch]))


@pytest.mark.parametrize("name", VARIANTS)
def test_free_running(name: str) -> None:
    batch = random_batch(seed=7, target_lengths=(5, 4, 2))
    coins = torch.rand(batch.target_ids.shape, generator=torch.Generator().manual_seed(list(VARIANTS).index(name)))
    compare(model_of(seed=list(VARIANTS).index(name) + 50, scale=1.2, **VARIANTS[name]), batch, forced=coins < 0.4)


@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_stepwise_decoding(name: str) -> None:
    """Every step's whole distribution, and alpha_t, c_t, s_t as scorers get them."""
    model, batch = model_of(seed=8, scale=1.0, **VARIANTS[name]).eval(), random_batch(seed=4)
    reference, _ = reference_of(model)
    sources, targets, _ = words_of(batch)
    expected = [reference.run(*pair) for pair in zip(sources, targets, strict=True)]
    state = model.start(model.encode(batch))
    for t in range(batch.target_ids.shape[1]):
        output, state = model.step(batch.target_input_ids[:, t], state)
        for b, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if t >= len(target):
                continue
            step = expected[b][t]
            for actual, wanted in (
                (output.log_probs[b, : len(step.probs)].exp(), step.probs),
                (output.attention[b, : len(source)], step.attention),
                (output.context[b], step.content),
                (output.state[b], step.state),
            ):
                torch.testing.assert_close(actual, wanted, atol=TOLERANCE, rtol=0)


# ------------------------------------------------------------------------- in the pointer-generator


@dataclass(frozen=True)
class DistractedState(State):
    past: Past = field(default_factory=Past)


class DistractedReference(Reference):
    """The headline reference with the distraction paper's attention."""

    attention: Any = None

    def attend(self, states: list[Tensor], state: Any) -> tuple[Tensor, Tensor, None, Any]:
        helper = DistractionReference(self.o, self.attention, self.p, vocab_size=VOCAB, pad=PAD, unk=UNK, bos=BOS)
        alpha, content, past = helper.attend(states, self.query(state), state.past)
        return alpha, content, None, replace(state, context=content, past=past)

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
    model: Seq2Seq = tiny_seq2seq(seed=6, scale=0.9, **options)
    batch = random_batch(seed=9, target_lengths=(6, 3, 1))
    coins = torch.rand(batch.target_ids.shape, generator=torch.Generator().manual_seed(1)) if free else None
    forced = None if coins is None else coins < 0.5
    parameters = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    reference = DistractedReference(model.config, parameters, vocab_size=VOCAB, pad=PAD, unk=UNK, bos=BOS)
    reference.attention = model.attention.config
    nll = build("objective", OBJECTIVES, {"type": "nll", "reduction": "sentence"})
    term = nll(model(batch, context=UpdateContext(forced_mask=forced)), batch)
    loss, expected = term.sum / term.count, reference.loss(examples_of(batch, forced), reduction="sentence")
    loss.backward()
    expected.backward()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), abs=TOLERANCE)
    wanted = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in parameters.items()}
    assert_same(gradients(model), wanted, TOLERANCE)
