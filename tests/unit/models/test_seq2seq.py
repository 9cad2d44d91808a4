"""The recurrent model: fast path against slow path, gradients in every kind of pass, memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from catchline.config.schema import SearchConfig
from catchline.kernels import attention, dispatch, vocabulary
from catchline.layers.recurrent import Recurrence
from catchline.models.seq2seq import Seq2Seq
from catchline.search.torch_bridge import decode
from catchline.types import PLAIN_PASS, Batch, Hypothesis, TrainingBatch, UpdateContext
from samples import (
    ATTENTION,
    BOS,
    COVERAGE,
    EOS,
    IDS,
    PAD,
    PLAIN,
    SEE,
    VOCAB,
    random_batch,
    tiny_seq2seq,
    total,
)

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


class Calls:
    """Counts what the decoder does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, model: Seq2Seq) -> None:
        self.fused = self.steps = 0
        forward, step = Recurrence.forward, Recurrence.step

        def counted_forward(layer: Recurrence, *args: Any, **kwargs: Any) -> Any:
            self.fused += layer is model.decoder
            return forward(layer, *args, **kwargs)

        def counted_step(layer: Recurrence, *args: Any) -> Any:
            self.steps += 1
            return step(layer, *args)

        monkeypatch.setattr(Recurrence, "forward", counted_forward)
        monkeypatch.setattr(Recurrence, "step", counted_step)


@pytest.mark.parametrize("name", PATHS)
def test_the_fast_path_is_chosen_where_it_is_exact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options, fused = PATHS[name]
    model, batch = tiny_seq2seq(**options), random_batch()
    calls = Calls(monkeypatch, model)
    model(batch)
    assert (calls.fused, calls.steps) == ((1, 0) if fused else (0, batch.target_ids.shape[1]))


# ------------------------------------------------------------------------------- gradients


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


MODELS: dict[str, dict[str, Any]] = {
    "pointer": ATTENTION,
    "coverage": COVERAGE,
    "before": {**COVERAGE, "attention_timing": "before", "input_feeding": "concat"},
    "see": SEE,
}


def model_of(name: str) -> Seq2Seq:
    """A model with strong opinions that never generates PAD, BOS or EOS."""
    model = tiny_seq2seq(scale=1.5, **MODELS[name]).eval()
    with torch.no_grad():
        model.head.projection.bias[[PAD, BOS, EOS]] = -50.0
    return model


def batch_of(forced: bool) -> tuple[TrainingBatch, UpdateContext]:
    batch = random_batch((7, 4, 2), (8, 6, 7), seed=3)
    return batch, UpdateContext(forced_mask=torch.full(batch.target_mask.shape, forced))


class OwnWords:
    """What the model chose to read: (step, extended ids of the batch)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.words: list[Tensor] = []
        original = Seq2Seq._own_word

        def recorded(model: Seq2Seq, *args: Any) -> Tensor:
            self.words.append(original(model, *args))
            return self.words[-1]

        monkeypatch.setattr(Seq2Seq, "_own_word", recorded)


def test_words_are_chosen_only_where_the_mask_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """No projection for a step whose successor is forced, for the last step, or for padding."""
    own, model, (batch, context) = OwnWords(monkeypatch), model_of("coverage"), batch_of(True)
    model(batch, context=context)
    assert len(own.words) == 0
    context.forced_mask[1, 3] = False  # one example, the input of step 3
    model(batch, context=context)
    assert len(own.words) == 1
    context.forced_mask[1, 7] = False  # beyond the end of example 1 (6 tokens)
    context.forced_mask[0, 0] = False  # BOS
    model(batch, context=context)
    assert len(own.words) == 2
    model(batch, context=batch_of(False)[1])
    assert len(own.words) == 2 + 7


def greedy(model: Seq2Seq, batch: Batch, length: int, **options: Any) -> list[Hypothesis]:
    config = SearchConfig(max_length=length, length_normalisation="none", forbid_unk=False, **options)
    return [hypotheses[0] for hypotheses in decode(model, batch, config, **IDS)]


def copying_model(name: str) -> Seq2Seq:
    """p_gen is practically 0: every word is copied."""
    model = model_of(name)
    with torch.no_grad():
        model.head.gate.bias.fill_(-1e3)
    return model


class EmbeddedIds:
    """The largest id that ever reaches an embedding."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.largest = -1
        original = nn.Embedding.forward

        def recorded(layer: nn.Embedding, ids: Tensor) -> Tensor:
            self.largest = max(self.largest, int(ids.max()))
            return original(layer, ids)

        monkeypatch.setattr(nn.Embedding, "forward", recorded)


@pytest.mark.parametrize("name", ["pointer", "coverage", "before", "see"])
def test_extended_ids_never_reach_an_embedding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In self-fed training, greedy and beam search alike; and words outside V really were produced."""
    model, own, seen = copying_model(name), OwnWords(monkeypatch), EmbeddedIds(monkeypatch)
    batch, context = batch_of(False)
    model(batch, context=context)
    assert int(torch.stack(own.words).max()) >= VOCAB
    for beams in (1, 3):
        hypotheses = greedy(model, batch, 6, beam_size=beams)
        assert max(max(h.ids) for h in hypotheses) >= VOCAB
    assert VOCAB > seen.largest >= 4


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
