"""The contrastive model against a second writing of it (`contrastive_reference`), values and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from contrastive_reference import ContrastiveReference, ReferenceStep
from plain import decoded_with_states, smoothed, softmax

from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.models.transformer import Transformer
from catchline.types import PLAIN_PASS, Batch
from samples import IDS, TRANSFORMER, UNK, VOCAB, assert_same, few_words, gradients, randomise

BASE = TRANSFORMER | {"encoder_layers": 1, "decoder_layers": 3}
HEADS = BASE["num_heads"]
PLACE = {"layer": 1, "head": 2}
OPPONENTS: dict[str, dict[str, Any]] = {
    "max": {"type": "max"},
    "max-first": {"type": "max", "ties": "first"},
    "max-distinct": {"type": "max", "ties": "distinct"},
    "top-1": {"type": "topk", "k": 1},
    "top-2": {"type": "topk", "k": 2},
    "top-3-first": {"type": "topk", "k": 3, "ties": "first"},
    "top-3-distinct": {"type": "topk", "k": 3, "ties": "distinct"},
    "dynamic": {"type": "dynamic", "ratio": 1.3},
    "dynamic-while-over": {"type": "dynamic", "ratio": 1.1, "rule": "while_over"},
    "one-minus": {"type": "one_minus"},
    "inverse": {"type": "inverse"},
    "inverse-clamped": {"type": "inverse", "eps": 0.2},
    "none": {"type": "none"},
    "renorm": {"type": "max", "normalizer": "renorm"},
    "release": {"type": "max", "out_proj": True, "empty": "alpha"},
    "wide": {"type": "max", "ffn_dim": 7},
    "softmax": {"type": "max", "output": "softmax"},
    "averaged": {"type": "max", "head": "average"},
    "averaged-mean": {"type": "topk", "k": 2, "head": "average", "averaged_values": "mean"},
    "first-layer": {"type": "max", "layer": 0, "head": 0},
    "detached-alpha": {"type": "max", "detach_alpha": True},
    "detached-values": {"type": "max", "detach_values": True},
}
EXACT = {"atol": 1e-10, "rtol": 0}


def options_of(name: str) -> dict[str, Any]:
    return PLACE | OPPONENTS[name]


def model_of(name: str) -> Transformer:
    spec = BASE | {"opponent": options_of(name)}
    model = build("model", MODELS, spec, vocab_size=VOCAB, **IDS).double().eval()
    randomise(model, scale=0.9, seed=3)
    return model


def reference_steps(name: str, model: Transformer, batch: Batch) -> tuple[list[list[ReferenceStep]], Any]:
    """Every real step of every example, from the model's own states; and these states."""
    memory = model.encode(batch)
    options = options_of(name)
    decoded, states = decoded_with_states(model, batch, memory, options["layer"])
    reference = ContrastiveReference(options, dict(model.named_parameters()), num_heads=HEADS)
    steps = []
    for b in range(len(batch.source_mask)):
        source = [memory.states[b, s] for s in batch.source_mask[b].nonzero().flatten()]
        length = int(batch.target_mask[b].sum())
        steps.append([reference.step(states[b, t], source) for t in range(length)])
    return steps, decoded


def gold_of(batch: Batch, b: int, t: int) -> int:
    word = int(batch.target_ids[b, t])
    return UNK if word >= VOCAB else word


@pytest.mark.parametrize("name", OPPONENTS)
@torch.no_grad()
def test_attention_and_probability(name: str) -> None:
    """At once, and step by step: ``log P_c + lambda log P_o`` of every word is the score of a step."""
    model, batch = model_of(name), few_words()
    expected, decoded = reference_steps(name, model, batch)
    reading = model._opponent_output(model.opponent, decoded)
    at_once, state = model(batch), model.start(model.encode(batch))
    for t in range(batch.target_ids.shape[1]):
        output, state = model.step(batch.target_input_ids[:, t], state)
        for b, steps in enumerate(expected):
            if t >= len(steps):
                continue
            step, real = steps[t], batch.source_mask[b]
            for found, wanted in (
                (reading.weights[b, t, real], step.conventional),
                (reading.opponent[b, t, real], step.opponent),
                (reading.context[b, t], step.context),
                (at_once.details["opponent_log_probs"][b, t], step.log_probs[gold_of(batch, b, t)]),
                (output.scores[b], output.log_probs[b] + 0.2 * step.log_probs),
                (output.details["opponent_attention"][b, real], step.opponent),
                (output.details["conventional_attention"][b, real], step.conventional),
            ):
                torch.testing.assert_close(found, wanted, **EXACT)
            assert torch.equal(reading.opponent[b, t, real] == 0, step.opponent == 0)
            assert not reading.opponent[b, t, ~real].any()


PLAIN = ("max", "dynamic", "inverse")  # also without label smoothing; of the others that is slow


@pytest.mark.parametrize(
    ("name", "eps"),
    [(name, 0.1) for name in OPPONENTS]
    + [pytest.param(name, 0.0, marks=[pytest.mark.slow] * (name not in PLAIN)) for name in OPPONENTS],
)
def test_the_loss_and_all_gradients(name: str, eps: float) -> None:
    """``-J`` a word, with and without label smoothing, as the loop computes it."""
    model, batch = model_of(name), few_words()
    objectives = [
        build("objective", OBJECTIVES, {"type": "nll", "label_smoothing": eps}),
        build("objective", OBJECTIVES, {"type": "opponent", "weight": 0.3, "label_smoothing": eps}),
    ]
    context = PLAIN_PASS
    for objective in objectives:
        context = objective.wants(batch, context)
    output = model(batch, context=context)
    terms = [objective(output, batch, context) for objective in objectives]
    loss = sum(term.weight * term.sum / term.count for term in terms)
    model.zero_grad()
    loss.backward()
    actual = gradients(model)

    expected, decoded = reference_steps(name, model, batch)
    words, total = 0, torch.zeros((), dtype=torch.float64)
    for b, steps in enumerate(expected):
        for t, step in enumerate(steps):
            gold = gold_of(batch, b, t)
            conventional = softmax(model.embedding.weight @ decoded.hidden[b, t])
            total = total + smoothed(conventional, gold, eps) + 0.3 * smoothed(step.log_probs.exp(), gold, eps)
            words += 1
    torch.testing.assert_close(loss, -total / words, **EXACT)
    model.zero_grad()
    (-total / words).backward()
    assert_same(actual, gradients(model), 1e-9)


@torch.no_grad()
def test_conventional_weights_are_those_of_torch() -> None:
    """The weights of every head of `torch.nn.MultiheadAttention` with the layer's own parameters, (B, H, T, S)."""
    for name in ("max", "averaged"):
        model, batch = model_of(name), few_words()
        memory, own = model.encode(batch), model.decoder.layers[1].cross_attention
        decoded, states = decoded_with_states(model, batch, memory, 1)
        tap = decoded.captured[1]
        theirs = torch.nn.MultiheadAttention(own.size, HEADS, batch_first=True).double()
        theirs.load_state_dict({name.replace("in_proj.", "in_proj_"): p for name, p in own.state_dict().items()})
        masked = {"key_padding_mask": ~batch.source_mask, "average_attn_weights": False}
        weights = theirs(states, memory.states, memory.states, **masked)[1]
        reading = model.opponent.read(tap.queries, tap.keys, tap.values, tap.mask)
        wanted = weights.mean(1) if name == "averaged" else weights[:, PLACE["head"]]
        torch.testing.assert_close(reading.weights, wanted, **EXACT)
