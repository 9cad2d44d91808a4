"""The distraction model: parameter counts, what starts where, invariants, what training keeps in memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from catchline.config.names import MODELS, build
from catchline.errors import ConfigError
from catchline.models.base import SummarizationModel
from catchline.models.distraction import Distraction
from samples import BART, IDS, PAD, TRANSFORMER, VOCAB, random_batch, randomise

BOTH = {"type": "distraction", "size": 6}


def built(vocab_size: int = VOCAB, **options: Any) -> Distraction:
    spec = {"type": "distraction", "embedding_size": 5, "hidden_size": 4, "attention": BOTH, **options}
    model: Distraction = build("model", MODELS, spec, vocab_size=vocab_size, **IDS)
    return model


CNN = {"embedding_size": 120, "hidden_size": 600, "attention": {"type": "distraction", "size": 100}}
# words, settings, parameters
COUNTS: dict[str, tuple[int, dict[str, Any], int]] = {
    "cnn": (25_000, CNN, 27_182_600),
    "cnn, readout of the release": (25_000, {**CNN, "readout_size": 120}, 14_261_000),
    "cnn, uni": (25_000, {**CNN, "hidden_size": 500, "bidirectional": False}, 19_771_200),
    "lcsts": (4_000, {**CNN, "embedding_size": 500, "hidden_size": 500}, 12_402_200),
}


@pytest.mark.parametrize("gru", ["torch", "paper"])
@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts_without_biases(name: str, gru: str) -> None:
    """The sizes of the paper's models; the reading of the reset gate has no say in it."""
    vocab_size, options, total = COUNTS[name]
    with torch.device("meta"):
        model = built(vocab_size, **options, bias=False, gru=gru, init="torch")
    assert sum(p.numel() for p in model.parameters()) == total


def test_recurrent_matrices_start_orthogonal_gate_by_gate() -> None:
    torch.manual_seed(0)
    for gru in ("torch", "paper"):
        model = built(500, embedding_size=40, hidden_size=30, gru=gru)
        recurrent = {n: p for n, p in model.named_parameters() if ".weight_hh" in n}
        assert len(recurrent) == 4
        for matrix in recurrent.values():
            for gate in matrix.split(30):
                torch.testing.assert_close(gate @ gate.t(), torch.eye(30), atol=1e-5, rtol=0)
        for name, parameter in model.named_parameters():
            if "bias" in name:
                assert parameter.eq(0).all()
            elif name not in recurrent and parameter.numel() > 100:
                assert float(parameter.detach().std()) == pytest.approx(0.01, rel=0.2), name
        assert model.attention.content_vector.eq(1).all()
        assert model.embedding.weight[PAD].eq(0).all()
        assert model.head.projection.bias.eq(0).all()


BASE = TRANSFORMER | {"decoder_layers": 3}
OPPONENT = {"type": "max", "layer": 1, "head": 1}
MODELS_WITH_ONE = {
    "transformer": BASE | {"opponent": OPPONENT},
    "untied": BASE | {"share_embeddings": False, "opponent": OPPONENT},
    "averaged": BASE | {"opponent": OPPONENT | {"head": "average"}},
    "pointer": BASE | {"head": {"type": "pointer"}, "opponent": OPPONENT},
    "bart": {"type": "bart", "architecture": BART, "opponent": OPPONENT},
}
every_model = pytest.mark.parametrize("name", MODELS_WITH_ONE)
EXACT = {"atol": 1e-10, "rtol": 0}


def built_contrastive(spec: dict[str, Any], seed: int = 0, vocab_size: int = VOCAB) -> SummarizationModel:
    torch.manual_seed(seed)
    return build("model", MODELS, spec, vocab_size=vocab_size, **IDS)


def model_of_contrastive(name: str = "transformer", *, vocab_size: int = VOCAB, **options: Any) -> SummarizationModel:
    spec = MODELS_WITH_ONE[name]
    model = built_contrastive(spec | {"opponent": spec["opponent"] | options}, vocab_size=vocab_size).double().eval()
    randomise(model, scale=0.8, seed=2)
    return model


