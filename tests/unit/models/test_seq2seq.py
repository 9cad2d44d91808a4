"""The recurrent model: sizes, start values, settings, its fast path, its memory, its own words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from catchline.config.base import validate
from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, build
from catchline.errors import ConfigError
from catchline.kernels import attention, dispatch, vocabulary
from catchline.layers.recurrent import Recurrence
from catchline.models.seq2seq import Seq2Seq, Seq2SeqConfig
from catchline.types import PLAIN_PASS, UpdateContext
from samples import (
    ATTENTION,
    COVERAGE,
    PLAIN,
    SEE,
    VOCAB,
    assert_same,
    backward,
    random_batch,
    tiny_seq2seq,
    total,
    trained_loss,
)
from watching import watch

# name: (settings, does one fused call run all decoder steps at once?)
PATHS: dict[str, tuple[dict[str, Any], bool]] = {
    "lstm": ({**PLAIN, "bidirectional": False}, True),
    "gru-init": ({**PLAIN, "cell": "gru", "context_feed": "init"}, True),
    "bilstm": (PLAIN, True),
    "attention": ({**ATTENTION, "head": {"type": "vocabulary"}}, True),
    "pointer": (ATTENTION, True),
    "pointer-gru": ({**ATTENTION, "cell": "gru"}, True),
    "coverage": (COVERAGE, True),
    "coverage-one-bias": ({**COVERAGE, "two_biases": False}, True),
    "ch": ({**ATTENTION, "state_for_attention": "ch"}, False),
    "concat": ({**ATTENTION, "input_feeding": "concat"}, False),
    "linear": ({**COVERAGE, "input_feeding": "linear"}, False),
    "before": ({**ATTENTION, "attention_timing": "before"}, False),
    "see": (SEE, False),
}


@pytest.mark.parametrize("name", PATHS)
def test_the_fast_path_is_chosen_where_it_is_exact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options, fused = PATHS[name]
    model, batch = tiny_seq2seq(**options), random_batch()
    calls = watch(monkeypatch, Recurrence, "forward", lambda layer, *_, **__: layer is model.decoder)
    steps = watch(monkeypatch, Recurrence, "step")
    model(batch)
    assert (sum(calls), len(steps)) == ((1, 0) if fused else (0, batch.target_ids.shape[1]))


# ---------------------------------------------------------------------------------- memory


class LargestTensor(TorchDispatchMode):
    """Remembers the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.size, self.name = 0, ""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for part in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(part, Tensor) and part.untyped_storage().nbytes() // part.element_size() > self.size:
                self.size, self.name = part.untyped_storage().nbytes() // part.element_size(), str(function)
        return result


