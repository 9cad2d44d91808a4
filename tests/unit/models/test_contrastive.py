"""The contrastive model as a whole: what the opponent changes, what it leaves alone, and what decoding does with it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.config.schema import SearchConfig
from catchline.errors import ConfigError
from catchline.models.base import SummarizationModel
from catchline.search.torch_bridge import decode
from catchline.types import PLAIN_PASS, Batch, ModelOutput, TrainingBatch, UpdateContext
from samples import BART, EOS, IDS, PAD, TRANSFORMER, VOCAB, gradients, random_batch, randomise

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


def built(spec: dict[str, Any], seed: int = 0, vocab_size: int = VOCAB) -> SummarizationModel:
    torch.manual_seed(seed)
    return build("model", MODELS, spec, vocab_size=vocab_size, **IDS)


def model_of(name: str = "transformer", *, vocab_size: int = VOCAB, **options: Any) -> SummarizationModel:
    spec = MODELS_WITH_ONE[name]
    model = built(spec | {"opponent": spec["opponent"] | options}, vocab_size=vocab_size).double().eval()
    randomise(model, scale=0.8, seed=2)
    return model


def loss_of(output: ModelOutput, batch: TrainingBatch, weight: float, context: UpdateContext = PLAIN_PASS) -> Tensor:
    nll = build("objective", OBJECTIVES, {"type": "nll"})(output, batch, context)
    loss = nll.sum / nll.count
    if weight:
        other = build("objective", OBJECTIVES, {"type": "opponent"})(output, batch, context)
        loss = loss + weight * other.sum / other.count
    return loss


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
    with_one, next_with = built(spec, seed=5), torch.rand(3)
    without, next_without = built({key: spec[key] for key in spec if key != part}, seed=5), torch.rand(3)
    assert torch.equal(next_with, next_without) or spec[part] == {"type": "pointer"}
    own, base = with_one.state_dict(), without.state_dict()
    assert all(torch.equal(own[name], value) for name, value in base.items())
    new = own.keys() - base.keys()
    assert all(name.startswith(f"{part}.") for name in new)
    other = built(spec, seed=6).state_dict()
    assert any(not torch.equal(own[name], other[name]) for name in new)


# ------------------------------------------------------------------------------------- decoding


@every_model
@torch.no_grad()
def test_opponent_attention_of_a_summary(name: str) -> None:
    """Teacher-forced alpha_o equals that of the steps; a model without an opponent says so."""
    model, batch = model_of(name), random_batch()
    weights, state = model.opponent_attention(batch), model.start(model.encode(batch))
    for t in range(batch.target_ids.shape[1]):
        step, state = model.step(batch.target_input_ids[:, t], state)
        real = batch.target_mask[:, t]
        torch.testing.assert_close(weights[real, t], step.details["opponent_attention"][real], **EXACT)
    with pytest.raises(ConfigError, match="has no opponent attention"):
        built(MODELS_WITH_ONE[name] | {"opponent": None}).opponent_attention(batch)


@every_model
@torch.no_grad()
def test_what_a_step_is_worth(name: str) -> None:
    model, batch = model_of(name), random_batch(seed=1)

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


WORDS = (4, 5, 6)
SEARCH = {"max_length": 3, "min_length": 0, "length_normalisation": "predicted", "early_stopping": "never"}


def terms_of(model: SummarizationModel, batch: Batch, words: tuple[int, ...]) -> tuple[float, float]:
    """log P_c and log P_o a word of a summary, END included, by the teacher-forced pass."""
    target = torch.tensor([[*words, EOS]])
    ready = TrainingBatch(
        batch.source_ids,
        batch.source_extended_ids,
        batch.source_mask,
        batch.extended_vocab_size,
        target_ids=target,
        target_input_ids=torch.cat([torch.tensor([[2]]), target[:, :-1]], dim=1),
        target_mask=torch.ones_like(target, dtype=torch.bool),
    )
    output = model(ready)
    return float(output.gold_log_probs.mean()), float(output.details["opponent_log_probs"].mean())


@pytest.mark.parametrize("name", ["untied", "bart"])
@torch.no_grad()
def test_a_wide_beam_finds_the_best_joint_score(name: str) -> None:
    """Against every summary of up to three words; greedy search is a beam of one; lambda 0 is ``pc``."""
    model = model_of(name, vocab_size=7)
    source = torch.tensor([[4, 6, 5, 4, EOS]])
    batch = Batch(source, source, torch.ones_like(source, dtype=torch.bool), 7)

    def found(beam: int, switches: dict[str, Any]) -> Any:
        config = SearchConfig(beam_size=beam, model=switches, **SEARCH)
        return decode(model, batch, config, **IDS)[0][0]

    every = (words for length in range(4) for words in itertools.product(WORDS, repeat=length))
    everything = {words: terms_of(model, batch, words) for words in every}
    bests = set()
    for weight in (0.0, 0.2, 3.0):
        joint = {words: base + weight * opponent for words, (base, opponent) in everything.items()}
        best = max(joint, key=joint.__getitem__)
        bests.add(best)
        hypothesis = found(100, {"lambda_decode": weight})
        assert tuple(hypothesis.ids) == best
        assert hypothesis.score == pytest.approx(joint[best], abs=1e-9)
        assert hypothesis.log_prob == pytest.approx(everything[best][0] * (len(best) + 1), abs=1e-9)
        assert hypothesis.details["opponent_attention"].shape == (len(best) + 1, 5)
    assert len(bests) > 1, "the opponent decides nothing here"
    plain, zero = found(100, {"decode_score": "pc"}), found(40, {"lambda_decode": 0.0})
    assert (plain.ids, plain.score) == (zero.ids, pytest.approx(zero.score, abs=1e-12))
    assert model.switches()["lambda_decode"] == 0.2  # put back after the search


# ---------------------------------------------------------------------------------- odd batches


@every_model
@pytest.mark.parametrize("empty", ["zero", "alpha"])
def test_sources_of_end_alone_and_of_nothing(name: str, empty: str) -> None:
    """Finite values and gradients; a row of nothing but padding changes no other row."""
    model = model_of(name, empty=empty).train()
    batch = random_batch((1, 5, 4), (3, 3, 2), with_oov=False)
    ids = batch.source_ids.clone()
    ids[0, 0] = EOS
    batch = replace(batch, source_ids=ids, source_extended_ids=ids)
    output = model(batch)
    loss_of(output, batch, 0.2).backward()
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())
    if name == "bart":
        return  # its encoder is not ours
    filled = replace(batch, source_mask=batch.source_mask & torch.tensor([[False], [True], [True]]))
    filled = replace(filled, target_mask=batch.target_mask & torch.tensor([[False], [True], [True]]))
    other = model(filled)
    model.zero_grad()
    loss_of(other, filled, 0.2).backward()
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())
    key = "opponent_log_probs"
    torch.testing.assert_close(other.details[key][1:], output.details[key][1:], **EXACT)
