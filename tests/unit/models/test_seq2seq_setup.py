"""The recurrent model's sizes, start values, switches and settings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from catchline.config.base import validate
from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.errors import ConfigError
from catchline.models.seq2seq import Seq2Seq, Seq2SeqConfig
from catchline.types import PLAIN_PASS, Batch, UpdateContext
from samples import COVERAGE, PLAIN, SEE, VOCAB, assert_same, backward, random_batch, tiny_seq2seq

# --------------------------------------------------------------------- sizes, start values


def count(row: str, size: str = "cnndm", **changes: Any) -> int:
    run = resolve_run(load_recipe("headline_writer"), row, size, {"model": changes} if changes else ())
    with torch.device("meta"):
        model = build("model", MODELS, {**run.model, "init": "torch"}, vocab_size=50_000)
    return sum(p.numel() for p in model.parameters())


def test_parameter_counts_of_see_et_al() -> None:
    """21,499,600, +1,153 for the pointer, +512 for coverage (docs/headline_writer.md); torch's second LSTM biases would
    add 3,072."""
    assert count("bilstm-attention-tf") == 21_499_600
    assert count("pointer-generator") == 21_499_600 + 1_153
    assert count("pointer-generator-coverage") == 21_499_600 + 1_153 + 512
    assert count("bilstm-attention-tf", two_biases=True) == 21_499_600 + 3_072


def test_parameter_counts_of_the_paper_size() -> None:
    """Embedding, encoder, bridge, attention, decoder, projection and gate at V = 50,000."""
    parts = (5_000_000, 733_184, 262_656, 197_376, 366_592, 38_450_000, 869)
    assert count("pointer-generator-coverage", "paper") == sum(parts)


def test_initial_values_of_see_et_al() -> None:
    """c.42, with c.3's forget bias; TensorFlow's Glorot counts a vector as A by A and a 1 x A kernel as 1 by A."""
    run = resolve_run(load_recipe("headline_writer"), "pointer-generator-coverage", "cnndm")
    attention = {**run.model["attention"], "coverage_init": "default"}
    torch.manual_seed(0)
    model = build("model", MODELS, {**run.model, "attention": attention}, vocab_size=3000)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def uniform(name: str, limit: float) -> None:
        p = parameters.pop(name)
        assert p.abs().max() <= limit
        assert p.abs().max() > 0.97 * limit or p.numel() < 1000, name
        assert float(p.std()) == pytest.approx(limit / 3**0.5, rel=0.1), name

    def tiny(name: str) -> None:
        p = parameters.pop(name)
        assert p.abs().max() <= 2e-4, name
        p = p.flatten()[p.flatten() != 0]
        assert float(p.std()) == pytest.approx(0.88e-4, rel=0.1), name  # sd of a normal cut at two sd

    for layer in ("encoder", "decoder"):
        for suffix in ("", "_reverse") if layer == "encoder" else ("",):
            uniform(f"{layer}.layer.weight_ih_l0{suffix}", 0.02)
            uniform(f"{layer}.layer.weight_hh_l0{suffix}", 0.02)
            bias = parameters.pop(f"{layer}.layer.bias_ih_l0{suffix}").view(4, -1)
            assert bias[1].eq(1).all()
            assert bias[[0, 2, 3]].eq(0).all()
    tiny("embedding.weight")
    for part in ("0", "1"):
        tiny(f"bridge.layers.{part}.weight")
        tiny(f"bridge.layers.{part}.bias")
    tiny("head.projection.weight")
    tiny("head.projection.bias")
    size, context = 512, 512
    uniform("attention.memory_projection.weight", (6 / (context + size)) ** 0.5)
    uniform("attention.query_projection.weight", (6 / (512 + size)) ** 0.5)
    uniform("attention.score_vector", (6 / (size + size)) ** 0.5)
    uniform("attention.coverage_vector", (6 / (1 + size)) ** 0.5)
    uniform("merge.weight", (6 / (128 + context + 128)) ** 0.5)
    uniform("head.projection.hidden.weight", (6 / (256 + context + 256)) ** 0.5)
    uniform("head.gate.weight", (6 / (context + 512 + 128 + 1)) ** 0.5)
    zero = ("attention.query_projection.bias", "merge.bias", "head.projection.hidden.bias", "head.gate.bias")
    for name in zero:
        assert parameters.pop(name).eq(0).all(), name
    assert not parameters, f"not spoken of: {list(parameters)}"


# ------------------------------------------------------------------------------- switches


def nll(model: Seq2Seq, batch: Batch) -> Tensor:
    layers = [build("objective", OBJECTIVES, {"type": kind}) for kind in ("nll", "coverage")]
    output = model(batch)
    terms = [layer(output, batch) for layer in layers]
    return sum(term.sum / term.count for term in terms)


@pytest.mark.parametrize("options", [{}, {k: v for k, v in SEE.items() if k != "attention"}], ids=["fused", "loop"])
def test_switching_coverage_on(options: dict[str, Any]) -> None:
    """No word's probability changes, and from then on w_c learns."""
    attention = {"type": "additive", "size": 6, "coverage": True, "coverage_from_start": False}
    model, batch = tiny_seq2seq(**options, attention=attention), random_batch()
    with torch.no_grad():
        model.attention.coverage_vector.zero_()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        nll(model, batch).backward()
        optimizer.step()
    vector = model.attention.coverage_vector
    assert vector.eq(0).all()
    before = model(batch)
    assert before.coverage_losses is None
    model.switch({"coverage": True})
    after = model(batch)
    torch.testing.assert_close(after.gold_log_probs, before.gold_log_probs, atol=1e-14, rtol=0)
    torch.testing.assert_close(after.attention, before.attention, atol=1e-14, rtol=0)
    assert after.coverage_losses is not None
    results = []
    for on in (False, True):  # in decoding too
        model.switch({"coverage": on})
        with torch.no_grad():
            state = model.start(model.encode(batch))
            for t in range(3):
                output, state = model.step(batch.target_input_ids[:, t], state)
                results.append(output.log_probs)
        assert ("coverage" in state["attention"]) == on
    torch.testing.assert_close(results[3:], results[:3], atol=1e-14, rtol=0)
    optimizer.zero_grad()
    nll(model, batch).backward()
    optimizer.step()
    assert vector.abs().min() > 0
    model.switch({"coverage": False})
    assert model(batch).coverage_losses is None
    for wrong in ("nope", 1, None):
        with pytest.raises(ConfigError, match="'coverage' is true or false"):
            model.switch({"coverage": wrong})


