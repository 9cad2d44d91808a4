"""The distraction model: parameter counts, what starts where, invariants, what training keeps in memory."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.config.names import MODELS, build
from catchline.config.schema import SearchConfig
from catchline.errors import ConfigError
from catchline.kernels import dispatch
from catchline.models.base import SummarizationModel
from catchline.models.distraction import Distraction
from catchline.search.torch_bridge import decode
from catchline.types import Batch, TrainingBatch
from samples import BART, EOS, IDS, PAD, TRANSFORMER, VOCAB, random_batch, randomise

BOTH = {"type": "distraction", "size": 6}


def built(vocab_size: int = VOCAB, **options: Any) -> Distraction:
    spec = {"type": "distraction", "embedding_size": 5, "hidden_size": 4, "attention": BOTH, **options}
    model: Distraction = build("model", MODELS, spec, vocab_size=vocab_size, **IDS)
    return model


def model_of(seed: int = 0, **options: Any) -> Distraction:
    model = built(**options).double()
    randomise(model, seed=seed)
    return model


def counts_of(model: Distraction) -> dict[str, int]:
    def count(*parts: Any) -> int:
        return sum(p.numel() for part in parts for p in (part.parameters() if hasattr(part, "parameters") else [part]))

    attention, decoder = model.attention, model.decoder
    return {
        "embedding": count(model.embedding),
        "encoder": count(model.encoder),
        "initial": count(model.initial),
        "gru_2": count(decoder.of_word),
        "gru_1": count(decoder.of_content),
        "attention": count(attention.memory_projection, attention.query_projection, attention.score_vector),
        "m1": count(attention.content_vector, attention.content_history_vector),
        "m2": count(attention.history_vector),
        "readout": count(model.readout),
        "output": count(model.head),
    }


CNN = {"embedding_size": 120, "hidden_size": 600, "attention": {"type": "distraction", "size": 100}}
COMMON = (3_000_000, 2_592_000, 720_000, 1_296_000, 3_240_000, 180_100, 2_400, 100)
UNI = (3_000_000, 930_000, 250_000, 930_000, 1_500_000, 100_100, 1_000, 100, 560_000, 12_500_000)
LCSTS = (2_000_000, 3_000_000, 500_000, 1_500_000, 2_250_000, 150_100, 2_000, 100, 1_000_000, 2_000_000)
# words, settings, the parameters of each part, and of all
COUNTS: dict[str, tuple[int, dict[str, Any], tuple[int, ...], int]] = {
    "cnn": (25_000, CNN, (*COMMON, 1_152_000, 15_000_000), 27_182_600),
    "cnn, readout of the release": (25_000, {**CNN, "readout_size": 120}, (*COMMON, 230_400, 3_000_000), 14_261_000),
    "cnn, uni": (25_000, {**CNN, "hidden_size": 500, "bidirectional": False}, UNI, 19_771_200),
    "lcsts": (4_000, {**CNN, "embedding_size": 500, "hidden_size": 500}, LCSTS, 12_402_200),
}


@pytest.mark.parametrize("gru", ["torch", "paper"])
@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts_without_biases(name: str, gru: str) -> None:
    """The sizes of the paper's models; the reading of the reset gate has no say in it."""
    vocab_size, options, expected, total = COUNTS[name]
    with torch.device("meta"):
        model = built(vocab_size, **options, bias=False, gru=gru, init="torch")
    counts = counts_of(model)
    assert tuple(counts.values()) == expected
    assert sum(counts.values()) == total == sum(p.numel() for p in model.parameters())


def test_bias_reaches_the_attention_unless_it_says_otherwise() -> None:
    assert not [n for n, _ in built(bias=False).named_parameters() if "bias" in n]
    own = built(bias=False, attention={**BOTH, "bias": True})
    assert [n for n, _ in own.named_parameters() if "bias" in n] == ["attention.query_projection.bias"]
    assert built(bias=False, attention={"type": "additive"}).config.bias is False
    assert built().attention.query_projection.bias is not None


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


def kept(model: Distraction, steps: int, least: int) -> int:
    """How many storages of at least ``least`` elements a forward pass keeps for its backward pass."""
    storages: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().nbytes() >= least * tensor.element_size():
            storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(random_batch((40, 40), (steps, steps)))
    return len(storages)


@pytest.mark.skipif(not dispatch.ENABLED, reason="the plain equations keep what autograd keeps")
@pytest.mark.parametrize("head", ["vocabulary", "pointer"])
def test_nothing_as_large_as_keys_is_kept_for_a_step(head: str) -> None:
    model = model_of(attention={**BOTH, "size": 30}, decoder="two-level", head={"type": head})
    sizes = [kept(model, steps, least=2 * 40 * 30) for steps in (3, 12)]
    assert sizes[0] == sizes[1] > 0


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
    model = model_of_contrastive(name, vocab_size=7)
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
