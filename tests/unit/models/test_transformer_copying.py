"""Copy heads that read taps, in the Transformer: what is tapped, what search carries, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from laconic.config.names import MODELS, OBJECTIVES, build
from laconic.config.schema import SearchConfig
from laconic.decoding import decode
from laconic.errors import ConfigError
from laconic.layers.copying.correlational import CorrelationalHead
from laconic.layers.transformer import TransformerEncoder, head_attention, mean_attention
from laconic.models.transformer import Transformer
from laconic.objectives.attention import guidance_divergence
from laconic.papers import coconet
from laconic.search.state import select
from laconic.types import Batch, ModelOutput, TrainingBatch, UpdateContext
from samples import BOS, EOS, PAD, UNK, VOCAB, random_batch, randomise

TINY = {"encoder_layers": 2, "decoder_layers": 2, "hidden_size": 16, "num_heads": 2, "feed_forward_size": 24}
IDS = {"pad_id": PAD, "unk_id": UNK, "bos_id": BOS, "eos_id": EOS}
EXACT = {"atol": 1e-11, "rtol": 0}
HEADS: list[dict[str, Any]] = [
    {"type": "attentional"},
    {"type": "guided"},
    {"type": "correlational"},
    {"type": "correlational", "positional_step": "banded", "exclude_special_from_copy": True},
    {"type": "correlational", "preset": "release"},
]
every_head = pytest.mark.parametrize("head", HEADS, ids=str)


def first_weights(head: dict[str, Any], **options: Any) -> Transformer:
    torch.manual_seed(0)
    spec = {"type": "transformer", **TINY, "dropout": 0.0, "head": head, **options}
    return build("model", MODELS, spec, vocab_size=VOCAB, **IDS)


def tiny(head: dict[str, Any], **options: Any) -> Transformer:
    model = first_weights(head, **options).double().eval()
    randomise(model, scale=0.5)
    return model


def with_long_memory(model: Transformer) -> Transformer:
    """Narrow p, most of it copied, most of that by the history: then it matters whose history a beam has."""
    head = model.head
    assert isinstance(head, CorrelationalHead)
    with torch.no_grad():
        for layer, bias in ((head.spread, -4.0), (head.generation, -2.0), (head.attention_gate, -2.0)):
            layer.weight.mul_(0.05)
            layer.bias.fill_(bias)
        head.semantic_gate.weight.mul_(0.05)
        head.semantic_gate.bias.fill_(-3.0)
        projection = model.decoder.layers[-1].cross_attention.in_proj
        projection.weight[: model.config.hidden_size] *= 3
    return model


# ------------------------------------------------------------------------------------------------- taps


@torch.no_grad()
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_encoder_gives_what_its_last_layer_attended_by(norm: str) -> None:
    model, batch = tiny({"type": "attentional"}, norm=norm), random_batch()
    seen: list[Any] = []
    layer = model.encoder.layers[-1]
    original = layer.captured

    def spy(x: torch.Tensor, *rest: Any) -> Any:
        seen.append(x)
        return original(x, *rest)

    layer.captured = spy
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


@torch.no_grad()
@every_head
def test_steps_are_rows_of_the_forced_pass(head: dict[str, Any]) -> None:
    model, batch = tiny(head), random_batch()
    expected, state = model(batch), model.start(model.encode(batch))
    for t in range(batch.target_ids.shape[1]):
        output, state = model.step(batch.target_input_ids[:, t], state)
        real = batch.target_mask[:, t]
        found = output.log_probs.gather(1, batch.target_ids[:, t : t + 1])[:, 0]
        torch.testing.assert_close(found[real], expected.gold_log_probs[real, t], **EXACT)
        torch.testing.assert_close(output.attention[real], expected.attention[real, t], **EXACT)
        for name in ("p_gen", "copy_semantic_gate", "copy_attention_gate"):
            assert (name in output.details) == (name in expected.details)
            if name in output.details:
                torch.testing.assert_close(output.details[name][real], expected.details[name][real, t], **EXACT)
    names = {"p_gen", "copy_probs", "p_final"}
    if head["type"] == "correlational":
        names |= {"copy_semantic_gate", "copy_attention_gate", "copy_correlational"}
    assert set(output.details) == names
    assert all(len(value) == len(output.log_probs) for value in output.details.values())


@torch.no_grad()
@every_head
def test_free_running_carries_the_head(head: dict[str, Any]) -> None:
    """A model that reads its own words ends where a forced pass over these words ends."""
    model, batch = with_long_memory(tiny(head)) if head["type"] == "correlational" else tiny(head), random_batch()
    reads_gold = torch.rand(batch.target_mask.shape, generator=torch.Generator().manual_seed(1)) < 0.5
    found = model(batch, context=UpdateContext(forced_mask=reads_gold))
    ids, state = batch.target_input_ids.clone(), model.start(model.encode(batch))
    for t in range(ids.shape[1]):
        output, state = model.step(ids[:, t], state)
        if t + 1 < ids.shape[1]:
            own = output.log_probs.argmax(-1)
            ids[:, t + 1] = torch.where(reads_gold[:, t + 1], ids[:, t + 1], own)
    expected = model(replace(batch, target_input_ids=ids))
    torch.testing.assert_close(found.gold_log_probs, expected.gold_log_probs, **EXACT)


def scored_again(model: Transformer, batch: Batch) -> list[tuple[float, float]]:
    """Every hypothesis of a beam of four: its log-probability in search, and in a forced pass."""
    config = SearchConfig(beam_size=4, max_length=8, min_length=4, length_normalisation="none", num_return=4)
    pairs = []
    for b, hypotheses in enumerate(decode(model, batch, config, **IDS)):
        for found in hypotheses:
            gold = torch.tensor([[*found.ids, EOS]]) if found.finished else torch.tensor([found.ids])
            inputs = torch.cat([torch.tensor([[BOS]]), gold[:, :-1]], dim=1)
            one = TrainingBatch(
                batch.source_ids[b : b + 1],
                batch.source_extended_ids[b : b + 1],
                batch.source_mask[b : b + 1],
                batch.extended_vocab_size,
                target_input_ids=inputs.masked_fill(inputs >= VOCAB, UNK),
                target_ids=gold,
                target_mask=torch.ones_like(gold).bool(),
            )
            with torch.no_grad():
                pairs.append((found.log_prob, float(model(one).gold_log_probs.sum())))
    return pairs


def test_the_history_moves_with_the_beams() -> None:
    """Every hypothesis is worth in search what a forced pass says; left where it is (point 24), it is not."""
    batch = random_batch((9, 7, 8), (3, 3, 3), seed=3)
    model = with_long_memory(tiny({"type": "correlational"}))
    pairs = scored_again(model, batch)
    assert len(pairs) >= 9
    assert max(abs(one - two) for one, two in pairs) < 1e-9
    wrong = with_long_memory(tiny({"type": "correlational", "release_bugs": True}))
    wrong.load_state_dict(model.state_dict())
    assert max(abs(one - two) for one, two in scored_again(wrong, batch)) > 1e-4


@torch.no_grad()
@every_head
def test_the_first_step_may_stand_for_all_beams(head: dict[str, Any]) -> None:
    model, batch = tiny(head), random_batch()
    state, every = model.start(model.encode(batch)), torch.arange(3).repeat_interleave(3)
    expected, one = model.step(torch.full((3,), BOS), state)
    found, own = model.step(torch.full((9,), BOS), select(state, every))
    torch.testing.assert_close(found.log_probs, expected.log_probs[every], **EXACT)
    words = torch.tensor([5, 6, 7, 8, VOCAB, 10, 11, UNK, 4])
    expected, _ = model.step(words, select(one, every))
    found, _ = model.step(words, own)
    torch.testing.assert_close(found.log_probs, expected.log_probs, **EXACT)
    torch.testing.assert_close(found.details, expected.details, **EXACT)


@torch.no_grad()
@every_head
def test_padding_and_its_side_do_not_matter(head: dict[str, Any]) -> None:
    """(vi): neither what padding holds nor where it is."""
    model, batch = tiny(head), random_batch(extra_source=3)
    expected = model(batch).gold_log_probs
    turn = torch.stack([torch.arange(10).roll(10 - int(n)) for n in batch.source_mask.sum(1)])
    names = ("source_ids", "source_extended_ids", "source_mask")
    turned = replace(batch, **{name: getattr(batch, name).gather(1, turn) for name in names})
    torch.testing.assert_close(model(turned).gold_log_probs, expected, **EXACT)
    gold = random_batch(extra_source=3, padding="gold")
    torch.testing.assert_close(model(gold).gold_log_probs, expected, **EXACT)


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


@pytest.mark.parametrize("over", ["mean", "max"])
def test_guidance(over: str) -> None:
    """KL(mean_t alpha_t || c) of each document by loops; no step and no token of padding takes part."""
    model, batch = tiny({"type": "guided"}), random_batch()
    output = model(batch)
    attention, c = output.attention.detach(), output.details["centrality"].detach()
    expected = []
    for b in range(3):
        steps, tokens, total = int(batch.target_mask[b].sum()), int(batch.source_mask[b].sum()), 0.0
        for i in range(tokens):
            values = [attention[b, t, i] for t in range(steps)]
            a = sum(values) / steps if over == "mean" else max(values)
            total += float(a * torch.log(a / c[b, i].clamp(1e-9, 1 - 1e-9)))
        expected.append(total)
    found = guidance_divergence(attention, c, batch.target_mask, batch.source_mask, over)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), **EXACT)
    objective = build("objective", OBJECTIVES, {"type": "guidance", "over": over})
    term = objective(output, batch)
    assert float(term.sum) == pytest.approx(sum(expected), abs=1e-11)
    assert (float(term.count), term.weight) == (float(batch.target_mask.sum()), 1.0)
    by_document = build("objective", OBJECTIVES, {"type": "guidance", "reduction": "sentence"})(output, batch)
    assert float(by_document.count) == 3
    term.sum.backward()
    encoder = model.encoder.layers[-1].self_attention.in_proj.weight.grad
    decoder = model.decoder.layers[-1].cross_attention.in_proj.weight.grad
    assert encoder.ne(0).any()
    assert decoder.ne(0).any()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_guidance_needs_a_centrality() -> None:
    objective, batch = build("objective", OBJECTIVES, {"type": "guidance"}), random_batch()
    with pytest.raises(ConfigError, match="type: guided"):
        objective(ModelOutput(torch.zeros(3, 5)), batch)
