"""Copy heads that read taps, in the Transformer: what is tapped, what search carries, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from laconic.config.names import MODELS, OBJECTIVES, build
from laconic.errors import ConfigError
from laconic.layers.transformer import TransformerEncoder, head_attention, mean_attention
from laconic.models.transformer import Transformer
from laconic.papers import coconet
from laconic.types import ModelOutput
from samples import BOS, EOS, IDS, PAD, VOCAB, random_batch, randomise

TINY = {"encoder_layers": 2, "decoder_layers": 2, "hidden_size": 16, "num_heads": 2, "feed_forward_size": 24}
EXACT = {"atol": 1e-11, "rtol": 0}
HEADS: list[dict[str, Any]] = [
    {"type": "attentional"},
    {"type": "guided"},
    {"type": "correlational"},
    {"type": "correlational", "positional_step": "banded", "exclude_special_from_copy": True},
    {"type": "correlational", "preset": "release"},
]


def first_weights(head: dict[str, Any], **options: Any) -> Transformer:
    torch.manual_seed(0)
    spec = {"type": "transformer", **TINY, "dropout": 0.0, "head": head, **options}
    return build("model", MODELS, spec, vocab_size=VOCAB, **IDS)


def tiny(head: dict[str, Any], **options: Any) -> Transformer:
    model = first_weights(head, **options).double().eval()
    randomise(model, scale=0.5)
    return model


# ------------------------------------------------------------------------------------------------- taps


@torch.no_grad()
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_encoder_gives_what_its_last_layer_attended_by(norm: str) -> None:
    model, batch = tiny({"type": "attentional"}, norm=norm), random_batch()
    seen: list[Any] = []
    layer = model.encoder.layers[-1]
    original = layer.forward

    def spy(x: torch.Tensor, *rest: Any) -> Any:
        seen.append(x)
        return original(x, *rest)

    layer.forward = spy
    memory = model.encode(batch)
    entering = layer.after_self_attention.entering(seen[0])
    queries, keys, _ = layer.self_attention.in_proj(entering).unflatten(-1, (3, 2, 8)).unbind(2)
    torch.testing.assert_close(memory.extra["captured"], (queries, keys), **EXACT)
    assert isinstance(model.encoder, TransformerEncoder)
    weights = coconet.mean_attention(queries, keys, batch.source_mask) * batch.source_mask.unsqueeze(-1)
    for h in range(2):
        weights = weights - head_attention(queries[:, :, h], keys[:, :, h], batch.source_mask) / 2
    assert weights[batch.source_mask].abs().max() < 1e-12
    assert "captured" not in tiny({"type": "pointer"}).encode(batch).extra


@torch.no_grad()
def test_the_head_reads_the_layer_asked_for() -> None:
    batch = random_batch()
    for number in (0, -1):
        model, taps = tiny({"type": "correlational"}, attention_layer=number), []
        original = model.decoder.forward
        model.decoder.forward = lambda *a, _o=original, _t=taps, **k: (_t.append(r := _o(*a, **k)), r)[1]
        output = model(batch)
        torch.testing.assert_close(output.attention, mean_attention(taps[0][1][number]), **EXACT)


# ------------------------------------------------------------------------------------- training, decoding


def test_equal_seeds_give_equal_bases() -> None:
    plain = first_weights({"type": "vocabulary"}).state_dict()
    rest = torch.rand(2)
    for head in HEADS:
        model = first_weights(head)
        assert torch.equal(torch.rand(2), rest)
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in plain.items())


# ----------------------------------------------------------------------------------------------- refusals


def test_special_ids_come_from_the_model() -> None:
    model = first_weights({"type": "attentional"})
    assert model.head.config.special_ids == (PAD, BOS, EOS)
    own = first_weights({"type": "attentional", "special_ids": [7]})
    assert own.head.config.special_ids == (7,)


@pytest.mark.parametrize("kind", ["seq2seq", "distraction"])
def test_recurrent_models_have_no_taps(kind: str) -> None:
    attention = {"type": "additive", "size": 4}
    with pytest.raises(ConfigError, match="transformer or bart"):
        build("model", MODELS, {"type": kind, "attention": attention, "head": {"type": "guided"}}, vocab_size=9, **IDS)


# ----------------------------------------------------------------------------------------------- guidance


def test_guidance_needs_a_centrality() -> None:
    objective, batch = build("objective", OBJECTIVES, {"type": "guidance"}), random_batch()
    with pytest.raises(ConfigError, match="type: guided"):
        objective(ModelOutput(torch.zeros(3, 5)), batch)
