"""The distraction model: parameter counts, what starts where, invariants, what training keeps in memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.config.names import MODELS, build
from catchline.kernels import dispatch
from catchline.models.distraction import Distraction
from samples import IDS, PAD, VOCAB, random_batch, randomise

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