# ------------------------------------------------------------------------------------- the base


HEADS: list[dict[str, Any]] = [
    *({"type": "pointer"}, {"type": "attentional"}, {"type": "guided"}, {"type": "correlational"}),
    {"type": "correlational", "exclude_special_from_copy": True},
    {"type": "correlational", "preset": "release"},
]


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        *((MODELS_WITH_ONE[kind], "opponent") for kind in ("transformer", "bart", "pointer")),
        *((BASE | {"head": head}, "head") for head in HEADS),
    ],
    ids=str,
)
def test_equal_seeds_give_equal_bases(spec: dict[str, Any], part: str) -> None:
    """Also the generator goes on as it would have, but for the pointer: what is drawn next is the same."""
    with_one, next_with = built_contrastive(spec, seed=5), torch.rand(3)
    without, next_without = built_contrastive({key: spec[key] for key in spec if key != part}, seed=5), torch.rand(3)
    assert torch.equal(next_with, next_without) or spec[part] == {"type": "pointer"}
    own, base = with_one.state_dict(), without.state_dict()
    assert all(torch.equal(own[name], value) for name, value in base.items())
    new = own.keys() - base.keys()
    assert all(name.startswith(f"{part}.") for name in new)
    other = built_contrastive(spec, seed=6).state_dict()
    assert any(not torch.equal(own[name], other[name]) for name in new)


# ------------------------------------------------------------------------------------- decoding


@every_model
@torch.no_grad()
def test_opponent_attention_of_a_summary(name: str) -> None:
    """Teacher-forced alpha_o equals that of the steps; a model without an opponent says so."""
    model, batch = model_of_contrastive(name), random_batch()
    weights, state = model.opponent_attention(batch), model.start(model.encode(batch))
    for t in range(batch.target_ids.shape[1]):
        step, state = model.step(batch.target_input_ids[:, t], state)
        real = batch.target_mask[:, t]
        torch.testing.assert_close(weights[real, t], step.details["opponent_attention"][real], **EXACT)
    with pytest.raises(ConfigError, match="has no opponent attention"):
        built_contrastive(MODELS_WITH_ONE[name] | {"opponent": None}).opponent_attention(batch)


@every_model
@torch.no_grad()
def test_what_a_step_is_worth(name: str) -> None:
    model, batch = model_of_contrastive(name), random_batch(seed=1)

    def step() -> Any:
        state = model.start(model.encode(batch))
        state = model.step(batch.target_input_ids[:, 0], state)[1]
        return model.step(batch.target_input_ids[:, 1], state)[0]

    joint = step()
    model.switch({"decode_score": "po"})
    po = step()
    model.switch({"decode_score": "pc"})
    pc = step()
    model.switch({"decode_score": "joint", "lambda_decode": 0.0})
    zero = step()
    finite = joint.scores.isfinite() & po.scores.isfinite()
    torch.testing.assert_close(joint.scores[finite], (joint.log_probs + 0.2 * po.scores)[finite], **EXACT)
    torch.testing.assert_close(zero.scores, pc.scores, **EXACT)
    for other in (po, pc, zero):
        torch.testing.assert_close(other.log_probs, joint.log_probs, **EXACT)
    outside = slice(VOCAB, None)  # words that one document has and another lacks
    for other in (po, joint):
        torch.testing.assert_close(other.scores[:, outside].isinf(), pc.scores[:, outside].isinf())
    if name != "pointer":
        words = [i for i in range(VOCAB) if name != "bart" or i != PAD]
        total = po.scores[:, words].exp().sum(-1)
        assert bool((total <= 1 + 1e-9).all())
    assert {"opponent_attention", "conventional_attention"} <= joint.details.keys()
    assert "opponent_attention" not in pc.details
