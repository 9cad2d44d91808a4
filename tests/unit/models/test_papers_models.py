"""The models of distraction, contrastive and coarse-to-fine attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.config.names import MODELS, build
from catchline.config.schema import SearchConfig
from catchline.errors import ConfigError
from catchline.kernels.attention import max_over_windows
from catchline.layers.chunks import ChunkStates, make_grid
from catchline.models.base import SummarizationModel
from catchline.models.coarse_to_fine import CoarseToFine
from catchline.models.distraction import Distraction
from catchline.papers.coarse_to_fine import best_chunks
from catchline.search.torch_bridge import decode
from catchline.types import ModelOutput, TrainingBatch, UpdateContext
from samples import BART, IDS, PAD, TRANSFORMER, VOCAB, random_batch, randomise
from watching import watch

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
EXACT = {"atol": 1e-10, "rtol": 0}


def built_contrastive(spec: dict[str, Any], seed: int = 0) -> SummarizationModel:
    torch.manual_seed(seed)
    return build("model", MODELS, spec, vocab_size=VOCAB, **IDS)


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


@pytest.mark.parametrize("name", MODELS_WITH_ONE)
@torch.no_grad()
def test_what_a_step_is_worth(name: str) -> None:
    model = randomise(built_contrastive(MODELS_WITH_ONE[name]).double().eval(), scale=0.8, seed=2)
    batch = random_batch(seed=1)

    def step(**switches: Any) -> Any:
        model.switch({"decode_score": "joint", "lambda_decode": 0.2} | switches)
        state = model.step(batch.target_input_ids[:, 0], model.start(model.encode(batch)))[1]
        return model.step(batch.target_input_ids[:, 1], state)[0]

    joint, po, pc = (step(decode_score=score) for score in ("joint", "po", "pc"))
    finite = joint.scores.isfinite() & po.scores.isfinite()
    torch.testing.assert_close(joint.scores[finite], (joint.log_probs + 0.2 * po.scores)[finite], **EXACT)
    torch.testing.assert_close(step(lambda_decode=0.0).scores, pc.scores, **EXACT)
    outside = slice(VOCAB, None)  # words that one document has and another lacks
    for other in (po, joint):
        torch.testing.assert_close(other.log_probs, pc.log_probs, **EXACT)
        torch.testing.assert_close(other.scores[:, outside].isinf(), pc.scores[:, outside].isinf())
    if name != "pointer":
        words = [i for i in range(VOCAB) if name != "bart" or i != PAD]
        assert bool((po.scores[:, words].exp().sum(-1) <= 1 + 1e-9).all())
    assert {"opponent_attention", "conventional_attention"} <= joint.details.keys()
    assert "opponent_attention" not in pc.details
    with pytest.raises(ConfigError, match="has no opponent attention"):
        built_contrastive(MODELS_WITH_ONE[name] | {"opponent": None}).opponent_attention(batch)


LENGTHS = (23, 9, 1, 16)


def make(draws: int = 1, **options: Any) -> CoarseToFine:
    torch.manual_seed(5)
    attention = {"type": "coarse_to_fine", "draws": draws, **options.pop("attention", {})}
    spec = {
        "type": "coarse_to_fine",
        "attention": attention,
        "coarse": {"type": "convolution", "size": 7, "width": 3},
        "embedding_size": 6,
        "hidden_size": 5,
        "chunks": None,
        "chunk_words": 3,
        "dropout": 0.4,
        "init_range": 0.5,
        **options,
    }
    return build("model", MODELS, spec, vocab_size=VOCAB).double()


def documents() -> TrainingBatch:
    return replace(random_batch(LENGTHS, (6, 4, 2, 5), vocab_size=VOCAB), indices=[7, 3, 12, 5])


def passed(model: CoarseToFine, batch: TrainingBatch, seed: int = 9) -> ModelOutput:
    """A teacher-forced pass with the noise of an update."""
    return model(batch, context=UpdateContext(noise_seed=seed))


def loss_of(model: CoarseToFine, batch: TrainingBatch) -> Tensor:
    output = passed(model, batch)
    rewards = output.gold_log_probs.detach()
    return output.gold_log_probs.sum() + (output.details["policy_log_prob"] * rewards).sum()


# ----------------------------------------------------------------- lazy = full = replay


@pytest.mark.parametrize("mask_padding", [False, True])
@pytest.mark.parametrize("draws", [1, 2, 3])
def test_when_a_chunk_is_read_changes_nothing(draws: int, mask_padding: bool) -> None:
    found = {}
    for mode in ("full", "lazy", "replay"):
        model = make(draws, encode=mode, mask_padding=mask_padding)
        loss = loss_of(model, documents())
        loss.backward()
        found[mode] = (loss.item(), {n: p.grad for n, p in model.named_parameters()})
    for mode in ("lazy", "replay"):
        assert found[mode][0] == pytest.approx(found["full"][0], abs=1e-10)
        for name, gradient in found["full"][1].items():
            if gradient is not None:
                torch.testing.assert_close(found[mode][1][name], gradient, atol=1e-10, rtol=0, msg=name)


@pytest.mark.parametrize("draws", [1, 3])
def test_rows_encoded_are_the_distinct_chunks_drawn(monkeypatch: pytest.MonkeyPatch, draws: int) -> None:
    drawn: set[tuple[int, int]] = set()
    batch = documents()
    for mode in ("lazy", "replay"):
        model = make(draws, encode=mode)
        calls = watch(monkeypatch, ChunkStates, "encode", lambda _, *read: zip(*map(Tensor.tolist, read), strict=True))
        keep = model._run

        def run(*args: Any, keep: Any = keep, **kwargs: Any) -> Any:
            trace = keep(*args, **kwargs)
            for t, sampled in enumerate(trace.sampled):
                for b in range(len(sampled)):
                    if bool(batch.target_mask[b, t]):
                        drawn.update((b, chunk) for chunk in sampled[b].tolist())
            return trace

        monkeypatch.setattr(model, "_run", run)
        passed(model, batch)
        read = [pair for call in calls for pair in call]
        assert set(read) == drawn
        assert len(read) == len(drawn) * (2 if mode == "replay" else 1)
    assert len(drawn) < sum(-(-length // 3) for length in LENGTHS)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("read", [1, 2])
def test_search_with_and_without_the_cache(monkeypatch: pytest.MonkeyPatch, beam: int, read: int) -> None:
    config = SearchConfig(beam_size=beam, max_length=8, early_stopping="never", length_normalisation="none")
    batch, found = documents(), {}
    for mode in ("full", "lazy"):
        model = make(encode=mode, attention={"read": read}).eval()
        found[mode] = decode(model, batch, config, **IDS)
    forgetful = make(encode="lazy", attention={"read": read}).eval()
    keep = type(forgetful.attention)._read

    def read_anew(*args: Any) -> Any:
        _, features = args[4]
        features.states.states = None
        features.states.slots.fill_(-1)
        return keep(*args)

    monkeypatch.setattr(type(forgetful.attention), "_read", read_anew)
    found["without"] = decode(forgetful, batch, config, **IDS)
    for other in ("lazy", "without"):
        for mine, theirs in zip(found[other], found["full"], strict=True):
            assert [h.ids for h in mine] == [h.ids for h in theirs]
            assert [h.score for h in mine] == pytest.approx([h.score for h in theirs], abs=1e-10)


def test_noise_belongs_to_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """ChunkSampling and dropout of an example do not depend on the order of the batch."""
    batch = documents()
    order = torch.tensor([2, 0, 3, 1])
    names = ("source_ids", "source_extended_ids", "source_mask", "target_ids", "target_input_ids", "target_mask")
    tensors = {name: getattr(batch, name)[order] for name in names}
    turned = replace(batch, **tensors, indices=[batch.indices[i] for i in order.tolist()])
    for mode in ("full", "lazy", "replay"):
        model = make(2, encode=mode)
        found, wanted = passed(model, turned).gold_log_probs, passed(model, batch).gold_log_probs[order]
        torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)


# ------------------------------------------------------------------------------------ choices


def test_ties_go_to_the_first_chunk_and_shares_add_up() -> None:
    coarse = torch.tensor([[[0.2, 0.4, 0.4, 0.0]]])
    sampled, shares = best_chunks(coarse, 1)
    assert sampled.tolist() == [[[1]]]
    assert shares.tolist() == [[[1.0]]]
    sampled, shares = best_chunks(coarse, 2)
    assert sampled.tolist() == [[[1, 2]]]
    torch.testing.assert_close(shares, torch.tensor([[[0.5, 0.5]]]))
    sampled, shares = best_chunks(coarse, 9)  # more than there are; the fourth is not the document's
    assert sampled.tolist() == [[[1, 2, 0, 1]]]
    torch.testing.assert_close(shares, torch.tensor([[[0.4, 0.4, 0.2, 0.0]]]))
    torch.testing.assert_close(best_chunks(coarse, 4, uniform=True)[1], torch.tensor([[[1, 1, 1, 0.0]]]) / 3)


def test_a_chunk_of_more_words_than_a_short_integer_counts() -> None:
    """The place of each maximum is kept for the gradient, and may be beyond 32,767."""
    ids = torch.zeros(1, 40_000, dtype=torch.int64)
    ids[0, 39_000] = 1
    table, filters = torch.tensor([[0.1], [2.0]], requires_grad=True), torch.ones(1, 1, 2, requires_grad=True)
    found = max_over_windows(ids, torch.ones_like(ids, dtype=torch.bool), table, filters)
    assert found.tolist() == [[pytest.approx(2.1)]]
    found.sum().backward()
    assert table.grad.tolist() == [[1.0], [1.0]]
    assert filters.grad.flatten().tolist() == pytest.approx([0.1, 2.0])


def test_sentences_as_chunks() -> None:
    ids = torch.tensor([[5, 6, 9, 7, 9, 8, 8, 8, 8], [4, 9, 0, 0, 0, 0, 0, 0, 0]])
    mask = ids > 0
    grid = make_grid(ids, mask, separator_id=9, chunk_words=3, num_chunks=None, pad_id=0)
    assert grid.ids.tolist() == [[[5, 6, 9], [7, 9, 0], [8, 8, 8]], [[4, 9, 0], [0, 0, 0], [0, 0, 0]]]
    assert grid.chunks.tolist() == [[True, True, True], [True, False, False]]
    cells = torch.arange(1.0, 10.0).view(1, 1, 3, 3).expand(2, 1, 3, 3)
    tokens = grid.flat(cells, 9)
    assert tokens[0, 0].tolist() == [1, 2, 3, 4, 5, 7, 8, 9, 0]  # the last word is cut off with its sentence
    assert tokens[1, 0].tolist() == [1, 2, 0, 0, 0, 0, 0, 0, 0]


def test_switches_and_what_they_refuse() -> None:
    model = make(2)
    assert model.switches() == {"encode": "auto", "hard": True, "read": 2}
    for options, said in (({"encode": "sometimes"}, "auto, full, lazy, replay"), ({"read": 0}, "at least 1")):
        with pytest.raises(ConfigError, match=said):
            model.switch(options)
    for options, said in (({"position_size": 4}, "position_rows"), ({"chunking": "sentence"}, "separator_id")):
        with pytest.raises(ConfigError, match=said):
            make(**options)


def test_soft_and_hard_minibatches_alternate_alike_everywhere() -> None:
    batch, models = random_batch((4,), (1,), vocab_size=VOCAB), [make(alternate=0.5) for _ in range(2)]
    kinds, same = (["policy_log_prob" in passed(model, batch, seed).details for seed in range(30)] for model in models)
    assert 6 < sum(kinds) < 24
    assert same == kinds, "another process throws the same coins"
    steps = passed(make(alternate=0.5, alternate_unit="step"), documents()).details["policy_log_prob"]
    assert bool((steps[0] == 0).any())
    assert bool((steps[0] < 0).any())
