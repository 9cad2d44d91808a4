"""The recurrent model: fast path against slow path, gradients in every kind of pass, memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from catchline.kernels import attention, dispatch, vocabulary
from catchline.layers.recurrent import Recurrence
from catchline.models.seq2seq import Seq2Seq
from catchline.types import PLAIN_PASS, UpdateContext
from samples import (
    ATTENTION,
    COVERAGE,
    PLAIN,
    SEE,
    assert_same,
    backward,
    gradients,
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


@pytest.mark.parametrize("name", [name for name, (_, fused) in PATHS.items() if fused])
def test_fused_equals_the_step_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and all gradients to 1e-12, and the loop really ran."""
    model, batch = tiny_seq2seq(**PATHS[name][0]), random_batch(extra_target=1)
    output, grads = backward(model, batch)
    calls = Calls(monkeypatch, model)
    monkeypatch.setattr(Seq2Seq, "_can_fuse", False)
    looped, looped_grads = backward(model, batch)
    assert (calls.fused, calls.steps) == (0, batch.target_ids.shape[1])
    torch.testing.assert_close(looped.gold_log_probs, output.gold_log_probs, atol=1e-12, rtol=0)
    if output.attention is not None:
        torch.testing.assert_close(looped.attention, output.attention, atol=1e-12, rtol=0)
    if output.coverage_losses is not None:
        torch.testing.assert_close(looped.coverage_losses, output.coverage_losses, atol=1e-12, rtol=0)
    assert_same(looped_grads, grads, 1e-12)


# ------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("name", ["bilstm", "coverage", "see"])
def test_bf16_autocast_is_close_to_float32(name: str) -> None:
    model, batch = tiny_seq2seq(scale=0.3, **PATHS[name][0]).float(), random_batch((40, 30), (12, 9))
    output, grads = backward(model, batch)
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        low = model(batch)
    assert low.gold_log_probs.dtype == torch.float32
    total(low).backward()
    for n, gradient in gradients(model).items():
        assert float((gradient - grads[n]).norm()) <= 0.03 * max(float(grads[n].norm()), 1e-2), n
    torch.testing.assert_close(low.gold_log_probs, output.gold_log_probs, atol=0.03, rtol=0)
    if name == "coverage":  # attention and coverage are in float32; the encoder they read was in half precision
        torch.testing.assert_close(low.attention, output.attention, atol=1e-5, rtol=0)


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
