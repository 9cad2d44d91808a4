"""Correlational copying in search: its history goes with the hypotheses, and what it is equal to at its ends.

Most random models forget their history in one step and would hide mistakes. `remembering` does not: a narrow
Gaussian, little weight on the attention of the moment and on generation.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from copying_reference import LITERAL, RELEASE
from forcing import forced, worst
from torch import Tensor, nn

from catchline.config.names import MODELS, build
from catchline.config.schema import SearchConfig
from catchline.models.transformer import Transformer
from catchline.search.torch_bridge import decode
from catchline.types import Batch, Hypothesis
from samples import EOS, IDS, TRANSFORMER, VOCAB, random_batch, randomise

BASE = TRANSFORMER | {"feed_forward_size": 16}
HEADS: dict[str, dict[str, Any]] = {
    "attentional": {"type": "attentional"},
    "guided": {"type": "guided"},
    "correlational": {"type": "correlational"},
    "cutoff": {"type": "correlational", "clip_mode": "cutoff", "clip_distance": 3},
    "no-semantic": {"type": "correlational", "use_semantic": False},
    "no-positional": {"type": "correlational", "use_positional": False},
    "release": {"type": "correlational", **RELEASE},
    "literal": {"type": "correlational", **LITERAL, "allow_literal_training": True},
}
BATCH = random_batch((12, 7, 4, 1), (5, 4, 3, 2), seed=2)
EXACT = {"atol": 1e-9, "rtol": 0}
GATES = {"generation": -2.0, "attention_gate": -2.0, "semantic_gate": -3.0, "spread": -4.0}


def model_of(head: dict[str, Any], *, seed: int = 4) -> Transformer:
    """Random weights; the copy layer looks here and there as words go by, and the gates pass the history on."""
    model = build("model", MODELS, BASE | {"head": head}, vocab_size=VOCAB, **IDS).double()
    randomise(model, seed=seed, scale=0.8)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.mul_(0.1)
        for norm in (module for module in model.modules() if isinstance(module, nn.LayerNorm)):
            norm.weight.fill_(1.0)
        model.embedding.weight.mul_(1.5)
        model.decoder.layers[-1].cross_attention.in_proj.weight[: model.config.hidden_size] *= 3
        for name, bias in GATES.items():
            if getattr(model.head, name, None) is not None:
                getattr(model.head, name).weight.mul_(0.05)
                getattr(model.head, name).bias.fill_(bias)
    return model.eval()


def remembering(**options: Any) -> Transformer:
    return model_of({"type": "correlational", **options})


def found_by(model: Any, batch: Batch = BATCH, **options: Any) -> list[list[Hypothesis]]:
    config = SearchConfig(**{"beam_size": 4, "num_return": 4, "max_length": 10, "forbid_unk": False} | options)
    return decode(model, batch, config, **IDS)


@pytest.mark.parametrize("head", HEADS)
def test_hypotheses_are_worth_what_teacher_forcing_says(head: str) -> None:
    model = model_of(HEADS[head])
    words, sums = worst(model, BATCH, found_by(model), IDS)
    assert words < 1e-6
    assert sums < 1e-9
    single = model_of(HEADS[head]).float()
    assert worst(single, BATCH, found_by(single), IDS)[0] < 2e-5


@pytest.mark.parametrize("head", ["attentional", "guided", "correlational"])
def test_equals_exhaustive_search_on_a_toy(head: str) -> None:
    """Three words and EOS, up to three words: all sequences, scored by teacher forcing."""
    model = model_of(HEADS[head], seed=5)
    batch = random_batch((6, 3), (2, 2), seed=3, with_oov=False)
    allowed = [4, 5, 6]
    forbid = {"type": "forbid_tokens", "ids": [w for w in range(VOCAB) if w not in (*allowed, EOS)]}
    options = {"beam_size": 45, "num_return": 1, "max_length": 3, "length_normalisation": "none", "scorers": [forbid]}
    found = found_by(model, batch, **options, early_stopping="never")
    for b in range(2):
        every = [list(words) for length in range(4) for words in itertools.product(allowed, repeat=length)]
        scores = [float(forced(model, batch, b, [*words, EOS], IDS).sum()) for words in every]
        assert found[b][0].ids == every[max(range(len(every)), key=scores.__getitem__)]
        assert found[b][0].log_prob == pytest.approx(max(scores), abs=1e-9)


# --------------------------------------------------------------------------------- at the ends


def same_base(model: Transformer, head: dict[str, Any], **options: Any) -> Transformer:
    """A Transformer with another head and the same weights wherever the names agree."""
    other = build("model", MODELS, BASE | {"head": head} | options, vocab_size=VOCAB, **IDS).double().eval()
    known = other.state_dict()
    own = {name: value for name, value in model.state_dict().items() if name in known}
    other.load_state_dict(own, strict=False)
    return other


def all_log_probs(model: Transformer, batch: Batch = BATCH) -> Tensor:
    """Of every word, on the gold words: (B, T, X)."""
    with torch.no_grad():
        state, found = model.start(model.encode(batch)), []
        for t in range(batch.target_ids.shape[1]):
            output, state = model.step(batch.target_input_ids[:, t], state)
            found.append(output.log_probs)
        return torch.stack(found, dim=1)


CHAIN = {"type": "correlational"}
LITERAL_START = CHAIN | {"first_step": "literal", "allow_literal_training": True}
FLOORLESS = [{key: each[key] for key in each if key != "prob_floor"} for each in HEADS.values()]  # it lifts small words
# a head, the gate that is opened or shut for good, and the head that it is then
ENDS: list[tuple[dict[str, Any], str, float, dict[str, Any]]] = [
    *((head, "attention_gate", 800.0, {"type": "attentional"}) for head in (CHAIN, LITERAL_START)),  # P_final is alpha
    *((head, "generation", 800.0, {"type": "vocabulary"}) for head in FLOORLESS),  # nothing is copied
    (CHAIN, "semantic_gate", -800.0, CHAIN | {"use_semantic": False}),  # without s is u = 0
    (CHAIN, "semantic_gate", 800.0, CHAIN | {"use_positional": False}),  # without p is u = 1
]


@pytest.mark.parametrize(("head", "gate", "bias", "other"), ENDS)
@torch.no_grad()
def test_at_its_ends_a_head_is_another(head: dict[str, Any], gate: str, bias: float, other: dict[str, Any]) -> None:
    batch = random_batch((12, 7, 4, 1), (5, 4, 3, 2), seed=2, with_oov=other["type"] != "vocabulary")
    model = model_of(head)
    simpler = same_base(model, other)
    assert not torch.allclose(all_log_probs(model, batch), all_log_probs(simpler, batch))
    getattr(model.head, gate).weight.zero_()
    getattr(model.head, gate).bias.fill_(bias)
    torch.testing.assert_close(all_log_probs(model, batch), all_log_probs(simpler, batch), **EXACT)
    torch.testing.assert_close(model(batch).gold_log_probs, simpler(batch).gold_log_probs, **EXACT)


def test_an_indifferent_guide_is_attentional_copying() -> None:
    """SAGCopy's scalar starts at zero, so that it starts as attentional copying."""
    model = build("model", MODELS, BASE | {"head": {"type": "guided"}}, vocab_size=VOCAB, **IDS).double().eval()
    assert model.head.guide.item() == 0
    simpler = same_base(model, {"type": "attentional"})
    torch.testing.assert_close(all_log_probs(model), all_log_probs(simpler), **EXACT)
