"""The Transformer's copy heads against a second writing of them (`copying_reference`), values and gradients."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from copying_reference import LITERAL, RELEASE, CopyingReference, Document, ReferenceStep, guidance_loss
from plain import agree, decoded_with_states, smoothed
from torch import Tensor

from catchline.config.names import COPY_HEADS, MODELS, build, parse
from catchline.errors import ConfigError
from catchline.models.transformer import Transformer
from catchline.types import Batch
from samples import IDS, TRANSFORMER, VOCAB, few_words, randomise, trained_loss

NO_SPECIALS: dict[str, Any] = {"exclude_special_from_copy": True}
CASES: dict[str, dict[str, Any]] = {
    "attentional": {"type": "attentional"},
    "attentional-per-head": {"type": "attentional", "context_heads": "per_head"},
    "attentional-decoder-state": {"type": "attentional", "lambda_input": "decoder_state"},
    "attentional-encoder-states": {"type": "attentional", "values": "encoder_states"},
    "guided-outdegree": {"type": "guided", "centrality": "outdegree"},
    "guided-1": {"type": "guided", "centrality": "indegree-1"},
    "guided-2": {"type": "guided", "centrality": "indegree-2"},
    "guided-3": {"type": "guided", "centrality": "indegree-3"},
    "paper": {"type": "correlational"},
    "no-semantic": {"type": "correlational", "use_semantic": False},
    "no-positional": {"type": "correlational", "use_positional": False},
    "detached": {"type": "correlational", "detach_history": True},
    "cutoff": {"type": "correlational", "clip_mode": "cutoff", "clip_distance": 2},
    "clamp": {"type": "correlational", "clip_mode": "clamp", "clip_distance": 2},
    "unclipped": {"type": "correlational", "clip_mode": "none", "clip_distance": 2},
    "l1": {"type": "correlational", "co_norm": "l1"},
    "softmax": {"type": "correlational", "co_norm": "softmax"},
    "keep": {"type": "correlational", "self_transfer": "keep"},
    "type": {"type": "correlational", "self_transfer": "type"},
    "zero": {"type": "correlational", "self_transfer": "zero", "allow_literal_training": True},
    "u-source": {"type": "correlational", "u_input": "source_state"},
    "sigma-state": {"type": "correlational", "sigma_input": "encoder_state"},
    "g-concat": {"type": "correlational", "g_input": "concat"},
    "encoder-states": {"type": "correlational", "values": "encoder_states"},
    "decoder-state": {"type": "correlational", "lambda_input": "decoder_state"},
    "per-head": {"type": "correlational", "context_heads": "per_head"},
    "floor": {"type": "correlational", "prob_floor": 1e-3},
    "literal-start": {"type": "correlational", "first_step": "literal", "allow_literal_training": True},
    "literal": {"type": "correlational", **LITERAL, "allow_literal_training": True},
    "release": {"type": "correlational", **RELEASE},
    "attentional-no-specials": {"type": "attentional", **NO_SPECIALS},
    "guided-no-specials": {"type": "guided", **NO_SPECIALS},
    "no-specials": {"type": "correlational", **NO_SPECIALS},
}
CORRELATIONAL = [name for name, spec in CASES.items() if spec["type"] == "correlational"]
EXACT = {"atol": 1e-10, "rtol": 0}


def model_of(name: str, **base: Any) -> Transformer:
    spec = TRANSFORMER | base | {"head": CASES[name]}
    return randomise(build("model", MODELS, spec, vocab_size=VOCAB, **IDS).double().eval(), scale=0.9, seed=3)


def documents_of(model: Transformer, batch: Batch) -> list[Document]:
    """The model's own states, with their gradients."""
    last, seen = model.encoder.layers[-1], []
    with patch.object(
        last, "forward", side_effect=lambda x, *rest: seen.append(x) or type(last).forward(last, x, *rest)
    ):
        memory = model.encode(batch)
    inputs = seen[0]
    decoded, states = decoded_with_states(model, batch, memory, model.attention_layer)
    found, excluded = [], model.head.special_ids
    for b in range(len(batch.source_mask)):
        ids = batch.source_extended_ids[b].tolist()
        steps = int(batch.target_mask[b].sum())
        found.append(
            Document(
                ids=ids,
                real=batch.source_mask[b].tolist(),
                encoder_inputs=inputs[b],
                encoder_states=memory.states[b],
                copy_states=states[b, :steps],
                hidden=decoded.hidden[b, :steps],
                copyable=[i not in excluded for i in ids] if model.head.config.exclude_special_from_copy else None,
            )
        )
    return found