@pytest.mark.skipif(not dispatch.ENABLED, reason="the plain equations make them")
@pytest.mark.parametrize(
    ("name", "mode"),
    [("pointer", "forced"), ("coverage", "forced"), ("coverage", "free"), ("see", "forced"), ("see", "free")],
)
def test_training_makes_neither_of_the_large_tensors(name: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No (B, T, X), no (B, T, S, A), no (B, T, S, D): chunks and blocks, whatever the batch."""
    monkeypatch.setattr(vocabulary, "_CHUNK_ON_CPU", 1)
    monkeypatch.setattr(attention, "_BLOCK_ON_CPU", 1)
    vocab, b, t, s = 300, 4, 20, 30
    model = tiny_seq2seq(vocab_size=vocab, **PATHS[name][0])
    batch = random_batch((s,) * b, (t,) * b, vocab_size=vocab)
    own = UpdateContext(forced_mask=torch.zeros_like(batch.target_mask))
    with LargestTensor() as largest:
        total(model(batch, context=own if mode == "free" else PLAIN_PASS)).backward()
    allowed = max(16 * vocab, b * t * s, vocab * 20)  # a chunk of 16 rows, the attention weights, W_o
    assert largest.size <= allowed, f"{largest.name} made {largest.size} numbers"
    assert allowed < min(b * t * batch.extended_vocab_size, b * t * s * 6, b * t * s * 8) / 2
    with LargestTensor() as largest:  # the watch itself works
        torch.zeros(b, t, vocab).add(1)
    assert largest.size == b * t * vocab


def test_words_are_chosen_only_where_the_mask_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """No projection for a step whose successor is forced, for the last step, or for padding."""
    model, batch = tiny_seq2seq(scale=1.5, **COVERAGE).eval(), random_batch((7, 4, 2), (8, 6, 7), seed=3)
    chosen = watch(monkeypatch, Seq2Seq, "_own_word")
    forced = torch.ones_like(batch.target_mask)
    model(batch, context=UpdateContext(forced_mask=forced))
    assert len(chosen) == 0
    forced[1, 3] = False  # one example, the input of step 3
    model(batch, context=UpdateContext(forced_mask=forced))
    assert len(chosen) == 1
    forced[1, 7] = False  # beyond the end of example 1 (6 tokens)
    forced[0, 0] = False  # BOS
    model(batch, context=UpdateContext(forced_mask=forced))
    assert len(chosen) == 2
    model(batch, context=UpdateContext(forced_mask=torch.zeros_like(forced)))
    assert len(chosen) == 2 + 7


def test_drawn_words_follow_the_distribution() -> None:
    """``prediction_feed`` sample (scheduled sampling): frequencies of the first own word, reproducible by seed."""
    model = tiny_seq2seq(scale=1.0, **COVERAGE).train()
    model.switch({"prediction_feed": "sample"})
    base = random_batch((5,), (2,))
    many = 4000
    names = ("source_ids", "source_extended_ids", "source_mask", "target_input_ids", "target_ids", "target_mask")
    batch = replace(base, **{name: getattr(base, name).expand(many, -1) for name in names})
    own = UpdateContext(forced_mask=torch.zeros(many, 2, dtype=torch.bool))
    drawn: list[Tensor] = []
    original = Seq2Seq._own_word
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(Seq2Seq, "_own_word", lambda *args: drawn.append(original(*args)) or drawn[-1])
        for _ in range(2):
            torch.manual_seed(5)
            model(batch, context=own)
        output, _ = model.step(base.target_input_ids[:, 0], model.start(model.encode(base)))
    assert torch.equal(drawn[0], drawn[1])
    frequencies = torch.bincount(drawn[0], minlength=base.extended_vocab_size) / many
    torch.testing.assert_close(frequencies.double(), output.log_probs[0].exp(), atol=0.03, rtol=0)


# --------------------------------------------------------------------- sizes, start values


SEES = 21_499_600  # See et al.'s, without the pointer's 1,153 and coverage's 512 (docs/headline_writer.md)
COUNTS: list[tuple[str, str, dict[str, Any], int]] = [
    ("bilstm-attention-tf", "cnndm", {}, SEES),
    ("pointer-generator", "cnndm", {}, SEES + 1_153),
    ("pointer-generator-coverage", "cnndm", {}, SEES + 1_153 + 512),
    ("bilstm-attention-tf", "cnndm", {"two_biases": True}, SEES + 3_072),  # torch's second LSTM biases
    # embedding, encoder, bridge, attention, decoder, projection and gate at V = 50,000
    ("pointer-generator-coverage", "paper", {}, 5_000_000 + 733_184 + 262_656 + 197_376 + 366_592 + 38_450_000 + 869),
]


@pytest.mark.parametrize(("row", "size", "changes", "expected"), COUNTS)
def test_parameter_counts(row: str, size: str, changes: dict[str, Any], expected: int) -> None:
    run = resolve_run(load_recipe("headline_writer"), row, size, {"model": changes} if changes else ())
    with torch.device("meta"):
        model = build("model", MODELS, {**run.model, "init": "torch"}, vocab_size=50_000)
    assert sum(p.numel() for p in model.parameters()) == expected


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


NLL = [{"type": "nll"}, {"type": "coverage"}]


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
        trained_loss(model, batch, NLL).backward()
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
    assert "coverage" in model.start(model.encode(batch))["attention"], "in decoding too"
    optimizer.zero_grad()
    trained_loss(model, batch, NLL).backward()
    optimizer.step()
    assert vector.abs().min() > 0
    model.switch({"coverage": False})
    assert model(batch).coverage_losses is None
    with pytest.raises(ConfigError, match="'coverage' is true or false"):
        model.switch({"coverage": 1})


# -------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"attention": None}, "pointer"),
        ({**PLAIN, "input_feeding": "concat"}, "attention"),
        ({**PLAIN, "attention_timing": "before"}, "attention"),
        ({**PLAIN, "first_context": "initial"}, "attention"),
        ({**PLAIN, "see_decode_parity": True}, "attention"),
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