# -------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"attention": None}, "pointer"),
        ({**PLAIN, "input_feeding": "concat"}, "attention"),
        ({**PLAIN, "attention_timing": "before"}, "attention"),
        ({**PLAIN, "first_context": "initial"}, "attention"),
        ({**PLAIN, "see_decode_parity": True}, "attention"),
        ({"cell": "rnn"}, "cell"),
        ({"hiden_size": 4}, "hidden_size"),
        ({"dropout": 1.0}, "dropout"),
        ({"tie_output": True, "output_layers": 2}, "output_layers"),
    ],
)
def test_what_does_not_fit_together_is_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        validate(Seq2SeqConfig, options, where="model")


@pytest.mark.parametrize("shared", [True, False])
def test_pretrained_embeddings(shared: bool) -> None:
    model, matrix = tiny_seq2seq(share_embeddings=shared), torch.randn(VOCAB, 5, dtype=torch.float64)
    model.load_embeddings(matrix)
    assert torch.equal(model.embedding.weight, matrix)
    assert torch.equal(model.target_embedding.weight, matrix)
    assert (model.embedding is model.target_embedding) == shared
    with pytest.raises(ConfigError, match="embedding_size to 7"):
        model.load_embeddings(torch.zeros(VOCAB, 7))


@pytest.mark.parametrize("shared", [True, False])
def test_frozen_embeddings(shared: bool) -> None:
    model = tiny_seq2seq(freeze_embeddings=True, share_embeddings=shared, **COVERAGE)
    _, grads = backward(model, random_batch())
    assert model.embedding.weight.grad is None
    assert model.target_embedding.weight.grad is None
    free = tiny_seq2seq(share_embeddings=shared, **COVERAGE)
    _, expected = backward(free, random_batch())
    others = [name for name in grads if "embedding" not in name]
    assert_same({name: grads[name] for name in others}, {name: expected[name] for name in others}, 1e-13)


@pytest.mark.parametrize("own_words", [False, True])
def test_where_dropout_acts(own_words: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On embeddings of both sides, encoder states, and what the output layer reads."""
    shapes: list[tuple[int, ...]] = []
    monkeypatch.setattr(nn.Dropout, "forward", lambda _, x: shapes.append(tuple(x.shape)) or x)
    model, batch = tiny_seq2seq(dropout=0.5, **COVERAGE), random_batch()
    own = UpdateContext(forced_mask=torch.zeros_like(batch.target_mask))
    model(batch, context=own if own_words else PLAIN_PASS)
    (b, s), t, m = batch.source_ids.shape, batch.target_ids.shape[1], int(batch.target_mask.sum())
    targets = [(b, 5)] * t if own_words else [(b, t, 5)]
    assert shapes == [(b, s, 5), (b, s, 8), *targets, (m, 4 + 8)]