def reference_steps(name: str, model: Transformer, batch: Batch) -> list[list[ReferenceStep]]:
    reference = CopyingReference(model, CASES[name])
    return [reference.steps(document, batch.extended_vocab_size) for document in documents_of(model, batch)]


def mean_gate(step: ReferenceStep, before: ReferenceStep | None) -> Tensor:
    """u; of source states its mean under the history."""
    if not step.u.dim():
        return step.u
    return torch.zeros((), dtype=torch.float64) if before is None else before.final @ step.u


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_every_step_of_a_summary(name: str) -> None:
    """log P of every word, alpha, the gates and the chain, step by step on the gold words."""
    model, batch = model_of(name), few_words()
    expected = reference_steps(name, model, batch)
    forced = model(batch)
    state = model.start(model.encode(batch))
    for t in range(batch.target_ids.shape[1]):
        output, state = model.step(batch.target_input_ids[:, t], state)
        for b, steps in enumerate(expected):
            if t >= len(steps):
                continue
            step = steps[t]
            torch.testing.assert_close(output.log_probs[b], step.probs.log(), **EXACT)
            gold = step.probs[batch.target_ids[b, t]].log()
            torch.testing.assert_close(forced.gold_log_probs[b, t], gold, **EXACT)
            for attention in (output.attention[b], forced.attention[b, t]):
                torch.testing.assert_close(attention, step.attention, **EXACT)
            details = {"p_gen": step.generate, "p_final": step.final, "copy_probs": (1 - step.generate) * step.final}
            if name in CORRELATIONAL:
                details |= {"copy_correlational": step.co, "copy_attention_gate": step.g}
                details |= {"copy_semantic_gate": mean_gate(step, steps[t - 1] if t else None)}
            for key, wanted in details.items():
                torch.testing.assert_close(output.details[key][b], wanted, **EXACT)
            torch.testing.assert_close(forced.details["p_gen"][b, t], step.generate, **EXACT)


def reference_loss(name: str, model: Transformer, batch: Batch, eps: float) -> Tensor:
    """Words' negative log-probabilities and documents' divergences, divided by the number of words."""
    reference, words, total = CopyingReference(model, CASES[name]), 0, torch.zeros((), dtype=torch.float64)
    for b, document in enumerate(documents_of(model, batch)):
        steps = reference.steps(document, batch.extended_vocab_size)
        for t, step in enumerate(steps):
            total = total - smoothed(step.probs, int(batch.target_ids[b, t]), eps)
        words += len(steps)
        if reference.kind == "guided":
            centrality = reference.centrality(document)
            total = total + 0.7 * guidance_loss([step.attention for step in steps], centrality, document.real)
    return total / words


LOSSES = [
    *((name, 0.1, {}) for name in CASES),
    *((name, 0.0, {}) for name in ("attentional", "guided-2")),  # label smoothing is the same for all
    *((name, 0.0, {"attention_layer": 0}) for name in ("paper", "release")),
]


@pytest.mark.parametrize(("name", "eps", "base"), LOSSES)
def test_the_loss_and_all_gradients(name: str, eps: float, base: dict[str, Any]) -> None:
    model, batch = model_of(name, **base), few_words()
    specs = [{"type": "nll", "label_smoothing": eps}]
    specs += [{"type": "guidance", "weight": 0.7}] * (CASES[name]["type"] == "guided")
    agree(model, trained_loss(model, batch, specs), reference_loss(name, model, batch, eps))


def head_config(**options: Any) -> dict[str, Any]:
    _, config = parse("copy head", COPY_HEADS, {"type": "correlational", **options})
    return config.model_dump(exclude={"preset"})


def test_presets() -> None:
    """They are the table's values, and give way to what is written beside them."""
    assert head_config(preset="paper") == head_config()
    assert head_config(preset="release") == head_config(**RELEASE)
    assert head_config(preset="literal") == head_config(**LITERAL)
    assert head_config(preset="release", co_norm="l1") == head_config(**RELEASE | {"co_norm": "l1"})


def test_what_is_no_distribution_is_not_trained() -> None:
    batch = few_words()
    for spec in ({"preset": "literal"}, {"self_transfer": "zero"}, {"normalise": "none"}, {"first_step": "literal"}):
        head = {"head": {"type": "correlational", **spec}}
        model = build("model", MODELS, TRANSFORMER | head, vocab_size=VOCAB, **IDS)
        with pytest.raises(ConfigError, match="allow_literal_training"):
            model.train()(batch)
        model.eval()(batch)
